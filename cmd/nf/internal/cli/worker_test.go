//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeAPI plays the API's side of the worker protocol: what a worker makes of each answer is tested here, what the real API answers elsewhere.
type fakeAPI struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	waiting  []string // task ids not leased yet
	reports  map[string]reportRequest
	released []string
	logs     []string
	beats    int
	repeats  map[string]int // calls by path
	reported chan string
	beat     func(taskID string) (int, any)
	report   func(n int) int // status of the nth report of a task; 0 = 200
}

func newFakeAPI(t *testing.T, tasks ...string) *fakeAPI {
	t.Helper()
	d := &fakeAPI{t: t, waiting: tasks, reports: map[string]reportRequest{}, repeats: map[string]int{}, reported: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/ns/default/queues/{queue}/lease", d.lease)
	mux.HandleFunc("POST /v1/ns/default/tasks/{id}/{verb}", d.task)
	d.Server = httptest.NewServer(mux)
	t.Cleanup(d.Close)
	return d
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body)
}

func (d *fakeAPI) lease(w http.ResponseWriter, r *http.Request) {
	var ask leaseRequest
	_ = json.NewDecoder(r.Body).Decode(&ask)
	d.mu.Lock()
	defer d.mu.Unlock()
	tasks := []any{}
	for range min(ask.Count, len(d.waiting)) {
		id := d.waiting[0]
		d.waiting = d.waiting[1:]
		tasks = append(tasks, map[string]any{
			"taskId": id, "executionId": "e1", "taskReferenceName": "pack", "attempt": 1, "queue": r.PathValue("queue"),
			"input": map[string]any{"orderId": "A-1", "big": json.Number("12345678901234567890"), "html": "<&>"}, "leaseToken": "secret-token",
			"leaseExpiresAt": stamp(time.Now().Add(time.Hour)), "idempotencyKey": "default/e1/pack/0",
		})
	}
	reply(w, http.StatusOK, map[string]any{"tasks": tasks})
}

func (d *fakeAPI) task(w http.ResponseWriter, r *http.Request) {
	id, verb := r.PathValue("id"), r.PathValue("verb")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.repeats[verb+" "+id]++
	switch verb {
	case "heartbeat":
		d.beats++
		status, body := http.StatusOK, any(map[string]any{"leaseExpiresAt": stamp(time.Now().Add(time.Hour)), "cancel": false})
		if d.beat != nil {
			status, body = d.beat(id)
		}
		reply(w, status, body)
	case "report":
		if d.report != nil {
			if status := d.report(d.repeats[verb+" "+id]); status != 0 {
				reply(w, status, map[string]any{"error": "SOMETHING", "message": "no"})
				return
			}
		}
		var report reportRequest
		_ = json.NewDecoder(r.Body).Decode(&report)
		d.reports[id] = report
		d.reported <- id
		reply(w, http.StatusOK, map[string]any{"replayed": false})
	case "logs":
		var body struct {
			Logs []logLine `json:"logs"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		for _, l := range body.Logs {
			d.logs = append(d.logs, l.Message)
		}
		reply(w, http.StatusAccepted, map[string]any{"accepted": len(body.Logs)})
	case "release":
		d.released = append(d.released, id)
		reply(w, http.StatusOK, map[string]any{})
	}
}

// reportOf gives what was reported of a task.
func (d *fakeAPI) reportOf(id string) (reportRequest, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.reports[id]
	return r, ok
}

// worker makes a worker whose command is a shell script.
func (d *fakeAPI) worker(script string, environ ...string) *worker {
	said := &strings.Builder{}
	var mu sync.Mutex
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.t.Log(said.String())
		}
	})
	return &worker{
		c:  &client{base: d.URL, key: setting{value: "nfk_x", name: "a test"}, http: httpClient(), patience: endless},
		ns: "default", queues: []string{"pack"}, command: []string{"sh", "-c", script}, environ: append(environ, "PATH="+os.Getenv("PATH")),
		concurrency: 1, lease: 3 * time.Second, id: "w1", once: true, killAfter: 300 * time.Millisecond, drainFor: 20 * time.Second,
		pollWait: time.Second, beatEvery: 50 * time.Millisecond,
		say: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(said, format+"\n", args...)
		},
	}
}

// one runs a script for one task and gives its report.
func one(t *testing.T, script string) reportRequest {
	t.Helper()
	d := newFakeAPI(t, "t1")
	require.NoError(t, d.worker(script).run(t.Context()))
	r, ok := d.reportOf("t1")
	require.True(t, ok, "nothing was reported")
	require.Equal(t, "secret-token", r.LeaseToken)
	require.Equal(t, "w1", r.WorkerID)
	return r
}

func TestWorkerVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		status string
		output string
		reason string // its beginning
	}{
		"output":                      {`echo '{"a": 12345678901234567890}'`, statusCompleted, `{"a":12345678901234567890}`, ""},
		"no output":                   {`echo; echo log >&2`, statusCompleted, "", ""},
		"exit 1":                      {`echo first >&2; echo 'out of stock' >&2; exit 1`, statusFailed, "", "first\nout of stock"},
		"exit 1 with output":          {`echo '{"a":1}'; exit 3`, statusFailed, `{"a":1}`, "exit status 3"},
		"exit 65":                     {`echo broken >&2; exit 65`, statusTerminal, "", "broken"},
		"killed":                      {`kill -9 $$`, statusFailed, "", "signal: killed"},
		"text on stdout":              {`echo hello`, statusTerminal, "", "stdout is not a JSON object: `hello`; print logs to stderr"},
		"a list on stdout":            {`echo '[1]'`, statusTerminal, "", "stdout is not a JSON object: `[1]`"},
		"null on stdout":              {`echo null`, statusTerminal, "", "stdout is not a JSON object: `null`"},
		"two objects on stdout":       {`echo '{}{}'`, statusTerminal, "", "stdout is not a JSON object"},
		"huge stdout":                 {`head -c 7000000 /dev/zero | tr '\0' x`, statusTerminal, "", "stdout is over 6 MiB: `xxx"},
		"text on stdout, and exit 1":  {`echo hello; echo why >&2; exit 1`, statusFailed, "", "why"},
		"report wins":                 {`echo '{"status":"FAILED","reason":"later","retryAfterMs":1500}' >$NF_REPORT_FILE; echo '{"a":1}'`, statusFailed, `{"a":1}`, "later"},
		"report after exit 1":         {`echo '{"status":"COMPLETED","output":{"b":2}}' >$NF_REPORT_FILE; exit 1`, statusCompleted, `{"b":2}`, ""},
		"report without status":       {`echo '{"output":{"b":2}}' >$NF_REPORT_FILE`, statusCompleted, `{"b":2}`, ""},
		"report that is a link":       {`ln -s /etc/passwd $NF_REPORT_FILE`, statusTerminal, "", "report file: it is not a regular file"},
		"report that is a link in":    {`echo '{}' >${NF_REPORT_FILE}x; ln -s report.jsonx $NF_REPORT_FILE`, statusTerminal, "", "report file: it is not a regular file"},
		"report that is a pipe":       {`mkfifo $NF_REPORT_FILE`, statusTerminal, "", "report file: it is not a regular file"},
		"report of a device":          {`rm -rf $(dirname $NF_REPORT_FILE); ln -s /dev $(dirname $NF_REPORT_FILE)`, statusCompleted, "", ""},
		"huge report":                 {`head -c 7000000 /dev/zero >$NF_REPORT_FILE`, statusTerminal, "", "report file: it is over 6 MiB"},
		"report with an unknown word": {`echo '{"state":"COMPLETED"}' >$NF_REPORT_FILE`, statusTerminal, "", `report file: it is not a report: unknown field "state"`},
		"report of another status":    {`echo '{"status":"RUNNING"}' >$NF_REPORT_FILE`, statusTerminal, "", "report file: its status \"RUNNING\""},
		"half a report, and exit 1":   {`echo '{"status":"COMP' >$NF_REPORT_FILE; echo oops >&2; exit 1`, statusFailed, "", "oops\nreport file: it is not a report"},
		"left a process behind":       {`sleep 60 & echo '{"a":1}'`, statusCompleted, `{"a":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := one(t, c.script)
			require.Equal(t, c.status, r.Status, r.Reason)
			require.Equal(t, c.output, string(r.Output))
			require.True(t, strings.HasPrefix(r.Reason, c.reason), "%q", r.Reason)
			if name == "report wins" {
				require.EqualValues(t, 1500, *r.RetryAfterMs)
			}
		})
	}
}

// The command sees its task without the token, and of the environment neither key nor database.
func TestWorkerTellsItsCommandTheTaskAndNoSecret(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	w := d.worker(`cat >"$OUT/task"; env >"$OUT/env"; stat -c %a $(dirname $NF_REPORT_FILE) >"$OUT/mode" 2>/dev/null || stat -f %Lp $(dirname $NF_REPORT_FILE) >"$OUT/mode"; echo one >&2; printf two >&2`)
	out := t.TempDir()
	w.environ = append(childEnvironment([]string{"NF_API_KEY=nfk_1", "NF_DATABASE_URL=postgres://x", "PGPASSWORD=p", "HOME=/h", "PATH=" + os.Getenv("PATH")}), "OUT="+out)
	require.NoError(t, w.run(t.Context()))

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		return string(text)
	}
	task := read("task")
	require.NotContains(t, task, "secret-token")
	require.NotContains(t, task, "leaseToken")
	require.Contains(t, task, `"big":12345678901234567890`)
	require.Contains(t, task, `"html":"<&>"`)
	env := read("env")
	for _, secret := range []string{"nfk_", "postgres:", "PGPASSWORD", "secret-token"} {
		require.NotContains(t, env, secret)
	}
	for _, line := range []string{"NF_TASK_ID=t1", "NF_EXECUTION_ID=e1", "NF_ATTEMPT=1", "NF_IDEMPOTENCY_KEY=default/e1/pack/0", "NF_QUEUE=pack", "NF_TASK_REFERENCE=pack", "HOME=/h"} {
		require.Contains(t, env, line+"\n")
	}
	require.Equal(t, "700\n", read("mode"))
	require.Equal(t, []string{"one", "two"}, d.logs, "the log is there before the report")
}

// lost runs a command that ignores SIGTERM until its lease is gone, and gives the process id it had.
func lost(t *testing.T, beat func(string) (int, any)) {
	t.Helper()
	d := newFakeAPI(t, "t1")
	out := filepath.Join(t.TempDir(), "pids")
	d.beat = func(id string) (int, any) {
		if _, err := os.Stat(out); err != nil {
			return http.StatusOK, map[string]any{"leaseExpiresAt": stamp(time.Now().Add(time.Hour))}
		}
		return beat(id)
	}
	w := d.worker(`trap '' TERM; sleep 300 & echo $$ $! >"$OUT.new"; mv "$OUT.new" "$OUT"; wait; while :; do sleep 300; done`, "OUT="+out)
	require.NoError(t, w.run(t.Context()))
	_, reported := d.reportOf("t1")
	require.False(t, reported, "who lost the lease reports nothing")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	for pid := range strings.FieldsSeq(string(text)) {
		var n int
		_, err := fmt.Sscan(pid, &n)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(n) }, 30*time.Second, 10*time.Millisecond, "process %d is left", n)
	}
}

// gone says that a process has ended; its parent may not have collected it.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(state), ") Z ")
}

func TestWorkerStopsTheCommandWhenTheFenceIsLost(t *testing.T) {
	t.Parallel()
	lost(t, func(string) (int, any) {
		return http.StatusConflict, map[string]any{"error": "LEASE_EXPIRED", "message": "gone", "details": map[string]any{"status": "TIMED_OUT"}}
	})
}

func TestWorkerStopsTheCommandWhenTheExecutionHasEnded(t *testing.T) {
	t.Parallel()
	lost(t, func(string) (int, any) { return http.StatusOK, map[string]any{"cancel": true} })
}

// While the API is away the report is repeated; it arrives once.
func TestWorkerRepeatsTheReportWhileTheAPIIsAway(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	d.report = func(n int) int {
		if n < 4 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	require.NoError(t, d.worker(`echo '{"a":1}'`).run(t.Context()))
	r, ok := d.reportOf("t1")
	require.True(t, ok)
	require.Equal(t, statusCompleted, r.Status)
	require.Equal(t, 4, d.repeats["report t1"])
}

// A report is repeated until the lease has ended, and not for ever.
func TestWorkerGivesUpAReportWhenTheLeaseHasEnded(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	d.beat = func(string) (int, any) { return http.StatusServiceUnavailable, map[string]any{} }
	d.report = func(int) int { return http.StatusServiceUnavailable }
	w := d.worker(`echo '{"a":1}'`)
	w.lease = time.Second
	require.NoError(t, w.run(t.Context()))
	require.Greater(t, d.repeats["report t1"], 1)
}

// What the API refuses to keep ends the task for good, with the reason: the work has been done.
func TestWorkerReportsAnOutputThatIsRefused(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	d.report = func(n int) int {
		if n == 1 {
			return http.StatusRequestEntityTooLarge
		}
		return 0
	}
	require.NoError(t, d.worker(`echo '{"a":1}'`).run(t.Context()))
	r, _ := d.reportOf("t1")
	require.Equal(t, statusTerminal, r.Status)
	require.Contains(t, r.Reason, "the output was refused")
	require.Empty(t, r.Output)
}

// The API is away when the worker leases: it tries again, with the same request id, and goes on.
func TestWorkerOutlivesTheAPI(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	var ids []string
	calls := 0
	inner := d.Config.Handler
	d.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/lease") && calls < 2 {
			var ask leaseRequest
			_ = json.NewDecoder(r.Body).Decode(&ask)
			ids = append(ids, ask.RequestID)
			if calls++; calls == 1 {
				panic(http.ErrAbortHandler) // the connection breaks: nobody knows what became of the lease
			}
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		inner.ServeHTTP(w, r)
	})
	require.NoError(t, d.worker(`:`).run(t.Context()))
	_, ok := d.reportOf("t1")
	require.True(t, ok)
	require.Len(t, ids, 2)
	require.Equal(t, ids[0], ids[1])
}

// Told to stop, the worker takes nothing new; the running command ends and is reported.
func TestWorkerDrains(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1", "t2")
	out := filepath.Join(t.TempDir(), "up")
	w := d.worker(`: >"$OUT"; while [ ! -e "$OUT.go" ]; do sleep 0.02; done; echo '{"a":1}'`, "OUT="+out)
	w.once = false
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	require.Eventually(t, func() bool { return exists(out) }, 30*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, os.WriteFile(out+".go", nil, 0o600))
	require.NoError(t, <-ended)
	r, ok := d.reportOf("t1")
	require.True(t, ok)
	require.Equal(t, statusCompleted, r.Status)
	require.Equal(t, []string{"t2"}, d.waiting)
}

// A command that does not end in its time is killed, and its task is not reported: its lease runs out.
func TestWorkerKillsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	out := filepath.Join(t.TempDir(), "up")
	w := d.worker(`trap '' TERM; : >"$OUT"; while :; do sleep 300; done`, "OUT="+out)
	w.drainFor = 50 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	require.Eventually(t, func() bool { return exists(out) }, 30*time.Second, 5*time.Millisecond)
	stop()
	require.ErrorContains(t, <-ended, "were killed")
	_, reported := d.reportOf("t1")
	require.False(t, reported)
}

// A task whose command cannot start is released: it counts as never delivered.
func TestWorkerReleasesWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	w := d.worker(``)
	w.command = []string{filepath.Join(t.TempDir(), "gone")}
	require.NoError(t, w.run(t.Context()))
	require.Equal(t, []string{"t1"}, d.released)
}

// A key that the API refuses ends the worker.
func TestWorkerEndsWhenItsKeyIsRefused(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t)
	d.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusUnauthorized, map[string]any{"error": "UNAUTHENTICATED", "message": "no"})
	})
	refusal := refusalOf(d.worker(`:`).run(t.Context()))
	require.NotNil(t, refusal)
	require.Equal(t, http.StatusUnauthorized, refusal.status)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestLineLogSplitsCutsAndKeepsTheNewest(t *testing.T) {
	t.Parallel()
	l := newLineLog()
	_, _ = l.Write([]byte("a\r\n\n  \nb"))
	_, _ = l.Write([]byte("c\n" + strings.Repeat("ä", maxLine) + "\xff"))
	l.close()
	lines, last := l.take()
	require.True(t, last)
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = line.Message
		require.LessOrEqual(t, len(line.Message), maxLine)
	}
	require.Equal(t, []string{"a", "bc"}, texts[:2])
	require.Equal(t, strings.Repeat("ä", maxLine)+"\uFFFD", strings.Join(texts[2:], ""))

	many := newLineLog()
	for i := range 3 * maxKept {
		_, _ = fmt.Fprintf(many, "%d\n", i)
	}
	lines, last = many.take()
	require.False(t, last)
	require.Len(t, lines, maxBatch)
	require.Equal(t, strconv.Itoa(2*maxKept), lines[0].Message)
	require.LessOrEqual(t, len(many.end()), maxTail)
}

// A second signal ends the worker at once; the commands and what they started end with it.
func TestWorkerKillsItsCommandsWhenItEndsAtOnce(t *testing.T) {
	t.Parallel()
	d := newFakeAPI(t, "t1")
	out := filepath.Join(t.TempDir(), "pid")
	w := d.worker(`trap '' TERM; sleep 300 & echo $! >"$OUT.new"; mv "$OUT.new" "$OUT"; wait`, "OUT="+out)
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	require.Eventually(t, func() bool { return exists(out) }, 30*time.Second, 5*time.Millisecond)
	w.killAll()
	require.NoError(t, <-ended)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, 30*time.Second, 10*time.Millisecond)
}
