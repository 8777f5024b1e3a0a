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

func budgeted(name string, budget float64) *schema.TaskDefinition {
	d := atOnce(func(d *schema.TaskDefinition) { d.Metadata.Name, d.RetryBudget = name, budget })
	return d
}

func startMany(t *testing.T, w *enginetest.World, workflow string, n int) {
	t.Helper()
	requests := make([]engine.StartRequest, n)
	for i := range requests {
		requests[i] = request(workflow, "", "", t)
	}
	for _, r := range w.Engine.Start(t.Context(), requests) {
		require.NoError(t, r.Err)
	}
}

// failAll fails every ready first attempt of a definition once, all in one call, and gives how many were retried.
func failAll(t *testing.T, w *enginetest.World, definition string) (failed, retried int) {
	t.Helper()
	var ends []engine.End
	for {
		leased := w.Claim(definition, 100)
		if len(leased) == 0 {
			break
		}
		for _, l := range leased {
			ends = append(ends, enginetest.EndOf(l, enginetest.Failed("down")))
		}
	}
	for _, r := range w.Engine.Record(t.Context(), ends) {
		require.NoError(t, r.Err)
	}
	for _, end := range ends {
		if w.Get(end.ID).Open() {
			retried++
		}
	}
	return len(ends), retried
}

func TestFC_059_RetriesInBackOffCountAgainstTheBudget(t *testing.T) {
	t.Parallel()
	d := budgeted("work", 0.2)
	d.Retry.Delay = 3_600_000 // they come back in an hour: only their scheduling can count
	w := enginetest.New(t, d, enginetest.Workflow("flow", simple("a")))
	startMany(t, w, "flow", 500)
	startMany(t, w, "flow", 500)
	failed, retried := failAll(t, w, "work")
	require.Equal(t, 1000, failed)
	require.GreaterOrEqual(t, retried, 200)
	require.LessOrEqual(t, retried, 200+200, "and one decision batch a runner")
}

func TestFC_056_FC_058_SpentBudgetIsFinalAndItsOwn(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, budgeted("work", 0.1), budgeted("other", 0.1), enginetest.Workflow("flow", simple("a")),
		enginetest.Workflow("calm", enginetest.Simple("a", "other", nil)))
	startMany(t, w, "flow", 100)
	_, retried := failAll(t, w, "work")
	require.Less(t, retried, 60)
	page, err := w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Statuses: []string{"FAILED"}, Limit: 500})
	require.NoError(t, err)
	task := enginetest.Task(t, w.Get(page[0].ID), "a")
	require.Equal(t, execution.CauseBudgetExhausted, task.Cause)
	require.Equal(t, "retryBudget", task.Control)
	require.Contains(t, task.Reason, "down")
	startMany(t, w, "calm", 10)
	_, retried = failAll(t, w, "other")
	require.Equal(t, 10, retried, "budgets are independent")
}

func TestFC_061_BoundariesOfTheBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		budget     float64
		n, retried int
	}{{0, 20, 19}, {0, 19, 19}, {1, 40, 40}} {
		t.Run(fmt.Sprintf("%v of %d", tt.budget, tt.n), func(t *testing.T) {
			t.Parallel()
			w := enginetest.New(t, budgeted("work", tt.budget), enginetest.Workflow("flow", simple("a")))
			retried := 0
			for range tt.n { // one after the other: no batch to hide in
				id := w.Start("flow", "")
				for _, l := range w.Claim("work", 100) {
					if l.ID == id {
						w.Report(l, enginetest.Failed("down"))
					}
				}
				if w.Get(id).Open() {
					retried++
				}
			}
			require.Equal(t, tt.retried, retried)
		})
	}
}

func TestFC_055_FC_062_BudgetRefillsAndAnEditCountsAtOnce(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, budgeted("work", 0), enginetest.Workflow("flow", simple("a")))
	startMany(t, w, "flow", 60)
	_, retried := failAll(t, w, "work")
	require.Less(t, retried, 20)
	one := w.Start("flow", "")
	w.Report(leaseOf(t, w, one), enginetest.Failed("down"))
	require.Equal(t, "FAILED", w.Get(one).Status, "spent")

	enginetest.Declare(t, w.Store, budgeted("work", 1), enginetest.Workflow("flow", simple("a")))
	two := w.Start("flow", "")
	w.Report(leaseOf(t, w, two), enginetest.Failed("down"))
	require.Equal(t, "RUNNING", w.Get(two).Status, "live: the next decision uses it")

	enginetest.Declare(t, w.Store, budgeted("work", 0), enginetest.Workflow("flow", simple("a")))
	w.Move(311 * time.Second) // the window has passed
	three := w.Start("flow", "")
	w.Report(leaseOf(t, w, three), enginetest.Failed("down"))
	require.Equal(t, "RUNNING", w.Get(three).Status, "refilled")
}

// leaseOf leases what is ready and gives the lease of one execution.
func leaseOf(t *testing.T, w *enginetest.World, id execution.ID) store.Leased {
	t.Helper()
	for _, l := range w.Claim("work", 100) {
		if l.ID == id {
			return l
		}
	}
	require.Fail(t, "no work of the execution")
	return store.Leased{}
}
