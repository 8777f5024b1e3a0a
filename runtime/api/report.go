package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"nf/runtime/auth"
	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/store"
	"nf/schema"
)

var reportBody = []param{
	{name: "leaseToken", kind: "string", required: true},
	{name: "status", kind: "string", required: true, about: "COMPLETED, FAILED or FAILED_WITH_TERMINAL_ERROR"},
	{name: "output", kind: "object", about: "kept on failure too"},
	{name: "reason", kind: "string", about: "cut at 8 KiB"},
	{name: "retryAfterMs", kind: "integer", about: "with FAILED: least wait before the next attempt"},
	{name: "workerId", kind: "string"},
}

var beatBody = []param{{name: "leaseToken", kind: "string", required: true}, {name: "leaseSeconds", kind: "number"}}

var batchBody = []param{{name: "items", kind: "array", required: true, about: "1–100 of the single body and taskId"}}

// named is an attempt as a worker names it, its token held to the namespace.
type named struct {
	taskID  string
	id      execution.ID
	taskNo  int32
	attempt int32
	fence   int64
}

// name reads a task id and its token. A false token is LEASE_EXPIRED without details; an unknown id is NOT_FOUND.
func (c *call) name(taskID, token string) (named, error) {
	id, no, attempt, err := execution.ParseTaskID(taskID)
	if err != nil {
		return named{}, notFound("task %q does not exist", cut(taskID, 100))
	}
	n := named{taskID: execution.TaskID(id, no, attempt), id: execution.ID{NS: c.nsNo, Exec: id}, taskNo: no, attempt: attempt}
	fence, ok := c.s.Signer.Verify(token, c.ns, n.taskID)
	if !ok {
		return n, &failure{code: codeLeaseExpired, message: "the lease token is not in force"}
	}
	n.fence = fence
	return n, nil
}

// mayReport says which of the attempts the key may act on: those of queues that it may lease (contract 4.1 "Reports"). All others do not
// exist for it.
func (c *call) mayReport(names []named) ([]bool, error) {
	keys := make([]store.AttemptName, len(names))
	for i, n := range names {
		keys[i] = store.AttemptName{ID: n.id, TaskNo: n.taskNo, Attempt: n.attempt}
	}
	queues, err := c.s.Store.AttemptQueues(c.Context(), keys)
	if err != nil {
		return nil, err
	}
	allowed := make([]bool, len(names))
	for i, q := range queues {
		name := q.Name
		if q.Domain != "" {
			name += ":" + q.Domain
		}
		allowed[i] = q.Found && !q.System && c.who.Has(auth.Lease(name))
	}
	return allowed, nil
}

// each runs a batch or a single call: it names each item, drops what the key may not touch, and acts on the rest at once.
func (c *call) each(items []*fields, ids []string, read func(i int, f *fields, n named) error, act func(indexes []int) ([]any, error)) ([]any, error) {
	out := make([]any, len(items))
	names := make([]named, len(items))
	var asked []int
	for i, f := range items {
		token := f.text("leaseToken", true, 200)
		n, err := c.name(ids[i], token)
		names[i] = n
		var bad error
		if readErr := read(i, f, n); readErr != nil {
			bad = readErr
		} else if done := f.done(); done != nil {
			bad = done
		} else if err != nil {
			bad = err
		}
		var expired *failure
		switch {
		case errors.As(bad, &expired) && expired.code == codeLeaseExpired:
			out[i] = bad
			asked = append(asked, i) // whether it is the key's to know decides between 404 and 409
		case bad != nil:
			out[i] = bad
		default:
			asked = append(asked, i)
		}
	}
	subset := make([]named, len(asked))
	for j, i := range asked {
		subset[j] = names[i]
	}
	allowed, err := c.mayReport(subset)
	if err != nil {
		return nil, err
	}
	var mine []int
	for j, i := range asked {
		switch {
		case !allowed[j]:
			out[i] = notFound("task %q does not exist", cut(ids[i], 100))
		case out[i] == nil:
			mine = append(mine, i)
		}
	}
	if len(mine) == 0 {
		return out, nil
	}
	answers, err := act(mine)
	if err != nil {
		return nil, err
	}
	for j, i := range mine {
		out[i] = answers[j]
	}
	return out, nil
}

// items reads the items of a batch, or the one item of a single call.
func (c *call) items() (items []*fields, ids []string, single bool, err error) {
	body, err := c.readBody()
	if err != nil {
		return nil, nil, false, err
	}
	if id := c.pathText("taskId"); id != "" {
		return []*fields{body}, []string{id}, true, nil
	}
	for i, item := range body.list("items", 1, 100) {
		at := fmt.Sprintf("/items/%d", i)
		object, ok := item.(map[string]any)
		if !ok {
			return nil, nil, false, invalid(at, "an object", "entry %d is not an object", i)
		}
		f := newFields(at, object)
		items, ids = append(items, f), append(ids, f.text("taskId", true, 100))
	}
	if failed := body.done(); failed != nil {
		return nil, nil, false, failed
	}
	return items, ids, false, nil
}

// results turns answers into a single answer or the list of a batch.
func (c *call) results(out []any, single bool, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if single {
		if failed, ok := out[0].(error); ok {
			return nil, failed
		}
		return out[0], nil
	}
	for i := range out {
		if failed, ok := out[i].(error); ok {
			out[i] = c.inBatch(failed)
		}
	}
	return map[string]any{"results": out}, nil
}

// recordWait bounds how long a report waits for an execution that is locked elsewhere.
const recordWait = 10 * time.Second

func (c *call) report() (any, error) {
	items, ids, single, err := c.items()
	if err != nil {
		return nil, err
	}
	ends := make([]engine.End, len(items))
	out, err := c.each(items, ids, func(i int, f *fields, n named) error {
		what, err := reportOf(f)
		ends[i] = engine.End{ID: n.id, TaskNo: n.taskNo, Attempt: n.attempt, Place: execution.InLease, Fence: n.fence, What: what}
		return err
	}, func(indexes []int) ([]any, error) {
		wanted := make([]engine.End, len(indexes))
		for j, i := range indexes {
			wanted[j] = ends[i]
		}
		ctx, cancel := context.WithTimeout(c.Context(), recordWait)
		defer cancel()
		return c.reported(c.s.Engine.Record(ctx, wanted)), nil
	})
	return c.results(out, single, err)
}

// reportOf reads a verdict. A reason never stops a report: what is not valid in it is replaced.
func reportOf(f *fields) (engine.Report, error) {
	var r engine.Report
	switch status := f.text("status", true, 64); status {
	case "COMPLETED":
		r.Status = execution.Completed
	case "FAILED":
		r.Status, r.Cause = execution.Failed, execution.CauseWorkerFailed
	case "FAILED_WITH_TERMINAL_ERROR":
		r.Status, r.Cause = execution.FailedTerm, execution.CauseWorkerTerminal
	default:
		if f.err == nil {
			f.fail("status", "COMPLETED, FAILED or FAILED_WITH_TERMINAL_ERROR", "%q is not a status that a worker reports", cut(status, 64))
		}
	}
	output := f.object("output")
	r.Reason, r.Worker = f.free("reason"), f.text("workerId", false, 255)
	wait := f.integer("retryAfterMs", -1, 0, 1<<53)
	if wait >= 0 && r.Status != execution.Failed && f.err == nil {
		f.fail("retryAfterMs", "absent unless the status is FAILED", "retryAfterMs goes with FAILED only")
	}
	if wait >= 0 {
		r.MinWait, r.Source = schema.Millis(min(wait, 86_400_000)), "worker"
	}
	if f.err != nil {
		return r, f.err
	}
	text, err := payload(f.pointer("output"), output)
	r.Output = text
	return r, err
}

func (c *call) reported(results []engine.EndResult) []any {
	out := make([]any, len(results))
	count := func(result string) { c.s.Metrics.Reports.WithLabelValues(result).Inc() }
	for i, r := range results {
		switch {
		case errors.Is(r.Err, engine.ErrStopped):
			out[i] = &failure{code: codeUnavailable, message: "the runner is shutting down; nothing was stored", retryAfter: 1}
		case errors.Is(r.Err, engine.ErrUnknownOutcome):
			out[i] = &failure{code: codeUnavailable, message: "the database did not answer the commit; repeat the report", details: map[string]any{"outcome": "unknown"}}
		case r.Err != nil:
			out[i] = r.Err
		case r.Answer == engine.Accepted:
			count("ok")
			out[i] = map[string]any{"replayed": false}
		case r.Answer == engine.Replayed:
			count("replayed")
			out[i] = map[string]any{"replayed": true}
		case r.Answer == engine.TerminalState:
			count("terminal_state")
			out[i] = &failure{code: codeTerminalState, message: "this lease ended the attempt with another status", details: map[string]any{"status": r.Status}}
		case r.Answer == engine.NotFound:
			out[i] = notFound("the task does not exist")
		default:
			count("lease_expired")
			out[i] = leaseExpired(r.Status)
		}
	}
	return out
}

func leaseExpired(status string) *failure {
	f := &failure{code: codeLeaseExpired, message: "the lease is no longer in force: stop, and do not report again"}
	if status != "" {
		f.details = map[string]any{"status": status}
	}
	return f
}

func (c *call) heartbeat() (any, error) {
	items, ids, single, err := c.items()
	if err != nil {
		return nil, err
	}
	beats := make([]queue.Beat, len(items))
	out, err := c.each(items, ids, func(i int, f *fields, n named) error {
		beats[i] = queue.Beat{Held: c.held(n, f), LeaseMs: f.millis("leaseSeconds", 1000)}
		return nil
	}, func(indexes []int) ([]any, error) {
		wanted := make([]queue.Beat, len(indexes))
		for j, i := range indexes {
			wanted[j] = beats[i]
		}
		answers := make([]any, len(indexes))
		for j, r := range c.s.Queue.Heartbeat(c.Context(), wanted) {
			switch {
			case errors.Is(r.Err, queue.ErrLeaseExpired):
				answers[j] = leaseExpired("")
			case r.Err != nil:
				answers[j] = r.Err
			default:
				answers[j] = map[string]any{"leaseExpiresAt": instant(r.LeaseUntil), "cancel": r.Cancel}
			}
		}
		return answers, nil
	})
	return c.results(out, single, err)
}

func (c *call) held(n named, f *fields) queue.Held {
	token, _ := f.value["leaseToken"].(string)
	return queue.Held{ID: n.id, Namespace: c.ns, TaskNo: n.taskNo, Attempt: n.attempt, Token: token}
}

func (c *call) release() (any, error) {
	items, ids, single, err := c.items()
	if err != nil {
		return nil, err
	}
	held := make([]queue.Held, len(items))
	out, err := c.each(items, ids, func(i int, f *fields, n named) error {
		held[i] = c.held(n, f)
		return nil
	}, func(_ []int) ([]any, error) {
		err := c.s.Queue.Release(c.Context(), held)[0]
		if errors.Is(err, queue.ErrLeaseExpired) {
			return []any{leaseExpired("")}, nil
		}
		if err != nil {
			return []any{err}, nil
		}
		return []any{struct{}{}}, nil
	})
	return c.results(out, single, err)
}

// addLogs keeps lines of an attempt, under its lease.
func (c *call) addLogs() (any, error) {
	items, ids, single, err := c.items()
	if err != nil {
		return nil, err
	}
	var lines []store.LogLine
	var key named
	out, err := c.each(items, ids, func(_ int, f *fields, n named) error {
		key = n
		lines, err = c.logLines(f)
		return err
	}, func(_ []int) ([]any, error) {
		err := c.s.Engine.AddLogs(c.Context(), engine.End{ID: key.id, TaskNo: key.taskNo, Attempt: key.attempt, Place: execution.InLease, Fence: key.fence}, c.who.Name, lines)
		switch {
		case errors.Is(err, store.ErrLeaseLost):
			return []any{leaseExpired("")}, nil
		case err != nil:
			return nil, err
		}
		c.status = http.StatusAccepted
		return []any{map[string]any{"accepted": len(lines)}}, nil
	})
	return c.results(out, single, err)
}

var logLevels = []string{"debug", "info", "warn", "error"}

func (c *call) logLines(f *fields) ([]store.LogLine, error) {
	var lines []store.LogLine
	for i, item := range f.list("logs", 1, 100) {
		at := f.pointer("logs") + fmt.Sprintf("/%d", i)
		object, ok := item.(map[string]any)
		if !ok {
			return nil, invalid(at, "an object", "entry %d is not an object", i)
		}
		l := newFields(at, object)
		line := store.LogLine{At: l.time("at"), Level: 1, Message: l.free("message")}
		if level := l.text("level", false, 16); level != "" {
			known := false
			for n, name := range logLevels {
				if name == level {
					line.Level, known = int16(n), true
				}
			}
			if !known {
				l.fail("level", strings.Join(logLevels, ", "), "%q is not a level", cut(level, 16))
			}
		}
		if failed := l.done(); failed != nil {
			return nil, failed
		}
		lines = append(lines, line)
	}
	if f.err != nil {
		return nil, f.err
	}
	return lines, nil
}
