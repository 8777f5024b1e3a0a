//go:build unix

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// executor takes next work at once, as the runner's own pool does, and ends each attempt with run.
type executor struct {
	slots  atomic.Int64
	holder int32
	out    atomic.Int64 // seats that are out
	got    chan engine.Leased
	kinds  func(execution.QueueKey) bool
	done   atomic.Int64 // accepted reports of work
	ended  chan struct{}
}

func newExecutor(slots int64) *executor {
	x := &executor{got: make(chan engine.Leased, 100_000), ended: make(chan struct{}, 1)}
	x.slots.Store(slots)
	return x
}

func (x *executor) Reserve(_ store.QueueAt, key execution.QueueKey, n int) []store.Seat {
	if x.kinds != nil && !x.kinds(key) {
		return nil
	}
	var seats []store.Seat
	for len(seats) < n && x.slots.Add(-1) >= 0 {
		seats = append(seats, store.Seat{Holder: x.holder, LeaseMs: 15_000, Worker: "here"})
	}
	if len(seats) < n {
		x.slots.Add(1)
	}
	x.out.Add(int64(len(seats)))
	return seats
}

func (x *executor) Deliver(_ store.Seat, l engine.Leased) {
	x.out.Add(-1)
	x.got <- l
}

func (x *executor) Return(store.QueueAt, store.Seat) {
	x.out.Add(-1)
	x.slots.Add(1)
}

// work ends what comes with a batch of reports, until ctx ends.
func (x *executor) work(ctx context.Context, e *engine.Engine, output []byte) {
	for {
		var ends []engine.End
		select {
		case <-ctx.Done():
			return
		case l := <-x.got:
			ends = append(ends, enginetest.EndOf(l.Leased, engine.Report{Status: execution.Completed, Output: output}))
		}
		for len(ends) < 100 && len(x.got) > 0 {
			ends = append(ends, enginetest.EndOf((<-x.got).Leased, engine.Report{Status: execution.Completed, Output: output}))
		}
		x.slots.Add(int64(len(ends)))
		for _, r := range e.Record(ctx, ends) {
			if r.Answer == engine.Accepted {
				x.done.Add(1)
			}
		}
		select {
		case x.ended <- struct{}{}:
		default:
		}
	}
}

func httpTask(ref string) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeHTTP, InputParameters: params{"uri": "http://localhost/", "k": "${workflow.input.k}"}}
}

func threeCalls() *schema.Workflow {
	return enginetest.Workflow("three", httpTask("a"), httpTask("b"), httpTask("c"))
}

func eagerWorld(t testing.TB, x *executor, objects ...schema.Object) *enginetest.World {
	t.Helper()
	return enginetest.With(t, enginetest.Options{Engine: func(o *engine.Options) { o.Eager = []engine.Eager{x} }}, objects...)
}

func TestNextWorkIsLeasedInTheTransactionThatMakesIt(t *testing.T) {
	t.Parallel()
	x := newExecutor(2)
	w := eagerWorld(t, x, threeCalls())
	id := w.Start("three", `{"k":"v"}`)
	for i, ref := range []string{"a", "b", "c"} {
		l := <-x.got
		require.Equal(t, id, l.ID)
		require.Equal(t, int32(1), l.Deliveries)
		require.Equal(t, "_nf.HTTP", l.Queue.Name)
		require.JSONEq(t, `{"uri":"http://localhost/","k":"v"}`, string(l.Input))
		require.Positive(t, l.Fence)
		task := enginetest.Task(t, w.Get(id), ref)
		require.Equal(t, "IN_PROGRESS", task.Status)
		require.WithinDuration(t, task.LeaseUntil, l.LeaseUntil, 0)
		x.slots.Add(1)
		w.Report(l.Leased, enginetest.Completed(fmt.Sprintf(`{"n":%d}`, i)))
	}
	require.Equal(t, "COMPLETED", w.Get(id).Status)
	require.Zero(t, x.out.Load())
	require.Equal(t, int64(2), x.slots.Load())
}

func TestNextWorkBecomesReadyWithoutASeat(t *testing.T) {
	t.Parallel()
	x := newExecutor(1)
	w := eagerWorld(t, x, enginetest.Workflow("wide",
		enginetest.Fork("f", list(httpTask("a")), list(httpTask("b")), list(httpTask("c")))...))
	id := w.Start("wide", "")
	require.Len(t, x.got, 1)
	require.Zero(t, x.out.Load())
	queue := w.Queue((<-x.got).Queue)
	require.Len(t, w.ClaimFrom(queue, 10), 2)
	require.Equal(t, "RUNNING", w.Get(id).Status)
}

// A runner that was declared dead leases nothing more: what it would have taken becomes ready, and the seat comes back.
func TestDeadRunnerLeasesNothingAtOnce(t *testing.T) {
	t.Parallel()
	x := newExecutor(1)
	x.holder = 4711 // never registered: as good as dead
	w := eagerWorld(t, x, threeCalls())
	id := w.Start("three", "")
	require.Empty(t, x.got)
	require.Zero(t, x.out.Load())
	require.Equal(t, int64(1), x.slots.Load())
	require.Equal(t, "SCHEDULED", enginetest.Task(t, w.Get(id), "a").Status)
}

// What a gate has been put on since this process looked is not leased past the gate.
func TestGatedQueueIsNotLeasedPastItsGate(t *testing.T) {
	t.Parallel()
	x := newExecutor(5)
	w := eagerWorld(t, x, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	w.Start("flow", "")
	require.Len(t, x.got, 1)
	enginetest.Declare(t, w.Store, enginetest.Definition("work", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit = 1 }))
	id := w.Start("flow", "")
	require.Len(t, x.got, 1)
	require.Zero(t, x.out.Load())
	require.Equal(t, "SCHEDULED", enginetest.Task(t, w.Get(id), "a").Status)
}

// When the answer to COMMIT is lost, the leases that were made are found by their claim and handed over; nothing is taken twice.
func TestLeasesOfATransactionWithUnknownEndAreFound(t *testing.T) {
	t.Parallel()
	for _, at := range []point{{"start", "commit"}, {"start", "committed"}, {"complete", "commit"}, {"complete", "committed"}} {
		t.Run(at.tx+" "+at.statement, func(t *testing.T) {
			t.Parallel()
			x := newExecutor(2) // the seat of unknown use stays taken until it is known
			tr := &trap{at: at, how: unknown}
			w := enginetest.With(t, enginetest.Options{
				Engine: func(o *engine.Options) { o.Eager = []engine.Eager{x} },
				Store:  func(s *store.Store) { s.Abort = tr.hit },
			}, threeCalls())
			id := w.Start("three", "")
			seen := map[int64]bool{}
			for range 3 {
				l := <-x.got
				require.False(t, seen[l.Fence])
				seen[l.Fence] = true
				x.slots.Add(1)
				w.Report(l.Leased, enginetest.Completed(""))
			}
			require.True(t, tr.sprung)
			require.Equal(t, "COMPLETED", w.Await(id).Status)
			require.Zero(t, x.out.Load())
			require.Equal(t, int64(2), x.slots.Load())
			require.Empty(t, x.got)
		})
	}
}

func TestSeatsComeBackWhenATransactionFails(t *testing.T) {
	t.Parallel()
	x := newExecutor(3)
	tr := &trap{at: point{"start", "engine_eager_in"}, how: fail}
	w := enginetest.With(t, enginetest.Options{
		Engine: func(o *engine.Options) { o.Eager = []engine.Eager{x} }, Store: func(s *store.Store) { s.Abort = tr.hit },
	}, threeCalls())
	w.Start("three", "")
	require.True(t, tr.sprung)
	require.Len(t, x.got, 1)
	require.Zero(t, x.out.Load())
	require.Equal(t, int64(2), x.slots.Load())
}

func TestStoppedEngineAnswers(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	w.Start("flow", "")
	l := w.ClaimOne("work")
	w.Stop()
	require.ErrorIs(t, w.Record(enginetest.EndOf(l, enginetest.Completed(""))).Err, engine.ErrStopped)
	require.ErrorIs(t, w.TryStart(request("flow", "", "", t)).Err, engine.ErrStopped)
	_, err := w.Engine.Terminate(t.Context(), l.ID, "", "ann")
	require.ErrorIs(t, err, engine.ErrStopped)
}

func TestCallerThatLeavesIsAnswered(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	w.Start("flow", "")
	l := w.ClaimOne("work")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := w.Engine.Record(ctx, []engine.End{enginetest.EndOf(l, enginetest.Completed(""))})[0]
	require.ErrorIs(t, r.Err, context.Canceled)
	w.Report(l, enginetest.Completed(""))
}

// BenchmarkThreeSteps runs executions of three calls that a slot of this process takes at once: scheduled, leased, fenced and recorded one
// by one.
func BenchmarkThreeSteps(b *testing.B) {
	x := newExecutor(1 << 30) // nobody else takes what stays behind
	w := eagerWorld(b, x, threeCalls())
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	output := fmt.Appendf(nil, `{"status":200,"body":%q}`, make([]byte, 60))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { x.work(ctx, w.Engine, output) })
	}
	b.ResetTimer()
	requests := make([]engine.StartRequest, 0, 100)
	var last []engine.StartResult
	for i := range b.N {
		requests = append(requests, engine.StartRequest{
			Namespace: enginetest.Namespace, Workflow: "three", Input: map[string]any{"k": "some value that is not long", "n": strconv.Itoa(i)},
		})
		if len(requests) == cap(requests) || i == b.N-1 {
			last = w.Engine.Start(ctx, requests)
			requests = requests[:0]
		}
	}
	for x.done.Load() < int64(3*b.N) && ctx.Err() == nil {
		<-x.ended
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "workflows/s")
	if len(last) == 0 || last[0].Err != nil {
		b.Fatal(errors.New("a start failed"), last)
	}
	stop()
	wg.Wait()
}
