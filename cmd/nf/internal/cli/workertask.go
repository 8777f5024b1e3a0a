package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"nf/cmd/nf/internal/view"
)

// beatEvery is how often a lease is extended, unless the lease or the heartbeat time-out of the task is so short that it must be sooner.
const beatEvery = 10 * time.Second

// perform runs the command for one task and reports its verdict. stop = no command is started any more; alive ends = commands are killed.
func (w *worker) perform(stop, alive context.Context, t *leased) {
	if stop.Err() != nil {
		w.release(t)
		return
	}
	child, err := w.startChild(t)
	if err != nil {
		w.say("task %s (%s): the command was not started: %s", t.TaskID, view.Safe(t.TaskReferenceName), view.Safe(err.Error()))
		w.release(t)
		pause(stop, time.Second) // a machine out of memory or processes is not asked at once again
		return
	}
	w.children.Store(child, nil)
	defer func() { w.children.Delete(child); child.cleanUp() }()
	h := w.hold(alive, t)
	defer h.letGo()
	shipped := make(chan struct{})
	go func() { defer close(shipped); w.ship(h.ctx, t, child.log) }()

	killed := !child.wait(h.ctx, alive, w.killAfter)
	if killed || h.lost.Load() != nil {
		w.tellEnd(t, child.took(), lostWhy(h.lost.Load()))
		return
	}
	verdict := child.verdict()
	<-shipped // the log is there before the verdict: after it the lease is gone
	w.report(h, t, verdict, child.took())
}

// lostWhy says why a command was stopped.
func lostWhy(why *string) string {
	if why == nil {
		return "killed: the worker ends"
	}
	return "stopped: " + *why
}

func (w *worker) tellEnd(t *leased, took time.Duration, what string) {
	w.say("%s  %s attempt %d  %s  %s", t.TaskID, view.Safe(t.TaskReferenceName), t.Attempt, view.Safe(what), took.Round(time.Millisecond))
}

// hold is a lease that is kept alive.
type hold struct {
	ctx    context.Context //nolint:containedctx // it is the life of the lease
	cancel context.CancelFunc
	lost   atomic.Pointer[string] // why the task is no longer this worker's
	until  atomic.Int64           // when the lease ends by this machine's clock, in nanoseconds since base
	base   time.Time
	ended  chan struct{}
}

// hold beats until letGo, or until the lease is lost: then its ctx ends. alive only bounds it.
func (w *worker) hold(alive context.Context, t *leased) *hold {
	ctx, cancel := context.WithCancel(alive)
	h := &hold{ctx: ctx, cancel: cancel, base: t.at, ended: make(chan struct{})}
	h.extend(t.at, w.granted(t.at, t.LeaseExpiresAt))
	go func() {
		defer close(h.ended)
		w.beat(h, t)
	}()
	return h
}

func (h *hold) letGo() {
	h.cancel()
	<-h.ended
}

func (h *hold) extend(from time.Time, by time.Duration) { h.until.Store(int64(from.Sub(h.base) + by)) }

// left is how long the lease is surely in force.
func (h *hold) left() time.Duration { return time.Duration(h.until.Load()) - time.Since(h.base) }

func (h *hold) lose(why string) {
	h.lost.CompareAndSwap(nil, &why)
	h.cancel()
}

// granted is the length of a lease as the answer has it; that of the request where clocks differ too much to tell.
func (w *worker) granted(at time.Time, expires string) time.Duration {
	t, err := time.Parse(time.RFC3339Nano, expires)
	if got := t.Sub(at); err == nil && got > 0 && got < w.lease {
		return got
	}
	return w.lease
}

// beatInterval leaves room for two lost beats.
func (w *worker) beatInterval(t *leased) time.Duration {
	every := min(w.beatEvery, w.granted(t.at, t.LeaseExpiresAt)/3)
	if t.HeartbeatTimeout > 0 {
		every = min(every, time.Duration(t.HeartbeatTimeout*float64(time.Second))/3)
	}
	return max(every, 100*time.Millisecond)
}

// beat extends the lease again and again. A beat that gets no answer is repeated sooner; the command goes on meanwhile.
func (w *worker) beat(h *hold, t *leased) {
	once := *w.c
	once.patience = 0
	every := w.beatInterval(t)
	next := every
	for try := 0; pause(h.ctx, next); {
		var answer struct {
			LeaseExpiresAt string `json:"leaseExpiresAt"`
			Cancel         bool   `json:"cancel"`
		}
		sent := time.Now()
		body := map[string]any{"leaseToken": t.LeaseToken, "leaseSeconds": float64(w.lease.Milliseconds()) / 1000}
		err := once.do(h.ctx, ask{method: http.MethodPost, path: nsPath(w.ns, "tasks", t.TaskID, "heartbeat"), body: body}, &answer)
		refusal := refusalOf(err)
		switch {
		case err == nil && answer.Cancel:
			h.lose("the execution has ended")
			return
		case err == nil:
			h.extend(sent, w.granted(sent, answer.LeaseExpiresAt))
			next, try = every, 0
		case refusal != nil && (refusal.status == http.StatusConflict || refusal.status == http.StatusNotFound):
			h.lose("the lease is lost" + statusOf(refusal))
			return
		default:
			next = min(every, backOff(try, 0))
			try++
		}
	}
}

func statusOf(refusal *apiError) string {
	if s, ok := refusal.body.Details["status"].(string); ok && s != "" {
		return ": the attempt is " + s
	}
	return ""
}

// verdict is what is reported (contract 4.4).
type verdict struct {
	Status       string          `json:"status"`
	Output       json.RawMessage `json:"output,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	RetryAfterMs *int64          `json:"retryAfterMs,omitempty"`
}

// shownReason is how much of a reason the worker's own line shows.
const shownReason = 300

// told is the verdict in a line, with the end of its reason: there is what went wrong.
func (v *verdict) told() string {
	reason := strings.Join(strings.Fields(v.Reason), " ")
	if reason == "" || v.Status == statusCompleted {
		return v.Status
	}
	if over := len(reason) - shownReason; over > 0 {
		reason = "… " + strings.ToValidUTF8(reason[over:], "")
	}
	return v.Status + ": " + reason
}

type reportRequest struct {
	LeaseToken string `json:"leaseToken"`
	WorkerID   string `json:"workerId"`
	verdict
}

// report sends the verdict, again and again while the API is away, until the lease has ended.
func (w *worker) report(h *hold, t *leased, v verdict, took time.Duration) {
	once := *w.c
	once.patience = 0
	path := nsPath(w.ns, "tasks", t.TaskID, "report")
	for try := 0; ; try++ {
		err := once.do(h.ctx, ask{method: http.MethodPost, path: path, body: reportRequest{t.LeaseToken, w.id, v}}, nil)
		refusal := refusalOf(err)
		var away *awayError
		switch {
		case err == nil:
			w.tellEnd(t, took, v.told())
			return
		case h.lost.Load() != nil:
			w.tellEnd(t, took, lostWhy(h.lost.Load()))
			return
		case errors.As(err, &away), refusal != nil && (refusal.status == http.StatusTooManyRequests || refusal.status >= http.StatusInternalServerError):
			if h.left() > 0 && pause(h.ctx, min(backOff(try, 0), max(h.left(), 100*time.Millisecond))) {
				continue
			}
		case refusal != nil && (refusal.status == http.StatusBadRequest || refusal.status == http.StatusRequestEntityTooLarge) && v.Output != nil:
			// The work is done, and what it gave cannot be kept: that must not become a second run of it.
			v = verdict{Status: statusTerminal, Reason: "the output was refused: " + refusal.Error()}
			continue
		}
		w.tellEnd(t, took, fmt.Sprintf("%s, not reported: %v", v.Status, err))
		return
	}
}
