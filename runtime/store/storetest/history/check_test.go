package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/policies/retry"
	"nf/runtime/execution"
	"nf/runtime/store/storetest/history"
	"nf/schema"
)

const id = "0198c7a0-0000-7000-8000-000000000001"

// sound is a history in which everything holds: one execution whose first task fails once, and whose JOIN fires.
func sound() *history.History {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	policy := retry.Of(schema.DefaultRetry())
	first := retry.Wait(policy, 1, 0, retry.Unit(id, "charge", "0", 1))
	due := at.Add(time.Duration(first.Policy) * time.Millisecond)
	return &history.History{
		Starts:   []history.Start{{Key: "k", ExecutionID: id}, {Key: "refused", Refused: true}},
		Verdicts: []history.Verdict{{TaskID: id + ".1.2", Fence: 12, Status: "COMPLETED", Accepted: true}, {TaskID: id + ".1.2", Fence: 11, Status: "COMPLETED"}},
		Grants: []history.Grant{
			{Execution: id, TaskNo: 1, Attempt: 1, Fence: 10, Deliveries: 1, DefID: 7, InFlight: 1, At: at},
			{Execution: id, TaskNo: 1, Attempt: 2, Fence: 11, Deliveries: 1, DefID: 7, InFlight: 1, At: due},
			{Execution: id, TaskNo: 1, Attempt: 2, Fence: 12, Deliveries: 2, DefID: 7, InFlight: 1, At: due.Add(time.Second)},
		},
		Rows: []history.Row{
			{Execution: id, TaskNo: 1, Attempt: 1, Seq: 2, Kind: 1, Status: int16(execution.TimedOut), DefID: 7, Cause: "TASK_TIMEOUT", VisibleAt: at.Add(-time.Minute), EndedAt: at, NextAt: due, PolicyMs: int64(first.Policy), Deliveries: 1},
			{Execution: id, TaskNo: 1, Attempt: 2, Seq: 3, Fence: 12, Kind: 1, Status: int16(execution.Completed), DefID: 7, VisibleAt: due, EndedAt: due.Add(2 * time.Second), Deliveries: 2},
			{Execution: id, TaskNo: 2, Attempt: 1, Seq: 4, Kind: int16(execution.KindJoin), Status: int16(execution.Completed), EndedAt: due.Add(2 * time.Second)},
		},
		Executions: []history.Execution{{ID: id, Status: int16(execution.Completed), Seq: 5}},
		Tasks: map[int32]history.Task{
			1: {Ref: "charge", Policy: policy, RetryCount: 3, Cap: 2, Budget: 0.3, Timeout: 60_000},
			2: {Ref: "join", JoinOf: []int32{1}},
		},
		Audited: 2, Actions: 2, Late: time.Second, Batch: 1, Deciders: 1,
	}
}

func TestASoundHistoryHasNoViolation(t *testing.T) {
	t.Parallel()
	require.Empty(t, history.Check(sound()))
}

// Each planted violation is found, under its own number.
func TestPlantedViolationsAreFound(t *testing.T) {
	t.Parallel()
	planted := map[string]struct {
		number string
		plant  func(*history.History)
	}{
		"start lost":             {"D5.01", func(h *history.History) { h.Executions = nil; h.Rows = nil }},
		"start never ends":       {"D5.01", func(h *history.History) { h.Executions[0].Open = true }},
		"run of nobody":          {"D5.01", func(h *history.History) { h.Starts = h.Starts[1:] }},
		"key with two runs":      {"D5.01", func(h *history.History) { h.Starts = append(h.Starts, history.Start{Key: "k", ExecutionID: "x"}) }},
		"two verdicts":           {"D5.02", func(h *history.History) { h.Verdicts[1].Accepted = true }},
		"verdict lost":           {"D5.02", func(h *history.History) { h.Rows[1].Status = int16(execution.Failed) }},
		"status rewritten":       {"D5.02", func(h *history.History) { h.Rewritten = 1 }},
		"ended twice":            {"D5.02", func(h *history.History) { h.Rows = append(h.Rows, h.Rows[1]) }},
		"old fence":              {"D5.03", func(h *history.History) { h.Rows[1].Fence = 11; h.Verdicts[0].Fence = 11 }},
		"cap passed":             {"D5.04", func(h *history.History) { h.Grants[0].InFlight = 3 }},
		"permits passed":         {"D5.04", func(h *history.History) { h.Grants[0].Over = "3 permits held of 2" }},
		"too many attempts":      {"D5.09", func(h *history.History) { t := h.Tasks[1]; t.RetryCount = 0; h.Tasks[1] = t }},
		"six deliveries":         {"D5.09", func(h *history.History) { h.Grants[2].Deliveries = 6 }},
		"atMostOnce repeated":    {"D5.09", func(h *history.History) { t := h.Tasks[1]; t.AtMostOnce = true; h.Tasks[1] = t }},
		"delay off the formula":  {"D5.09", func(h *history.History) { h.Rows[0].PolicyMs++ }},
		"before the minimum":     {"D5.09", func(h *history.History) { h.Rows[0].MinimumMs = 60_000 }},
		"leased before due":      {"D5.09", func(h *history.History) { h.Grants[1].At = h.Grants[0].At }},
		"retry that never came":  {"D5.09", func(h *history.History) { h.Rows[0].Attempt, h.Rows[1].Attempt = 1, 3 }},
		"deadline early":         {"D5.11", func(h *history.History) { h.Rows[0].VisibleAt = h.Rows[0].VisibleAt.Add(time.Second) }},
		"deadline late":          {"D5.11", func(h *history.History) { h.Rows[0].VisibleAt = h.Rows[0].VisibleAt.Add(-2 * time.Second) }},
		"waiting task leased":    {"D5.12", func(h *history.History) { h.Grants[0].Kind = int16(execution.KindWait) }},
		"action without its row": {"D5.13", func(h *history.History) { h.Audited = 1 }},
		"gap in the history":     {"D5.14", func(h *history.History) { h.Rows[2].Seq = 6; h.Executions[0].Seq = 7 }},
		"join fired twice": {"D5.14", func(h *history.History) {
			r := h.Rows[2]
			r.Attempt, r.Seq = 2, 5
			h.Rows = append(h.Rows, r)
			h.Executions[0].Seq = 6
		}},
		"join before its branch": {"D5.14", func(h *history.History) { h.Rows[2].Seq, h.Rows[1].Seq = 3, 4 }},
		"deadlock":               {"D5.15", func(h *history.History) { h.Deadlocks = 1 }},
	}
	for name, p := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sound()
			p.plant(h)
			found := history.Check(h)
			require.NotEmpty(t, found)
			require.Contains(t, join(found), p.number, found)
		})
	}
}

// Retries far over the budget are found; those within a batch of each decider are not.
func TestABudgetThatIsPassedIsFound(t *testing.T) {
	t.Parallel()
	h := sound()
	at := h.Rows[0].EndedAt
	h.Tasks[1] = history.Task{Ref: "charge", RetryCount: 100, Budget: 0.3}
	h.Rows = nil
	for i := range int32(100) {
		h.Rows = append(h.Rows, history.Row{Execution: "other", TaskNo: 1, Attempt: i + 1, DefID: 7, Status: int16(execution.Failed), VisibleAt: at, EndedAt: at.Add(time.Duration(i) * time.Second), NextAt: at.Add(time.Hour)})
	}
	require.Contains(t, join(history.Check(h)), "D5.10")
	h.Batch = 1000
	require.NotContains(t, join(history.Check(h)), "D5.10")
}

func join(list []string) string {
	out := ""
	for _, s := range list {
		out += s + "\n"
	}
	return out
}
