//go:build unix

package sweep_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/store"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

// deadlineObjects are one workflow for each kind of time that a sweep fires, all of fifty seconds: tests look well before and well after, because time goes on under them.
func deadlineObjects() []schema.Object {
	timed := enginetest.Workflow("flow", enginetest.Simple("a", "plain", nil))
	timed.Timeout = 50_000
	joined := enginetest.Fork("f", []*schema.Task{enginetest.Simple("a", "plain", nil)}, []*schema.Task{enginetest.Simple("b", "plain", nil)})
	joined[len(joined)-1].Definition = "spanning"
	return []schema.Object{
		enginetest.Definition("spanning", func(d *schema.TaskDefinition) { d.Timeout = 50_000 }),
		enginetest.Definition("plain"),
		enginetest.Definition("close", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 50_000 }),
		enginetest.Definition("start", func(d *schema.TaskDefinition) { d.ScheduleToStartTimeout = 50_000 }),
		enginetest.Definition("task", func(d *schema.TaskDefinition) { d.Timeout = 50_000 }),
		enginetest.Workflow("wait", enginetest.Wait("a", "50s")),
		enginetest.Workflow("close", enginetest.Simple("a", "close", nil)),
		enginetest.Workflow("start", enginetest.Simple("a", "start", nil)),
		enginetest.Workflow("task", enginetest.Simple("a", "task", nil)),
		enginetest.Workflow("join", joined...),
		timed,
	}
}

// startDeadlines starts one execution of each kind and leases what runs from its lease.
func startDeadlines(t *testing.T, s *workertest.Stack) map[string]execution.ID {
	t.Helper()
	ids := map[string]execution.ID{}
	for _, name := range []string{"wait", "close", "start", "task", "join", "flow"} {
		ids[name] = s.Start(name, "")
	}
	require.Len(t, s.Lease("close", 1, 0).Tasks, 1)
	return ids
}

func requireOpen(t *testing.T, s *workertest.Stack, ids map[string]execution.ID, why string) {
	t.Helper()
	for name, id := range ids {
		require.True(t, s.Get(id).Open(), "%s: %s", name, why)
	}
}

func requireEnded(t *testing.T, s *workertest.Stack, ids map[string]execution.ID, why string) {
	t.Helper()
	for name, id := range ids {
		want := "TIMED_OUT"
		if name == "wait" {
			want = "COMPLETED"
		}
		require.Equal(t, want, s.Await(id).Status, "%s: %s", name, why)
	}
}

// The database's clock goes back by a minute, as after a wrong setting: what becomes due by that clock fires by that clock, although the sweep had
// finished with those times before.
func TestBG_134_FC_148_DeadlinesFollowAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), deadlineObjects()...)
	pass(t, s)
	pass(t, s)
	c.Step(-time.Minute)
	pass(t, s)
	ids := startDeadlines(t, s)
	c.Step(-time.Minute + 25*time.Second)
	pass(t, s)
	requireOpen(t, s, ids, "never early")
	c.Step(-time.Minute + 55*time.Second)
	pass(t, s)
	requireEnded(t, s, ids, "seconds late")
}

// A runner whose own clock is wrong by an hour, either way and changing, fires nothing early and nothing late: times are the database's.
func TestFC_148_BG_134_OwnClockOfARunnerStepsDuringWaits(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), deadlineObjects()...)
	pass(t, s)
	ids := startDeadlines(t, s)
	for _, own := range []time.Duration{time.Hour, -time.Hour, 61 * time.Second, 0} {
		c.Advance(own)
		c.Step(-own) // the database stays where it is
		pass(t, s)
		requireOpen(t, s, ids, "never early")
		c.Advance(-own)
	}
	for _, own := range []time.Duration{-time.Hour, time.Hour} {
		c.Advance(own)
		c.Step(-own + 55*time.Second)
		pass(t, s)
		requireEnded(t, s, ids, "late by a wrong clock")
		ids = map[string]execution.ID{}
		c.Advance(-own)
	}
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_runner WHERE dead_at IS NOT NULL`))
}

// A step of the database's clock forward by an hour, and back: no lost work is reclaimed, no runner is buried, and when the rest is over lost
// work is reclaimed as ever.
func TestBG_134_StepThereAndBackLosesNothing(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ResponseTimeout = 30_000 })...)
	other := s.Beside(still(c))
	s.Start("w", "")
	lost := s.Lease("charge", 1, 0).Tasks[0]
	pass(t, s)
	pass(t, other)
	for _, d := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		c.Step(d)
		pass(t, s)
		pass(t, other)
		require.Empty(t, s.Lease("charge", 1, 0).Tasks)
	}
	require.Equal(t, 0, count(t, s, `SELECT count(*) FROM nf_runner WHERE dead_at IS NOT NULL`))
	for range 8 {
		c.Advance(5 * time.Second)
		require.NoError(t, s.Runner.Beat(t.Context()))
		require.NoError(t, other.Runner.Beat(t.Context()))
		pass(t, s)
	}
	again := s.Lease("charge", 1, 0).Tasks
	require.Len(t, again, 1, "reclaimed after the rest")
	require.Equal(t, lost.Exec, again[0].Exec)
	s.Report(again[0].Leased, enginetest.Completed(""))
}

// slotWorld has one place of everything: a cap of one and a semaphore of one, which a probe needs too.
func slotWorld(t *testing.T) (*workertest.Stack, *workertest.Clock) {
	t.Helper()
	c := &workertest.Clock{}
	erp := []schema.Ref{{Namespace: enginetest.Namespace, Name: "erp"}}
	charge := func(name string, change func(*schema.TaskDefinition)) schema.Object {
		return enginetest.Definition(name, func(d *schema.TaskDefinition) {
			d.ConcurrentExecLimit, d.Semaphores, d.RetryBudget = 1, erp, 1
			d.Retry.Logic, d.Retry.Delay, d.Retry.RetryCount, d.ResponseTimeout = schema.RetryFixed, 3_600_000, 3, 60_000
			change(d)
		})
	}
	simple := func(ref, def string) []*schema.Task { return []*schema.Task{enginetest.Simple(ref, def, nil)} }
	stop := &schema.Task{Ref: "stop", Type: schema.TypeTerminate, InputParameters: map[string]schema.Value{"terminationStatus": "TERMINATED"}}
	timed := enginetest.Workflow("timed", enginetest.Simple("a", "charge", nil))
	timed.Timeout = 20_000
	objects := []schema.Object{
		&schema.Semaphore{Metadata: schema.Metadata{Name: "erp", Namespace: enginetest.Namespace}, Permits: 1},
		charge("charge", func(*schema.TaskDefinition) {}),
		charge("once", func(d *schema.TaskDefinition) { d.Delivery = schema.AtMostOnce }),
		charge("close", func(d *schema.TaskDefinition) { d.StartToCloseTimeout, d.TimeoutPolicy = 20_000, schema.TimeoutRetry }),
		charge("task", func(d *schema.TaskDefinition) { d.Timeout, d.TimeoutPolicy = 20_000, schema.TimeoutRetry }),
		charge("total", func(d *schema.TaskDefinition) { d.TotalTimeout = 20_000 }),
		charge("strict", func(d *schema.TaskDefinition) {
			d.OutputSchema = map[string]any{"type": "object", "required": []any{"v"}}
		}),
		charge("probe", func(*schema.TaskDefinition) {}),
		enginetest.Definition("other", func(d *schema.TaskDefinition) { d.Retry.RetryCount = 0 }),
		enginetest.Workflow("probe", enginetest.Simple("a", "probe", nil)),
		enginetest.Workflow("pair", enginetest.Fork("f", simple("a", "charge"), simple("b", "other"))...),
		enginetest.Workflow("bomb", enginetest.Fork("f", simple("a", "charge"), append(simple("b", "other"), stop))...),
		timed,
	}
	for _, name := range []string{"charge", "once", "close", "task", "total", "strict"} {
		objects = append(objects, enginetest.Workflow(name, enginetest.Simple("a", name, nil)))
	}
	return workertest.New(t, still(c), objects...), c
}

// Whatever ends a lease frees its places, cap and semaphores, at once: held is the number of lease rows, by any way out. FC-095 is the fifth
// delivery that is lost.
func TestBG_32_FC_095_EveryWayOutOfALeaseFreesItsPlaces(t *testing.T) {
	t.Parallel()
	s, c := slotWorld(t)
	later := func(d time.Duration) {
		c.Advance(d)
		pass(t, s)
	}
	other := func(what engine.What) { s.Report(s.Lease("other", 1, 0).Tasks[0].Leased, what) }
	for _, way := range []struct {
		name, workflow, definition string
		end                        func(queue.Task)
	}{
		{"complete", "charge", "charge", func(l queue.Task) { s.Report(l.Leased, enginetest.Completed("")) }},
		{"fail, with retries left", "charge", "charge", func(l queue.Task) { s.Report(l.Leased, enginetest.Failed("no")) }},
		{"fail for good", "charge", "charge", func(l queue.Task) { s.Report(l.Leased, enginetest.FailedTerm("no")) }},
		{"output invalid", "strict", "strict", func(l queue.Task) { s.Report(l.Leased, enginetest.Completed(`{"x":1}`)) }},
		{"output too large", "charge", "charge", func(l queue.Task) {
			s.Report(l.Leased, enginetest.Completed(`{"x":"`+strings.Repeat("y", execution.MaxPayload)+`"}`))
		}},
		{"terminate", "charge", "charge", func(l queue.Task) {
			_, err := s.Engine.Terminate(t.Context(), l.ID, "x", "ann")
			require.NoError(t, err)
		}},
		{"startToClose", "close", "close", func(queue.Task) { later(20 * time.Second) }},
		{"timeoutSeconds under RETRY", "task", "task", func(queue.Task) { later(20 * time.Second) }},
		{"totalTimeout", "total", "total", func(queue.Task) { later(20 * time.Second) }},
		{"time-out of the workflow", "timed", "charge", func(queue.Task) { later(20 * time.Second) }},
		{"a sibling fails", "pair", "charge", func(queue.Task) { other(enginetest.FailedTerm("no")) }},
		{"a sibling's TERMINATE", "bomb", "charge", func(queue.Task) { other(enginetest.Completed("")) }},
		{"release", "charge", "charge", func(l queue.Task) {
			held := queue.Held{ID: l.ID, Namespace: enginetest.Namespace, TaskNo: l.TaskNo, Attempt: l.Attempt.Attempt, Token: l.Token}
			require.NoError(t, s.Queue.Release(t.Context(), []queue.Held{held})[0])
		}},
		{"the answer was not delivered", "charge", "charge", func(l queue.Task) { s.Queue.GiveBack(t.Context(), []store.Leased{l.Leased}) }},
		{"the worker dies", "charge", "charge", func(queue.Task) { later(60 * time.Second) }},
		{"the worker dies, at most once", "once", "once", func(queue.Task) { later(60 * time.Second) }},
		{"the fifth worker dies", "charge", "charge", func(queue.Task) {
			for range 4 {
				later(60 * time.Second)
				require.Len(t, s.Lease("charge", 1, 0).Tasks, 1)
			}
			later(60 * time.Second)
		}},
	} {
		id := s.Start(way.workflow, "")
		tasks := s.Lease(way.definition, 5, 0).Tasks
		require.Len(t, tasks, 1, "before %s", way.name)
		probe := s.Start("probe", "")
		require.Empty(t, s.Lease("probe", 1, 0).Tasks, "%s: the semaphore is held", way.name)
		way.end(tasks[0])
		require.Zero(t, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`), way.name)
		require.Zero(t, count(t, s, `SELECT count(*) FROM nf_lease_sem WHERE ns > 0`), way.name)
		got := s.Lease("probe", 1, 0).Tasks
		require.Len(t, got, 1, "%s: the permit is free", way.name)
		s.Report(got[0].Leased, enginetest.Completed(""))
		require.Equal(t, "COMPLETED", s.Await(probe).Status)
		if s.Get(id).Open() {
			_, err := s.Engine.Terminate(t.Context(), id, "next", "ann")
			require.NoError(t, err)
		}
		next := s.Start(way.definition, "")
		got = s.Lease(way.definition, 5, 0).Tasks
		require.Len(t, got, 1, "%s: the place is free", way.name)
		require.Equal(t, next.Exec, got[0].Exec, way.name)
		s.Report(got[0].Leased, enginetest.Completed(`{"v":1}`))
		require.Equal(t, "COMPLETED", s.Await(next).Status)
	}
}

// FC-160, BG-17: under RETRY each attempt has its own time; after the last one the run is TIMED_OUT. Attempts that nobody answers and attempts that nobody
// takes alike.
func TestFC_160_BG_17_EveryUnansweredAttemptTimesOut(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	retry := func(change func(*schema.TaskDefinition)) func(*schema.TaskDefinition) {
		return func(d *schema.TaskDefinition) {
			d.TimeoutPolicy, d.RetryBudget, d.Retry.RetryCount, d.Retry.Logic, d.Retry.Delay = schema.TimeoutRetry, 1, 2, schema.RetryFixed, 1000
			change(d)
		}
	}
	s := workertest.New(t, still(c),
		enginetest.Definition("task", retry(func(d *schema.TaskDefinition) { d.Timeout = 50_000 })),
		enginetest.Definition("close", retry(func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 50_000 })),
		enginetest.Definition("start", retry(func(d *schema.TaskDefinition) { d.ScheduleToStartTimeout = 50_000 })),
		enginetest.Workflow("task", enginetest.Simple("a", "task", nil)), enginetest.Workflow("close", enginetest.Simple("a", "close", nil)),
		enginetest.Workflow("start", enginetest.Simple("a", "start", nil)))
	ids := map[string]execution.ID{}
	for _, name := range []string{"task", "close", "start"} {
		ids[name] = s.Start(name, "")
	}
	for attempt := int32(1); attempt <= 3; attempt++ {
		for _, name := range []string{"task", "close"} {
			tasks := s.Lease(name, 5, 0).Tasks
			require.Len(t, tasks, 1, "%s, attempt %d: only the newest is offered", name, attempt)
			require.Equal(t, attempt, tasks[0].Attempt.Attempt)
		}
		c.Advance(25 * time.Second)
		pass(t, s)
		for name, id := range ids {
			require.Equal(t, attempt, enginetest.Task(t, s.Get(id), "a").Attempt, "%s: never early", name)
			require.True(t, s.Get(id).Open(), "%s: never early", name)
		}
		c.Advance(25 * time.Second)
		pass(t, s) // the time is over
		c.Advance(time.Second)
		pass(t, s) // so is the back-off
	}
	for name, id := range ids {
		x := s.Await(id)
		require.Equal(t, "TIMED_OUT", x.Status, name)
		require.Len(t, enginetest.Attempts(x, "a"), 3, name)
	}
}

// FC-161: the default policy ends the run at the first time-out, whatever class it is and however many retries are left.
func TestFC_161_DefaultPolicyEndsTheRunAtTheFirstTimeout(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), deadlineObjects()...)
	ids := startDeadlines(t, s)
	c.Advance(50 * time.Second)
	pass(t, s)
	requireEnded(t, s, ids, "fifty seconds")
	for _, name := range []string{"close", "start", "task"} {
		require.Len(t, enginetest.Attempts(s.Get(ids[name]), "a"), 1, name)
	}
}

// FC-164: a heartbeat that may be longer than the attempt changes nothing about startToClose, whether or not beats come.
func TestFC_164_StartToCloseFiresThoughHeartbeatsMayCome(t *testing.T) {
	t.Parallel()
	for _, beats := range []bool{false, true} {
		c := &workertest.Clock{}
		s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.HeartbeatTimeout, d.StartToCloseTimeout = 60_000, 50_000 })...)
		id := s.Start("w", "")
		l := s.Lease("charge", 1, 0).Tasks[0]
		for range 5 {
			c.Advance(5 * time.Second)
			if beats {
				held := queue.Held{ID: l.ID, Namespace: enginetest.Namespace, TaskNo: l.TaskNo, Attempt: l.Attempt.Attempt, Token: l.Token}
				require.NoError(t, s.Queue.Heartbeat(t.Context(), []queue.Beat{{Held: held}})[0].Err)
			}
			pass(t, s)
			require.True(t, s.Get(id).Open(), "never early")
		}
		c.Advance(25 * time.Second)
		pass(t, s)
		require.Equal(t, execution.CauseStartToClose, enginetest.Task(t, s.Await(id), "a").Cause)
	}
}

// BG-10: ALERT_ONLY alerts once, however many sweeps pass, and leaves the attempt alone; the run ends by a completion, by terminate or by its own time.
func TestBG_10_OptionalAndAlertOnlyEndsByAnyOfThree(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"completion", "terminate", "own time"} {
		c := &workertest.Clock{}
		task := enginetest.Simple("a", "charge", nil)
		task.Optional = true
		w := enginetest.Workflow("w", task)
		w.Timeout = 60_000
		s := workertest.New(t, still(c), w, enginetest.Definition("charge", func(d *schema.TaskDefinition) { d.Timeout, d.TimeoutPolicy = 2000, schema.TimeoutAlertOnly }))
		id := s.Start("w", "")
		l := s.Lease("charge", 1, 0).Tasks[0]
		for range 4 {
			c.Advance(2 * time.Second)
			pass(t, s)
		}
		require.True(t, s.Get(id).Open())
		require.Equal(t, 1, count(t, s, `SELECT count(*) FROM nf_exec_event WHERE ns > 0`), "one alert event")
		want := "COMPLETED"
		switch end {
		case "completion":
			s.Report(l.Leased, enginetest.Completed(`{"late":true}`))
		case "terminate":
			_, err := s.Engine.Terminate(t.Context(), id, "enough", "ann")
			require.NoError(t, err)
			want = "TERMINATED"
		default:
			c.Advance(time.Minute)
			pass(t, s)
			want = "TIMED_OUT"
		}
		require.Equal(t, want, s.Await(id).Status, end)
	}
}

// FC-124, with real deaths: a call that kills its process is delivered five times, to five processes; then the attempt has failed and the retry policy decides.
func TestFC_124_CallThatKillsItsProcessIsDeliveredFiveTimes(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	began := make(chan int32, 20)
	forever := make(chan struct{})
	defer close(forever)
	deadly := workertest.HTTP(func(_ context.Context, call systemtasks.Call) systemtasks.Outcome {
		began <- int32(call.Attempt)
		<-forever
		return systemtasks.Released{Sent: true}
	})
	opt := workertest.Options{NoSweep: true, NoBeat: true, Clock: c, Tasks: []systemtasks.Task{deadly}}
	call := &schema.Task{Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"}, RetryCount: new(0)}
	s := workertest.New(t, still(c), enginetest.Workflow("w", call))
	id := s.Start("w", "")
	for range 5 {
		victim := s.Beside(opt)
		require.Equal(t, int32(1), <-began)
		victim.Die()
		c.Advance(store.RunnerLease)
		require.NoError(t, s.Runner.Beat(t.Context()))
		c.Advance(time.Second)
		pass(t, s)
	}
	x := s.Await(id)
	require.Equal(t, "FAILED", x.Status)
	task := enginetest.Task(t, x, "a")
	require.Equal(t, execution.CauseDeliveriesExhausted, task.Cause)
	require.Equal(t, int32(5), task.Deliveries)
	require.Empty(t, began)
}

// BG-121, FC-091: every size of lease is kept as long as it was given, and not a moment less.
func TestBG_121_LeasesOfAllSizesAreKept(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, 59 * time.Second, time.Hour} {
		c := &workertest.Clock{}
		s := workertest.New(t, still(c), one("charge")...)
		s.Start("w", "")
		a, err := s.Queue.Lease(t.Context(), queue.Request{
			NS: s.NS, Namespace: enginetest.Namespace, Queues: []queue.Ask{{Queue: "charge", Count: 1}}, Worker: "w", LeaseMs: lease.Milliseconds(),
		})
		require.NoError(t, err)
		require.Len(t, a.Tasks, 1)
		require.Equal(t, 1, count(t, s, fmt.Sprintf(`SELECT count(*) FROM nf_lease WHERE ns > 0 AND lease_until = leased_at + interval '%d ms'`, lease.Milliseconds())))
		if early := lease / 2; early >= 20*time.Second { // time goes on under the test: shorter ones may be over by now
			c.Advance(early)
			pass(t, s)
			require.Empty(t, s.Lease("charge", 1, 0).Tasks)
		}
		c.Advance(lease)
		pass(t, s)
		require.Len(t, s.Lease("charge", 1, 0).Tasks, 1, "%v", lease)
	}
}

// BG-82, FC-163: waits of many lengths end each at its time, though the process that parked them is killed; a wait of nothing and one of a past time end at once.
func TestBG_82_FC_163_WaitsOfManyLengthsEndEachAtItsTime(t *testing.T) {
	t.Parallel()
	c := &workertest.Clock{}
	w := enginetest.Workflow("w", enginetest.Wait("a", "${workflow.input.s}"))
	s := workertest.New(t, still(c), w)
	due := map[int]execution.ID{}
	for seconds := 0; seconds <= 3000; seconds += 200 {
		due[seconds] = s.Start("w", fmt.Sprintf(`{"s":%d}`, seconds))
	}
	require.Equal(t, "COMPLETED", s.Await(due[0]).Status, "a wait of nothing")
	s.Die()
	other := s.Beside(still(c))
	for now := 100; now <= 3100; now += 200 {
		c.Advance(200 * time.Second)
		if now == 100 {
			c.Advance(-100 * time.Second)
		}
		pass(t, other)
		for seconds, id := range due {
			require.Equal(t, seconds > now, other.Get(id).Open(), "wait of %d s after %d s", seconds, now)
		}
	}
}
