//go:build unix

package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

var errInjected = errors.New("injected")

// boundary is a place between two statements of a sweep.
type boundary struct{ tx, statement string }

// snare sits at every boundary of one process while it sweeps, and springs at those it is set for, once each.
type snare struct {
	mu     sync.Mutex
	armed  bool // the process is in a sweep
	seen   []boundary
	set    func(b boundary) bool // nil: nowhere
	spring func(b boundary) error
	sprung []boundary
}

// others are transactions of loops that run beside the sweeps.
var others = []string{"clock", "find-marks", "notify"}

func (n *snare) hit(tx, statement string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := boundary{tx, statement}
	if !n.armed || slices.Contains(others, tx) {
		return nil
	}
	if !slices.Contains(n.seen, b) {
		n.seen = append(n.seen, b)
	}
	if n.set == nil || !n.set(b) || slices.Contains(n.sprung, b) {
		return nil
	}
	n.sprung = append(n.sprung, b)
	return n.spring(b)
}

// count says how often it has sprung.
func (n *snare) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sprung)
}

func (n *snare) arm(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = on
}

// fleet is a database on which everything happens that sweeps are for.
type fleet struct {
	t     *testing.T
	c     *workertest.Clock
	hands *workertest.Stack // starts, leases and reports; sweeps nothing
	began chan struct{}
	hang  workertest.Options // a runner whose calls never end
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, c: &workertest.Clock{}, began: make(chan struct{}, 1)}
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	f.hang = workertest.Options{NoSweep: true, NoBeat: true, Clock: f.c, Tasks: []systemtasks.Task{workertest.HTTP(
		func(context.Context, systemtasks.Call) systemtasks.Outcome {
			f.began <- struct{}{}
			<-forever
			return systemtasks.Released{Sent: true}
		})}}
	def := func(name string, change func(*schema.TaskDefinition)) schema.Object {
		return enginetest.Definition(name, change)
	}
	wf := func(name string) *schema.Workflow {
		return enginetest.Workflow(name, enginetest.Simple("a", name, nil))
	}
	deadline := enginetest.Workflow("deadline", enginetest.Simple("a", "idle", nil))
	deadline.Timeout = 5000
	f.hands = workertest.New(t, still(f.c),
		def("late", func(d *schema.TaskDefinition) { d.ScheduleToStartTimeout = 5000 }), wf("late"),
		def("lost", func(d *schema.TaskDefinition) { d.ResponseTimeout = 1000 }), wf("lost"),
		def("once", func(d *schema.TaskDefinition) { d.ResponseTimeout, d.Delivery = 1000, schema.AtMostOnce }), wf("once"),
		def("slow", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 1000 }), wf("slow"),
		def("again", func(d *schema.TaskDefinition) { d.RetryBudget = 1 }), wf("again"),
		def("idle", func(*schema.TaskDefinition) {}), deadline,
		enginetest.Workflow("wait", enginetest.Wait("a", "5s")),
		enginetest.Workflow("call", &schema.Task{
			Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"},
		}))
	return f
}

// process is one that sweeps when it is told to, with a snare.
func (f *fleet) process(n *snare) *workertest.Stack {
	opt := still(f.c)
	if n != nil {
		opt.Store = func(s *store.Store) { s.Abort = n.hit }
	}
	return f.hands.Beside(opt)
}

// begin brings one execution of each kind to the moment before time passes.
func (f *fleet) begin() map[string]execution.ID {
	ids := map[string]execution.ID{}
	for _, name := range []string{"late", "lost", "once", "slow", "again", "deadline", "wait", "call"} {
		ids[name] = f.hands.Start(name, "")
	}
	for _, name := range []string{"lost", "once", "slow", "again"} {
		leased := f.hands.Lease(name, 1, 0).Tasks
		require.Len(f.t, leased, 1, name)
		require.Equal(f.t, ids[name].Exec, leased[0].Exec)
		if name == "again" {
			f.hands.Report(leased[0].Leased, enginetest.Failed("no"))
		}
	}
	victim := f.hands.Beside(f.hang)
	<-f.began
	victim.Die()
	victim.Shutdown()
	victim.Store.Close()
	return ids
}

// sweepAll lets enough time pass for every kind, in the steps that matter, and sweeps after each until nothing fails. A process that has died is followed by
// another.
func (f *fleet) sweepAll(ctx context.Context, p *workertest.Stack, n *snare) {
	for _, d := range []time.Duration{6 * time.Second, store.RunnerLease, 25 * time.Second, time.Second} {
		f.c.Advance(d)
		for again := 2; again > 0; again-- {
			require.NoError(f.t, f.hands.Runner.Beat(f.t.Context()))
			before := n.count()
			err := p.Runner.Beat(f.t.Context())
			n.arm(true)
			for _, do := range []func(context.Context) error{p.Sweeper.Pass, p.Sweeper.Chores} {
				if err == nil {
					err = do(ctx)
				}
			}
			n.arm(false)
			if n.count() > before {
				again = 3
			} else {
				require.NoError(f.t, err, "an error of its own")
			}
			if p.Dead() {
				p, ctx = f.process(nil), f.t.Context()
			}
		}
	}
	p.Shutdown()
	p.Store.Close()
}

// end does what workers do after the sweeps, and holds every execution against what must have come of it.
func (f *fleet) end(ids map[string]execution.ID, why string) {
	for name, attempt := range map[string]int32{"lost": 1, "again": 2} {
		leased := f.hands.Lease(name, 10, 0).Tasks
		require.Len(f.t, leased, 1, "%s after %s", name, why)
		require.Equal(f.t, attempt, leased[0].Attempt.Attempt, "%s after %s", name, why)
		f.hands.Report(leased[0].Leased, enginetest.Completed(""))
	}
	call := ids["call"]
	require.Equal(f.t, 1, count(f.t, f.hands, fmt.Sprintf(`SELECT count(*) FROM nf_ready WHERE ns = %d AND exec_id = '%s' AND deliveries = 1`, call.NS, call.Exec)),
		"the call of a dead runner waits for its second delivery, after %s", why)
	_, err := f.hands.Engine.Terminate(f.t.Context(), call, "checked", "ann")
	require.NoError(f.t, err)
	want := map[string]struct{ status, cause string }{
		"late": {"TIMED_OUT", string(execution.CauseScheduleToStart)}, "lost": {"COMPLETED", ""}, "once": {"FAILED", string(execution.CauseOutcomeUnknown)},
		"slow": {"TIMED_OUT", string(execution.CauseStartToClose)}, "again": {"COMPLETED", ""}, "wait": {"COMPLETED", ""},
		"deadline": {"TIMED_OUT", ""},
	}
	for name, w := range want {
		x := f.hands.Await(ids[name])
		require.Equal(f.t, w.status, x.Status, "%s after %s", name, why)
		if w.cause != "" {
			require.Equal(f.t, w.cause, string(enginetest.Task(f.t, x, "a").Cause), "%s after %s", name, why)
		}
	}
}

// boundaries gives every statement boundary of every transaction that sweeps make.
func (f *fleet) boundaries() []boundary {
	look := &snare{}
	ids := f.begin()
	f.sweepAll(f.t.Context(), f.process(look), look)
	f.end(ids, "nothing")
	f.t.Logf("%d boundaries: %v", len(look.seen), look.seen)
	for _, tx := range []string{"timers_move", "complete", "reclaim", "runner_dead", "runner_clear", "duty", "make-days", "retire_runners"} {
		require.True(f.t, slices.ContainsFunc(look.seen, func(b boundary) bool { return b.tx == tx }), "no sweep made %s", tx)
	}
	return look.seen
}

// dies lets a process die at a boundary.
func (f *fleet) dies(at boundary) {
	n := &snare{set: func(b boundary) bool { return b == at }}
	p := f.process(n)
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	n.spring = func(boundary) error {
		p.Die()
		cancel()
		return enginetest.ErrDead
	}
	ids := f.begin()
	f.sweepAll(ctx, p, n)
	require.Equal(f.t, 1, n.count(), "%v was not reached", at)
	f.end(ids, fmt.Sprintf("a death at %v", at))
	p.Shutdown()
	p.Store.Close()
}

// At every statement boundary of every transaction of a sweep something goes wrong once, and the process lives: the statement fails, or the answer to COMMIT is
// lost, before or after the commit. Whatever happens, each thing that was due happens, once. A death is tried at a few; the soak tries it at each.
func TestBG_128_FC_094_SweepFailsAtEveryStatementBoundary(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	all := f.boundaries()
	n := &snare{set: func(boundary) bool { return true }, spring: func(b boundary) error {
		if b.statement == "commit" || b.statement == "committed" {
			return &store.CommitUnknownError{Tx: b.tx, Err: errInjected}
		}
		return errInjected
	}}
	ids := f.begin()
	f.sweepAll(f.t.Context(), f.process(n), n)
	f.end(ids, "a failure at each")
	require.GreaterOrEqual(t, n.count(), len(all)*3/4, "boundaries that were reached again")
	for i := 5; i < len(all); i += 25 {
		f.dies(all[i])
	}
}
