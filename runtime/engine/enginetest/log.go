//go:build unix

package enginetest

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// output is a test's output until the test ends. Loops of a process that a test has killed may still say something then.
type output struct {
	mu sync.Mutex
	to io.Writer // nil: the test has ended
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return len(b), nil
	}
	return o.to.Write(b)
}

// Log is a log to the test's output. Safe to use after the test has ended.
func Log(t testing.TB) *slog.Logger {
	o := &output{to: t.Output()}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.to = nil
	})
	return slog.New(slog.NewTextHandler(o, nil))
}
