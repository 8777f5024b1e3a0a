//go:build unix

package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

// breaker breaks evaluations while it is on.
type breaker struct {
	on    atomic.Bool
	calls atomic.Int64
}

func (b *breaker) world(t *testing.T, objects ...schema.Object) *enginetest.World {
	t.Helper()
	return enginetest.With(t, enginetest.Options{Built: func(e *engine.Engine) {
		e.BreakAsk(func(execution.ID) {
			if b.on.Load() {
				b.calls.Add(1)
				panic("broken on purpose")
			}
		})
	}}, objects...)
}

// due makes marks due now: what the passing of time does.
func (b *breaker) due(t *testing.T, w *enginetest.World) {
	t.Helper()
	storetest.Exec(t, w.URL, `UPDATE nf_decide SET since = now() - interval '2 s', due_at = now() - interval '2 s' WHERE ns > 0`)
}

func marks(t *testing.T, w *enginetest.World) (n, tries int) {
	t.Helper()
	err := connect(t, w.URL).QueryRow(t.Context(), `SELECT count(*), coalesce(max(tries), 0) FROM nf_decide WHERE ns > 0`).Scan(&n, &tries)
	require.NoError(t, err)
	return n, tries
}

func TestResultIsRecordedWhenItsEvaluationFailsAndDecidedLater(t *testing.T) {
	t.Parallel()
	var b breaker
	w := b.world(t, atOnce(), enginetest.Workflow("flow", simple("a"), enginetest.Simple("b", "work", params{"v": "${a.output.v}"})))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	b.on.Store(true)
	w.Report(l, enginetest.Completed(`{"v":1}`))
	require.Equal(t, "COMPLETED", enginetest.Task(t, w.Get(id), "a").Status)
	n, tries := marks(t, w)
	require.Equal(t, 1, n)
	require.Equal(t, 1, tries)
	require.Equal(t, engine.Replayed, w.Record(enginetest.EndOf(l, enginetest.Completed(""))).Answer)
	storetest.CheckInvariants(t, w.URL)
	b.on.Store(false)
	b.due(t, w)
	require.Eventually(t, func() bool { return len(w.Claim("work", 1)) == 1 }, 30*time.Second, 10*time.Millisecond)
	require.JSONEq(t, `{"v":1}`, string(enginetest.Task(t, w.Get(id), "b").Input))
}

// The decision on a recorded failure completes its row: retries left are those of the attempt, the event keeps its number.
func TestRecordedFailureIsRetriedByItsOwnPolicy(t *testing.T) {
	t.Parallel()
	var b breaker
	def := atOnce(func(d *schema.TaskDefinition) { d.Retry.RetryCount, d.RetryBudget = 1, 1 })
	w := b.world(t, def, enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	for attempt := range 2 {
		l := w.ClaimOne("work")
		b.on.Store(true)
		w.Report(l, enginetest.Failed("no"))
		storetest.CheckInvariants(t, w.URL)
		b.on.Store(false)
		b.due(t, w)
		require.Eventually(t, func() bool {
			n, _ := marks(t, w)
			return n == 0
		}, 30*time.Second, 10*time.Millisecond, "attempt %d", attempt+1)
	}
	x := w.Await(id)
	require.Equal(t, "FAILED", x.Status)
	attempts := enginetest.Attempts(x, "a")
	require.Len(t, attempts, 2)
	require.NotNil(t, attempts[0].Delay)
	require.True(t, attempts[1].Exhausted)
	require.Equal(t, int64(4), x.Seq)
}

func TestThirdFailedEvaluationEndsTheExecution(t *testing.T) {
	t.Parallel()
	var b breaker
	w := b.world(t, enginetest.Definition("work"), enginetest.Workflow("flow",
		enginetest.Fork("f", list(simple("a"), simple("a2")), list(simple("b")), list(enginetest.Wait("w", "1h")))...))
	id := w.Start("flow", "")
	l := w.Claim("work", 2)
	b.on.Store(true)
	w.Report(l[0], enginetest.Completed(""))
	for range 2 {
		b.due(t, w)
		before := b.calls.Load()
		require.Eventually(t, func() bool { return b.calls.Load() > before || !w.Get(id).Open() }, 30*time.Second, 5*time.Millisecond)
		require.Eventually(t, func() bool {
			var later bool
			err := connect(t, w.URL).QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM nf_decide WHERE ns > 0 AND due_at < now())`).Scan(&later)
			return err == nil && later
		}, 30*time.Second, 10*time.Millisecond)
	}
	x := w.Await(id)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseEvaluationFailed, x.Cause)
	require.Contains(t, x.Reason, "broken on purpose")
	require.Equal(t, "COMPLETED", enginetest.Task(t, x, "a").Status)
	require.Equal(t, "CANCELED", enginetest.Task(t, x, "b").Status)
	require.Equal(t, int64(3), b.calls.Load())
}

func TestStartWhoseEvaluationFailsIsEvaluatedLater(t *testing.T) {
	t.Parallel()
	var b breaker
	b.on.Store(true)
	w := b.world(t, enginetest.Definition("work"), enginetest.Workflow("flow", enginetest.Simple("a", "work", params{"n": "${workflow.input.n}"})))
	id := w.Start("flow", `{"n":1}`)
	require.Equal(t, "RUNNING", w.Get(id).Status)
	b.on.Store(false)
	b.due(t, w)
	require.Eventually(t, func() bool { return len(w.Claim("work", 1)) == 1 }, 30*time.Second, 10*time.Millisecond)
	require.JSONEq(t, `{"n":1}`, string(enginetest.Task(t, w.Get(id), "a").Input))
}

// A deadline stays in its table when its evaluation fails: it is found again, but not in a hot loop.
func TestDeadlineWhoseEvaluationFailsIsFoundAgain(t *testing.T) {
	t.Parallel()
	var b breaker
	w := b.world(t, enginetest.Workflow("flow", enginetest.Wait("w", "1s")))
	id := w.Start("flow", "")
	w.Move(2 * time.Second)
	b.on.Store(true)
	require.ErrorIs(t, w.Due(id, "w").Err, engine.ErrEvaluation)
	for range 5 {
		require.Equal(t, engine.Dropped, w.Due(id, "w").Answer)
	}
	require.Equal(t, int64(1), b.calls.Load())
	require.Equal(t, "WAITING", enginetest.Task(t, w.Get(id), "w").Status)
	b.on.Store(false)
	require.Eventually(t, func() bool { return w.Due(id, "w").Answer == engine.Accepted }, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}

// An evaluation that kills its process cannot kill one process after another: tries are counted before it begins.
func TestEvaluationThatKillsItsProcessIsCountedBefore(t *testing.T) {
	t.Parallel()
	var b breaker
	w := b.world(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	b.on.Store(true)
	w.Report(l, enginetest.Completed(""))
	w.Stop()
	b.due(t, w)
	for i := range 2 {
		tr := &trap{at: point{"decide", "engine_marks"}, how: crash}
		died := make(chan struct{})
		tr.crashed = func() { close(died) }
		p := w.Beside(enginetest.Options{Store: func(s *store.Store) { s.Abort = tr.hit }})
		<-died
		p.Stop()
		_, tries := marks(t, w)
		require.Equal(t, i+2, tries)
	}
	last := w.Beside(enginetest.Options{})
	x := last.Await(id)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseEvaluationFailed, x.Cause)
}
