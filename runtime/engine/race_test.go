//go:build unix

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// atOnce gives a definition whose retries come without delay.
func atOnce(change ...func(*schema.TaskDefinition)) *schema.TaskDefinition {
	d := enginetest.Definition("work", change...)
	d.Retry.Logic, d.Retry.Delay, d.Retry.BackoffScaleFactor = schema.RetryFixed, 0, 1
	return d
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func TestBG_20_OnlyTheNewAttemptIsOfferedAfterATimeout(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.Timeout, d.TimeoutPolicy = 10_000, schema.TimeoutRetry })
	w := enginetest.New(t, def, enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	first := w.ClaimOne("work")
	require.Equal(t, engine.Dropped, w.Due(id, "a").Answer, "never early")
	w.Move(11 * time.Second)
	require.Equal(t, engine.Accepted, w.Due(id, "a").Answer)
	offered := w.Claim("work", 10)
	require.Len(t, offered, 1)
	require.Equal(t, int32(2), offered[0].Attempt.Attempt)
	late := w.Record(enginetest.EndOf(first, enginetest.Completed("")))
	require.Equal(t, engine.LeaseExpired, late.Answer)
	require.Equal(t, "TIMED_OUT", late.Status)
	w.Report(offered[0], enginetest.Completed(""))
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}

// The small twin; the dose of the row is part of the soak.
func TestBG_23_CompletionAndDeadlineAtTheSameInstant(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.StartToCloseTimeout, d.Retry.RetryCount = 10_000, 0 })
	w := enginetest.New(t, def, enginetest.Workflow("flow", simple("a")))
	other := w.Beside(enginetest.Options{})
	ids := make([]execution.ID, 60)
	leases := map[execution.ID]store.Leased{}
	for i := range ids {
		ids[i] = w.Start("flow", "")
	}
	for _, l := range w.Claim("work", 100) {
		leases[l.ID] = l
	}
	w.Move(time.Minute)
	other.Move(time.Minute)
	for _, id := range ids {
		l := leases[id]
		var reported, due engine.EndResult
		var wg sync.WaitGroup
		wg.Go(func() { reported = w.Record(enginetest.EndOf(l, enginetest.Completed(`{"v":1}`))) })
		wg.Go(func() { due = other.Record(enginetest.EndOf(l, engine.Due{})) })
		wg.Wait()
		require.NoError(t, reported.Err)
		require.NoError(t, due.Err)
		x := w.Get(id)
		if reported.Answer == engine.Accepted {
			require.Equal(t, engine.Dropped, due.Answer)
			require.Equal(t, "COMPLETED", x.Status)
		} else {
			require.Equal(t, engine.Accepted, due.Answer)
			require.Equal(t, engine.LeaseExpired, reported.Answer)
			require.Equal(t, "TIMED_OUT", reported.Status)
			require.Equal(t, "TIMED_OUT", x.Status)
		}
		require.Len(t, x.Tasks, 1)
	}
}

func TestBG_25_LateDuplicateDoesNotOverwriteATerminalTask(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a"), simple("b")))
	id := w.Start("flow", "")
	l := w.Complete("work", `{"v":"first"}`)
	r := w.Record(enginetest.EndOf(l, enginetest.Failed("second thoughts")))
	require.NoError(t, r.Err)
	require.Equal(t, engine.EndResult{Answer: engine.TerminalState, Status: "COMPLETED"}, r)
	r = w.Record(enginetest.EndOf(l, enginetest.Completed(`{"v":"other"}`)))
	require.Equal(t, engine.EndResult{Answer: engine.Replayed, Status: "COMPLETED"}, r)
	require.JSONEq(t, `{"v":"first"}`, string(enginetest.Task(t, w.Get(id), "a").Output))
	// Both in one batch: the first counts.
	next := w.ClaimOne("work")
	both := w.Engine.Record(t.Context(), []engine.End{
		enginetest.EndOf(next, enginetest.Completed("")), enginetest.EndOf(next, enginetest.Failed("x")), enginetest.EndOf(next, enginetest.Completed("")),
	})
	require.Equal(t, []engine.Answer{engine.Accepted, engine.TerminalState, engine.Replayed}, []engine.Answer{both[0].Answer, both[1].Answer, both[2].Answer})
	require.Equal(t, "COMPLETED", w.Await(id).Status)
	unknown := enginetest.EndOf(next, enginetest.Completed(""))
	unknown.ID.Exec[15] ^= 1
	require.Equal(t, engine.NotFound, w.Record(unknown).Answer)
	unknown.ID.Exec = execution.NewUUID(time.Now().AddDate(-1, 0, 0), [10]byte{})
	require.Equal(t, engine.NotFound, w.Record(unknown).Answer, "a day that is gone")
}

func TestReportsThatTheOutputSchemaTurnedCountAsCompleted(t *testing.T) {
	t.Parallel()
	def := enginetest.Definition("work", func(d *schema.TaskDefinition) {
		d.OutputSchema = map[string]any{"type": "object", "required": []any{"v"}}
	})
	task := simple("a")
	task.Optional = true
	w := enginetest.New(t, def, enginetest.Workflow("flow", task, simple("b")))
	id := w.Start("flow", "")
	l := w.Complete("work", `{"other":1}`)
	got := enginetest.Task(t, w.Get(id), "a")
	require.Equal(t, "FAILED_WITH_TERMINAL_ERROR", got.Status)
	require.Equal(t, execution.CauseOutputInvalid, got.Cause)
	require.Equal(t, engine.Replayed, w.Record(enginetest.EndOf(l, enginetest.Completed(`{"other":1}`))).Answer)
	require.Equal(t, engine.TerminalState, w.Record(enginetest.EndOf(l, enginetest.FailedTerm("x"))).Answer)
}

func TestBG_29_DeadlineAndCompletionMoveTheRunAfterARestart(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.Timeout, d.TimeoutPolicy = 10_000, schema.TimeoutRetry })
	w := enginetest.New(t, def, enginetest.Workflow("flow", simple("a"), simple("b")))
	one, two := w.Start("flow", ""), w.Start("flow", "")
	leased := w.Claim("work", 2)
	w.Stop()
	again := w.Beside(enginetest.Options{})
	again.Move(11 * time.Second)
	again.Report(leased[0], enginetest.Completed(""))
	require.Equal(t, "SCHEDULED", enginetest.Task(t, again.Get(one), "b").Status)
	require.Equal(t, engine.Accepted, again.Due(two, "a").Answer)
	for range 3 {
		again.Complete("work", "")
	}
	require.Equal(t, "COMPLETED", again.Await(one).Status)
	require.Equal(t, "COMPLETED", again.Await(two).Status)
}

// The small twin; the dose of the row is part of the soak.
func TestBG_100_BG_103_JoinFiresWhenTheLastBranchesEndTogether(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"),
		enginetest.Workflow("flow", enginetest.Fork("f", list(simple("a")), list(simple("b")))...))
	other := w.Beside(enginetest.Options{})
	for range 40 {
		id := w.Start("flow", "")
		l := w.Claim("work", 2)
		require.Len(t, l, 2)
		var wg sync.WaitGroup
		wg.Go(func() { w.Report(l[0], enginetest.Completed(`{"n":0}`)) })
		wg.Go(func() { other.Report(l[1], enginetest.Completed(`{"n":1}`)) })
		wg.Wait()
		x := w.Get(id)
		require.Equal(t, "COMPLETED", x.Status)
		require.JSONEq(t, `{"a":{"n":0},"b":{"n":1}}`, string(enginetest.Task(t, x, "f_join").Output))
		require.Len(t, enginetest.Attempts(x, "f_join"), 1)
	}
}

func TestBG_04_BothBranchesThatFailTogetherAreRetried(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.RetryBudget = 1 })
	w := enginetest.New(t, def, enginetest.Workflow("flow", enginetest.Fork("f", list(simple("a")), list(simple("b")))...))
	for range 20 {
		id := w.Start("flow", "")
		l := w.Claim("work", 2)
		answers := w.Engine.Record(t.Context(), []engine.End{
			enginetest.EndOf(l[0], enginetest.Failed("x")), enginetest.EndOf(l[1], enginetest.Failed("y")),
		})
		require.Equal(t, engine.Accepted, answers[0].Answer)
		require.Equal(t, engine.Accepted, answers[1].Answer)
		require.Equal(t, "RUNNING", w.Get(id).Status)
		again := w.Claim("work", 10)
		require.Len(t, again, 2)
		for _, l := range again {
			require.Equal(t, int32(2), l.Attempt.Attempt)
			w.Report(l, enginetest.Completed(""))
		}
		require.Equal(t, "COMPLETED", w.Await(id).Status)
	}
}

func TestBG_125_CompletionWhileTheRunIsLockedIsDecidedAtItsRelease(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a"), simple("b")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	holder, watcher := connect(t, w.URL), connect(t, w.URL)
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM nf_exec WHERE ns = $1 AND exec_id = $2 FOR UPDATE`, id.NS, id.Exec)
	require.NoError(t, err)
	answer := make(chan engine.EndResult, 1)
	go func() {
		answer <- w.Engine.Record(t.Context(), []engine.End{enginetest.EndOf(l, enginetest.Completed(""))})[0]
	}()
	seen := 0
	require.Eventually(t, func() bool { // it waits, gives up after its lock time-out, and waits again
		var waiting bool
		err := watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND state_change > now() - interval '300 ms')`).Scan(&waiting)
		if err == nil && waiting {
			seen++
		}
		return seen > 3
	}, 30*time.Second, 100*time.Millisecond)
	others := w.Start("flow", "")
	require.Len(t, w.Claim("work", 1), 1, "others go on meanwhile: %s", others.Exec)
	require.NoError(t, tx.Rollback(t.Context()))
	r := <-answer
	require.NoError(t, r.Err)
	require.Equal(t, engine.Accepted, r.Answer)
	require.Equal(t, "SCHEDULED", enginetest.Task(t, w.Get(id), "b").Status)
}

func TestFC_089_FC_119_StaleHolderChangesNothing(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	stale := w.ClaimOne("work")
	w.Move(2 * time.Hour)
	w.Reclaim(stale)
	r := w.Record(enginetest.EndOf(stale, enginetest.Completed(`{"by":"stale"}`)))
	require.Equal(t, engine.EndResult{Answer: engine.LeaseExpired, Status: "SCHEDULED"}, r)
	fresh := w.ClaimOne("work")
	require.Equal(t, stale.Attempt.Attempt, fresh.Attempt.Attempt)
	require.Equal(t, int32(2), fresh.Deliveries)
	require.Greater(t, fresh.Fence, stale.Fence)
	r = w.Record(enginetest.EndOf(stale, enginetest.Failed("stale")))
	require.Equal(t, engine.EndResult{Answer: engine.LeaseExpired, Status: "IN_PROGRESS"}, r)
	w.Report(fresh, enginetest.Completed(`{"by":"fresh"}`))
	require.JSONEq(t, `{"by":"fresh"}`, string(w.Await(id).Output))
	r = w.Record(enginetest.EndOf(stale, enginetest.Completed("")))
	require.Equal(t, engine.EndResult{Answer: engine.LeaseExpired, Status: "COMPLETED"}, r)
}

func TestFC_116_SweepThatReadBeforeACompletionDoesNothing(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.Timeout = 10_000 })
	w := enginetest.New(t, def, enginetest.Workflow("flow", simple("a"), enginetest.Wait("w", "1h")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	w.Move(11 * time.Second) // the sweep has read it as due, and pauses here
	w.Report(l, enginetest.Completed(""))
	require.Equal(t, engine.Dropped, w.Record(enginetest.EndOf(l, engine.Due{})).Answer)
	lost := engine.Lost{Cause: execution.CauseDeliveriesExhausted, Certain: true}
	require.Equal(t, engine.Dropped, w.Record(enginetest.EndOf(l, lost)).Answer)
	x := w.Get(id)
	require.Equal(t, "RUNNING", x.Status)
	require.Equal(t, "COMPLETED", enginetest.Task(t, x, "a").Status)
}

func TestLostWorkThatMayNotBeRepeatedEndsTheAttempt(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, atOnce(), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	lost := engine.Lost{Cause: execution.CauseDeliveriesExhausted, Reason: "5 deliveries without a verdict"}
	require.Equal(t, engine.Dropped, w.Record(enginetest.EndOf(l, lost)).Answer, "its lease runs")
	w.Move(2 * time.Hour)
	require.Equal(t, engine.Accepted, w.Record(enginetest.EndOf(l, lost)).Answer)
	again := w.ClaimOne("work")
	require.Equal(t, int32(2), again.Attempt.Attempt, "the retry policy decides")
	unknown := engine.Lost{Cause: execution.CauseOutcomeUnknown, Certain: true}
	require.Equal(t, engine.Accepted, w.Record(enginetest.EndOf(again, unknown)).Answer)
	x := w.Await(id)
	require.Equal(t, "FAILED", x.Status)
	require.Equal(t, execution.CauseOutcomeUnknown, enginetest.Task(t, x, "a").Cause)
}

func TestFC_127_AReasonNeverStopsAReport(t *testing.T) {
	t.Parallel()
	def := atOnce(func(d *schema.TaskDefinition) { d.Retry.RetryCount = 10; d.RetryBudget = 1 })
	w := enginetest.New(t, def, enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	reasons := []string{"nul \x00 here", strings.Repeat("ä", 1<<19), "lone \xed\xa0\x80 surrogate", "latin \xe9"}
	for _, reason := range reasons {
		w.Report(w.ClaimOne("work"), enginetest.Failed(reason))
	}
	attempts := enginetest.Attempts(w.Get(id), "a")
	require.Equal(t, "nul \uFFFD here", attempts[0].Reason)
	require.Len(t, attempts[1].Reason, 8192)
	for i := range reasons {
		require.True(t, utf8.ValidString(attempts[i].Reason))
	}
	require.Contains(t, attempts[2].Reason, "\uFFFD")
	require.Equal(t, "latin \uFFFD", attempts[3].Reason)
}

func TestFC_128_OutputWithNULIsKeptUnchanged(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow",
		simple("a"), enginetest.Simple("b", "work", params{"v": "${a.output.v}"})))
	id := w.Start("flow", "")
	output := `{"v":"x\u0000y","big":"` + strings.Repeat("z", 4000) + `"}`
	w.Complete("work", output)
	x := w.Get(id)
	require.Equal(t, output, string(enginetest.Task(t, x, "a").Output))
	require.Equal(t, "x\x00y", enginetest.Values(t, enginetest.Task(t, x, "b").Input)["v"])
}

func TestFC_130_OnePoisonRowDoesNotHoldUpItsBatch(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Workflow("flow", enginetest.Wait("w", "10s")))
	requests := make([]engine.StartRequest, 500)
	for i := range requests {
		requests[i] = request("flow", "", "", t)
	}
	var ends []engine.End
	var poison execution.ID
	for i, r := range w.Engine.Start(t.Context(), requests) {
		require.NoError(t, r.Err)
		if i == 123 {
			poison = r.ID
		}
		ends = append(ends, engine.End{ID: r.ID, TaskNo: 1, Attempt: 1, Place: execution.InTimer, What: engine.Due{}})
	}
	_, err := connect(t, w.URL).Exec(t.Context(), fmt.Sprintf(`ALTER TABLE nf_task ADD CONSTRAINT poison CHECK (exec_id <> '%s')`, poison.Exec))
	require.NoError(t, err)
	w.Move(11 * time.Second)
	done, refused := 0, 0
	for i, r := range w.Engine.Record(t.Context(), ends) {
		if r.Err != nil {
			refused++
			require.Equal(t, poison, ends[i].ID)
			continue
		}
		require.Equal(t, engine.Accepted, r.Answer)
		done++
	}
	require.Equal(t, 499, done)
	require.Equal(t, 1, refused)
	require.Equal(t, engine.Dropped, w.Record(ends[123]).Answer, "parked: no hot loop")
	require.Equal(t, "RUNNING", w.Get(poison).Status)
}

func TestFC_125_ReportThatCannotBeWrittenLeavesTheLease(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	id := w.Start("flow", "")
	l := w.ClaimOne("work")
	conn := connect(t, w.URL)
	_, err := conn.Exec(t.Context(), `ALTER TABLE nf_task ADD CONSTRAINT poison CHECK (worker IS DISTINCT FROM 'w')`)
	require.NoError(t, err)
	require.ErrorIs(t, w.Record(enginetest.EndOf(l, enginetest.Completed(""))).Err, engine.ErrEvaluation)
	_, err = conn.Exec(t.Context(), `ALTER TABLE nf_task DROP CONSTRAINT poison`)
	require.NoError(t, err)
	w.Move(2 * time.Hour)
	w.Reclaim(l)
	again := w.ClaimOne("work")
	require.Equal(t, int32(1), again.Attempt.Attempt)
	require.Equal(t, int32(2), again.Deliveries)
	w.Report(again, enginetest.Completed(""))
	require.Equal(t, "COMPLETED", w.Await(id).Status)
}
