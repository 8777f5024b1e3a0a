package decider

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/schema"
)

func TestSequenceCompletes(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(simple("a", with("x", "${workflow.input.n}")), simple("b", with("y", "${a.output.r}"))), declare(plain("work")), `{"n":5}`)
	require.Equal(t, []string{"a"}, w.openRefs())
	require.JSONEq(t, `{"x":5}`, string(w.inputs[w.no("a")]))
	require.Equal(t, execution.QueueKey{NS: 1, Name: "work", DefID: 1}, w.queues[1])
	w.step(w.completed("a", `{"r":[1,2]}`))
	require.Equal(t, []string{"b"}, w.openRefs())
	require.JSONEq(t, `{"y":[1,2]}`, string(w.inputs[w.no("b")]))
	require.Empty(t, w.asked, "what the next input refers to has just been reported")
	w.step(w.completed("b", `{"done":true}`))
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"done":true}`, string(w.closed.Output))
}

func TestForkJoin(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(fork("f", seq(simple("a"), simple("b")), seq(simple("c"))), join("j"), simple("z", with("in", "${j.output}"))),
		declare(plain("work")), `{}`)
	require.Equal(t, []string{"a", "c"}, w.openRefs())
	w.step(w.completed("c", `{"c":1}`))
	w.step(w.completed("a", ""))
	w.step(w.completed("b", `{"b":2}`))
	require.Equal(t, []string{"z"}, w.openRefs())
	require.JSONEq(t, `{"in":{"b":{"b":2},"c":{"c":1}}}`, string(w.inputs[w.no("z")]))
	require.Empty(t, w.scopes)
	w.step(w.completed("z", ""))
	w.ended(execution.Completed, "")
}

func TestLooseBranchHoldsTheEnd(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(fork("f", seq(simple("a")), seq(simple("slow"))), join("j", "a")), declare(plain("work")), `{}`)
	w.step(w.completed("a", `{"a":1}`))
	require.True(t, w.has("j"))
	require.Nil(t, w.closed)
	require.EqualValues(t, 1, w.head.Loose)
	require.Equal(t, w.no("j"), w.head.EndNo)
	w.step(w.completed("slow", ""))
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"a":{"a":1}}`, string(w.closed.Output))
}

func TestBG_55_MatchedEmptyCaseRunsNothing(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(choice("s", "a", map[string][]*schema.Task{"a": {}}, simple("d")), simple("z")), declare(plain("work")), `{}`)
	require.Equal(t, []string{"z"}, w.openRefs())
	require.Equal(t, execution.Skipped, w.row("d").Status)
	require.Equal(t, execution.CauseBranchNotTaken, w.row("d").Cause)
	require.JSONEq(t, `{"caseValue":"a"}`, string(w.row("s").Output))
}
