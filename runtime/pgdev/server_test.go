//go:build unix

package pgdev_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"nf/runtime/pgdev"
)

func TestP3_ServerListensOnAClosedSocketOnly(t *testing.T) {
	t.Parallel()
	_, server := start(t, openProject(t))
	address, err := url.Parse(server.URL())
	require.NoError(t, err)
	socket := address.Query().Get("host")

	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "folder of the socket")
	info, err = os.Stat(filepath.Join(socket, ".s.PGSQL.5432"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "socket")
	info, err = os.Stat(filepath.Join(server.Dir(), "data"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "data")
	if os.Getuid() == 0 {
		require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid, "the server does not run as root")
	}

	require.Equal(t, 1, number(t, server.URL(), "SELECT count(*) FROM pg_settings WHERE name = 'listen_addresses' AND setting = ''"))
	require.Equal(t, 1, number(t, server.URL(), "SELECT count(*) FROM pg_hba_file_rules"))
	require.Equal(t, 1, number(t, server.URL(), `SELECT count(*) FROM pg_hba_file_rules
		WHERE type = 'local' AND database = '{all}' AND user_name = '{nf}' AND auth_method = 'peer'`))
}

// As root: every other account is refused, that of the server included, under any role. As anybody else there is no other
// account to try from; the test above holds what refuses them.
func TestP3_AnotherOSUserIsRefused(t *testing.T) {
	t.Parallel()
	_, server := start(t, openProject(t))
	require.Equal(t, "connected", connectAs(t, os.Geteuid(), server.URL()), "who runs nf may connect")
	require.Contains(t, connectAs(t, os.Geteuid(), strings.Replace(server.URL(), "user=nf", "user=postgres", 1)), "refused: ")
	if os.Geteuid() != 0 {
		return
	}
	tried := 0
	for _, name := range []string{"nobody", "daemon", "games", "postgres"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		require.NoError(t, err)
		for _, role := range []string{"nf", "postgres", name} {
			answer := connectAs(t, uid, strings.Replace(server.URL(), "user=nf", "user="+role, 1))
			require.Contains(t, answer, "refused: ", "%s as %s", name, role)
			require.NotContains(t, answer, "database system", name)
		}
		tried++
	}
	require.GreaterOrEqual(t, tried, 2)
	data, err := os.Stat(filepath.Join(server.Dir(), "data"))
	require.NoError(t, err)
	require.Contains(t, connectAs(t, int(data.Sys().(*syscall.Stat_t).Uid), server.URL()), "Peer authentication failed",
		"the server's own account passes the folder, and the access file refuses it")
}

// connectAs connects from a process of another user and gives what came of it.
func connectAs(t *testing.T, uid int, address string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), openHelper, address)
	cmd.Dir = "/"
	cmd.Env = []string{"NF_PGDEV_HELPER=connect", "HOME=/"}
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

func TestP3_CleanStopLeavesNoProcessAndNoSocket(t *testing.T) {
	t.Parallel()
	folder, err := pgdev.OpenFolder(t.Context(), openProject(t))
	require.NoError(t, err)
	server, err := folder.Start(t.Context(), options(binaries(t)))
	require.NoError(t, err)
	require.NotEmpty(t, processes(t, server.Dir()))
	run(t, server.URL(), "CREATE TABLE kept (n int)")
	busy, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	defer func() { _ = busy.Close(context.WithoutCancel(t.Context())) }()

	require.NoError(t, server.Stop(t.Context()), "with somebody connected")
	require.NoError(t, server.Stop(t.Context()), "a second time")
	require.Empty(t, processes(t, server.Dir()))
	address, err := url.Parse(server.URL())
	require.NoError(t, err)
	require.NoDirExists(t, address.Query().Get("host"))
	select {
	case <-server.Done():
	default:
		require.Fail(t, "Done is open")
	}

	again, err := folder.Start(t.Context(), options(binaries(t)))
	require.NoError(t, err)
	require.Equal(t, 0, number(t, again.URL(), "SELECT count(*) FROM kept"))
	require.NoError(t, again.Stop(t.Context()))

	require.NoError(t, folder.Reset(t.Context(), options(binaries(t))))
	require.NoDirExists(t, server.Dir())
	require.NoError(t, folder.Close())
}

func TestP3_KilledNfStopsItsServerAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	project := openProject(t)
	first := startChild(t, project)
	run(t, first.url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
	dir := filepath.Join(project, ".nf", "dev")
	first.kill(t)
	require.Eventually(t, func() bool { return len(processes(t, dir)) == 0 }, time.Minute, 20*time.Millisecond, "the watchdog stops it")

	_, err := pgdev.ReadState(project)
	require.ErrorIs(t, err, pgdev.ErrNotLive, "state.json of a dead process does not count")
	_, server := start(t, project)
	require.Equal(t, 1000, number(t, server.URL(), "SELECT count(*) FROM kept"))
}

func TestP3_RunningServerOfAKilledNfIsTakenOver(t *testing.T) {
	t.Parallel()
	project := openProject(t)
	first := startChild(t, project)
	run(t, first.url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
	watchdogs := processes(t, "nf-watchdog", project)
	require.Len(t, watchdogs, 1)
	kill(t, watchdogs[0])
	first.kill(t)
	old := postmaster(t, project)
	require.NoError(t, syscall.Kill(old, 0), "it runs on")

	_, server := start(t, project)
	require.Equal(t, 1000, number(t, server.URL(), "SELECT count(*) FROM kept"))
	require.NotEqual(t, old, postmaster(t, project))
	address, err := url.Parse(first.url)
	require.NoError(t, err)
	require.NoDirExists(t, address.Query().Get("host"), "socket of the old one")
}

func TestP3_KilledServerRecovers(t *testing.T) {
	t.Parallel()
	project := openProject(t)
	first := startChild(t, project)
	run(t, first.url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
	first.kill(t)
	kill(t, postmaster(t, project)) // leaves postmaster.pid, and for a moment its backends
	_, server := start(t, project)
	require.Equal(t, 1000, number(t, server.URL(), "SELECT count(*) FROM kept"))
}

func TestP3_PidFileThatNamesAnotherProcessIsStale(t *testing.T) {
	t.Parallel()
	folder, err := pgdev.OpenFolder(t.Context(), openProject(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Close()) }()
	server, err := folder.Start(t.Context(), options(binaries(t)))
	require.NoError(t, err)
	require.NoError(t, server.Stop(t.Context()))

	for _, text := range []string{fmt.Sprintf("%d\n/elsewhere\n", os.Getpid()), "", "-1\n", "words\n"} {
		pidFile := filepath.Join(server.Dir(), "data", "postmaster.pid")
		require.NoError(t, os.WriteFile(pidFile, []byte(text), 0o600))
		server, err = folder.Start(t.Context(), options(binaries(t)))
		require.NoError(t, err, "%q", text)
		require.NoError(t, server.Stop(t.Context()))
	}
}

func TestP3_ServerThatEndsByItselfIsNoticed(t *testing.T) {
	t.Parallel()
	project := openProject(t)
	_, server := start(t, project)
	require.NoError(t, syscall.Kill(postmaster(t, project), syscall.SIGQUIT))
	select {
	case <-server.Done():
	case <-t.Context().Done():
	}
}

func TestP3_EphemeralServerVanishesWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openProject(t), "server")
	o := options(binaries(t))
	o.Dir, o.Ephemeral = dir, true
	server, err := pgdev.Start(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 0, number(t, server.URL(), "SELECT count(*) FROM pg_settings WHERE name = 'fsync' AND setting = 'on'"))
	require.NoError(t, server.Stop(t.Context()))
	require.NoDirExists(t, dir)
}

func TestP3_DataOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	o := options(binaries(t))
	o.Dir = filepath.Join(openProject(t), "server")
	server, err := pgdev.Start(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "data", "PG_VERSION"), []byte("12\n"), 0o600))
	_, err = pgdev.Start(t.Context(), o)
	require.ErrorContains(t, err, "was made by PostgreSQL 12")
	require.ErrorContains(t, err, "NF_PG_BIN")
}

func TestStartSaysWhatThePostgresSays(t *testing.T) {
	t.Parallel()
	o := options(binaries(t))
	o.Dir = filepath.Join(openProject(t), "server")
	o.Settings["shared_buffers"] = "much"
	_, err := pgdev.Start(t.Context(), o)
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers"`)
	require.Empty(t, processes(t, o.Dir))
}

// N10: where the server's account cannot enter the project, the data lies elsewhere, in a place that follows from the folder.
func TestN10_ClosedFolderOfRootKeepsItsDataElsewhere(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	require.NoError(t, os.Chmod(project, 0o700))
	_, server := start(t, project)
	inside := strings.HasPrefix(server.Dir(), project)
	require.Equal(t, os.Geteuid() != 0, inside, server.Dir())
	if inside {
		return
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(server.Dir())) })
	require.Equal(t, "/var/lib/nf", filepath.Dir(server.Dir()))
	run(t, server.URL(), "CREATE TABLE kept (n int)")
}

// postmaster is the process that the server's own file names.
func postmaster(t *testing.T, project string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, ".nf", "dev", "postgres", "data", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	require.NoError(t, err)
	return pid
}
