package registry_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/registry"
	"nf/runtime/registry/registrytest"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

func meta(name string) schema.Metadata { return schema.Metadata{Name: name, Namespace: "shop"} }

func definition(t *testing.T, name string, spec map[string]any) *schema.TaskDefinition {
	t.Helper()
	if spec == nil {
		spec = map[string]any{}
	}
	o, err := schema.Decode(schema.KindTaskDefinition, meta(name), spec)
	require.NoError(t, err)
	return o.(*schema.TaskDefinition)
}

func workflow(t *testing.T, name string, spec map[string]any) *schema.Workflow {
	t.Helper()
	if spec["tasks"] == nil {
		spec["tasks"] = []any{map[string]any{"taskReferenceName": "a", "name": "charge"}}
	}
	o, err := schema.Decode(schema.KindWorkflow, meta(name), spec)
	require.NoError(t, err)
	return o.(*schema.Workflow)
}

func TestSnapshotServesWhatIsInForce(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	def := definition(t, "charge", map[string]any{
		"inputSchema": map[string]any{"type": "object", "required": []any{"amount"}},
	})
	def.Metadata.Labels = map[string]string{"team": "a"}
	sem := &schema.Semaphore{Metadata: schema.Metadata{Name: "erp", Namespace: "shared"}, Permits: 3}
	r := registrytest.New(t, s, def, workflow(t, "order", map[string]any{"variables": map[string]any{"n": "1"}}), sem, &schema.Namespace{Metadata: schema.Metadata{Name: "shop"}})
	snap := r.Snapshot()
	require.Equal(t, int64(1), snap.Generation())

	ns, ok := snap.Namespace("shop")
	require.True(t, ok)
	_, ok = snap.Namespace("_nf")
	require.False(t, ok, "the installation is no namespace of anybody")
	_, ok = snap.Namespace("elsewhere")
	require.False(t, ok)

	pinned, ok := snap.Task(ns, "charge")
	require.True(t, ok)
	require.Error(t, pinned.CheckInput(map[string]any{}))
	require.NoError(t, pinned.CheckInput(map[string]any{"amount": "1"}))
	require.Nil(t, pinned.CheckOutput)
	byID, ok := snap.TaskByID(ns, pinned.DefID)
	require.True(t, ok)
	require.Equal(t, pinned.DefRev, byID.DefRev)

	o, ok := snap.Object(def.Address())
	require.True(t, ok)
	require.Equal(t, map[string]string{"team": "a"}, o.Value.Meta().Labels)
	require.Equal(t, registry.Owner{Project: registrytest.Project, File: "test.yaml", Line: 1}, o.Owner)
	o, ok = snap.Object(schema.Address{Kind: schema.KindNamespace, Name: "shop"})
	require.True(t, ok)
	require.Zero(t, o.NS)

	rev, err := snap.Workflow(ns, "order", 0)
	require.NoError(t, err)
	require.Equal(t, "order", rev.Workflow.Metadata.Name)
	require.False(t, rev.Retired)
	_, err = snap.Workflow(ns, "nothing", 0)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Len(t, snap.Objects(schema.KindSemaphore, 0), 1)
	require.Empty(t, snap.Objects(schema.KindSemaphore, ns))
}

// Running runners see an apply at once: the poll, or a wake-up, swaps the snapshot; the old one stays as it was.
func TestAnApplyIsSeenByEveryRunner(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	runner := registrytest.New(t, storetest.Open(t, url), definition(t, "charge", map[string]any{"retryCount": json.Number("1")}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	before := runner.Snapshot()
	ns, _ := before.Namespace("shop")

	registrytest.Declare(t, s, definition(t, "charge", map[string]any{"retryCount": json.Number("2")}))
	runner.Wake()
	select {
	case <-before.Superseded():
	case <-time.After(10 * time.Second):
		require.Fail(t, "not seen")
	}
	now, ok := runner.Snapshot().Task(ns, "charge")
	require.True(t, ok)
	require.Equal(t, 2, now.Def.Retry.RetryCount)
	old, ok := before.Task(ns, "charge")
	require.True(t, ok)
	require.Equal(t, 1, old.Def.Retry.RetryCount)
	_, ok = runner.Snapshot().TaskRev(ns, old.DefRev)
	require.True(t, ok, "what was known stays known")
	stop()
	require.NoError(t, <-done)
	require.NoError(t, runner.Err())
}

// P6: what is pinned is served for ever, in a process that never saw it in force.
func TestPinnedRevisionsAreReadWhenNeeded(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	first := registrytest.New(t, s, definition(t, "charge", map[string]any{"retryCount": json.Number("1")}), workflow(t, "order", map[string]any{"version": json.Number("1")}))
	ns, _ := first.Snapshot().Namespace("shop")
	pinned, _ := first.Snapshot().Task(ns, "charge")
	rev, err := first.Snapshot().Workflow(ns, "order", 1)
	require.NoError(t, err)

	second := registrytest.New(t, s, definition(t, "charge", map[string]any{"retryCount": json.Number("2")}), workflow(t, "order", map[string]any{"version": json.Number("2")}))
	_, ok := second.Snapshot().TaskRev(ns, pinned.DefRev)
	require.False(t, ok)
	require.NoError(t, second.LoadTaskRevs(t.Context(), ns, []int32{pinned.DefRev, 999}))
	again, ok := second.Snapshot().TaskRev(ns, pinned.DefRev)
	require.True(t, ok)
	require.Equal(t, 1, again.Def.Retry.RetryCount)

	old, err := second.WorkflowRev(t.Context(), ns, rev.RevID)
	require.NoError(t, err)
	require.Equal(t, int64(1), old.Version)
	_, err = second.WorkflowRev(t.Context(), ns, 999)
	require.ErrorIs(t, err, store.ErrNotFound)

	_, err = second.Snapshot().Workflow(ns, "order", 1)
	require.ErrorIs(t, err, registry.ErrNotLoaded)
	byVersion, err := second.Workflow(t.Context(), "shop", "order", 1)
	require.NoError(t, err)
	require.Equal(t, rev.RevID, byVersion.RevID)
	_, err = second.Workflow(t.Context(), "shop", "order", 7)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// P9: a retired workflow is known as retired; its definition still serves executions that run.
func TestRetiredObjectsAreServedAndMarked(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	r := registrytest.New(t, s, definition(t, "charge", nil), workflow(t, "order", map[string]any{}))
	registrytest.Declare(t, s, definition(t, "other", nil))
	require.NoError(t, r.Refresh(t.Context()))
	ns, _ := r.Snapshot().Namespace("shop")
	rev, err := r.Snapshot().Workflow(ns, "order", 0)
	require.NoError(t, err)
	require.True(t, rev.Retired)
	_, ok := r.Snapshot().Task(ns, "charge")
	require.True(t, ok)

	registrytest.Declare(t, s, definition(t, "charge", nil), workflow(t, "order", map[string]any{}), definition(t, "other", nil))
	require.NoError(t, r.Refresh(t.Context()))
	rev, err = r.Snapshot().Workflow(ns, "order", 0)
	require.NoError(t, err)
	require.False(t, rev.Retired)
	require.Equal(t, int32(1), rev.Revision)
}

// A start right after an apply by another process does not have to wait for the poll.
func TestUnknownWorkflowIsLookedForOnce(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	r := registrytest.New(t, s, definition(t, "charge", nil))
	registrytest.Declare(t, s, definition(t, "charge", nil), workflow(t, "order", map[string]any{}))
	_, err := r.Workflow(t.Context(), "shop", "order", 0)
	require.NoError(t, err)
}

// P4: one object of a newer nf does not blind this one to the rest.
func TestContentOfANewerBuildIsKeptApart(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	registrytest.Declare(t, s, definition(t, "charge", nil), workflow(t, "order", map[string]any{}))
	storetest.Exec(t, url, `UPDATE nf_revision r SET spec = '{"somethingNew":true}'
	   FROM nf_object o WHERE o.ns = r.ns AND o.object_id = r.object_id AND o.kind = 'Workflow'`)
	r, err := registry.Open(t.Context(), s)
	require.NoError(t, err)
	ns, _ := r.Snapshot().Namespace("shop")
	_, err = r.Snapshot().Workflow(ns, "order", 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrNotFound)
	_, ok := r.Snapshot().Task(ns, "charge")
	require.True(t, ok)
}
