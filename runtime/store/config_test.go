package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// Contract 5.4: a host that is neither a socket nor loopback, without sslmode, is asked for TLS.
func TestSSLModeIsRequiredOffThisMachine(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][2]bool{ // TLS first, plain text possible
		"postgres://u:p@db.example.com/nf":                      {true, false},
		"postgres://u:p@db.example.com/nf?application_name=x":   {true, false},
		"host=db.example.com dbname=nf":                         {true, false},
		"postgres://u:p@10.0.0.1,127.0.0.1/nf":                  {true, false},
		"postgres://u:p@db.example.com/nf?sslmode=disable":      {false, true},
		"postgres://u:p@db.example.com/nf?sslmode=prefer":       {true, true},
		"host=db.example.com dbname=nf sslmode=allow":           {false, true},
		"postgres://u:p@localhost/nf":                           {true, true},
		"postgres://u:p@127.0.0.1:5433/nf":                      {true, true},
		"postgres://u:p@[::1]/nf":                               {true, true},
		"host=/var/run/postgresql dbname=nf":                    {false, true},
		"postgres:///nf?host=/var/run/postgresql&user=somebody": {false, true},
	} {
		tls, plain, err := store.SSLModeOf(url)
		require.NoError(t, err, url)
		require.Equal(t, want, [2]bool{tls, plain}, url)
	}
	_, _, err := store.SSLModeOf("postgres://u:hush@host:notaport/nf")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hush")
}

func TestServerVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"15.18 (Debian 15.18-0+deb12u1)": 150018, "16beta2": 160000, "17.0": 170000, "14.9": 140009, "": 0,
	} {
		require.Equal(t, want, store.VersionNumber(text), text)
	}
}

func TestPoolsShareWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for total := store.MinConns; total <= 100; total++ {
		sizes := store.PoolSizes(total)
		require.LessOrEqual(t, int(sizes[0]+sizes[1]+sizes[2])+1, total, "one is the listener's")
		for _, n := range sizes {
			require.GreaterOrEqual(t, n, int32(1))
			require.LessOrEqual(t, n, int32(16))
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), store.Config{URL: "host=/nowhere dbname=nf", MaxConns: 7})
	require.ErrorContains(t, err, "at least 8 database connections are needed")
	_, err = store.Open(t.Context(), store.Config{URL: "host=/nowhere user=x dbname=nf"})
	require.Error(t, err)
	require.True(t, store.Away(err))
}

func TestSettingsHoldInEveryLaneAndBehindAPooler(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	for _, pooler := range []bool{false, true} {
		s, err := store.Open(t.Context(), store.Config{URL: url, MaxConns: store.MinConns, Pooler: pooler})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		for lane, timeout := range map[store.Lane]string{store.Hot: "5s", store.API: "10s", store.Ctl: "30s"} {
			for setting, want := range map[string]string{
				"statement_timeout": timeout, "lock_timeout": "500ms", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
				"plan_cache_mode": "force_generic_plan", "idle_in_transaction_session_timeout": "10s",
			} {
				got, err := s.QueryText(t.Context(), lane, "SHOW "+setting)
				require.NoError(t, err)
				require.Equal(t, want, got, "%s pooler=%t", setting, pooler)
			}
		}
		if pooler {
			conn := connect(t, url)
			var left string
			require.NoError(t, conn.QueryRow(t.Context(), "SHOW enable_seqscan").Scan(&left))
			require.Equal(t, "on", left, "nothing is left on a session")
		}
		_, err = apply(t.Context(), s, 0, declared(definition("charge", 2), "one"))
		require.NoError(t, err)
	}
}

func TestClockOffsetMovesEveryTransaction(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	s.SetClockOffset(48 * time.Hour)
	require.NoError(t, s.InTx(t.Context(), store.Hot, "test", func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Now(ctx)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(48*time.Hour), now, time.Minute)
		return nil
	}))
	made, err := s.MakeDays(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2*5, made, "two more days of five tables")
}

// A connection whose backend was ended is closed, not given to the next transaction.
func TestTerminatedBackendIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, err := s.QueryText(t.Context(), store.Hot, "SELECT pg_terminate_backend(pg_backend_pid())::text")
	require.Error(t, err)
	require.True(t, store.Away(err))
	for range 10 {
		got, err := s.QueryText(t.Context(), store.Hot, "SELECT 'ok'")
		require.NoError(t, err)
		require.Equal(t, "ok", got)
	}
}
