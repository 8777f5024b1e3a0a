//go:build unix

package pgdev_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"nf/runtime/pgdev"
	"nf/runtime/pgdev/pgtest"
)

// TestMain makes the test binary its own helper: a process to be killed, and one that connects as another user.
func TestMain(m *testing.M) {
	switch os.Getenv("NF_PGDEV_HELPER") {
	case "":
		os.Exit(runTests(m))
	case "serve":
		os.Exit(helperServe(os.Args[1]))
	case "connect":
		os.Exit(helperConnect(os.Args[1]))
	}
	os.Exit(2)
}

// runTests first lays a copy of the test binary where every account may run it; the original lies in a closed folder. It is done
// before any test starts a process, which would inherit the file while it is written.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp(pgtest.TempRoot(), "nf-pgdev-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = os.Chmod(dir, 0o755)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(os.Args[0])
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "helper"), text, 0o755)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	openHelper = filepath.Join(dir, "helper")
	return m.Run()
}

// openHelper is a copy of the test binary that every account may run; set before the tests.
var openHelper string

// helperServe is an nf dev: it says its address and waits to be killed.
func helperServe(project string) int {
	ctx := context.Background()
	folder, err := pgdev.OpenFolder(ctx, project)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	found, err := pgdev.FindAll(ctx, "")
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	server, err := folder.Start(ctx, options(found))
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	if err := folder.WriteState(pgdev.State{DatabaseURL: server.URL(), DataDir: server.Dir()}); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(server.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the end
	return 0
}

func helperConnect(url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		fmt.Println("refused:", err)
		return 0
	}
	_ = conn.Close(ctx)
	fmt.Println("connected")
	return 0
}

// options of servers in these tests: durable ones but for the syncing, which a killed process does not need.
func options(found []pgdev.Binaries) pgdev.Options {
	return pgdev.Options{Binaries: found, Settings: map[string]string{"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}}
}

func binaries(t *testing.T) []pgdev.Binaries {
	t.Helper()
	found, err := pgdev.FindAll(t.Context(), os.Getenv("NF_PG_BIN"))
	require.NoError(t, err)
	return found
}

// openProject is a folder that every account may enter, as a project's folder usually is.
func openProject(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.TempRoot(), "nf-project-") //nolint:usetesting // that one is closed to other accounts, and on disk
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// start runs a server on the project's folder until the test ends.
func start(t *testing.T, project string) (*pgdev.Folder, *pgdev.Server) {
	t.Helper()
	folder, err := pgdev.OpenFolder(t.Context(), project)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	server, err := folder.Start(t.Context(), options(binaries(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) })
	return folder, server
}

// child is a helper that serves in a process of its own.
type child struct {
	cmd *exec.Cmd
	url string
}

func startChild(t *testing.T, project string) child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], project)
	cmd.Env = append(os.Environ(), "NF_PGDEV_HELPER=serve")
	_, err := cmd.StdinPipe() // open until we end
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// Before the folder is removed: the watchdog signals only what the folder's own file names.
		require.Eventually(t, func() bool { return len(processes(t, project)) == 0 }, time.Minute, 20*time.Millisecond)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NotContains(t, line, "error:")
	return child{cmd, strings.TrimSpace(line)}
}

// kill is kill -9.
func (c child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
}

// run executes statements on the server.
func run(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	for _, s := range statements {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err, s)
	}
}

func number(t *testing.T, url, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
	return n
}

// processes lists the living processes whose command line names all the texts.
func processes(t *testing.T, texts ...string) []int {
	t.Helper()
	var pids []int
	for pid, args := range commandLines(t) {
		missing := slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(args, text) })
		if !missing && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func commandLines(t *testing.T) map[int]string {
	t.Helper()
	lines := map[int]string{}
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		out, err := exec.CommandContext(t.Context(), "ps", "-axo", "pid=,args=").Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
			number, err := strconv.Atoi(pid)
			require.NoError(t, err)
			lines[number] = args
		}
		return lines
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, process := range all {
		if args, err := os.ReadFile(filepath.Join(process, "cmdline")); err == nil {
			number, err := strconv.Atoi(filepath.Base(process))
			require.NoError(t, err)
			lines[number] = string(args)
		}
	}
	return lines
}

func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
