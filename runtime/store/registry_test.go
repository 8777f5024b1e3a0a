package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

func declared(o schema.Object, content string) *store.Declared {
	return &store.Declared{Object: o, Digest: sha256.Sum256([]byte(content)), Spec: []byte(content), File: "a.yaml", Line: 3}
}

func definition(name string, limit int64, sems ...string) *schema.TaskDefinition {
	def := &schema.TaskDefinition{
		Metadata: schema.Metadata{Name: name, Namespace: "shop", Labels: map[string]string{"team": "a"}},
		Retry:    schema.DefaultRetry(), RetryBudget: 0.3, ResponseTimeout: 60_000, ConcurrentExecLimit: limit,
	}
	for _, s := range sems {
		def.Semaphores = append(def.Semaphores, schema.Ref{Namespace: "shared", Name: s})
	}
	return def
}

func semaphore(name string, permits int64) *schema.Semaphore {
	return &schema.Semaphore{Metadata: schema.Metadata{Name: name, Namespace: "shared"}, Permits: permits}
}

// changesTo makes what an apply of a whole set does: the simplest plan there is.
func changesTo(wanted map[schema.Address]*store.Declared) func(store.Registered) ([]store.Change, error) {
	return func(r store.Registered) ([]store.Change, error) {
		var changes []store.Change
		seen := map[schema.Address]bool{}
		for i := range r.Objects {
			o := &r.Objects[i]
			seen[o.Address] = true
			want := wanted[o.Address]
			switch {
			case want == nil && o.RetiredAt.IsZero():
				changes = append(changes, store.Change{Action: store.ActionRetire, Base: o})
			case want != nil && !o.RetiredAt.IsZero():
				changes = append(changes, store.Change{Action: store.ActionUnretire, Base: o, Want: want})
			case want != nil && want.Digest != o.Digest:
				changes = append(changes, store.Change{Action: store.ActionChange, Base: o, Want: want})
			}
		}
		for address, want := range wanted {
			if !seen[address] {
				changes = append(changes, store.Change{Action: store.ActionAdd, Want: want})
			}
		}
		return changes, nil
	}
}

func set(all ...*store.Declared) (wanted map[schema.Address]*store.Declared, digest [32]byte, names []schema.Address) {
	wanted = map[schema.Address]*store.Declared{}
	text := ""
	for _, d := range all {
		wanted[d.Object.Address()] = d
		names = append(names, d.Object.Address())
		text += fmt.Sprintf("%s %x\n", d.Object.Address(), d.Digest)
	}
	return wanted, sha256.Sum256([]byte(text)), names
}

func apply(ctx context.Context, s *store.Store, base int64, all ...*store.Declared) (store.Applied, error) {
	wanted, digest, names := set(all...)
	return s.Apply(ctx, store.ApplyRequest{
		Project: "orders", BaseGeneration: base, Digest: digest, Commit: "c1", Actor: "ann", Build: 1, Wanted: names,
	}, changesTo(wanted))
}

func TestApplyGivesRevisionsAndGoesBackToOldOnes(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	one := declared(definition("charge", 2, "erp"), "one")
	sem := declared(semaphore("erp", 3), "sem")

	done, err := apply(ctx, s, 0, one, sem)
	require.NoError(t, err)
	require.Equal(t, int64(1), done.Generation)
	require.Equal(t, 2, done.Added)

	two := declared(definition("charge", 5), "two")
	done, err = apply(ctx, s, 1, two, sem)
	require.NoError(t, err)
	require.Equal(t, int32(2), done.Revisions[two.Object.Address()])

	done, err = apply(ctx, s, 2, one, sem)
	require.NoError(t, err)
	require.Equal(t, int32(1), done.Revisions[one.Object.Address()], "old content takes its old number")

	done, err = apply(ctx, s, 3, sem)
	require.NoError(t, err)
	require.Equal(t, 1, done.Retired)
	d, err := s.Declared(ctx)
	require.NoError(t, err)
	require.Len(t, d.Objects, 2)
	require.Equal(t, "shop", d.Namespaces[objectOf(t, d, one.Object.Address()).NS])
	require.False(t, objectOf(t, d, one.Object.Address()).RetiredAt.IsZero())

	done, err = apply(ctx, s, 4, one, sem)
	require.NoError(t, err)
	require.Equal(t, 1, done.Changed)
	d, err = s.Declared(ctx)
	require.NoError(t, err)
	back := objectOf(t, d, one.Object.Address())
	require.True(t, back.RetiredAt.IsZero())
	require.Equal(t, int32(1), back.Revision)
	require.Equal(t, map[string]string{"team": "a"}, back.Labels)
}

func objectOf(t *testing.T, d store.DeclaredState, a schema.Address) store.RegisteredObject {
	t.Helper()
	for _, o := range d.Objects {
		if o.Address == a {
			return o
		}
	}
	require.Fail(t, "not declared", a.String())
	return store.RegisteredObject{}
}

func TestApplyAtAnotherGenerationIsStale(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	_, err := apply(ctx, s, 0, declared(semaphore("erp", 3), "a"))
	require.NoError(t, err)
	_, err = apply(ctx, s, 0, declared(semaphore("erp", 4), "b"))
	require.ErrorIs(t, err, store.ErrStale)

	again, err := apply(ctx, s, 0, declared(semaphore("erp", 3), "a"))
	require.NoError(t, err, "the same apply, sent twice because its answer was lost")
	require.True(t, again.Unchanged)
	require.Equal(t, int64(1), again.Generation)
}

func TestApplyDryRunLeavesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	wanted, digest, names := set(declared(semaphore("erp", 3), "a"))
	done, err := s.Apply(ctx, store.ApplyRequest{Project: "orders", Digest: digest, Actor: "ann", DryRun: true, Wanted: names}, changesTo(wanted))
	require.NoError(t, err)
	require.Equal(t, int64(1), done.Generation)
	projects, err := s.Projects(ctx)
	require.NoError(t, err)
	require.Empty(t, projects)
	d, err := s.Declared(ctx)
	require.NoError(t, err)
	require.Empty(t, d.Objects)
}

func TestApplyWaitsForTheRegistryLockAndNamesItsHolder(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s, other := storetest.Open(t, url), storetest.Open(t, url)
	ctx := t.Context()
	id, err := s.InstallID(ctx)
	require.NoError(t, err)
	err = other.InTx(ctx, store.API, "holder", func(ctx context.Context, tx *store.Tx) error {
		require.NoError(t, tx.LockGates(ctx, []int64{store.RegistryGate(id)}, 0))
		wanted, digest, names := set(declared(semaphore("erp", 3), "a"))
		_, err := s.Apply(ctx, store.ApplyRequest{
			Project: "orders", Digest: digest, Actor: "ann", Wanted: names, LockWait: 50 * time.Millisecond,
		}, changesTo(wanted))
		var busy *store.BusyError
		require.ErrorAs(t, err, &busy)
		require.ErrorIs(t, err, store.ErrBusy)
		require.Contains(t, busy.Holder, t.Name())
		return nil
	})
	require.NoError(t, err)
}

func TestApplyAbortedAnywhereLeavesOldOrNew(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s, other := storetest.Open(t, url), storetest.Open(t, url)
	ctx := t.Context()
	before := []*store.Declared{declared(definition("charge", 2, "erp"), "one"), declared(semaphore("erp", 3), "sem"), declared(definition("old", 0), "old")}
	_, err := apply(ctx, s, 0, before...)
	require.NoError(t, err)
	after := []*store.Declared{declared(definition("charge", 0), "two"), declared(semaphore("erp", 4), "sem4"), declared(definition("new", 1, "erp"), "new")}
	old := stateOf(t, s)

	boom := errors.New("boom")
	committed := false
	for stop := 0; ; stop++ {
		seen := 0
		other.Abort = func(tx, _ string) error {
			if tx != "apply" {
				return nil
			}
			seen++
			if seen > stop {
				return boom
			}
			return nil
		}
		_, err := apply(ctx, other, 1, after...)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, boom)
		if now := stateOf(t, s); now != old {
			require.False(t, committed, "only the point after COMMIT sees the new state")
			committed = true
			old = now
		}
	}
	require.True(t, committed)
	require.Equal(t, old, stateOf(t, s), "the repetition found it done")
}

// stateOf gives everything that an apply writes, as text.
func stateOf(t *testing.T, s *store.Store) string {
	t.Helper()
	text, err := s.RegistryText(t.Context())
	require.NoError(t, err)
	return text
}
