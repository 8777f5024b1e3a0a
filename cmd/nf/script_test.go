//go:build unix

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"nf/cmd/nf/internal/cli"
	"nf/runtime/pgdev"
	"nf/runtime/store/storetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nf": func() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ())) }})
}

// TestScripts runs each script of testdata/script with the real command, on two databases of its own: $DB is migrated (environment test), $EMPTY holds nothing.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	binaries, err := pgdev.Find(t.Context(), "")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, testscript.Params{
				Files: []string{file}, WorkdirRoot: openFolder(t), RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: os.Getenv("NF_TEST_UPDATE") != "",
				Setup: func(e *testscript.Env) error {
					e.Setenv("DB", storetest.URL(t))
					e.Setenv("EMPTY", storetest.Empty(t))
					e.Setenv("OTHER", storetest.Empty(t))
					e.Setenv("NF_PG_BIN", binaries.Dir)
					e.Setenv("NF_ACTOR", "tester")
					e.Setenv("GIT_AUTHOR_NAME", "t")
					e.Setenv("GIT_AUTHOR_EMAIL", "t@example.org")
					e.Setenv("GIT_COMMITTER_NAME", "t")
					e.Setenv("GIT_COMMITTER_EMAIL", "t@example.org")
					e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"code": code, "port": port, "ready": ready, "unready": unready, "live": live, "term": term, "state": state, "status": status, "keep": keep, "until": until,
					"detour": detour, "call": call, "hup": hup,
					"sql": func(_ *testscript.TestScript, _ bool, args []string) { storetest.Exec(t, args[0], args[1]) },
				},
			})
		})
	}
}

// openFolder is a folder of the test's that an unprivileged account may enter, as a checkout is.
func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// code runs a command and holds it to an exit code: code 64 nf apply .
func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// port puts a free port into a variable.
func port(ts *testscript.TestScript, _ bool, args []string) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	_, number, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv(args[0], number)
}

// ready waits until a runner at a URL is ready; with ! until it is up and not ready.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	want := http.StatusOK
	if neg {
		want = http.StatusServiceUnavailable
	}
	await(ts, func() bool { return answer(args[0]+"/v1/health/ready") == want })
}

// live waits until a runner at a URL answers at all.
func live(ts *testscript.TestScript, _ bool, args []string) {
	await(ts, func() bool { return answer(args[0]+"/v1/health/live") == http.StatusOK })
}

// unready waits until a runner at a URL is up, not ready, and says why in words that match.
func unready(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[1])
	await(ts, func() bool {
		code, body := asked(args[0] + "/v1/health/ready")
		return code == http.StatusServiceUnavailable && want.MatchString(body)
	})
}

func answer(url string) int {
	code, _ := asked(url)
	return code
}

// asked gives the answer of a GET, status and body; 0 = none.
func asked(url string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, ""
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(a.Body, 1<<20))
	if err != nil {
		return 0, ""
	}
	return a.StatusCode, string(body)
}

func await(ts *testscript.TestScript, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	ts.Fatalf("it did not come to that within 40 s")
}

// term sends SIGTERM to every background command.
func term(ts *testscript.TestScript, _ bool, _ []string) {
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGTERM))
	}
}

// hup sends SIGHUP to every background command.
func hup(ts *testscript.TestScript, _ bool, _ []string) {
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGHUP))
	}
}

// call sends a request with a key, holds the answer to a status and makes its body the last stdout: call 200 POST URL KEY.
func call(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, args[1], args[2], nil)
	ts.Check(err)
	q.Header.Set("X-Api-Key", args[3])
	a, err := http.DefaultClient.Do(q)
	ts.Check(err)
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(a.Body)
	ts.Check(err)
	_, _ = ts.Stdout().Write(body)
	if a.StatusCode != want {
		ts.Fatalf("%s %s answers %d, want %d: %s", args[1], args[2], a.StatusCode, want, body)
	}
}

// state waits for the state of an nf dev in a folder and puts URL, PID and KEY into variables.
func state(ts *testscript.TestScript, _ bool, args []string) {
	var s pgdev.State
	await(ts, func() bool {
		var err error
		s, err = pgdev.ReadState(ts.MkAbs(args[0]))
		return err == nil
	})
	ts.Setenv("URL", s.URL)
	ts.Setenv("PID", strconv.Itoa(s.PID))
	ts.Setenv("KEY", s.APIKey)
	ts.Setenv("DEVDB", s.DatabaseURL)
}

// detour puts the URL of a database at the end of a link that is not there yet into a variable, and where the link must lead into DETOUR:
// detour AWAY $DB … symlink detour -> $DETOUR.
func detour(ts *testscript.TestScript, _ bool, args []string) {
	u, err := url.Parse(args[1])
	ts.Check(err)
	query := u.Query()
	ts.Setenv("DETOUR", query.Get("host"))
	query.Set("host", ts.MkAbs("detour"))
	u.RawQuery = query.Encode()
	ts.Setenv(args[0], u.String())
}

// until runs a command until its output matches: until 'w1 +pack' nf worker list. For what a runner writes from time to time.
func until(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	await(ts, func() bool { return ts.Exec(args[1], args[2:]...) == nil && want.MatchString(ts.ReadFile("stdout")) })
}

// keep puts the last stdout, one line, into a variable: keep ID.
func keep(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// status reads the last stdout as JSON and holds a field, named by a dotted path, to a value: status fleet.running 0.
func status(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &v))
	for step := range strings.SplitSeq(args[0], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			ts.Check(err)
			if i >= len(at) {
				ts.Fatalf("%s: %d items only", args[0], len(at))
			}
			v = at[i]
		}
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	if (string(got) == args[1]) == neg {
		ts.Fatalf("%s is %s", args[0], got)
	}
}
