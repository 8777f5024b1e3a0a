//go:build unix

package store_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

// applyChild names the variable that turns the test binary into a process that applies for ever, until it is killed.
const applyChild = "NF_TEST_APPLY_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(applyChild); url != "" {
		fmt.Fprintln(os.Stderr, applyForEver(context.Background(), url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// setOf gives one of two sets that differ in everything an apply writes.
func setOf(generation int64) []*store.Declared {
	if generation%2 == 1 {
		all := []*store.Declared{declared(definition("charge", 2, "erp"), "one"), declared(semaphore("erp", 3), "three"), declared(semaphore("odd", 1), "odd")}
		for i := range 50 {
			all = append(all, declared(definition(fmt.Sprintf("step%d", i), int64(i)), fmt.Sprintf("odd %d", i)))
		}
		return all
	}
	all := []*store.Declared{declared(definition("charge", 5, "even"), "two"), declared(semaphore("erp", 4), "four"), declared(semaphore("even", 1), "even")}
	for i := range 50 {
		all = append(all, declared(definition(fmt.Sprintf("step%d", i), 0), fmt.Sprintf("even %d", i)))
	}
	return all
}

func applyForEver(ctx context.Context, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, AppName: "child"})
	if err != nil {
		return err
	}
	for {
		projects, err := s.Projects(ctx)
		if err != nil {
			return err
		}
		base := int64(0)
		if len(projects) > 0 {
			base = projects[0].Generation
		}
		if _, err := apply(ctx, s, base, setOf(base+1)...); err != nil {
			return err
		}
	}
}

// A process that applies is killed at any moment: the old state is in force or the new one, never something between.
func TestApplyKilledLeavesOldOrNew(t *testing.T) {
	t.Parallel()
	killApplies(t, 3)
}

func killApplies(t *testing.T, kills int) {
	t.Helper()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	last := int64(0)
	for i := range kills {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), applyChild+"="+url)
		var stderr strings.Builder
		child.Stderr = &stderr
		require.NoError(t, child.Start())
		// Let it commit something, then go on for a moment that differs each time.
		require.Eventually(t, func() bool { return generationOf(t, s) > last }, 30*time.Second, time.Millisecond, stderr.String())
		until := time.NewTimer(time.Duration(i*7%40) * time.Millisecond)
		<-until.C
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
		last = requireWhole(t, s)
	}
	// Its locks died with it: another apply goes through.
	_, err := apply(t.Context(), s, last, setOf(last+1)...)
	require.NoError(t, err)
	requireWhole(t, s)
}

func generationOf(t *testing.T, s *store.Store) int64 {
	t.Helper()
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	if len(projects) == 0 {
		return 0
	}
	return projects[0].Generation
}

// requireWhole waits until no apply is under way any more and holds every table to the set of the generation in force.
func requireWhole(t *testing.T, s *store.Store) int64 {
	t.Helper()
	id, err := s.InstallID(t.Context())
	require.NoError(t, err)
	var generation int64
	// The server may still be busy with what the dead client sent: its lock tells.
	require.Eventually(t, func() bool {
		return s.InTx(t.Context(), store.Ctl, "whole", func(ctx context.Context, tx *store.Tx) error {
			return tx.LockGates(ctx, []int64{store.RegistryGate(id)}, time.Second)
		}) == nil
	}, 30*time.Second, time.Millisecond)
	generation = generationOf(t, s)
	want, digest, _ := set(setOf(generation)...)
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	require.Equal(t, digest[:], projects[0].Digest)
	state, err := s.Declared(t.Context())
	require.NoError(t, err)
	inForce := 0
	for _, o := range state.Objects {
		if !o.RetiredAt.IsZero() {
			require.NotContains(t, want, o.Address)
			continue
		}
		inForce++
		require.Contains(t, want, o.Address)
		require.Equal(t, want[o.Address].Digest, o.Digest, o.Address)
	}
	require.Len(t, want, inForce)
	requireSettings(t, s, state, want)
	return generation
}

// requireSettings holds caps and permits to what the definitions in force say.
func requireSettings(t *testing.T, s *store.Store, state store.DeclaredState, want map[schema.Address]*store.Declared) {
	t.Helper()
	text, err := s.RegistryText(t.Context())
	require.NoError(t, err)
	for _, o := range state.Objects {
		d, ok := want[o.Address]
		if !ok {
			continue
		}
		switch v := d.Object.(type) {
		case *schema.TaskDefinition:
			limit := ""
			if v.ConcurrentExecLimit > 0 {
				limit = strconv.FormatInt(v.ConcurrentExecLimit, 10)
			}
			require.Contains(t, text, fmt.Sprintf("nf_def_flow: (%d,%d,%s,", o.NS, o.ObjectID, limit))
		case *schema.Semaphore:
			require.Contains(t, text, fmt.Sprintf("nf_semaphore: (%d,%d,%d,", o.NS, o.ObjectID, v.Permits))
		}
	}
}
