package store_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

func TestMigrateMakesTheSchemaOnceWhoeverRuns(t *testing.T) {
	t.Parallel()
	url := storetest.Empty(t)
	s := storetest.Open(t, url)
	_, err := s.SchemaStatus(t.Context())
	require.ErrorIs(t, err, store.ErrNoSchema)
	_, err = s.Install(t.Context())
	require.ErrorIs(t, err, store.ErrNoSchema)

	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		other := storetest.Open(t, url)
		wg.Go(func() { errs[i] = other.Migrate(t.Context(), 7, "prod") })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))

	st, err := s.SchemaStatus(t.Context())
	require.NoError(t, err)
	require.NoError(t, st.Fits(7))
	require.Len(t, st.Applied, len(store.Migrations()))
	require.Equal(t, int64(7), st.Applied[0].Build)
	require.Equal(t, "prod", st.Install.Environment)
	require.Equal(t, 14, st.Days.Ahead)
	keys, err := s.InstallKeys(t.Context())
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Len(t, keys[0].Key, 32)
}

// NF6108 (P13): a database belongs to one environment.
func TestNF6108_MigrateRefusesAnotherEnvironment(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var other *store.EnvironmentError
	require.ErrorAs(t, s.Migrate(t.Context(), 1, "prod"), &other)
	require.Equal(t, store.EnvironmentError{Stored: storetest.Environment, Asked: "prod"}, *other)
	require.ErrorContains(t, s.Migrate(t.Context(), 1, "no spaces"), `environment "no spaces"`)
}

func TestMigrateAbortedAnywhereLeavesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.Empty(t)
	s, other := storetest.Open(t, url), storetest.Open(t, url)
	boom := errors.New("boom")
	for stop := 0; ; stop++ {
		seen := 0
		s.Abort = func(_, statement string) error {
			if seen++; seen > stop && statement != "committed" {
				return boom
			}
			return nil
		}
		err := s.Migrate(t.Context(), 1, "dev")
		if err == nil {
			break
		}
		require.ErrorIs(t, err, boom)
		_, err = other.SchemaStatus(t.Context())
		require.ErrorIs(t, err, store.ErrNoSchema)
	}
	_, err := other.SchemaStatus(t.Context())
	require.NoError(t, err)
}

// P4: what a build may do with a schema that is older, newer or not its own.
func TestSchemaOfAnotherBuildIsJudged(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s, conn := storetest.Open(t, url), connect(t, url)

	run(t, conn, "UPDATE nf_install SET min_build = 5")
	st, err := s.SchemaStatus(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, st.Fits(4), "upgrade nf")
	require.NoError(t, st.Fits(5))

	newer := int64(len(store.Migrations()) + 1)
	run(t, conn, "INSERT INTO nf_migration (version, name, checksum, build) VALUES ($1, 'later', sha256('x'), 9)", newer)
	run(t, conn, "UPDATE nf_install SET schema_version = $1", newer)
	require.NoError(t, s.Migrate(t.Context(), 6, storetest.Environment), "release N runs beside N+1")
	st, err = s.SchemaStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{newer}, st.Newer)
	require.Equal(t, newer, st.Install.SchemaVersion, "the version never goes back")
	require.NoError(t, st.Fits(6))

	run(t, conn, "UPDATE nf_migration SET checksum = sha256('y') WHERE version = 1")
	_, err = s.SchemaStatus(t.Context())
	var misfit *store.SchemaError
	require.ErrorAs(t, err, &misfit)
	require.ErrorContains(t, s.Migrate(t.Context(), 6, storetest.Environment), "another content")
}

func TestBallastComesBackAfterItsStatisticsAreGone(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s, conn := storetest.Open(t, url), connect(t, url)
	run(t, conn, "DELETE FROM nf_ready")
	require.NoError(t, s.Migrate(t.Context(), 1, storetest.Environment))
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM nf_ready").Scan(&rows))
	require.Zero(t, rows, "a repeated migration leaves hot tables alone")
	run(t, conn, "DELETE FROM pg_statistic WHERE starelid = 'nf_ready'::regclass") // what pg_upgrade leaves
	require.NoError(t, s.Migrate(t.Context(), 1, storetest.Environment))
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM nf_ready").Scan(&rows))
	require.Equal(t, 2000, rows)
}

func TestMakeDayOnlyNearToday(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	require.ErrorContains(t, s.MakeDay(t.Context(), execution.UUID{}), "not near today")
}

// B5: the order of the keys is the lock order, and two installations never share a key.
func TestGateKeysAreOrderedByClass(t *testing.T) {
	t.Parallel()
	one, two := execution.UUID{1}, execution.UUID{2}
	last := int64(0)
	for _, class := range []store.GateClass{
		store.GateRegistry, store.GateNamespaceQuota, store.GateWorkflowCap, store.GateAdmission, store.GateDefinition, store.GateQueue,
		store.GateTarget, store.GateSemaphore,
	} {
		key := store.GateKey(one, class, 1, "x")
		require.Greater(t, key, last)
		last = key
		require.Equal(t, int64(class), key>>56)
	}
	require.NotEqual(t, store.GateKey(one, store.GateQueue, 1, "x"), store.GateKey(two, store.GateQueue, 1, "x"))
	require.NotEqual(t, store.GateKey(one, store.GateQueue, 1, "x"), store.GateKey(one, store.GateQueue, 2, "x"))
	require.NotEqual(t, store.ObjectGate(one, store.GateQueue, 1, 1), store.ObjectGate(one, store.GateQueue, 1, 2))
}
