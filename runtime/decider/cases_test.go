package decider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/schema"
)

func TestBG_01_DueTimesDouble(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.Retry.RetryCount = 5 })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	for i, want := range []time.Duration{1, 2, 4, 8, 16} {
		w.step(w.failed("a", "no"))
		row := w.row("a")
		require.Equal(t, w.now.Add(want*time.Second), row.NextDueAt)
		require.Equal(t, int64(want)*1000, row.DelayPolicy)
		require.Equal(t, "policy", row.DelaySource)
		require.EqualValues(t, i+2, w.at("a").Attempt)
		require.Equal(t, execution.InTimer, w.at("a").Place)
		require.Equal(t, execution.WhyBackoff, w.at("a").Why)
	}
	w.step(w.failed("a", "no"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.True(t, w.row("a").Exhausted)
	require.Equal(t, execution.CauseWorkerFailed, w.row("a").Cause, "the last attempt keeps its own cause")
	require.Equal(t, "a", w.closed.FailedRef)
	require.Equal(t, "a ended FAILED, WORKER_FAILED: no", w.closed.Reason)
}

func TestBG_02_SystemTasksObeyThePolicyToo(t *testing.T) {
	t.Parallel()
	def := plain("call", func(d *schema.TaskDefinition) { d.Retry.Logic, d.Retry.Delay = schema.RetryFixed, 5000 })
	w := start(t, workflow(task("h", schema.TypeHTTP, named("call"), with("uri", "https://api.example.com/x"))), declare(def), `{}`)
	f := w.failed("h", "503 Service Unavailable")
	f.Cause = execution.CauseHTTPStatus
	w.step(f)
	require.Equal(t, w.now.Add(5*time.Second), w.at("h").VisibleAt)
	f = w.failed("h", "429")
	f.Cause, f.MinWait, f.Source = execution.CauseHTTPStatus, 60_000, "retryAfter"
	w.step(f)
	require.Equal(t, w.now.Add(time.Minute), w.at("h").VisibleAt)
	require.Equal(t, "retryAfter", w.row("h").DelaySource)
	require.EqualValues(t, 60_000, w.row("h").DelayMin)
}

func TestBG_04_BranchesThatFailTogetherAreBothRetried(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		def := plain("work", func(d *schema.TaskDefinition) { d.RetryBudget = 1 })
		w := start(t, workflow(fork("f", seq(simple("a")), seq(simple("b"))), join("j")), declare(def), `{}`)
		facts := []execution.Fact{w.failed("a", "x"), w.failed("b", "y")}
		if i%2 == 1 {
			facts[0], facts[1] = facts[1], facts[0]
		}
		w.step(facts...)
		require.Nil(t, w.closed)
		require.Equal(t, []string{"a", "b"}, w.openRefs())
		require.EqualValues(t, 2, w.at("a").Attempt)
		require.EqualValues(t, 2, w.at("b").Attempt)
		require.EqualValues(t, 2, w.at("b").RetriesLeft)
	}
}

func TestBG_07_CeilingAndTotal(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.Retry.RetryCount, d.Retry.Delay = 12, 60_000 })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	for range 12 {
		w.step(w.failed("a", "x"))
		require.LessOrEqual(t, w.row("a").DelayPolicy, int64(3_600_000))
	}
	require.EqualValues(t, 3_600_000, w.row("a").DelayPolicy)

	def = plain("work", func(d *schema.TaskDefinition) {
		d.Retry.RetryCount, d.Retry.Delay, d.TotalTimeout = 12, 60_000, 600_000
	})
	w = start(t, workflow(simple("a")), declare(def), `{}`)
	for range 3 { // 60 + 120 + 240 s; the next 480 s would end beyond 600 s
		w.step(w.failed("a", "x"))
		require.Equal(t, t0.Add(10*time.Minute), w.at("a").TotalBy, "runs over all attempts")
	}
	w.step(w.failed("a", "still x"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseRetryPastDeadline, w.row("a").Cause)
	require.Equal(t, "still x", w.row("a").Reason)
	require.False(t, w.row("a").Exhausted)
}

func TestRetryPastTheWorkflowsDeadline(t *testing.T) {
	t.Parallel()
	wf := workflow(simple("a"))
	wf.Timeout = 1000
	w := start(t, wf, declare(plain("work")), `{}`)
	require.Equal(t, t0.Add(time.Second), w.deadline)
	w.step(w.failed("a", "x")) // due exactly at the deadline is too late
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseRetryPastDeadline, w.row("a").Cause)
}

func TestBG_10_OptionalAndAlertOnly(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.TimeoutPolicy, d.Timeout = schema.TimeoutAlertOnly, 2000 })
	w := start(t, workflow(simple("a", optional)), declare(def), `{}`)
	w.leased("a")
	missed := w.missed("a", execution.ClassTaskTimeout)
	w.step(missed)
	require.Len(t, w.events, 1)
	require.Equal(t, EventDeadlineMissed, w.events[0].What)
	require.JSONEq(t, `{"class":"TASK_TIMEOUT","attempt":1,"reason":"late"}`, string(w.events[0].Detail))
	require.Equal(t, []string{"a"}, w.openRefs())
	require.Zero(t, w.at("a").AttBy, "only that class is disarmed")
	d := w.step(execution.DeadlineMissed{Attempt: w.at("a"), Class: execution.ClassTaskTimeout})
	require.Equal(t, 1, d.Dropped, "once per class and attempt")
	w.step(w.completed("a", `{"late":true}`))
	w.ended(execution.Completed, "")
}

func TestAlertOnlyOncePerClassInOneBatch(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) {
		d.TimeoutPolicy, d.Timeout, d.StartToCloseTimeout = schema.TimeoutAlertOnly, 2000, 2000
	})
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	w.leased("a")
	task, closing := w.missed("a", execution.ClassTaskTimeout), w.missed("a", execution.ClassStartToClose)
	d := w.step(task, task, closing)
	require.Equal(t, 1, d.Dropped)
	require.Len(t, w.events, 2)
	require.Len(t, d.Disarmed, 2)
}

func TestBG_17_EveryAttemptArmsItsOwnDeadlines(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) {
		d.TimeoutPolicy, d.Timeout, d.ScheduleToStartTimeout = schema.TimeoutRetry, 10_000, 4000
	})
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	require.Equal(t, t0.Add(4*time.Second), w.at("a").StartBy)
	require.Equal(t, t0.Add(10*time.Second), w.at("a").AttBy)
	w.step(w.missed("a", execution.ClassScheduleToStart))
	require.Equal(t, execution.TimedOut, w.row("a").Status)
	require.Equal(t, execution.CauseScheduleToStart, w.row("a").Cause)
	second := w.at("a")
	require.EqualValues(t, 2, second.Attempt)
	require.Equal(t, w.now.Add(time.Second), second.VisibleAt)
	require.Equal(t, second.VisibleAt.Add(4*time.Second), second.StartBy)
	require.Equal(t, second.VisibleAt.Add(10*time.Second), second.AttBy)
}

func TestFC_160_RetryPolicyEndsTimedOutWhenAttemptsRunOut(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) {
		d.TimeoutPolicy, d.Timeout, d.Retry.RetryCount = schema.TimeoutRetry, 10_000, 2
	})
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	for range 3 {
		require.Nil(t, w.closed)
		w.step(w.missed("a", execution.ClassTaskTimeout))
	}
	w.ended(execution.TimedOut, execution.CauseTaskTimedOut)
	require.EqualValues(t, 3, w.row("a").Attempt)
	require.Equal(t, execution.CauseTaskTimeout, w.row("a").Cause)
	require.True(t, w.row("a").Exhausted)
}

func TestFC_161_TimeOutWFNeverSpendsRetries(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.Timeout = 10_000 })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	w.leased("a")
	w.step(w.missed("a", execution.ClassTaskTimeout))
	w.ended(execution.TimedOut, execution.CauseTaskTimedOut)
	require.EqualValues(t, 1, w.row("a").Attempt)
	require.Empty(t, w.last.Budget[0].Retries)
}

func TestTotalTimeoutIsNeverRetried(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.TimeoutPolicy, d.TotalTimeout = schema.TimeoutRetry, 10_000 })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	w.step(w.missed("a", execution.ClassTotal))
	w.ended(execution.TimedOut, execution.CauseTaskTimedOut)
	require.Equal(t, execution.CauseTotalTimeout, w.row("a").Cause)
}

func TestTotalUnderAlertOnlyMakesNoWaitImpossible(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.TimeoutPolicy, d.TotalTimeout = schema.TimeoutAlertOnly, 500 })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	w.step(w.failed("a", "x"))
	require.EqualValues(t, 2, w.at("a").Attempt)
}

func TestBG_23_ADeadlineAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.Timeout = 10_000 })
	w := start(t, workflow(simple("a"), simple("b")), declare(def), `{}`)
	done := w.completed("a", "")
	missed := w.missed("a", execution.ClassTaskTimeout)
	d := w.step(done, missed)
	require.Equal(t, 1, d.Dropped)
	require.Equal(t, execution.Completed, w.row("a").Status)
	w = start(t, workflow(simple("a"), simple("b")), declare(def), `{}`)
	done = w.completed("a", "")
	missed = w.missed("a", execution.ClassTaskTimeout)
	d = w.step(missed, done)
	require.Equal(t, 1, d.Dropped)
	require.Equal(t, execution.TimedOut, w.row("a").Status)
}

func TestADeadlineNeverFiresEarly(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) {
		d.Timeout, d.StartToCloseTimeout, d.ScheduleToStartTimeout = 10_000, 5000, 5000
	})
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	ready := w.at("a")
	w.now = t0.Add(9999 * time.Millisecond)
	d := w.decide(execution.DeadlineMissed{Attempt: ready, Class: execution.ClassTaskTimeout})
	require.Equal(t, 1, d.Dropped)
	d = w.decide(execution.DeadlineMissed{Attempt: ready, Class: execution.ClassStartToClose})
	require.Equal(t, 1, d.Dropped, "it runs from the lease")
	leased := w.leased("a")
	w.now = t0.Add(time.Hour)
	d = w.decide(execution.DeadlineMissed{Attempt: leased, Class: execution.ClassScheduleToStart})
	require.Equal(t, 1, d.Dropped, "it has started")
}

func TestNonRetryableErrors(t *testing.T) {
	t.Parallel()
	def := plain("work", func(d *schema.TaskDefinition) { d.Retry.NonRetryableErrors = []string{"card declined"} })
	w := start(t, workflow(simple("a")), declare(def), `{}`)
	w.step(w.failed("a", "Card declined")) // case counts
	require.EqualValues(t, 2, w.at("a").Attempt)
	w.step(w.failed("a", "402: card declined by issuer"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseNonRetryable, w.row("a").Cause)
	require.Equal(t, execution.Failed, w.row("a").Status)
	require.Equal(t, "402: card declined by issuer", w.row("a").Reason)
}

func TestTerminalAndUnknownOutcomesAreFinal(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	w.step(w.failedForGood("a", "bad"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseWorkerTerminal, w.row("a").Cause)

	w = start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	f := w.failed("a", "lost")
	f.Cause = execution.CauseOutcomeUnknown
	w.step(f)
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseOutcomeUnknown, w.row("a").Cause)

	w = start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	f = w.failed("a", "5 deliveries")
	f.Cause = execution.CauseDeliveriesExhausted
	w.step(f)
	require.EqualValues(t, 2, w.at("a").Attempt, "the retry policy decides")
	require.Zero(t, w.at("a").Deliveries)
}

func TestOptionalAbsorbsWhateverIsLeft(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a", optional), simple("b", with("s", "${a.status}"), with("o", "${a.output.part}"))), declare(plain("work")), `{}`)
	f := w.failedForGood("a", "bad")
	f.Output = []byte(`{"part":7}`)
	w.step(f)
	require.True(t, w.row("a").Absorbed)
	require.Equal(t, execution.FailedTerm, w.row("a").Status, "the attempt keeps its own")
	require.JSONEq(t, `{"s":"COMPLETED_WITH_ERRORS","o":7}`, string(w.inputs[w.no("b")]))
	w.step(w.completed("b", ""))
	w.ended(execution.Completed, "")
}

func TestFC_056_ABudgetThatIsSpentIsFinal(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	w.limit[1] = 0.3
	w.budget[1] = execution.Budget{Total: 99, Retries: 31}
	w.step(w.failed("a", "x"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseBudgetExhausted, w.row("a").Cause)
	require.Equal(t, ControlRetryBudget, w.row("a").Control)
	require.Equal(t, []execution.BudgetDelta{{DefID: 1, Total: 1}}, w.last.Budget)
}

func TestFC_058_BudgetsAreIndependent(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(fork("f", seq(simple("a", optional)), seq(simple("b", named("other")))), join("j")),
		declare(plain("work"), plain("other")), `{}`)
	w.limit[1], w.limit[2] = 0, 0
	w.budget[1] = execution.Budget{Total: 500}
	w.step(w.failed("a", "x"), w.failed("b", "y"))
	require.Equal(t, execution.CauseBudgetExhausted, w.row("a").Cause)
	require.EqualValues(t, 2, w.at("b").Attempt)
}

func TestFC_059_FailuresOfOneDecisionWeighOnEachOther(t *testing.T) {
	t.Parallel()
	const width = 100
	var branches [][]*schema.Task
	for i := range width {
		branches = append(branches, seq(simple(fmt.Sprintf("t%d", i), optional)))
	}
	w := start(t, workflow(fork("f", branches...), join("j")), declare(plain("work")), `{}`)
	w.settle()
	w.limit[1] = 0.2
	var facts []execution.Fact
	for i := range width {
		facts = append(facts, w.failed(fmt.Sprintf("t%d", i), "x"))
	}
	w.step(facts...)
	require.InDelta(t, 20, len(w.open), 6)
	require.EqualValues(t, width, w.budget[1].Total)
	require.EqualValues(t, len(w.open), w.budget[1].Retries)
}

func TestFC_062_TheBudgetIsLive(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	w.budget[1] = execution.Budget{Total: 50, Retries: 40}
	w.step(w.failed("a", "x")) // no row of a budget: limit 1
	require.EqualValues(t, 2, w.at("a").Attempt)
	w.limit[1] = 0.3
	w.step(w.failed("a", "x"))
	require.Equal(t, execution.CauseBudgetExhausted, w.row("a").Cause)
}

func TestBG_58_CasesAreExactText(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		value any
		input string // of the execution
		runs  string
		text  string
	}{
		{"a", "", "lower", `"a"`},
		{"A", "", "upper", `"A"`},
		{"á", "", "other", `"á"`},
		{"a ", "", "other", `"a "`},
		{true, "", "yes", `"true"`},
		{false, "", "other", `"false"`},
		{"true", "", "yes", `"true"`},
		{json.Number("1"), "", "one", `"1"`},
		{json.Number("1.0"), "", "one", `"1"`},
		{json.Number("1e0"), "", "one", `"1"`},
		{"${workflow.input.n}", `{"n":1.0}`, "one", `"1"`},
		{"1.0", "", "other", `"1.0"`},
		{nil, "", "other", "null"},
		{"${workflow.input.gone}", "", "other", "null"},
		{[]any{"a"}, "", "other", "null"},
		{map[string]any{"a": "a"}, "", "other", "null"},
	} {
		s := choice("s", "", map[string][]*schema.Task{
			"A": seq(simple("upper")), "a": seq(simple("lower")), "true": seq(simple("yes")), "1": seq(simple("one")),
		}, simple("other"))
		s.InputParameters["v"] = v.value
		w := start(t, workflow(s), declare(plain("work")), v.input)
		require.Equal(t, []string{v.runs}, w.openRefs(), "%v", v.value)
		require.JSONEq(t, `{"caseValue":`+v.text+`}`, string(w.row("s").Output))
		skipped := 0
		for _, row := range w.rows {
			if row.Status == execution.Skipped {
				skipped++
			}
		}
		require.Equal(t, 4, skipped)
	}
}

func TestSwitchWithoutMatchGoesOn(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(choice("s", "zz", map[string][]*schema.Task{"a": seq(simple("x"))}), simple("y", with("in", "${x.output.k}"))),
		declare(plain("work")), `{}`)
	require.Equal(t, []string{"y"}, w.openRefs())
	require.JSONEq(t, `{"in":null}`, string(w.inputs[w.no("y")]), "an untaken branch is null")
	w = start(t, workflow(choice("s", "zz", map[string][]*schema.Task{"a": seq(simple("x"))})), declare(plain("work")), `{}`)
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"caseValue":"zz"}`, string(w.closed.Output))
}

func TestBG_92_TerminateEndsAsItSays(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		status any
		want   execution.Status
		cause  execution.Cause
	}{
		{"TERMINATED", execution.Terminated, execution.CauseTerminatedByTask},
		{"FAILED", execution.Failed, execution.CauseTerminatedByTask},
		{"COMPLETED", execution.Completed, ""},
		{nil, execution.Completed, ""},
		{"${workflow.input.s}", execution.Terminated, execution.CauseTerminatedByTask},
	} {
		stop := task("t", schema.TypeTerminate, with("terminationStatus", v.status), with("terminationReason", "enough"))
		w := start(t, workflow(fork("f", seq(simple("a")), seq(stop, simple("never"))), join("j")), declare(plain("work")), `{"s":"TERMINATED"}`)
		w.ended(v.want, v.cause)
		require.Equal(t, "enough", w.closed.Reason)
		require.False(t, w.has("never"))
		require.Equal(t, execution.Canceled, w.row("a").Status)
		require.Equal(t, execution.Canceled, w.row("j").Status)
		require.Equal(t, execution.Completed, w.row("t").Status)
	}
}

func TestTerminateOutput(t *testing.T) {
	t.Parallel()
	stop := task("t", schema.TypeTerminate, with("workflowOutput", map[string]any{"n": "${workflow.input.n}"}))
	w := start(t, workflow(stop), declare(), `{"n":3}`)
	w.ended(execution.Completed, "")
	require.False(t, w.last.Closing.Force, "nothing else is open")
	require.JSONEq(t, `{"n":3}`, string(w.closed.Output))

	wf := workflow(simple("a"), task("t", schema.TypeTerminate))
	wf.OutputParameters = map[string]schema.Value{"got": "${a.output.k}"}
	w = start(t, wf, declare(plain("work")), `{}`)
	w.step(w.completed("a", `{"k":"v"}`))
	require.JSONEq(t, `{"got":"v"}`, string(w.closed.Output))

	for _, bad := range []*schema.Task{
		task("t", schema.TypeTerminate, with("terminationStatus", "DONE")),
		task("t", schema.TypeTerminate, with("terminationStatus", "FAILED"), with("workflowOutput", map[string]any{})),
		task("t", schema.TypeTerminate, with("workflowOutput", "text")),
	} {
		w = start(t, workflow(bad), declare(), `{}`)
		w.ended(execution.Failed, execution.CauseTaskFailed)
		require.Equal(t, execution.CauseInputInvalid, w.row("t").Cause)
	}
}

func TestBG_116_JoinOutputTooLarge(t *testing.T) {
	t.Parallel()
	const width = 500
	var branches [][]*schema.Task
	for i := range width {
		branches = append(branches, seq(simple(fmt.Sprintf("t%d", i))))
	}
	w := start(t, workflow(fork("f", branches...), join("j")), declare(plain("work")), `{}`)
	w.settle()
	require.Len(t, w.open, width)
	output := `{"x":"` + strings.Repeat("y", 50_000) + `"}`
	for i := range width {
		w.step(w.completed(fmt.Sprintf("t%d", i), output))
	}
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.FailedTerm, w.row("j").Status)
	require.Equal(t, execution.CauseOutputTooLarge, w.row("j").Cause)
	require.Contains(t, w.row("j").Reason, "6 MiB")
	require.Empty(t, w.row("j").Output)
}

func TestOutputTooLargeAndInvalid(t *testing.T) {
	t.Parallel()
	defs := declare(plain("work"))
	w := start(t, workflow(simple("a")), defs, `{}`)
	w.step(w.completed("a", `{"x":"`+strings.Repeat("y", execution.MaxPayload)+`"}`))
	require.Equal(t, execution.CauseOutputTooLarge, w.row("a").Cause)
	w.ended(execution.Failed, execution.CauseTaskFailed)

	pinned := defs.put(plain("work"))
	pinned.CheckOutput = func(v any) error {
		if _, ok := v.(map[string]any)["id"]; !ok {
			return errors.New(`"id" is missing`)
		}
		return nil
	}
	pinned.CheckInput = func(v any) error {
		if v.(map[string]any)["n"] == nil {
			return errors.New(`"n" is missing`)
		}
		return nil
	}
	defs.current["work"], defs.revs[pinned.DefRev] = pinned, pinned
	w = start(t, workflow(simple("a", with("n", "${workflow.input.n}"))), defs, `{"n":1}`)
	w.step(w.completed("a", `{"other":1}`))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseOutputInvalid, w.row("a").Cause)
	require.Equal(t, execution.FailedTerm, w.row("a").Status)
	require.JSONEq(t, `{"other":1}`, string(w.row("a").Output), "kept, to be looked at")

	w = start(t, workflow(simple("a", with("n", "${workflow.input.n}"))), defs, `{}`)
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseInputInvalid, w.row("a").Cause)
	require.Equal(t, `"n" is missing`, w.row("a").Reason)
	require.Zero(t, w.row("a").Deliveries)
	require.False(t, w.last.Closing.Force)
}

func TestP6_PolicyIsPinnedWithTheTaskRun(t *testing.T) {
	t.Parallel()
	defs := declare(plain("work", func(d *schema.TaskDefinition) { d.Retry.Logic, d.Retry.Delay = schema.RetryFixed, 3000 }))
	w := start(t, workflow(simple("a", retries(1)), simple("b")), defs, `{}`)
	require.EqualValues(t, 1, w.at("a").RetriesLeft, "the task's retryCount is laid over the policy")
	defs.put(plain("work", func(d *schema.TaskDefinition) { d.Retry.RetryCount, d.Retry.Delay = 9, 70_000 }))
	w.step(w.failed("a", "x"))
	require.EqualValues(t, 3000, w.row("a").DelayPolicy)
	w.step(w.completed("a", ""))
	require.EqualValues(t, 9, w.at("b").RetriesLeft, "a task scheduled later takes what is in force")
}
