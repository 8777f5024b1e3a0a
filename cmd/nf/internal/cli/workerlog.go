package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	maxLine     = 16 << 10 // of a message (contract 4.4)
	maxBatch    = 100      // lines of one call
	maxKept     = 1000     // lines of an attempt that the server keeps
	maxTail     = 4 << 10  // end of standard error that becomes the reason
	gatherLines = 200 * time.Millisecond
)

// logLine is a line on its way.
type logLine struct {
	At      string `json:"at"`
	Message string `json:"message"`
}

// lineLog splits standard error into lines. Where they come faster than they can be sent the oldest go, as on the server.
type lineLog struct {
	mu      sync.Mutex
	part    []byte // of a line that has not ended
	lines   []logLine
	tail    []byte
	closed  bool
	arrived chan struct{} // has room for one: there is something to do
}

func newLineLog() *lineLog { return &lineLog{arrived: make(chan struct{}, 1)} }

// Write implements io.Writer. It never fails.
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p[max(0, len(p)-maxTail):]...)
	l.tail = l.tail[max(0, len(l.tail)-maxTail):]
	rest := p
	for len(rest) > 0 {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		l.part, rest = append(l.part, line...), after
		for len(l.part) > maxLine {
			cut := maxLine
			for cut > maxLine-utf8.UTFMax && !utf8.RuneStart(l.part[cut]) {
				cut--
			}
			l.add(l.part[:cut])
			l.part = append([]byte(nil), l.part[cut:]...)
		}
		if ended {
			l.add(bytes.TrimSuffix(l.part, []byte{'\r'}))
			l.part = l.part[:0]
		}
	}
	return len(p), nil
}

func (l *lineLog) add(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	l.lines = append(l.lines, logLine{stamp(time.Now()), strings.ToValidUTF8(string(line), "\uFFFD")})
	if len(l.lines) > maxKept {
		l.lines = append([]logLine(nil), l.lines[len(l.lines)-maxKept:]...)
	}
	l.wake()
}

func (l *lineLog) wake() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// close says that nothing more comes.
func (l *lineLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(l.part)
	l.part, l.closed = nil, true
	l.wake()
}

// end is the end of what was written, from the beginning of a line where there is one.
func (l *lineLog) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tail := l.tail
	if len(tail) == maxTail {
		if _, after, ok := bytes.Cut(tail, []byte{'\n'}); ok && len(bytes.TrimSpace(after)) > 0 {
			tail = after
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(tail), "\uFFFD"))
}

// take gives the next lines, and whether they are the last.
func (l *lineLog) take() (lines []logLine, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.lines), maxBatch)
	lines, l.lines = l.lines[:n:n], l.lines[n:]
	return lines, l.closed && len(l.lines) == 0
}

func (l *lineLog) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// ship sends the lines of a task to its log until the command has ended and all are sent. A log never holds up a verdict: once the command
// has ended a batch is tried once.
func (w *worker) ship(ctx context.Context, t *leased, log *lineLog) {
	once := *w.c
	once.patience = 0
	path := nsPath(w.ns, "tasks", t.TaskID, "logs")
	for {
		select {
		case <-ctx.Done():
			return
		case <-log.arrived:
		}
		if !log.isClosed() {
			pause(ctx, gatherLines)
		}
		for {
			lines, last := log.take()
			if len(lines) > 0 && !w.shipLines(ctx, &once, path, t, log, lines) {
				return
			}
			if last {
				return
			}
			if len(lines) < maxBatch {
				break
			}
		}
	}
}

// shipLines sends one batch; false = the log is not taken any more.
func (w *worker) shipLines(ctx context.Context, c *client, path string, t *leased, log *lineLog, lines []logLine) bool {
	body := map[string]any{"leaseToken": t.LeaseToken, "logs": lines}
	for try := 0; ; try++ {
		err := c.do(ctx, ask{method: http.MethodPost, path: path, body: body}, nil)
		if err == nil {
			return true
		}
		var away *awayError
		if !errors.As(err, &away) || log.isClosed() || !pause(ctx, min(backOff(try, 0), 2*time.Second)) {
			return false
		}
	}
}
