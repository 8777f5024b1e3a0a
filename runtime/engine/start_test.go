//go:build unix

package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

func request(workflow, key, input string, t *testing.T) engine.StartRequest {
	t.Helper()
	return engine.StartRequest{Namespace: enginetest.Namespace, Workflow: workflow, Key: key, Input: enginetest.Object(t, input)}
}

func TestBG_95_ParallelStartsWithOneKeyMakeOneExecution(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	other := w.Beside(enginetest.Options{})
	results := make([]engine.StartResult, 50)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			e := w.Engine
			if i%2 == 1 {
				e = other.Engine
			}
			results[i] = e.Start(t.Context(), []engine.StartRequest{request("flow", "order-1", `{"n":1}`, t)})[0]
		})
	}
	wg.Wait()
	created := 0
	for _, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, results[0].ID, r.ID)
		require.Equal(t, "RUNNING", r.Status)
		require.Equal(t, int32(1), r.Revision)
		if r.Created {
			created++
		}
	}
	require.Equal(t, 1, created)
	require.Len(t, w.Claim("work", 10), 1)
}

func TestStartsAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	strict := enginetest.Workflow("strict", simple("a"))
	strict.InputSchema = map[string]any{"type": "object", "required": []any{"n"}}
	w := enginetest.New(t, enginetest.Definition("work"), strict, enginetest.Workflow("flow", simple("a")), enginetest.Workflow("old", simple("a")))
	known := w.TryStart(request("old", "k", `{"a":1}`, t))
	require.NoError(t, known.Err)
	enginetest.Retire(t, w.Store, schema.Address{Kind: schema.KindWorkflow, Namespace: enginetest.Namespace, Name: "old"})
	require.NoError(t, w.Registry.Refresh(t.Context()))
	big := engine.StartRequest{Namespace: enginetest.Namespace, Workflow: "flow", Input: map[string]any{"x": strings.Repeat("x", execution.MaxPayload)}}
	answers := w.Engine.Start(t.Context(), []engine.StartRequest{
		request("flow", "", "", t),
		request("strict", "", `{"m":1}`, t),
		request("none", "", "", t),
		{Namespace: "nowhere", Workflow: "flow"},
		request("old", "", "", t),
		request("old", "k", `{"a":1}`, t),
		request("old", "k", `{"a":2}`, t),
		request("flow", "k", `{"a":1}`, t),
		big,
		request("strict", "s", `{"n":1}`, t),
		request("strict", "s", `{"n":1.0}`, t),
		request("strict", "s", `{"n":2}`, t),
	})
	require.NoError(t, answers[0].Err)
	require.ErrorIs(t, answers[1].Err, engine.ErrSchemaViolation)
	require.ErrorIs(t, answers[2].Err, store.ErrNotFound)
	require.ErrorIs(t, answers[3].Err, store.ErrNotFound)
	require.ErrorIs(t, answers[4].Err, engine.ErrRetired)
	require.NoError(t, answers[5].Err, "a known key is answered before anything else is judged")
	require.Equal(t, known.ID, answers[5].ID)
	require.False(t, answers[5].Created)
	require.ErrorIs(t, answers[6].Err, engine.ErrIdempotencyMismatch)
	require.ErrorIs(t, answers[7].Err, engine.ErrIdempotencyMismatch)
	require.ErrorIs(t, answers[8].Err, engine.ErrTooLarge)
	require.True(t, answers[9].Created)
	require.Equal(t, answers[9].ID, answers[10].ID, "the comparison is of canonical input")
	require.False(t, answers[10].Created)
	require.ErrorIs(t, answers[11].Err, engine.ErrIdempotencyMismatch)
}

func TestStartOfManyAtOnce(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a")))
	requests := make([]engine.StartRequest, 500)
	for i := range requests {
		requests[i] = request("flow", fmt.Sprintf("k%d", i), fmt.Sprintf(`{"n":%d}`, i), t)
	}
	seen := map[execution.ID]bool{}
	for _, r := range w.Engine.Start(t.Context(), requests) {
		require.NoError(t, r.Err)
		require.True(t, r.Created)
		seen[r.ID] = true
	}
	require.Len(t, seen, 500)
	total := 0
	for {
		leased := w.Claim("work", 100)
		if len(leased) == 0 {
			break
		}
		ends := make([]engine.End, len(leased))
		for i, l := range leased {
			ends[i] = enginetest.EndOf(l, enginetest.Completed(`{"ok":true}`))
		}
		for _, r := range w.Engine.Record(t.Context(), ends) {
			require.NoError(t, r.Err)
			require.Equal(t, engine.Accepted, r.Answer)
		}
		total += len(leased)
	}
	require.Equal(t, 500, total)
	page, err := w.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Statuses: []string{"COMPLETED"}, Limit: 500})
	require.NoError(t, err)
	require.Len(t, page, 500)
}

// An execution whose first evaluation is its last starts and ends in one transaction.
func TestStartThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	flow := enginetest.Workflow("flow", enginetest.Set("v", params{"x": "${workflow.input.n}"}))
	flow.Timeout = 60_000
	flow.Variables = params{"y": 2}
	w := enginetest.New(t, flow)
	r := w.TryStart(request("flow", "", `{"n":1}`, t))
	require.NoError(t, r.Err)
	require.Equal(t, "COMPLETED", r.Status)
	x := w.Get(r.ID)
	require.JSONEq(t, `{"x":1,"y":2}`, string(x.Variables))
	require.Equal(t, int64(3), x.Seq)
}

func TestExecutionKeepsTheRevisionItStartedWith(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("flow", simple("a"), simple("b")))
	old := w.Start("flow", "")
	enginetest.Declare(t, w.Store, enginetest.Definition("work", func(d *schema.TaskDefinition) { d.Retry.RetryCount = 0 }),
		enginetest.Workflow("flow", simple("a")))
	require.NoError(t, w.Registry.Refresh(t.Context()))
	fresh := w.Start("flow", "")
	require.Equal(t, int32(2), w.Get(fresh).Revision)
	require.Equal(t, int32(1), w.Get(old).Revision)
	first := w.ClaimOne("work")
	require.Equal(t, old, first.ID)
	w.Report(first, enginetest.Failed("x")) // the policy it was first scheduled with: three retries
	require.Equal(t, "RUNNING", w.Get(old).Status)
	w.Report(w.ClaimOne("work"), enginetest.Failed("x"))
	require.Equal(t, "FAILED", w.Await(fresh).Status)

	// A process that knows none of this yet reads what the open work is pinned to.
	w.Stop()
	later := w.Beside(enginetest.Options{})
	_, err := later.Engine.Terminate(t.Context(), old, "", "ann")
	require.NoError(t, err)
	require.Equal(t, int32(4), enginetest.Task(t, later.Get(old), "a").MaxAttempts)
}
