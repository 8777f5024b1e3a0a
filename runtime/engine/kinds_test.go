//go:build unix

package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// race runs functions at the same moment, each on its own goroutine.
func race(all ...func()) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for _, f := range all {
		group.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	group.Wait()
}

// deadlineRaces lets a completion, a failure, a deadline of each class, a terminate and the time-out of the run meet in pairs, n times: one outcome, the first
// commit; whatever came second is answered so and changes nothing.
func deadlineRaces(t *testing.T, n int) {
	def := func(name string, change func(*schema.TaskDefinition)) schema.Object {
		return atOnce(func(d *schema.TaskDefinition) { d.Metadata.Name = name }, change)
	}
	objects := []schema.Object{
		def("close", func(d *schema.TaskDefinition) { d.StartToCloseTimeout = 10_000 }),
		def("task", func(d *schema.TaskDefinition) { d.Timeout = 10_000 }),
		def("total", func(d *schema.TaskDefinition) { d.TotalTimeout = 10_000 }),
		def("retry", func(d *schema.TaskDefinition) {
			d.Timeout, d.TimeoutPolicy, d.RetryBudget = 10_000, schema.TimeoutRetry, 1
		}),
	}
	classes := []string{"close", "task", "total", "retry"}
	for _, c := range classes {
		objects = append(objects, enginetest.Workflow(c, enginetest.Simple("a", c, nil), enginetest.Set("v", map[string]schema.Value{"n": 1})))
	}
	w := enginetest.New(t, objects...)
	other := w.Beside(enginetest.Options{})
	leases := map[execution.ID]store.Leased{}
	ids := make([]execution.ID, n)
	for i := range ids {
		ids[i] = w.Start(classes[i%len(classes)], "")
		if i%100 == 99 || i == n-1 {
			for _, c := range classes {
				for _, l := range w.Claim(c, 100) {
					leases[l.ID] = l
				}
			}
		}
	}
	w.Move(time.Minute)
	other.Move(time.Minute)
	won := map[string]int{}
	for i, id := range ids {
		l := leases[id]
		what := []engine.What{enginetest.Completed(`{"v":1}`), enginetest.Failed("no"), enginetest.FailedTerm("no")}[i/len(classes)%3]
		var reported, due engine.EndResult
		both := []func(){
			func() { reported = w.Record(enginetest.EndOf(l, what)) },
			func() { due = other.Record(enginetest.EndOf(l, engine.Due{})) },
		}
		if i%2 == 1 {
			both[0], both[1] = both[1], both[0]
		}
		race(both...)
		require.NoError(t, reported.Err)
		require.NoError(t, due.Err)
		first := enginetest.Attempts(w.Get(id), "a")[0]
		if reported.Answer == engine.Accepted {
			won["report"]++
			require.Equal(t, engine.Dropped, due.Answer)
			require.Equal(t, what.(engine.Report).Status.String(), first.Status)
			continue
		}
		won["deadline"]++
		require.Equal(t, engine.Accepted, due.Answer)
		require.Equal(t, engine.LeaseExpired, reported.Answer)
		require.Equal(t, "TIMED_OUT", reported.Status)
		require.Equal(t, "TIMED_OUT", first.Status)
	}
	t.Logf("%v", won)
	require.Positive(t, won["report"])
	require.Positive(t, won["deadline"])
}

func TestBG_23_EveryReportAgainstEveryDeadline(t *testing.T) {
	t.Parallel()
	deadlineRaces(t, 48)
}

// lastBranches completes the last branches of a fork at the same moment, in two processes, n times.
func lastBranches(t *testing.T, width, n int) {
	var branches [][]*schema.Task
	for i := range width {
		branches = append(branches, list(simple(fmt.Sprintf("b%d", i))))
	}
	w := enginetest.New(t, enginetest.Definition("work"),
		enginetest.Workflow("flow", append(enginetest.Fork("f", branches...), enginetest.Set("v", map[string]schema.Value{"n": 1}))...))
	procs := []*enginetest.World{w, w.Beside(enginetest.Options{})}
	for range n {
		id := w.Start("flow", "")
		leased := w.Claim("work", width)
		require.Len(t, leased, width)
		var all []func()
		for i, l := range leased {
			all = append(all, func() { procs[i%2].Report(l, enginetest.Completed("")) })
		}
		race(all...)
		x := w.Await(id)
		require.Equal(t, "COMPLETED", x.Status)
		require.Len(t, enginetest.Attempts(x, "f_join"), 1)
		newest := time.Time{}
		for i := range width {
			if at := enginetest.Task(t, x, fmt.Sprintf("b%d", i)).EndedAt; at.After(newest) {
				newest = at
			}
		}
		require.Less(t, enginetest.Task(t, x, "f_join").EndedAt.Sub(newest), 2*time.Second)
	}
}

func TestBG_100_ManyBranchesEndTogether(t *testing.T) {
	t.Parallel()
	lastBranches(t, 5, 12)
}

// failTogether fails all branches of a fork at once, in one call or in two processes, n times: all are retried.
func failTogether(t *testing.T, n int) {
	def := atOnce(func(d *schema.TaskDefinition) { d.RetryBudget, d.Retry.RetryCount = 1, 3 })
	w := enginetest.New(t, def, enginetest.Workflow("flow", enginetest.Fork("f", list(simple("a")), list(simple("b")))...))
	other := w.Beside(enginetest.Options{})
	for i := range n {
		id := w.Start("flow", "")
		for attempt := int32(1); attempt <= 3; attempt++ {
			l := w.Claim("work", 10)
			require.Len(t, l, 2)
			require.Equal(t, attempt, l[0].Attempt.Attempt)
			a, b := enginetest.EndOf(l[0], enginetest.Failed("x")), enginetest.EndOf(l[1], enginetest.Failed("y"))
			if i%2 == 0 {
				for _, r := range w.Engine.Record(t.Context(), []engine.End{a, b}) {
					require.Equal(t, engine.Accepted, r.Answer)
				}
			} else {
				race(func() { w.Record(a) }, func() { other.Record(b) })
			}
			require.Equal(t, "RUNNING", w.Get(id).Status)
		}
		for _, l := range w.Claim("work", 10) {
			w.Report(l, enginetest.Completed(""))
		}
		require.Equal(t, "COMPLETED", w.Await(id).Status)
	}
}

func TestBG_04_BranchesThatFailInTwoProcessesAreRetried(t *testing.T) {
	t.Parallel()
	failTogether(t, 8)
}

// BG-92: what a TERMINATE says is how the run ends, for readers too, wherever it stands and whatever else is open.
func TestBG_92_RunEndsAsItsTerminateSays(t *testing.T) {
	t.Parallel()
	stop := func(status string) []*schema.Task {
		return list(enginetest.Terminate("stop", params{"terminationStatus": status, "terminationReason": "enough"}))
	}
	var objects []schema.Object
	places := map[string]func(tasks []*schema.Task) []*schema.Task{
		"alone": func(tasks []*schema.Task) []*schema.Task { return tasks },
		"branch": func(tasks []*schema.Task) []*schema.Task {
			return enginetest.Fork("f", list(simple("a")), tasks, list(enginetest.Wait("w", "1h")))
		},
		"switch": func(tasks []*schema.Task) []*schema.Task {
			return append(list(enginetest.Switch("s", "x", map[string][]*schema.Task{"x": tasks})), simple("never"))
		},
	}
	statuses := []string{"TERMINATED", "FAILED", "COMPLETED"}
	for name, place := range places {
		for _, status := range statuses {
			objects = append(objects, enginetest.Workflow(name+strings.ToLower(status), place(stop(status))...))
		}
	}
	w := enginetest.New(t, append(objects, enginetest.Definition("work"))...)
	for name := range places {
		for _, status := range statuses {
			id := w.Start(name+strings.ToLower(status), "")
			x := w.Await(id)
			require.Equal(t, status, x.Status, name)
			require.Equal(t, "enough", x.Reason, name)
			for _, task := range x.Tasks {
				require.NotContains(t, []string{"SCHEDULED", "IN_PROGRESS"}, task.Status, "%s of %s", task.Ref, name)
			}
			page, err := w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Workflow: name + strings.ToLower(status), Statuses: []string{status}, Limit: 5})
			require.NoError(t, err)
			require.Len(t, page, 1)
		}
	}
	require.Empty(t, w.Claim("work", 10))
}

// BG-116: outputs that are each within the limit and together are not: the join fails for good and says which limit, whatever the number of branches, and the run's
// own output likewise.
func TestBG_116_OutputsThatAreTooLargeTogether(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ width, size int }{{2, 4 << 20}, {14, 500 << 10}} {
		var branches [][]*schema.Task
		for i := range v.width {
			branches = append(branches, list(simple(fmt.Sprintf("b%d", i))))
		}
		w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", enginetest.Fork("f", branches...)...))
		id := w.Start("flow", "")
		for _, l := range w.Claim("work", v.width) {
			w.Report(l, enginetest.Completed(`{"x":"`+strings.Repeat("y", v.size)+`"}`))
		}
		x := w.Await(id)
		require.Equal(t, "FAILED", x.Status)
		join := enginetest.Task(t, x, "f_join")
		require.Equal(t, "FAILED_WITH_TERMINAL_ERROR", join.Status)
		require.Equal(t, execution.CauseOutputTooLarge, join.Cause)
		require.Contains(t, join.Reason, "6 MiB")
	}
}

// BG-125: whatever holds a run's row for two seconds, everything that came meanwhile is decided right after: completions of two branches, a deadline, a terminate.
func TestBG_125_EverythingThatCameMeanwhileIsDecidedAtTheRelease(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.Timeout, d.TimeoutPolicy = 10_000, schema.TimeoutRetry })
	w := enginetest.New(t, def, enginetest.Workflow("flow", append(enginetest.Fork("f", list(simple("a")), list(simple("b")), list(simple("c"))), simple("d"))...))
	other := w.Beside(enginetest.Options{})
	id := w.Start("flow", "")
	leased := w.Claim("work", 3)
	require.Len(t, leased, 3)
	w.Move(11 * time.Second)
	other.Move(11 * time.Second)
	tx, err := connect(t, w.URL).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM nf_exec WHERE ns = $1 AND exec_id = $2 FOR UPDATE`, id.NS, id.Exec)
	require.NoError(t, err)
	answers := make(chan engine.EndResult, 3)
	go func() { answers <- w.Record(enginetest.EndOf(leased[0], enginetest.Completed(""))) }()
	go func() { answers <- other.Record(enginetest.EndOf(leased[1], enginetest.Completed(""))) }()
	go func() { answers <- other.Record(enginetest.EndOf(leased[2], engine.Due{})) }()
	_, err = tx.Exec(t.Context(), `SELECT pg_sleep(2)`) // as long as the row says
	require.NoError(t, err)
	require.Empty(t, answers)
	require.NoError(t, tx.Rollback(t.Context()))
	released := time.Now()
	for range 3 {
		r := <-answers
		require.NoError(t, r.Err)
		require.Equal(t, engine.Accepted, r.Answer)
	}
	require.Less(t, time.Since(released), 5*time.Second)
	again := w.Claim("work", 10)
	require.Len(t, again, 1, "the attempt after the time-out")
	require.Equal(t, int32(2), again[0].Attempt.Attempt)
	w.Report(again[0], enginetest.Completed(""))
	w.Complete("work", "")
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}
