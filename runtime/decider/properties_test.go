package decider

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/runtime/execution"
	"nf/schema"
)

// fact draws one thing that may happen to an open attempt.
func fact(t *rapid.T, w *world, ref string) execution.Fact {
	at := w.at(ref)
	var may []execution.Fact
	for _, class := range []execution.DeadlineClass{
		execution.ClassScheduleToStart, execution.ClassStartToClose, execution.ClassTaskTimeout, execution.ClassTotal,
	} {
		if d := *armed(&at, class); !d.IsZero() {
			may = append(may, execution.DeadlineMissed{Attempt: at, Class: class, Reason: "late"})
		}
	}
	if at.Kind.Class().Dispatched() {
		if at.Place != execution.InLease && len(may) > 0 && rapid.IntRange(0, 9).Draw(t, "expire") == 0 {
			return w.due(rapid.SampledFrom(may).Draw(t, "fact"))
		}
		k := rapid.SampledFrom([]string{`{"k":"a"}`, `{"k":"b"}`, `{"k":true}`, ``}).Draw(t, "out")
		failed := w.failed(ref, rapid.SampledFrom([]string{"oops", "fatal oops"}).Draw(t, "reason"))
		failed.MinWait, failed.Source = schema.Millis(rapid.SampledFrom([]int{0, 0, 700}).Draw(t, "min")), "worker"
		unknown := failed
		unknown.Cause = execution.CauseOutcomeUnknown
		may = append(may, w.completed(ref, k), w.completed(ref, k), w.completed(ref, k), failed, failed, w.failedForGood(ref, "bad"), unknown)
	}
	if at.Place == execution.InTimer && at.Why == execution.WhyWait {
		may = append(may, execution.WaitElapsed{Attempt: at}, execution.WaitElapsed{Attempt: at})
	}
	if len(may) == 0 {
		return nil
	}
	return w.due(rapid.SampledFrom(may).Draw(t, "fact"))
}

// due moves time on until a fact may be true.
func (w *world) due(f execution.Fact) execution.Fact {
	switch f := f.(type) {
	case execution.DeadlineMissed:
		w.now = latestOf(w.now, *armed(&f.Attempt, f.Class))
		if at, ok := w.open[f.Attempt.TaskNo]; ok {
			f.Attempt = at
		}
		if armed(&f.Attempt, f.Class).IsZero() {
			return nil
		}
		return f
	case execution.WaitElapsed:
		w.now = latestOf(w.now, f.Attempt.VisibleAt)
		if !f.Attempt.AttBy.IsZero() && f.Attempt.AttBy.Before(f.Attempt.VisibleAt) {
			return nil // the deadline comes first
		}
	}
	return f
}

func TestDeciderEqualsTheOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		wf, defs, input := g.workflow(), library(), `{"k":"a"}`
		w, o := newWorld(t, wf, defs, input), newOracle(wf, defs, input)
		spent := rapid.Bool().Draw(t, "budget")
		for id := int32(1); id <= int32(len(defs.current)); id++ {
			b := execution.Budget{Limit: 1}
			if spent {
				b = execution.Budget{Limit: 0.3, Total: 18, Retries: 5}
			}
			w.limit[id], w.budget[id], o.budget[id] = b.Limit, b, b
		}
		both := func(facts ...execution.Fact) {
			w.step(facts...)
			o.step(w.now, facts)
			compare(t, w, o)
		}
		both(execution.Started{})
		for range 60 {
			if w.closed != nil {
				require.Empty(t, w.open)
				return
			}
			waits(t, w)
			facts := draw(t, w)
			if len(facts) == 0 {
				continue
			}
			twice(t, w, facts)
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "pass")) * time.Millisecond)
			both(facts...)
		}
	})
}

// draw picks one to three things that happen together.
func draw(t *rapid.T, w *world) []execution.Fact {
	if rapid.IntRange(0, 99).Draw(t, "rare") == 0 {
		return []execution.Fact{rapid.SampledFrom([]execution.Fact{
			execution.WorkflowTimedOut{}, execution.TerminateRequested{Reason: "stop", Actor: "me"},
		}).Draw(t, "end")}
	}
	var facts []execution.Fact
	refs := w.openRefs()
	for _, ref := range rapid.Permutation(refs).Draw(t, "order")[:min(len(refs), rapid.IntRange(1, 3).Draw(t, "together"))] {
		if f := fact(t, w, ref); f != nil {
			facts = append(facts, f)
		}
	}
	return facts
}

// waits holds a run that has not ended to having something that will move it on.
func waits(t *rapid.T, w *world) {
	if len(w.open) == 0 && len(w.marks) == 0 {
		require.Fail(t, "the execution waits for nothing", "scopes %v", w.scopes)
	}
	for _, at := range w.open {
		if at.Kind == execution.KindJoin {
			continue
		}
		require.True(t, at.Place != execution.InTimer || !at.VisibleAt.IsZero() || !at.AttBy.IsZero(), "nothing ends %d", at.TaskNo)
	}
}

// twice holds the decider to giving the same bytes for the same input, and to a repeated fact changing nothing.
func twice(t *rapid.T, w *world, facts []execution.Fact) {
	first := text(t, w.decide(facts...))
	require.Equal(t, first, text(t, w.decide(facts...)))
	repeated := w.decide(append(slices.Clone(facts), facts...)...)
	once := w.decide(facts...)
	repeated.Dropped = once.Dropped
	require.Equal(t, first, text(t, repeated))
}

func text(t *rapid.T, d execution.Decision) string {
	b, err := json.Marshal(d)
	require.NoError(t, err)
	return string(b)
}

// fate is what must agree about a row.
type fate struct {
	Status    string
	Cause     execution.Cause
	Absorbed  bool
	Exhausted bool
	Control   string
	Next      string
	Output    string
}

func fateOf(row execution.TaskRow) fate {
	f := fate{row.Status.String(), row.Cause, row.Absorbed, row.Exhausted, row.Control, "", ""}
	if !row.NextDueAt.IsZero() {
		f.Next = row.NextDueAt.Format(time.RFC3339Nano)
	}
	if len(row.Output) > 0 {
		var v any
		if err := json.Unmarshal(row.Output, &v); err != nil {
			panic(err)
		}
		f.Output = fmt.Sprint(v)
	}
	return f
}

func compare(t *rapid.T, w *world, o *oracle) {
	rows, must := map[string]fate{}, map[string]fate{}
	for _, row := range w.rows {
		rows[fmt.Sprintf("%s/%d", w.p.Ref(row.TaskNo-1), row.Attempt)] = fateOf(row)
	}
	for ref, r := range o.runs {
		for _, row := range r.rows {
			must[fmt.Sprintf("%s/%d", ref, row.Attempt)] = fateOf(row)
		}
	}
	require.Equal(t, must, rows)
	open, mustBeOpen := map[string]execution.Attempt{}, map[string]execution.Attempt{}
	for _, at := range w.open {
		open[w.p.Ref(at.Slot)] = agreed(at)
	}
	for ref, r := range o.runs {
		if r.open != nil {
			at := *r.open
			if claimed, ok := w.open[at.TaskNo]; ok && claimed.Place == execution.InLease { // claims are the world's
				at.Place, at.Why, at.StartBy = execution.InLease, 0, time.Time{}
			}
			mustBeOpen[ref] = agreed(at)
		}
	}
	require.Equal(t, mustBeOpen, open)
	require.Equal(t, o.closed == nil, w.closed == nil)
	if w.closed != nil {
		require.Equal(t, o.closed.Status, w.closed.Status)
		require.Equal(t, o.closed.Cause, w.closed.Cause)
		require.Equal(t, o.closed.FailedRef, w.closed.FailedRef)
		if w.closed.Status == execution.Completed {
			require.Equal(t, fateOf(execution.TaskRow{Output: o.closed.Output}), fateOf(execution.TaskRow{Output: w.closed.Output}))
		}
		return
	}
	require.Equal(t, o.scopes(), w.scopes)
	require.Equal(t, o.loose(), w.head.Loose)
	for id, b := range o.budget {
		require.Equal(t, b.Total, w.budget[id].Total)
		require.Equal(t, b.Retries, w.budget[id].Retries)
	}
	vars := map[string]any{}
	for name, v := range w.vars {
		var value any
		require.NoError(t, json.Unmarshal(v, &value))
		vars[name] = value
	}
	require.Equal(t, o.vars, vars)
}

// agreed keeps of an attempt what both must agree about.
func agreed(at execution.Attempt) execution.Attempt {
	return execution.Attempt{
		TaskNo: at.TaskNo, Attempt: at.Attempt, Kind: at.Kind, DefID: at.DefID, DefRev: at.DefRev, RetriesLeft: at.RetriesLeft,
		ScheduledAt: at.ScheduledAt, VisibleAt: at.VisibleAt, StartBy: at.StartBy, AttBy: at.AttBy, TotalBy: at.TotalBy,
		Place: at.Place, Why: at.Why,
	}
}
