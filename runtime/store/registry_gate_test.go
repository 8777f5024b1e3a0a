package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// A definition with a cap or semaphores gates every physical queue of it, and no longer once both are gone.
func TestApplyGatesTheQueuesOfADefinition(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	ctx := t.Context()
	_, err := apply(ctx, s, 0, declared(definition("charge", 0), "plain"), declared(semaphore("erp", 3), "sem"))
	require.NoError(t, err)
	d, err := s.Declared(ctx)
	require.NoError(t, err)
	def := objectOf(t, d, definition("charge", 0).Address())
	keys := []execution.QueueKey{
		{NS: def.NS, Name: "charge", DefID: def.ObjectID},
		{NS: def.NS, Name: "_nf.HTTP.charge", DefID: def.ObjectID, System: true},
	}
	var queues []int32
	for _, key := range keys {
		q, err := s.Queues().Ensure(ctx, store.API, key)
		require.NoError(t, err)
		queues = append(queues, q.QueueID)
	}
	conn := connect(t, url)
	for i, step := range []struct {
		content string
		limit   int64
		sems    []string
		gated   bool
	}{
		{"cap", 2, nil, true}, {"plain", 0, nil, false}, {"sem", 0, []string{"erp"}, true}, {"both", 1, []string{"erp"}, true}, {"plain", 0, nil, false},
	} {
		_, err := apply(ctx, s, int64(i+1), declared(definition("charge", step.limit, step.sems...), step.content), declared(semaphore("erp", 3), "sem"))
		require.NoError(t, err)
		for _, q := range queues {
			var gated bool
			require.NoError(t, conn.QueryRow(ctx, "SELECT gated FROM nf_queue WHERE ns = $1 AND queue_id = $2", def.NS, q).Scan(&gated))
			require.Equal(t, step.gated, gated, step.content)
		}
	}
}

// Only a change of the settings of a gate waits for that gate.
func TestApplyWaitsForTheGatesItChangesOnly(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s, other := storetest.Open(t, url), storetest.Open(t, url)
	ctx := t.Context()
	_, err := apply(ctx, s, 0, declared(definition("charge", 2), "two"), declared(semaphore("erp", 3), "sem"))
	require.NoError(t, err)
	d, err := s.Declared(ctx)
	require.NoError(t, err)
	id, err := s.InstallID(ctx)
	require.NoError(t, err)
	def, sem := objectOf(t, d, definition("charge", 0).Address()), objectOf(t, d, semaphore("erp", 0).Address())
	err = other.InTx(ctx, store.API, "holder", func(ctx context.Context, tx *store.Tx) error {
		require.NoError(t, tx.LockGates(ctx, []int64{
			store.ObjectGate(id, store.GateDefinition, def.NS, def.ObjectID), store.ObjectGate(id, store.GateSemaphore, sem.NS, sem.ObjectID),
		}, 0))
		_, err := apply(ctx, s, 1, declared(definition("charge", 2), "two, other schema"), declared(semaphore("erp", 3), "sem"))
		require.NoError(t, err)
		for _, change := range [][]*store.Declared{
			{declared(definition("charge", 3), "three"), declared(semaphore("erp", 3), "sem")},
			{declared(definition("charge", 2), "two, other schema"), declared(semaphore("erp", 4), "sem4")},
		} {
			wanted, digest, names := set(change...)
			_, err := s.Apply(ctx, store.ApplyRequest{
				Project: "orders", BaseGeneration: 2, Digest: digest, Actor: "ann", Wanted: names, LockWait: 50 * time.Millisecond,
			}, changesTo(wanted))
			require.ErrorIs(t, err, store.ErrBusy)
		}
		return nil
	})
	require.NoError(t, err)
}
