package decider

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/runtime/execution"
	"nf/schema"
)

func TestFailureCancelsWhatIsOpen(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(fork("f", seq(simple("a", retries(0))), seq(simple("b"))), join("j")), declare(plain("work")), `{}`)
	w.step(w.failed("a", "x"))
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.True(t, w.last.Closing.Force)
	require.Equal(t, execution.Failed, w.last.Header.EndStatus)
	require.Equal(t, w.no("a"), w.last.Header.EndNo)
	require.Equal(t, execution.Canceled, w.row("b").Status)
	require.Equal(t, execution.CauseExecutionEnded, w.row("j").Cause)
}

func TestWhatADecisionScheduledBeforeItEndsNeverOpens(t *testing.T) {
	t.Parallel()
	bad := task("bad", schema.TypeWait, with("duration", "never"))
	w := start(t, workflow(fork("f", seq(simple("a")), seq(bad)), join("j")), declare(plain("work")), `{}`)
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Empty(t, w.last.Schedules)
	require.Equal(t, execution.Canceled, w.row("a").Status)
}

func TestResultsOfAnEndingExecutionAreRecordedOnly(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a"), simple("b")), declare(plain("work")), `{}`)
	f := w.completed("a", `{"r":1}`)
	w.head.EndStatus, w.head.EndCause = execution.Terminated, execution.CauseTerminatedByOperator
	d := w.step(f, f, execution.WorkflowTimedOut{}, execution.TerminateRequested{}, execution.Started{},
		execution.DeadlineMissed{Attempt: f.Attempt, Class: execution.ClassTaskTimeout}, execution.WaitElapsed{Attempt: f.Attempt})
	require.Equal(t, 6, d.Dropped)
	require.Len(t, d.Ended, 1)
	require.Equal(t, execution.Completed, d.Ended[0].Status)
	require.Len(t, d.Removed, 1)
	require.Empty(t, d.Schedules)
	require.Nil(t, d.Closing)
}

func TestAForcedEndGoesOnInChunks(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a")), declare(plain("work")), `{}`)
	w.head.EndStatus, w.head.EndCause, w.head.EndReason, w.head.EndNo = execution.Failed, execution.CauseTaskFailed, "why", 1
	d := w.decide(execution.EvaluationContinued{}, execution.EvaluationContinued{})
	require.Equal(t, &execution.Closing{
		Status: execution.Failed, Cause: execution.CauseTaskFailed, Reason: "why", FailedNo: 1, FailedRef: "a", Force: true,
	}, d.Closing)
	require.Equal(t, 1, d.Dropped)
}

func TestTerminateAndWorkflowTimeout(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a"), simple("b")), declare(plain("work")), `{}`)
	done := w.completed("a", "")
	w.step(execution.TerminateRequested{Reason: "no more", Actor: "ci"}, done)
	w.ended(execution.Terminated, execution.CauseTerminatedByOperator)
	require.Equal(t, "no more", w.closed.Reason)
	require.Equal(t, execution.Completed, w.row("a").Status, "its result came with the end and is kept")
	require.False(t, w.has("b"))
	require.Equal(t, EventTerminated, w.events[0].What)
	require.Equal(t, "ci", w.events[0].Actor)

	wf := workflow(simple("a"))
	wf.Timeout = 60_000
	w = start(t, wf, declare(plain("work")), `{}`)
	require.Equal(t, t0.Add(time.Minute), w.deadline)
	w.step(execution.WorkflowTimedOut{})
	w.ended(execution.TimedOut, execution.CauseWorkflowTimeout)
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	d := Abandon(execution.Header{Seq: 4, EndNo: 3}, strings.Repeat("é", 8000))
	require.Equal(t, execution.CauseEvaluationFailed, d.Closing.Cause)
	require.Equal(t, execution.Failed, d.Header.EndStatus)
	require.LessOrEqual(t, len(d.Closing.Reason), execution.MaxReason)
	require.True(t, d.Closing.Force)
}

func TestRecordedThenDecided(t *testing.T) {
	t.Parallel()
	defs := declare(plain("work", func(d *schema.TaskDefinition) { d.TotalTimeout = 100_000 }))
	for _, v := range []struct {
		fact func(w *world) execution.AttemptEnded
		open []string
	}{
		{func(w *world) execution.AttemptEnded { return w.completed("a", `{"r":5}`) }, []string{"b"}},
		{func(w *world) execution.AttemptEnded { return w.failed("a", "x") }, []string{"a"}},
	} {
		direct := start(t, workflow(simple("a"), simple("b", with("r", "${a.output.r}"))), defs, `{}`)
		later := start(t, workflow(simple("a"), simple("b", with("r", "${a.output.r}"))), defs, `{}`)
		direct.step(v.fact(direct))

		f := v.fact(later)
		d := later.p.Record(execution.View{Header: later.head}, later.defs, f, later.now)
		require.Len(t, d.Ended, 1)
		require.Empty(t, d.Schedules)
		later.apply(d)
		row := later.row("a")
		f.Recorded = true
		f.Attempt = execution.Attempt{ // as it is read back from the row
			TaskNo: row.TaskNo, Attempt: row.Attempt, QueueID: row.QueueID, Lane: 99, Kind: row.Kind, ScopeNo: row.ScopeNo, Slot: row.Slot,
			RevID: 7, DefID: row.DefID, DefRev: row.DefRev, ScheduledAt: row.ScheduledAt, VisibleAt: row.VisibleAt, LeasedAt: row.LeasedAt,
			Deliveries: row.Deliveries, Iteration: row.Iteration,
		}
		d = later.step(f, f)
		require.Equal(t, 1, d.Dropped)
		require.Len(t, d.Revised, 1)
		require.Empty(t, d.Ended)
		require.Empty(t, d.Removed)
		require.Equal(t, v.open, later.openRefs())
		require.Equal(t, direct.open, later.open)
		require.Equal(t, fateOf(direct.row("a")), fateOf(later.row("a")))
		require.Equal(t, direct.budget, later.budget)
		require.Equal(t, direct.inputs, later.inputs)
	}
}

func TestFC_061_BudgetCountsTheAttemptUnderDecision(t *testing.T) {
	t.Parallel()
	for total, refused := range map[int64]bool{18: false, 19: true} {
		w := start(t, workflow(simple("a", optional)), declare(plain("work")), `{}`)
		w.limit[1] = 0
		w.budget[1] = execution.Budget{Total: total}
		w.step(w.failed("a", "x"))
		require.Equal(t, refused, w.row("a").Cause == execution.CauseBudgetExhausted, "%d before", total)
	}
}

// huge is a workflow with a wide fork of n branches beside a sequence of three.
func huge(n int) *schema.Workflow {
	branches := [][]*schema.Task{seq(simple("x"), simple("y", with("in", "${x.output.v}"), with("from", "${workflow.input.k}")), simple("z"))}
	for i := range n {
		branches = append(branches, seq(simple(fmt.Sprintf("t%d", i))))
	}
	return workflow(fork("f", branches...), join("j"))
}

func TestACompletionCostsTheSameInAHugeExecution(t *testing.T) {
	t.Parallel()
	var first [][]execution.Needs
	for _, width := range []int{1, 999} {
		w := start(t, huge(width), declare(plain("work")), `{"k":1}`)
		w.settle()
		var asked [][]execution.Needs
		for _, ref := range []string{"x", "y", "z"} {
			w.step(w.completed(ref, `{"v":1}`))
			asked = append(asked, slices.Clone(w.asked))
		}
		if first == nil {
			first = asked
			continue
		}
		require.Equal(t, first, asked)
	}
	require.Equal(t, [][]execution.Needs{
		{{Input: true}},        // x: what the next input refers to
		nil,                    // y: z refers to nothing
		{{Scopes: []int32{1}}}, // z ends a branch
	}, first)
}

func TestJoinsThatCloseOneAnotherTakeFewRounds(t *testing.T) {
	t.Parallel()
	inner := seq(simple("a"))
	for i := range 8 {
		inner = seq(fork(fmt.Sprintf("f%d", i), inner), join(fmt.Sprintf("j%d", i)))
	}
	wf := workflow(inner...)
	wf.OutputParameters = map[string]schema.Value{"k": "${workflow.input.k}", "j": "${j7.output}"}
	w := start(t, wf, declare(plain("work")), `{"k":1}`)
	w.step(w.completed("a", ""))
	w.ended(execution.Completed, "")
	require.LessOrEqual(t, len(w.asked), 10, "one round a join: %v", w.asked)
}

func BenchmarkCompletion(b *testing.B) {
	for _, width := range []int{1, 999} {
		b.Run(fmt.Sprintf("beside %d branches", width), func(b *testing.B) {
			w := start(b, huge(width), declare(plain("work")), `{"k":1}`)
			w.settle()
			f := w.completed("x", `{"v":1}`)
			view := execution.View{Header: w.head, Namespace: "default", Input: w.input, HasInput: true}
			b.ReportAllocs()
			for b.Loop() {
				if d, needs := w.p.Decide(view, w.defs, []execution.Fact{f}, w.now); !needs.Empty() || len(d.Schedules) != 1 {
					b.Fatal("not decided")
				}
			}
		})
	}
}

func TestHelpersOfReads(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a"), fork("f", seq(simple("b")), seq(simple("c", retries(0)))), join("j")), declare(plain("work")), `{}`)
	w.step(w.completed("a", ""))
	var scopes []execution.Scope
	for _, s := range w.scopes {
		scopes = append(scopes, s)
	}
	require.Equal(t, []OpenJoin{{TaskNo: 5, Slot: 4, ForkNo: 2}}, w.p.OpenJoins(scopes))
	rows, h := w.p.CancelJoins(scopes, execution.Header{Seq: 8}, func(int32) time.Time { return t0 }, t0.Add(time.Second))
	require.Len(t, rows, 1)
	require.EqualValues(t, 9, h.Seq)
	require.Equal(t, t0, rows[0].ScheduledAt)
	require.Equal(t, "j", w.p.Ref(4))
	require.Equal(t, schema.TypeJoin, w.p.Task(4).Type)
	require.Nil(t, w.p.Task(5))
	require.Empty(t, w.p.Ref(-1))
	slot, ok := w.p.SlotOf("c")
	require.True(t, ok)
	require.EqualValues(t, 3, slot)
	_, ok = w.p.NumberOf("nope")
	require.False(t, ok)
	require.Equal(t, 5, w.p.Len())
	require.EqualValues(t, 7, w.p.RevID())
	require.NotNil(t, w.p.Workflow())
	require.EqualValues(t, 4, w.p.MaxAttempts(0, plain("work")))
	require.EqualValues(t, 1, w.p.MaxAttempts(3, plain("work")))
	require.EqualValues(t, 1, w.p.MaxAttempts(4, nil))
	require.EqualValues(t, 1, w.p.MaxAttempts(1, nil))
	require.Zero(t, w.p.MaxAttempts(99, nil))
}

// TestNoFactMakesItPanic throws facts at the decider that no engine would.
func TestNoFactMakesItPanic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		wf := g.workflow()
		w := newWorld(t, wf, library(), `{}`)
		attempt := func() execution.Attempt {
			return execution.Attempt{
				TaskNo: rapid.Int32Range(-2, 20).Draw(t, "no"), Slot: rapid.Int32Range(-2, 20).Draw(t, "slot"), Attempt: rapid.Int32Range(-1, 3).Draw(t, "n"),
				Kind: execution.Kind(rapid.Int16Range(-1, 11).Draw(t, "kind")), DefID: rapid.Int32Range(-1, 3).Draw(t, "def"),
				RetriesLeft: rapid.Int32Range(-1, 3).Draw(t, "left"), Place: execution.Place(rapid.Int8Range(0, 4).Draw(t, "place")),
				Why: execution.Why(rapid.SampledFrom([]int16{0, 1, 10, 16, 20}).Draw(t, "why")), AttBy: t0,
			}
		}
		aligned := func() execution.Attempt {
			at := attempt()
			if n := w.p.node(at.TaskNo); n != nil {
				at.Slot, at.Kind = n.slot, n.kind
			}
			return at
		}
		junk := rapid.SampledFrom([]string{"", "{", `[]`, `{"duration":"x"}`, "null"})
		var facts []execution.Fact
		for range rapid.IntRange(0, 5).Draw(t, "facts") {
			facts = append(facts, rapid.SampledFrom([]execution.Fact{
				nil,
				execution.Started{},
				execution.WorkflowTimedOut{},
				execution.TerminateRequested{Reason: "\xff\x00"},
				execution.EvaluationContinued{TaskNo: rapid.Int32Range(-3, 20).Draw(t, "mark")},
				execution.AttemptEnded{
					Attempt: aligned(), Status: execution.Status(rapid.Int16Range(9, 25).Draw(t, "status")), Output: []byte(junk.Draw(t, "out")),
					Recorded: rapid.Bool().Draw(t, "recorded"), MinWait: -1,
				},
				execution.AttemptEnded{Attempt: attempt()},
				execution.WaitElapsed{Attempt: aligned()},
				execution.DeadlineMissed{Attempt: aligned(), Class: execution.ClassTaskTimeout},
				execution.DeadlineMissed{Attempt: aligned(), Class: "NOPE"},
			}).Draw(t, "fact"))
		}
		view := execution.View{Header: w.head}
		view.Header.NextNo = rapid.Int32Range(0, 2).Draw(t, "next")
		view.Header.Loose = rapid.Int32Range(-1, 2).Draw(t, "loose")
		view.Header.EndNo = rapid.Int32Range(-1, 3).Draw(t, "end")
		for range 10 {
			_, needs := w.p.Decide(view, w.defs, facts, t0)
			if needs.Empty() {
				return
			}
			w.load(&view, needs)
			for _, no := range needs.Scopes {
				view.Scopes[no] = execution.Scope{
					ScopeNo: rapid.SampledFrom([]int32{0, no}).Draw(t, "scope"), Open: rapid.Int32Range(-1, 3).Draw(t, "open"),
					Pending: rapid.Int32Range(-1, 3).Draw(t, "pending"), Fired: rapid.Bool().Draw(t, "fired"), Width: 2,
				}
			}
			for _, no := range needs.Tasks {
				view.Tasks[no] = execution.TaskValue{Ended: rapid.Bool().Draw(t, "ended"), Output: []byte(junk.Draw(t, "task output"))}
			}
			for _, no := range needs.Inputs {
				view.Inputs[no] = []byte(junk.Draw(t, "task input"))
			}
		}
	})
}
