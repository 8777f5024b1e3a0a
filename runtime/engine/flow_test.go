//go:build unix

package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

type params = map[string]schema.Value

func simple(ref string) *schema.Task { return enginetest.Simple(ref, "work", nil) }

func list(tasks ...*schema.Task) []*schema.Task { return tasks }

func TestThreeStepsRunToTheEnd(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("three",
		enginetest.Simple("a", "work", params{"n": "${workflow.input.n}"}),
		enginetest.Simple("b", "work", params{"from": "${a.output.x}"}),
		enginetest.Simple("c", "work", params{"all": "${b.output}"})))
	id := w.Start("three", `{"n": 12345678901234567890}`)
	x := w.Get(id)
	require.Equal(t, "RUNNING", x.Status)
	require.Equal(t, `{"n":12345678901234567890}`, string(x.Input))
	require.Equal(t, `{"n":12345678901234567890}`, string(enginetest.Task(t, x, "a").Input))
	w.Complete("work", `{"x":"one"}`)
	require.JSONEq(t, `{"from":"one"}`, string(enginetest.Task(t, w.Get(id), "b").Input))
	w.Complete("work", `{"y":[1,2]}`)
	w.Complete("work", `{"z":true}`)
	x = w.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.JSONEq(t, `{"z":true}`, string(x.Output))
	require.Equal(t, int64(5), x.Seq)
	require.Len(t, x.Tasks, 3)
	require.JSONEq(t, `{"all":{"y":[1,2]}}`, string(enginetest.Task(t, x, "c").Input))
	require.Empty(t, w.Claim("work", 10))
}

func TestSwitchVariablesAndOutputParameters(t *testing.T) {
	t.Parallel()
	flow := enginetest.Workflow("choose",
		enginetest.Set("init", params{"total": "${workflow.input.n}", "name": "x"}),
		enginetest.Switch("pick", "${workflow.variables.total}", map[string][]*schema.Task{
			"1": list(simple("one")), "2": list(simple("two"), simple("twomore")),
		}, simple("other")),
		simple("last"))
	flow.Variables = params{"total": 0, "kept": "start"}
	flow.OutputParameters = params{"picked": "${pick.output.caseValue}", "two": "${two.output.v}", "one": "${one.output.v}", "kept": "${workflow.variables.kept}"}
	w := enginetest.New(t, enginetest.Definition("work"), flow)
	id := w.Start("choose", `{"n":2}`)
	require.JSONEq(t, `{"total":2,"name":"x","kept":"start"}`, string(w.Get(id).Variables))
	w.Complete("work", `{"v":"second"}`)
	w.Complete("work", "")
	require.Equal(t, "SKIPPED", enginetest.Task(t, w.Get(id), "one").Status)
	w.Complete("work", "")
	x := w.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.JSONEq(t, `{"picked":"2","two":"second","one":null,"kept":"start"}`, string(x.Output))
	require.JSONEq(t, `{"total":2,"name":"x","kept":"start"}`, string(x.Variables))
}

func TestForkAndJoinGatherTheirBranches(t *testing.T) {
	t.Parallel()
	tasks := enginetest.Fork("f",
		list(simple("a1"), simple("a2")), list(simple("b1")), enginetest.Fork("g", list(simple("c1")), list(simple("d1"))))
	tasks = append(tasks, enginetest.Simple("after", "work", params{"a": "${f_join.output.a2.v}"}))
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("fork", tasks...))
	id := w.Start("fork", "")
	require.Equal(t, "IN_PROGRESS", enginetest.Task(t, w.Get(id), "f_join").Status)
	leased := w.Claim("work", 10)
	require.Len(t, leased, 4) // a1, b1, c1, d1
	for i, l := range leased {
		w.Report(l, enginetest.Completed(fmt.Sprintf(`{"v":%d}`, i)))
	}
	w.Complete("work", `{"v":"A2"}`)
	x := w.Get(id)
	require.Equal(t, "COMPLETED", enginetest.Task(t, x, "f_join").Status)
	require.JSONEq(t, `{"a":"A2"}`, string(enginetest.Task(t, x, "after").Input))
	w.Complete("work", "")
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}

func TestWaitEndsAtItsTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Workflow("sleepy", enginetest.Wait("pause", "60s")))
	id := w.Start("sleepy", "")
	require.Equal(t, "WAITING", enginetest.Task(t, w.Get(id), "pause").Status)
	w.Move(59 * time.Second)
	require.Equal(t, engine.Dropped, w.Due(id, "pause").Answer)
	w.Move(61 * time.Second)
	require.Equal(t, engine.Accepted, w.Due(id, "pause").Answer)
	x := w.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.JSONEq(t, `{"waited":true}`, string(x.Output))
}

func TestTerminateEndsWithItsStatusAndCancelsTheRest(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"COMPLETED", "FAILED", "TERMINATED"} {
		t.Run("BG-92 "+status, func(t *testing.T) {
			t.Parallel()
			input := params{"terminationStatus": status, "terminationReason": "enough"}
			if status == "COMPLETED" {
				input["workflowOutput"] = params{"done": true}
			}
			tasks := enginetest.Fork("f", list(simple("a"), enginetest.Terminate("stop", input)), list(simple("b")),
				list(enginetest.Wait("sleep", "1h")))
			w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", tasks...))
			id := w.Start("flow", "")
			leased := w.Claim("work", 2)
			require.Len(t, leased, 2)
			w.Report(leased[0], enginetest.Completed(""))
			x := w.Await(id)
			require.Equal(t, status, x.Status)
			if status == "COMPLETED" {
				require.JSONEq(t, `{"done":true}`, string(x.Output))
				require.Empty(t, x.Cause)
			} else {
				require.Equal(t, execution.CauseTerminatedByTask, x.Cause)
				require.Contains(t, x.Reason, "enough")
			}
			for _, ref := range []string{"b", "sleep", "f_join"} {
				task := enginetest.Task(t, x, ref)
				require.Equal(t, "CANCELED", task.Status, ref)
				require.Equal(t, execution.CauseExecutionEnded, task.Cause, ref)
			}
			late := w.Record(enginetest.EndOf(leased[1], enginetest.Completed("")))
			require.Equal(t, engine.LeaseExpired, late.Answer)
			require.Equal(t, "CANCELED", late.Status)
		})
	}
}

func TestFailedAttemptIsRetriedAfterItsBackOff(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", enginetest.Simple("a", "work", params{"k": "v"})))
	id := w.Start("flow", "")
	w.Report(w.ClaimOne("work"), enginetest.Failed("first"))
	x := w.Get(id)
	attempts := enginetest.Attempts(x, "a")
	require.Len(t, attempts, 2)
	require.Equal(t, "FAILED", attempts[0].Status)
	require.Equal(t, int64(1000), attempts[0].Delay.SelectedMs)
	require.True(t, attempts[1].Delayed)
	require.Equal(t, attempts[0].Delay.DueAt, attempts[1].DueAt)
	require.JSONEq(t, `{"k":"v"}`, string(attempts[1].Input))
	require.Empty(t, w.Claim("work", 1))
}

func TestFinalFailureEndsTheExecutionAndCancelsItsSiblings(t *testing.T) {
	t.Parallel()
	def := enginetest.Definition("work", func(d *schema.TaskDefinition) { d.Retry.RetryCount = 0 })
	w := enginetest.New(t, def, enginetest.Workflow("flow",
		enginetest.Fork("f", list(simple("a")), list(simple("b")), list(enginetest.Wait("c", "1h")))...))
	id := w.Start("flow", "")
	w.Report(w.ClaimOne("work"), enginetest.Failed("no luck"))
	x := w.Await(id)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseTaskFailed, x.Cause)
	require.Equal(t, "a", x.FailedTask)
	require.Contains(t, x.Reason, "no luck")
	require.Equal(t, "CANCELED", enginetest.Task(t, x, "b").Status)
	require.Empty(t, w.Claim("work", 1))
}

func TestOptionalTaskAbsorbsItsFailure(t *testing.T) {
	t.Parallel()
	optional := simple("a")
	optional.Optional = true
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", optional, simple("b")))
	id := w.Start("flow", "")
	w.Report(w.ClaimOne("work"), enginetest.FailedTerm("never mind"))
	task := enginetest.Task(t, w.Get(id), "a")
	require.Equal(t, "FAILED_WITH_TERMINAL_ERROR", task.Status)
	require.True(t, task.Absorbed)
	w.Complete("work", "")
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}

func TestWorkflowTimeoutEndsTheExecution(t *testing.T) {
	t.Parallel()
	flow := enginetest.Workflow("flow", simple("a"))
	flow.Timeout = 30_000
	w := enginetest.New(t, enginetest.Definition("work"), flow)
	id := w.Start("flow", "")
	x := w.Get(id)
	require.WithinDuration(t, x.AdmittedAt.Add(30*time.Second), x.DeadlineAt, time.Millisecond)
	deadline := engine.End{ID: id, Attempt: 1, Place: execution.InTimer, What: engine.Due{}}
	require.Equal(t, engine.Dropped, w.Record(deadline).Answer)
	l := w.ClaimOne("work")
	w.Move(31 * time.Second)
	require.Equal(t, engine.Accepted, w.Record(deadline).Answer)
	x = w.Await(id)
	require.Equal(t, "TIMED_OUT", x.Status)
	require.Equal(t, execution.CauseWorkflowTimeout, x.Cause)
	require.Equal(t, engine.LeaseExpired, w.Record(enginetest.EndOf(l, enginetest.Completed(""))).Answer)
}

func TestOperatorTerminatesAndRepeats(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	r, err := w.Engine.Terminate(t.Context(), id, "wrong order", "ann")
	require.NoError(t, err)
	require.Equal(t, engine.TerminateResult{Status: "TERMINATED"}, r)
	r, err = w.Engine.Terminate(t.Context(), id, "again", "ann")
	require.NoError(t, err)
	require.Equal(t, engine.TerminateResult{Status: "TERMINATED", Replayed: true}, r)
	x := w.Get(id)
	require.Equal(t, execution.CauseTerminatedByOperator, x.Cause)
	require.Equal(t, "wrong order", x.Reason)
	require.Equal(t, "CANCELED", w.Record(enginetest.EndOf(l, enginetest.Completed(""))).Status)
	_, err = w.Engine.Terminate(t.Context(), execution.ID{NS: w.NS, Exec: execution.NewUUID(time.Now(), [10]byte{1})}, "", "ann")
	require.ErrorIs(t, err, store.ErrNotFound)
	done := w.Start("flow", "")
	w.Complete("work", "")
	w.Await(done)
	r, err = w.Engine.Terminate(t.Context(), done, "", "ann")
	require.NoError(t, err)
	require.Equal(t, engine.TerminateResult{Status: "COMPLETED"}, r)
}

// An end by force cancels in chunks of a thousand; marks carry it on.
func TestEndByForceOfMoreThanOneChunk(t *testing.T) {
	t.Parallel()
	branches := make([][]*schema.Task, 0, 1000)
	for i := range 1000 {
		branches = append(branches, list(enginetest.Wait(fmt.Sprintf("w%d", i), "1h")))
	}
	inner := make([][]*schema.Task, 0, 300)
	for i := range 300 {
		inner = append(inner, list(simple(fmt.Sprintf("s%d", i))))
	}
	branches[999] = enginetest.Fork("g", inner...)
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("wide", enginetest.Fork("f", branches...)...))
	id := w.Start("wide", "")
	require.Eventually(t, func() bool {
		rows, err := w.Store.Tasks(t.Context(), id, store.TaskPage{Limit: 5000})
		return err == nil && len(rows.Open) == 1299
	}, 20*time.Second, 20*time.Millisecond)
	_, err := w.Engine.Terminate(t.Context(), id, "", "ann")
	require.NoError(t, err)
	x := w.Await(id)
	require.Equal(t, "TERMINATED", x.Status)
	require.True(t, x.Truncated)
}

// A chain of more operators than one evaluation may run goes on by a mark (contract 7.1).
func TestLongChainOfOperatorsGoesOnByMarks(t *testing.T) {
	t.Parallel()
	var tasks []*schema.Task
	for i := range 200 {
		tasks = append(tasks, enginetest.Set(fmt.Sprintf("v%d", i), params{"n": i}))
	}
	w := enginetest.New(t, enginetest.Workflow("chain", tasks...))
	id := w.Start("chain", "")
	x := w.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.JSONEq(t, `{"n":199}`, string(x.Variables))
	require.Equal(t, int64(202), x.Seq)
}

func TestListIsNewestFirstAndKeyset(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")),
		enginetest.Workflow("other", enginetest.Set("v", params{"x": 1})))
	var ids []execution.UUID
	for range 7 {
		ids = append(ids, w.Start("flow", "").Exec)
		w.Start("other", "")
	}
	for range 3 {
		w.Complete("work", "")
	}
	var seen []execution.UUID
	r := engine.ListRequest{Namespace: enginetest.Namespace, Workflow: "flow", Limit: 2}
	for {
		page, err := w.Engine.List(t.Context(), r)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, x := range page {
			require.Equal(t, "flow", x.Workflow)
			seen = append(seen, x.ID.Exec)
		}
		r.Below = seen[len(seen)-1]
	}
	for i := range ids {
		require.Equal(t, ids[i], seen[len(seen)-1-i])
	}
	page, err := w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Statuses: []string{"COMPLETED"}, Limit: 100})
	require.NoError(t, err)
	require.Len(t, page, 10)
	page, err = w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Statuses: []string{"RUNNING"}, Limit: 100})
	require.NoError(t, err)
	require.Len(t, page, 4)
	page, err = w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, StartedAfter: time.Now().Add(time.Hour), Limit: 100})
	require.NoError(t, err)
	require.Empty(t, page)
}

func TestLogsAreKeptUnderTheFence(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	end := enginetest.EndOf(l, nil)
	for i := range 11 {
		lines := make([]store.LogLine, 100)
		for k := range lines {
			lines[k] = store.LogLine{Level: 1, Message: fmt.Sprintf("%d\x00", i*100+k)}
		}
		require.NoError(t, w.Engine.AddLogs(t.Context(), end, "w", lines))
	}
	got, err := w.Engine.Logs(t.Context(), id, l.TaskNo, 1, 0, 2000)
	require.NoError(t, err)
	require.Len(t, got, 1000)
	require.Equal(t, "100\uFFFD", got[0].Message)
	end.Fence++
	require.ErrorIs(t, w.Engine.AddLogs(t.Context(), end, "w", []store.LogLine{{Message: "x"}}), store.ErrLeaseLost)
}
