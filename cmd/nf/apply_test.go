//go:build unix

package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// command makes an nf process that runs in a folder.
func command(t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0], cmd.Dir = "nf", dir // the test binary is nf under that name
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// exitCode gives the code of a process that was started.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// TestConcurrentApplies_OneWinsOneIsStale: two applies of one project planned against the same state; both wait for the registry lock, which this
// test holds until both are there. One is committed, the other one exits 5 and has written nothing.
func TestConcurrentApplies_OneWinsOneIsStale(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	s := storetest.Open(t, url)
	install, err := s.Install(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", store.RegistryGate(install.ID))
	require.NoError(t, err)

	var both []*exec.Cmd
	var said [2]bytes.Buffer
	for i, permits := range []string{"1", "2"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nf.yaml"), []byte("apiVersion: nf/v1\nkind: Project\nmetadata: {name: p}\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"),
			[]byte("apiVersion: nf/v1\nkind: Semaphore\nmetadata: {name: a}\nspec: {permits: "+permits+"}\n"), 0o600))
		cmd := command(t, dir, []string{"NF_DATABASE_URL=" + url, "NF_ENV=" + storetest.Environment}, "apply", "--yes")
		cmd.Stderr = &said[i]
		require.NoError(t, cmd.Start())
		both = append(both, cmd)
	}
	require.Eventually(t, func() bool {
		var waiting int
		return conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting) == nil && waiting == 2
	}, 30*time.Second, 20*time.Millisecond, "both wait for the lock")
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	codes := []int{exitCode(t, both[0]), exitCode(t, both[1])}
	slices.Sort(codes)
	require.Equal(t, []int{0, 5}, codes, "%s\n%s", said[0].String(), said[1].String())
	require.Contains(t, said[0].String()+said[1].String(), "NF6106")
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	require.Len(t, projects, 1)
	require.EqualValues(t, 1, projects[0].Generation)
}
