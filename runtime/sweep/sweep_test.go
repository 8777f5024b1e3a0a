//go:build unix

package sweep_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

// still is a process whose sweeps and beats the test makes itself, on clocks that it moves.
func still(c *workertest.Clock) workertest.Options {
	return workertest.Options{NoSweep: true, NoBeat: true, NoPool: true, Clock: c}
}

func pass(t testing.TB, s *workertest.Stack) {
	t.Helper()
	require.NoError(t, s.Sweeper.Pass(t.Context()))
}

func one(name string, change ...func(*schema.TaskDefinition)) []schema.Object {
	return []schema.Object{enginetest.Definition(name, change...), enginetest.Workflow("w", enginetest.Simple("a", name, nil))}
}

func TestBG_16_ScheduleToStartFiresAtItsTime(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ScheduleToStartTimeout = 300_000 })...)
	id := s.Start("w", "")
	c.Advance(4 * time.Minute)
	pass(t, s)
	require.True(t, s.Get(id).Open(), "never early")
	c.Advance(time.Minute)
	pass(t, s)
	x := s.Await(id)
	require.Equal(t, "TIMED_OUT", x.Status)
	task := enginetest.Task(t, x, "a")
	require.Equal(t, execution.CauseScheduleToStart, task.Cause)
	require.Equal(t, "scheduleToStart: no worker polled charge", task.Reason)
}

func TestScheduleToStartNamesTheGateThatHeldIt(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) {
		d.ScheduleToStartTimeout, d.ConcurrentExecLimit = 5000, 1
	})...)
	s.Start("w", "")
	id := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	require.Equal(t, "concurrentExecLimit", s.Lease("charge", 1, 0).Throttled[0].Control)
	c.Advance(5 * time.Second)
	pass(t, s)
	task := enginetest.Task(t, s.Await(id), "a")
	require.Equal(t, "scheduleToStart: gate=concurrentExecLimit", task.Reason)
	require.Equal(t, "concurrentExecLimit", task.Control)
}

func TestBG_19_StartToCloseAloneNeverFiresBeforeTheLease(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 1000 })...)
	id := s.Start("w", "")
	c.Advance(time.Hour)
	pass(t, s)
	require.True(t, s.Get(id).Open())
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	c.Advance(time.Second)
	pass(t, s)
	require.Equal(t, execution.CauseStartToClose, enginetest.Task(t, s.Await(id), "a").Cause)
}

func TestBG_28_NearestDeadlineFiresFirst(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	late := enginetest.Definition("late", func(d *schema.TaskDefinition) { d.Timeout = 60_000 })
	soon := enginetest.Definition("soon", func(d *schema.TaskDefinition) { d.Timeout = 3000 })
	tasks := enginetest.Fork("f", []*schema.Task{enginetest.Simple("a", "late", nil)}, []*schema.Task{enginetest.Simple("b", "soon", nil)})
	s := workertest.New(t, still(c), late, soon, enginetest.Workflow("w", tasks...))
	id := s.Start("w", "")
	c.Advance(3 * time.Second)
	pass(t, s)
	x := s.Await(id)
	require.Equal(t, "TIMED_OUT", x.Status)
	require.Equal(t, execution.CauseTaskTimeout, enginetest.Task(t, x, "b").Cause)
}

func TestFC_158_IdleRunTimesOutByItself(t *testing.T) {
	t.Parallel()
	s := workertest.New(t, workertest.Options{NoPool: true}, one("charge", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 300 })...)
	id := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	require.Equal(t, "TIMED_OUT", s.Await(id).Status, "nothing pokes it")
}

// Many WAITs end, all of them, though the process is restarted in between.
func TestBG_82_FC_163_EveryWaitEnds(t *testing.T) {
	t.Parallel()
	everyWaitEnds(t, 150)
}

func everyWaitEnds(t testing.TB, many int) {
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), enginetest.Workflow("w", enginetest.Wait("a", "20m")))
	var ids []execution.ID
	for range many / 50 {
		var batch []engine.StartRequest
		for range 50 {
			batch = append(batch, engine.StartRequest{Namespace: enginetest.Namespace, Workflow: "w"})
		}
		for _, r := range s.Engine.Start(t.Context(), batch) {
			require.NoError(t, r.Err)
			ids = append(ids, r.ID)
		}
	}
	s.Shutdown()
	other := s.Beside(still(c))
	c.Advance(10 * time.Minute)
	pass(t, other)
	require.True(t, other.Get(ids[0]).Open(), "never early")
	c.Advance(11 * time.Minute)
	pass(t, other)
	for _, id := range ids {
		require.Equal(t, "COMPLETED", other.Await(id).Status)
	}
}

func TestRetryComesDueAndKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.RetryBudget = 1 })...)
	id := s.Start("w", "")
	s.Report(s.Lease("charge", 1, 0).Tasks[0].Leased, enginetest.Failed("no"))
	require.Empty(t, s.Lease("charge", 1, 0).Tasks, "in back-off")
	c.Advance(time.Second)
	pass(t, s)
	task := s.Lease("charge", 1, 0).Tasks[0]
	require.Equal(t, int32(2), task.Attempt.Attempt)
	s.Report(task.Leased, enginetest.Completed(""))
	require.Equal(t, "COMPLETED", s.Await(id).Status)
}

func TestBG_121_NotOfferedBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 6_000_000 })...)
	s.Start("w", "")
	first := s.Lease("charge", 1, 0).Tasks[0]
	for range 59 {
		c.Advance(100 * time.Second)
		pass(t, s)
		require.Empty(t, s.Lease("charge", 1, 0).Tasks)
	}
	c.Advance(100 * time.Second)
	pass(t, s)
	again := s.Lease("charge", 1, 0).Tasks
	require.Len(t, again, 1)
	require.Equal(t, first.Attempt.Attempt, again[0].Attempt.Attempt, "the same attempt")
	require.Equal(t, int32(2), again[0].Deliveries)
	require.Greater(t, again[0].Fence, first.Fence)
	r := s.Record(enginetest.EndOf(first.Leased, enginetest.Completed("")))
	require.Equal(t, engine.LeaseExpired, r.Answer, "the late result is answered by its fence")
}

func TestFC_131_ReclaimedWorkComesBeforeFreshWork(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 1000 })...)
	first := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	for range 5 {
		s.Start("w", "")
	}
	c.Advance(time.Second)
	pass(t, s)
	require.Equal(t, first.Exec, s.Lease("charge", 1, 0).Tasks[0].Exec)
}

func TestFC_124_FifthLostDeliveryEndsTheAttempt(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) {
		d.ResponseTimeout, d.RetryBudget, d.Retry.RetryCount = 1000, 1, 1
	})...)
	id := s.Start("w", "")
	for delivery := 1; delivery <= 5; delivery++ {
		tasks := s.Lease("charge", 1, 0).Tasks
		require.Len(t, tasks, 1)
		require.Equal(t, int32(delivery), tasks[0].Deliveries)
		require.Equal(t, int32(1), tasks[0].Attempt.Attempt)
		c.Advance(time.Second)
		pass(t, s)
	}
	require.Empty(t, s.Lease("charge", 1, 0).Tasks, "no sixth delivery")
	first := enginetest.Attempts(s.Get(id), "a")[0]
	require.Equal(t, "FAILED", first.Status)
	require.Equal(t, execution.CauseDeliveriesExhausted, first.Cause)
	c.Advance(time.Second)
	pass(t, s) // the retry policy decides: attempt 2
	task := s.Lease("charge", 1, 0).Tasks[0]
	require.Equal(t, int32(2), task.Attempt.Attempt)
	require.Equal(t, int32(1), task.Deliveries)
}

func TestLostWorkUnderAtMostOnceIsNeverRepeated(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) {
		d.ResponseTimeout, d.Delivery = 1000, schema.AtMostOnce
	})...)
	id := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	c.Advance(time.Second)
	pass(t, s)
	x := s.Await(id)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseOutcomeUnknown, enginetest.Task(t, x, "a").Cause)
	require.Len(t, enginetest.Attempts(x, "a"), 1)
}

func TestTimeoutDueTogetherWithALossWins(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout, d.StartToCloseTimeout = 1000, 1000 })...)
	id := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	c.Advance(5 * time.Second)
	pass(t, s)
	require.Equal(t, execution.CauseStartToClose, enginetest.Task(t, s.Await(id), "a").Cause)
}

func TestBeatenLeaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 300_000 })...)
	s.Start("w", "")
	task := s.Lease("charge", 1, 0).Tasks[0]
	for range 10 {
		c.Advance(200 * time.Second)
		ends, err := s.Store.Beats(t.Context(), []store.Beat{{LeaseKey: task.Key(), LeaseMs: 300_000}})
		require.NoError(t, err)
		require.False(t, ends[0].IsZero())
		pass(t, s)
	}
	require.Empty(t, s.Lease("charge", 1, 0).Tasks)
	s.Report(task.Leased, enginetest.Completed(""))
}

// Whatever ends a lease frees its place: terminate, time-out, lost worker, failure, exhausted deliveries.
func TestBG_32_FC_095_PlaceIsFreeHoweverTheLeaseEnds(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), append(one("charge", func(d *schema.TaskDefinition) {
		d.ConcurrentExecLimit, d.Semaphores = 1, []schema.Ref{{Namespace: enginetest.Namespace, Name: "erp"}}
		d.ResponseTimeout, d.StartToCloseTimeout, d.Retry.RetryCount = 60_000, 30_000, 0
	}), &schema.Semaphore{Metadata: schema.Metadata{Name: "erp", Namespace: enginetest.Namespace}, Permits: 1})...)
	ends := map[string]func(store.Leased){
		"complete": func(l store.Leased) { s.Report(l, enginetest.Completed("")) },
		"fail":     func(l store.Leased) { s.Report(l, enginetest.Failed("no")) },
		"terminate": func(l store.Leased) {
			_, err := s.Engine.Terminate(t.Context(), l.ID, "x", "ann")
			require.NoError(t, err)
		},
		"time out": func(store.Leased) {
			c.Advance(30 * time.Second)
			pass(t, s)
		},
	}
	for name, end := range ends {
		s.Start("w", "")
		tasks := s.Lease("charge", 5, 0).Tasks
		require.Len(t, tasks, 1, "after the one before %s", name)
		s.Start("w", "")
		require.Empty(t, s.Lease("charge", 5, 0).Tasks)
		end(tasks[0].Leased)
		next := s.Lease("charge", 5, 0).Tasks
		require.Len(t, next, 1, name)
		s.Report(next[0].Leased, enginetest.Completed(""))
	}
}

// A worker that dies while it holds the only place of a cap: the place is handed on, the work is repeated, and the queue drains (FC-085).
func TestFC_085_CapOfOneDrainsThoughWorkersDie(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit, d.ResponseTimeout = 1, 2000 })...)
	const many = 20
	var ids []execution.ID
	for range many {
		ids = append(ids, s.Start("w", ""))
	}
	done := 0
	for turn := 0; done < many; turn++ {
		require.Less(t, turn, 200)
		tasks := s.Lease("charge", 3, 0).Tasks
		require.LessOrEqual(t, len(tasks), 1)
		if len(tasks) == 0 {
			c.Advance(time.Second)
			pass(t, s)
			continue
		}
		if turn%3 == 0 && tasks[0].Deliveries < 3 {
			continue // this worker dies
		}
		s.Report(tasks[0].Leased, enginetest.Completed(""))
		done++
	}
	for _, id := range ids {
		require.Equal(t, "COMPLETED", s.Await(id).Status)
	}
}

// Work that nobody here knows is reclaimed all the same, at once when its runner is seen dead, under a new number though the host is the same.
func TestFC_118_FC_121_DeadRunnersWorkIsReclaimedByWhoeverSweeps(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	began := make(chan struct{}, 10)
	forever := make(chan struct{})
	defer close(forever)
	stuck := workertest.HTTP(func(context.Context, systemtasks.Call) systemtasks.Outcome {
		began <- struct{}{}
		<-forever
		return systemtasks.Released{Sent: true}
	})
	http := &schema.Task{Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"}}
	s := workertest.New(t, workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Host: "same", Tasks: []systemtasks.Task{stuck}},
		enginetest.Workflow("w", http))
	id := s.Start("w", "")
	<-began
	s.Die()

	restarted := s.Beside(workertest.Options{NoSweep: true, NoBeat: true, NoPool: true, Clock: c, Host: "same"}) // it has no task type at all
	require.NotEqual(t, s.Runner.No(), restarted.Runner.No())
	pass(t, restarted)
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`), "alive as long as its beat holds")
	c.Advance(store.RunnerLease)
	require.NoError(t, restarted.Runner.Beat(t.Context()))
	c.Advance(time.Second)
	pass(t, restarted)
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`))
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_ready WHERE ns > 0 AND deliveries = 1 AND sub = 0`))
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_runner WHERE dead_at IS NOT NULL AND cleared_at IS NULL`), "walked once more before it is cleared")
	for range 5 {
		c.Advance(5 * time.Second)
		require.NoError(t, restarted.Runner.Beat(t.Context()))
		pass(t, restarted)
	}
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_runner WHERE cleared_at IS NOT NULL`))
	third := restarted.Beside(workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}})
	x := third.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.Equal(t, int32(2), enginetest.Task(t, x, "a").Deliveries)
}

// A runner that signs off at its end is dead at once: others need not wait for its lease to run out, what it left is taken back, and the
// number neither claims nor beats again.
func TestRunnerThatSignsOffIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	began, forever := make(chan struct{}, 1), make(chan struct{})
	defer close(forever)
	stuck := workertest.HTTP(func(context.Context, systemtasks.Call) systemtasks.Outcome {
		began <- struct{}{}
		<-forever
		return systemtasks.Released{Sent: true}
	})
	http := &schema.Task{Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"}}
	s := workertest.New(t, workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Tasks: []systemtasks.Task{stuck}}, enginetest.Workflow("w", http))
	id := s.Start("w", "")
	<-began
	old := s.Runner.No()
	require.NoError(t, s.Runner.SignOff(t.Context()))
	require.NoError(t, s.Runner.SignOff(t.Context()), "twice is no harm")
	_, _, claims := s.Runner.Claims()
	require.False(t, claims)
	require.False(t, s.Runner.Holds(old))
	require.NoError(t, s.Runner.Beat(t.Context()))
	require.Equal(t, old, s.Runner.No(), "no new number")
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_runner WHERE dead_at IS NOT NULL AND draining AND alive_until <= nf_now()`))

	other := s.Beside(still(c))
	status, err := other.Store.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, status.Runners, 2)
	require.True(t, status.Runners[0].Alive)
	require.Equal(t, old, status.Runners[1].No)
	require.False(t, status.Runners[1].Alive)
	require.True(t, status.Runners[1].Ended)
	require.Equal(t, int64(1), status.Fleet.RunnersAlive)

	pass(t, other) // no time has passed
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`))
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_ready WHERE ns > 0 AND deliveries = 1 AND sub = 0`))
	third := s.Beside(workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}})
	require.Equal(t, "COMPLETED", third.Await(id).Status)
}

func count(t testing.TB, s *workertest.Stack, sql string) int {
	t.Helper()
	return storetest.Int(t, s.URL, sql)
}

// A runner that was declared dead drops its work, takes a new number, and its late result changes nothing.
func TestRunnerDeclaredDeadDropsItsWork(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	ended := make(chan error, 1)
	began := make(chan struct{}, 2)
	var calls atomic.Int64
	s := workertest.New(t, workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Tasks: []systemtasks.Task{workertest.HTTP(
		func(ctx context.Context, call systemtasks.Call) systemtasks.Outcome {
			began <- struct{}{}
			if calls.Add(1) == 1 {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return systemtasks.Completed{Output: map[string]any{"late": true}}
			}
			return workertest.Done(ctx, call)
		})}}, enginetest.Workflow("w", &schema.Task{Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"}}))
	id := s.Start("w", "")
	<-began
	old := s.Runner.No()
	other := s.Beside(still(c))
	c.Advance(store.RunnerLease)
	require.NoError(t, other.Runner.Beat(t.Context()))
	c.Advance(time.Second)
	pass(t, other)
	require.NoError(t, s.Runner.Beat(t.Context()))
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NotEqual(t, old, s.Runner.No())
	x := s.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	task := enginetest.Task(t, x, "a")
	require.JSONEq(t, `{}`, string(task.Output))
	require.Equal(t, int32(2), task.Deliveries)
}

// The database clock jumps: for 20 s no lost work is reclaimed and no runner is declared dead; deadlines follow the database. The process's own
// clock jumps: nothing happens at all.
func TestBG_134_FC_148_StepsOfClocks(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), append(one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 30_000 }),
		enginetest.Definition("timed", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 30_000 }),
		enginetest.Workflow("timed", enginetest.Simple("a", "timed", nil)))...)
	s.Start("w", "")
	timed := s.Start("timed", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
	require.Len(t, s.Lease("timed", 1, 0).Tasks, 1)
	other := s.Beside(still(c))
	pass(t, s)
	pass(t, other)

	c.Step(60 * time.Second) // the database's clock only
	pass(t, s)
	pass(t, other)
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_runner WHERE dead_at IS NOT NULL`))
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`), "the deadline follows the database, the lost lease does not")
	require.Equal(t, execution.CauseStartToClose, enginetest.Task(t, s.Await(timed), "a").Cause)
	require.Empty(t, s.Lease("charge", 1, 0).Tasks)
	c.Step(0)
	pass(t, s)
	require.Empty(t, s.Lease("charge", 1, 0).Tasks, "a step back is a step too")
	require.True(t, s.Guard.Resting())
}

// One of many timers cannot become ready: the others do, it is put aside.
func TestFC_130_OneBadTimerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), enginetest.Definition("charge"), enginetest.Workflow("w", &schema.Task{
		Ref: "a", Type: schema.TypeSimple, Definition: "charge", StartDelay: 1000,
	}))
	var bad execution.ID
	for i := range 30 {
		id := s.Start("w", "")
		if i == 7 {
			bad = id
		}
	}
	storetest.Exec(t, s.URL, `UPDATE nf_timer SET scheduled_at = wake_at + interval '1 h' WHERE ns = $1 AND exec_id = $2`, bad.NS, [16]byte(bad.Exec))
	c.Advance(time.Second)
	pass(t, s)
	require.Len(t, s.Lease("charge", 100, 0).Tasks, 29)
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_timer WHERE ns > 0 AND wake_at > nf_now() + interval '10 min'`))
	storetest.Exec(t, s.URL, `UPDATE nf_timer SET scheduled_at = wake_at WHERE ns > 0`)
}

// A completion whose write fails leaves the row leased; the lease runs out and the same attempt is delivered again.
func TestFC_125_FailedCompletionIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 1000 })...)
	id := s.Start("w", "")
	require.Len(t, s.Lease("charge", 1, 0).Tasks, 1) // its report never arrives
	c.Advance(time.Second)
	pass(t, s)
	task := s.Lease("charge", 1, 0).Tasks[0]
	require.Equal(t, int32(1), task.Attempt.Attempt)
	s.Report(task.Leased, enginetest.Completed(""))
	require.Equal(t, "COMPLETED", s.Await(id).Status)
}

// A sweep that found a lease expired and then comes late finds it completed: state and fence guard it.
func TestFC_116_LateSweepChangesNothing(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 1000 })...)
	id := s.Start("w", "")
	task := s.Lease("charge", 1, 0).Tasks[0]
	c.Advance(time.Second)
	found, err := s.Store.DueLeases(t.Context(), time.Time{}, store.After{}, c.Now().Add(time.Second), 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	s.Report(task.Leased, enginetest.Completed(`{"won":1}`))
	moved, err := s.Store.Reclaim(t.Context(), store.Ctl, store.MoveLost, []store.Move{{LeaseKey: found[0].LeaseKey}})
	require.NoError(t, err)
	require.Empty(t, moved)
	require.Equal(t, "COMPLETED", s.Await(id).Status)
}

func TestChoresMakeDaysAndForgetTheOld(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge")...)
	other := s.Beside(still(c))
	storetest.Exec(t, s.URL, `INSERT INTO nf_poller (ns, queue_id, worker, polled_at) VALUES (1, 1, 'old', nf_now() - interval '25 h'), (1, 1, 'new', nf_now())`)
	storetest.Exec(t, s.URL, `INSERT INTO nf_budget (ns, def_id, bucket, shard) VALUES (1, 1, 1, 1)`)
	storetest.Exec(t, s.URL, `INSERT INTO nf_runner (instance, host, pid, build, version, alive_until, dead_at, cleared_at)
		VALUES (gen_random_uuid(), 'h', 1, 1, 'v', nf_now() - interval '3 h', nf_now() - interval '3 h', nf_now() - interval '2 h')`)
	require.NoError(t, other.Sweeper.Chores(t.Context()))
	require.NoError(t, s.Sweeper.Chores(t.Context()), "the duty is another's")
	require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_poller`))
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_budget`))
	require.Equal(t, 2, count(t, s, `SELECT count(*) FROM nf_runner`))
	status, err := s.Store.SchemaStatus(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, status.Days.Ahead, 14)
	require.Equal(t, 1, count(t, s, fmt.Sprintf(`SELECT count(*) FROM nf_duty WHERE runner_no = %d`, other.Runner.No())))
}
