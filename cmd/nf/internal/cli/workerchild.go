package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nf/runtime/execution"
)

const (
	statusCompleted = "COMPLETED"
	statusFailed    = "FAILED"
	statusTerminal  = "FAILED_WITH_TERMINAL_ERROR"
	// exitTerminal is the exit code of a command whose failure no retry mends (EX_DATAERR of sysexits.h).
	exitTerminal = 65
	// reportName is the file in the command's folder that its report may be written to.
	reportName = "report.json"
	// pipesLinger is how long output is read after the command has ended, when a process that it left behind keeps its pipes open.
	pipesLinger = 2 * time.Second
	// shownStdout is how much of a stdout that is no JSON object stands in the reason.
	shownStdout = 200
)

// childEnvironment is the worker's environment without what steers nf and Postgres clients: no key or database reaches a command.
func childEnvironment(environ []string) []string {
	var kept []string
	for _, line := range environ {
		if !strings.HasPrefix(line, "NF_") && !strings.HasPrefix(line, "PG") {
			kept = append(kept, line)
		}
	}
	return kept
}

// child is a running command.
type child struct {
	cmd     *exec.Cmd
	dir     string
	root    *os.Root // of dir, held open: the command cannot put another folder in its place
	stdout  limited
	log     *lineLog
	started time.Time
	ended   time.Time
	done    chan struct{}
}

// startChild starts the command for a task, in a process group of its own. Task data goes to its standard input and a few ids into its
// environment; none of it becomes an argument.
func (w *worker) startChild(t *leased) (*child, error) {
	dir, err := os.MkdirTemp("", "nf-worker-")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	c := &child{dir: dir, root: root, stdout: limited{left: execution.MaxPayload}, log: newLineLog(), done: make(chan struct{})}
	c.cmd = exec.Command(w.command[0], w.command[1:]...) //nolint:gosec,noctx // the operator's command; it outlives the worker's context on purpose
	c.cmd.Env = append(slices.Clip(w.environ),
		"NF_TASK_ID="+t.TaskID, "NF_EXECUTION_ID="+t.ExecutionID, "NF_ATTEMPT="+strconv.Itoa(int(t.Attempt)), "NF_IDEMPOTENCY_KEY="+t.IdempotencyKey,
		"NF_QUEUE="+t.Queue, "NF_TASK_REFERENCE="+t.TaskReferenceName, "NF_REPORT_FILE="+filepath.Join(dir, reportName))
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = bytes.NewReader(t.text), &c.stdout, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.WaitDelay = pipesLinger
	c.started = time.Now()
	if err := c.cmd.Start(); err != nil {
		c.cleanUp()
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // the state says how it ended
		c.ended = time.Now()
		c.log.close()
		close(c.done)
	}()
	return c, nil
}

// wait waits for the command's end. When ctx ends first the whole group is told to end, and killed after a while; at once when alive has
// ended. false: it was killed or told to end.
func (c *child) wait(ctx, alive context.Context, killAfter time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	if alive.Err() == nil {
		c.signal(syscall.SIGTERM)
		t := time.NewTimer(killAfter)
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		case <-alive.Done():
		}
	}
	c.signal(syscall.SIGKILL) // what the command left behind too
	<-c.done
	return false
}

// signal sends to the command's process group. It may be gone.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }

func (c *child) took() time.Duration { return c.ended.Sub(c.started) }

func (c *child) cleanUp() {
	_ = c.root.Close()
	_ = os.RemoveAll(c.dir)
}

// verdict reads what the command said, after its end: the report file, else exit code, standard output and standard error.
func (c *child) verdict() verdict {
	v := c.exitVerdict()
	report, found, err := c.readReport()
	switch {
	case err != nil && (v.Status == statusFailed):
		v.Reason = strings.TrimSpace(fmt.Sprintf("%s\nreport file: %v", v.Reason, err)) // it died; what it wrote may be half of it
		return v
	case err != nil:
		return verdict{Status: statusTerminal, Reason: fmt.Sprintf("report file: %v", err)}
	case !found:
		return v
	}
	if report.Status == "" {
		report.Status = v.Status
	}
	if report.Reason == "" && report.Status != statusCompleted && v.Status != statusCompleted {
		report.Reason = v.Reason
	}
	if report.Output == nil && v.Status != statusTerminal {
		report.Output = v.Output
	}
	return report
}

// exitVerdict judges exit code and streams.
func (c *child) exitVerdict() verdict {
	output, err := c.output()
	switch code := c.cmd.ProcessState.ExitCode(); code {
	case 0:
		if err != nil {
			return verdict{Status: statusTerminal, Reason: err.Error()}
		}
		return verdict{Status: statusCompleted, Output: output}
	case exitTerminal:
		return verdict{Status: statusTerminal, Output: output, Reason: c.reason()}
	default:
		return verdict{Status: statusFailed, Output: output, Reason: c.reason()}
	}
}

// reason is the end of standard error, or how the command ended where there is none.
func (c *child) reason() string {
	if tail := c.log.end(); tail != "" {
		return tail
	}
	return c.cmd.ProcessState.String()
}

// output reads standard output: empty, or one JSON object.
func (c *child) output() (json.RawMessage, error) {
	text := bytes.TrimSpace(c.stdout.text.Bytes())
	if c.stdout.over {
		return nil, fmt.Errorf("stdout is over %d MiB: `%s`; print logs to stderr", execution.MaxPayload>>20, beginning(text))
	}
	if len(text) == 0 {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || object == nil {
		return nil, fmt.Errorf("stdout is not a JSON object: `%s`; print logs to stderr", beginning(text))
	}
	return text, nil
}

func beginning(text []byte) string {
	return strings.ToValidUTF8(string(text[:min(len(text), shownStdout)]), "\uFFFD")
}

// readReport reads the report file: a regular file of the folder, no link. The command may still have processes that write: what was
// looked at must be what is read.
func (c *child) readReport() (v verdict, found bool, err error) {
	seen, err := c.root.Lstat(reportName)
	if errors.Is(err, os.ErrNotExist) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	if !seen.Mode().IsRegular() {
		return v, false, fmt.Errorf("it is not a regular file: %s", seen.Mode().Type())
	}
	f, err := c.root.OpenFile(reportName, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return v, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	opened, err := f.Stat()
	if err != nil {
		return v, false, err
	}
	if !os.SameFile(seen, opened) {
		return v, false, errors.New("it was replaced while it was read")
	}
	text, err := io.ReadAll(io.LimitReader(f, execution.MaxPayload+1))
	if err != nil {
		return v, false, err
	}
	if len(text) > execution.MaxPayload {
		return v, false, fmt.Errorf("it is over %d MiB", execution.MaxPayload>>20)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return v, false, nil
	}
	v, err = parseReport(text)
	return v, err == nil, err
}

// parseReport reads a report strictly: what it does not know would be lost in silence.
func parseReport(text []byte) (verdict, error) {
	var v verdict
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("it is not a report: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("it is not a report: there is more after the object")
	}
	switch v.Status {
	case "", statusCompleted, statusFailed, statusTerminal:
	default:
		return v, fmt.Errorf("its status %q is not %s, %s or %s", v.Status, statusCompleted, statusFailed, statusTerminal)
	}
	if string(v.Output) == "null" {
		v.Output = nil
	}
	var object map[string]json.RawMessage
	if v.Output != nil && json.Unmarshal(v.Output, &object) != nil {
		return v, errors.New("its output is not a JSON object")
	}
	if v.RetryAfterMs != nil && (*v.RetryAfterMs < 0 || v.Status != statusFailed && v.Status != "") {
		return v, errors.New("its retryAfterMs goes with the status FAILED, and is 0 or more")
	}
	return v, nil
}

// limited keeps so many bytes and takes the rest without keeping it: a command is not stopped by what it prints.
type limited struct {
	text bytes.Buffer
	left int
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	keep := min(len(p), l.left)
	l.text.Write(p[:keep])
	l.left -= keep
	l.over = l.over || keep < len(p)
	return len(p), nil
}
