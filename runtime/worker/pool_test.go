//go:build unix

package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/httptask"
	"nf/systemtasks/outbound"
)

func call(ref, definition string, input map[string]schema.Value) *schema.Task {
	if input == nil {
		input = map[string]schema.Value{"uri": "http://example.test/"}
	}
	return &schema.Task{Ref: ref, Type: schema.TypeHTTP, Definition: definition, InputParameters: input}
}

func target(name string) *schema.Target {
	return &schema.Target{
		Metadata: schema.Metadata{Name: name, Namespace: enginetest.Namespace}, DefaultTimeout: 30_000,
		HTTP: &schema.HTTPTarget{BaseURI: "http://" + name + ".test", MaxRedirects: 3, MaxResponseBytes: 5 << 20},
	}
}

// gauge counts calls under way.
type gauge struct{ now, most, total atomic.Int64 }

func (g *gauge) in() {
	g.total.Add(1)
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}

func (g *gauge) out() { g.now.Add(-1) }

func TestPoolRunsATaskWithItsInputAndKey(t *testing.T) {
	t.Parallel()
	got := make(chan systemtasks.Call, 1)
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(func(_ context.Context, c systemtasks.Call) systemtasks.Outcome {
		got <- c
		return systemtasks.Completed{Output: map[string]any{"status": "fine"}}
	})}}, target("bank"), enginetest.Workflow("pay", call("charge", "", map[string]schema.Value{
		"target": "bank", "path": "/x", "body": map[string]schema.Value{"amount": "${workflow.input.amount}"},
	})))
	id := s.Start("pay", `{"amount": 12345678901234567890}`)
	x := s.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	c := <-got
	require.Equal(t, "default/"+id.Exec.String()+"/charge/0", c.IdempotencyKey)
	require.Equal(t, 1, c.Attempt)
	require.Equal(t, "bank", c.Target.Metadata.Name)
	require.Equal(t, "12345678901234567890", fmt.Sprint(c.Input["body"].(map[string]any)["amount"]))
	require.JSONEq(t, `{"status":"fine"}`, string(enginetest.Task(t, x, "charge").Output))
}

func TestFC_086_SystemTasksObeyTheCap(t *testing.T) {
	t.Parallel()
	var g gauge
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(func(ctx context.Context, c systemtasks.Call) systemtasks.Outcome {
		g.in()
		defer g.out()
		hold(5 * time.Millisecond)
		return workertest.Done(ctx, c)
	})}}, enginetest.Definition("slow", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit = 1 }), enginetest.Workflow("w", call("a", "slow", nil)))
	var ids []execution.ID
	for range 5 {
		ids = append(ids, s.Start("w", ""))
	}
	for _, id := range ids {
		require.Equal(t, "COMPLETED", s.Await(id).Status)
	}
	require.Equal(t, int64(1), g.most.Load())
	require.Equal(t, int64(5), g.total.Load())
}

// hold keeps a call busy for a while: what is tested is the time that work takes.
func hold(d time.Duration) { <-time.NewTimer(d).C }

// A slow target never takes the places that others need: with one place a queue and ten in all, ten targets that never answer hold all of them, and
// the next free place goes to the queue that has none although others have waited longer.
func TestBulkheadGivesTheNextFreePlaceToAQueueThatHasNone(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	entered := make(chan string, 100)
	objects := []schema.Object{target("fast"), enginetest.Workflow("fast", call("a", "", map[string]schema.Value{"target": "fast"}))}
	for i := range 10 {
		name := fmt.Sprintf("slow%d", i)
		objects = append(objects, target(name), enginetest.Workflow(name, call("a", "", map[string]schema.Value{"target": name})))
	}
	s := workertest.New(t, workertest.Options{Executors: 1, Tasks: []systemtasks.Task{workertest.HTTP(
		func(ctx context.Context, c systemtasks.Call) systemtasks.Outcome {
			entered <- c.Target.Metadata.Name
			if c.Target.Metadata.Name == "fast" {
				return workertest.Done(ctx, c)
			}
			select {
			case <-release:
				return workertest.Done(ctx, c)
			case <-ctx.Done():
				return systemtasks.Released{Sent: true}
			}
		})}}, objects...)
	for i := range 10 {
		for range 3 {
			s.Start(fmt.Sprintf("slow%d", i), "")
		}
	}
	for range 10 {
		require.Contains(t, <-entered, "slow")
	}
	require.Equal(t, 10, s.Pool.Busy(), "never more than ten times the places of a queue")
	fast := s.Start("fast", "")
	require.Eventually(t, func() bool { return s.Get(fast).Open() && len(entered) == 0 }, 30*time.Second, 10*time.Millisecond)
	release <- struct{}{} // one slow call answers
	require.Equal(t, "fast", <-entered)
	require.Equal(t, "COMPLETED", s.Await(fast).Status)
	close(release)
}

func TestBulkheadOneSlowTargetDoesNotHoldOthersUp(t *testing.T) {
	t.Parallel()
	var slow gauge
	stop := make(chan struct{})
	s := workertest.New(t, workertest.Options{Executors: 3, Tasks: []systemtasks.Task{workertest.HTTP(
		func(ctx context.Context, c systemtasks.Call) systemtasks.Outcome {
			if c.Target.Metadata.Name == "slow" {
				slow.in()
				defer slow.out()
				select {
				case <-stop:
				case <-ctx.Done():
				}
			}
			return workertest.Done(ctx, c)
		})}}, target("slow"), target("fast"),
		enginetest.Workflow("slow", call("a", "", map[string]schema.Value{"target": "slow"})),
		enginetest.Workflow("fast", call("a", "", map[string]schema.Value{"target": "fast"}), call("b", "", map[string]schema.Value{"target": "fast"})))
	var all []execution.ID
	for range 30 {
		all = append(all, s.Start("slow", ""))
	}
	for range 10 {
		require.Equal(t, "COMPLETED", s.Await(s.Start("fast", "")).Status)
	}
	require.Equal(t, int64(3), slow.most.Load(), "calls at once of one queue")
	close(stop)
	for _, id := range all {
		require.Equal(t, "COMPLETED", s.Await(id).Status)
	}
	require.LessOrEqual(t, slow.most.Load(), int64(3))
}

func TestPanicAndGoexitFailTheAttemptAndTheProcessLives(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(func(ctx context.Context, c systemtasks.Call) systemtasks.Outcome {
		switch n.Add(1) {
		case 1:
			panic("no")
		case 2:
			runtime.Goexit()
		case 3:
			return nil
		}
		return workertest.Done(ctx, c)
	})}}, enginetest.Definition("d", func(d *schema.TaskDefinition) { d.Retry.Delay, d.RetryBudget = 0, 1 }), enginetest.Workflow("w", call("a", "d", nil)))
	x := s.Await(s.Start("w", ""))
	require.Equal(t, "COMPLETED", x.Status)
	attempts := enginetest.Attempts(x, "a")
	require.Len(t, attempts, 4)
	require.Contains(t, attempts[0].Reason, "panicked")
	require.Contains(t, attempts[1].Reason, "gave no outcome")
	require.Contains(t, attempts[2].Reason, "gave no outcome")
}

func TestTerminateCancelsTheCallAndDropsItsResult(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(func(ctx context.Context, _ systemtasks.Call) systemtasks.Outcome {
		close(began)
		<-ctx.Done()
		close(ended)
		return systemtasks.Completed{Output: map[string]any{"late": true}}
	})}}, enginetest.Workflow("w", call("a", "", nil)))
	id := s.Start("w", "")
	<-began
	_, err := s.Engine.Terminate(t.Context(), id, "enough", "ann")
	require.NoError(t, err)
	<-ended
	x := s.Await(id)
	require.Equal(t, "TERMINATED", x.Status)
	require.Equal(t, "CANCELED", enginetest.Task(t, x, "a").Status)
}

func TestShutdownGivesBackWhatWasNotFinished(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 10)
	blocked := workertest.HTTP(func(ctx context.Context, _ systemtasks.Call) systemtasks.Outcome {
		began <- struct{}{}
		<-ctx.Done()
		return systemtasks.Released{Sent: true}
	})
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{blocked}, Drain: time.Millisecond},
		enginetest.Definition("once", func(d *schema.TaskDefinition) { d.Delivery = schema.AtMostOnce }),
		enginetest.Definition("twice"), enginetest.Workflow("once", call("a", "once", nil)), enginetest.Workflow("twice", call("a", "twice", nil)))
	once, twice := s.Start("once", ""), s.Start("twice", "")
	<-began
	<-began
	s.Shutdown()
	other := s.Beside(workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}})
	x := other.Await(twice)
	require.Equal(t, "COMPLETED", x.Status)
	require.Len(t, enginetest.Attempts(x, "a"), 1, "the same attempt")
	require.Equal(t, int32(1), enginetest.Task(t, x, "a").Deliveries, "a release is no delivery")
	x = other.Await(once)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseOutcomeUnknown, enginetest.Task(t, x, "a").Cause)
}

// A call that lasts three times the runner's lease is made once: beats keep the lease, whoever sweeps. The clocks are moved; the
// soak does the same in real time.
func TestBG_76_LongCallIsMadeOnce(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	answer := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		<-answer
		_, _ = w.Write([]byte("ok"))
	}))
	defer server.Close()
	client, err := outbound.New(outbound.Options{Now: time.Now, AllowLoopback: true})
	require.NoError(t, err)
	clock := &workertest.Clock{}
	httpTask, err := httptask.New(httptask.Options{Client: client})
	require.NoError(t, err)
	opt := workertest.Options{Tasks: []systemtasks.Task{httpTask}, NoSweep: true, NoBeat: true, Clock: clock}
	s := workertest.New(t, opt, enginetest.Workflow("w", call("a", "", map[string]schema.Value{"uri": server.URL, "timeoutMs": 600000})))
	other := s.Beside(opt)
	id := s.Start("w", "")
	require.Eventually(t, func() bool { return hits.Load() == 1 }, 30*time.Second, 5*time.Millisecond)
	for range 3 * int(store.RunnerLease/(5*time.Second)) {
		clock.Advance(5 * time.Second)
		require.NoError(t, s.Runner.Beat(t.Context()))
		require.NoError(t, other.Runner.Beat(t.Context()))
		require.NoError(t, s.Sweeper.Pass(t.Context()))
		require.NoError(t, other.Sweeper.Pass(t.Context()))
	}
	close(answer)
	x := s.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.Equal(t, int64(1), hits.Load())
	require.Equal(t, int32(1), enginetest.Task(t, x, "a").Deliveries)
}
