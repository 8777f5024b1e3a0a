package api

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"nf/runtime/auth"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/schema"
)

// LeasedTask is one task of a lease answer (contract 4.3).
type LeasedTask struct {
	TaskID            string  `json:"taskId"`
	ExecutionID       string  `json:"executionId"`
	Workflow          string  `json:"workflow"`
	Revision          int32   `json:"revision"`
	TaskReferenceName string  `json:"taskReferenceName"`
	Iteration         string  `json:"iteration"`
	Attempt           int32   `json:"attempt"`
	Delivery          int32   `json:"delivery"`
	TaskDefinition    string  `json:"taskDefinition"`
	Queue             string  `json:"queue"`
	Input             any     `json:"input"`
	LeaseToken        string  `json:"leaseToken"`
	LeaseExpiresAt    string  `json:"leaseExpiresAt"`
	HeartbeatTimeout  float64 `json:"heartbeatTimeoutSeconds"`
	DeadlineAt        string  `json:"deadlineAt,omitempty"`
	IdempotencyKey    string  `json:"idempotencyKey"`
	Priority          int16   `json:"priority"`
}

// Throttled says which control left something unleased (A0.6).
type Throttled struct {
	Queue             string   `json:"queue,omitempty"`
	Control           string   `json:"control"`
	Limit             int64    `json:"limit"`
	Current           int64    `json:"current"`
	RetryAfterSeconds int64    `json:"retryAfterSeconds,omitempty"`
	AlsoClosed        []string `json:"alsoClosed,omitempty"`
}

var leaseBody = []param{
	{name: "workerId", kind: "string", required: true, about: "1–255 characters"},
	{name: "count", kind: "integer", about: "1–100 (1)"},
	{name: "waitSeconds", kind: "integer", about: "0–30 (0): long poll"},
	{name: "leaseSeconds", kind: "number", about: "length of the lease; shortened to responseTimeoutSeconds"},
	{name: "requestId", kind: "string", about: "repeated within 60 s it gives the same leases"},
}

var leaseManyBody = append([]param{{name: "queues", kind: "array", required: true, about: "1–20 of {queue, count}"}}, leaseBody[0], leaseBody[2], leaseBody[3], leaseBody[4])

func (c *call) lease() (any, error) {
	name := c.pathText("queue")
	if err := c.mayLease(name); err != nil {
		return nil, err
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	request := c.leaseRequest(body)
	request.Queues = []queue.Ask{{Queue: name, Count: int(body.integer("count", 1, 1, 100))}}
	if err := body.done(); err != nil {
		return nil, err
	}
	return c.leased(request, true)
}

// leaseMany serves several queues in rotation.
func (c *call) leaseMany() (any, error) {
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	request := c.leaseRequest(body)
	for i, item := range body.list("queues", 1, 20) {
		at := fmt.Sprintf("/queues/%d", i)
		object, ok := item.(map[string]any)
		if !ok {
			return nil, invalid(at, "an object", "entry %d is not an object", i)
		}
		f := newFields(at, object)
		ask := queue.Ask{Queue: f.text("queue", true, 320), Count: int(f.integer("count", 1, 1, 100))}
		if err := f.done(); err != nil {
			return nil, err
		}
		if err := c.mayLease(ask.Queue); err != nil {
			return nil, err
		}
		request.Queues = append(request.Queues, ask)
	}
	if err := body.done(); err != nil {
		return nil, err
	}
	return c.leased(request, false)
}

func (c *call) mayLease(name string) error {
	if strings.HasPrefix(name, "_nf.") || !c.who.Has(auth.Lease(name)) {
		f := c.insufficient(auth.Lease(cut(name, 320)))
		if strings.HasPrefix(name, "_nf.") {
			f.message = "queues that start with _nf. are served by runners only"
		}
		return f
	}
	return nil
}

func (c *call) leaseRequest(body *fields) queue.Request {
	return queue.Request{
		NS: c.nsNo, Namespace: c.ns, Worker: body.text("workerId", true, 255), Key: c.who.KeyID,
		Wait:    time.Duration(body.integer("waitSeconds", 0, 0, 30)) * time.Second,
		LeaseMs: body.millis("leaseSeconds", 1000), RequestID: body.text("requestId", false, 128),
	}
}

func (c *call) leased(request queue.Request, single bool) (any, error) {
	leave, err := c.s.enterPoll(c.who.KeyID)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, stop := c.untilClosing()
	defer stop()
	answer, err := c.s.Queue.Lease(ctx, request)
	switch {
	case errors.Is(err, queue.ErrUnknownQueue):
		return nil, notFound("%v; a worker's queue is named like its TaskDefinition", err)
	case errors.Is(err, queue.ErrReserved):
		return nil, c.insufficient("queues:lease")
	case err != nil && c.s.closing.Err() != nil && c.Context().Err() == nil:
		answer, err = queue.Answer{}, nil // shutting down: open polls answer empty
	}
	if err != nil {
		return nil, err
	}
	c.s.Metrics.LeaseRequests.WithLabelValues(leaseResult(answer)).Inc()
	tasks := make([]LeasedTask, 0, len(answer.Tasks))
	for i := range answer.Tasks {
		task, err := c.leasedTask(&answer.Tasks[i])
		if err != nil {
			c.s.Queue.GiveBack(c.Context(), leasesOf(answer))
			return nil, err
		}
		tasks = append(tasks, task)
	}
	c.onWriteError = func() { c.s.giveBack(leasesOf(answer)) }
	out := map[string]any{"tasks": tasks}
	for _, t := range answer.Throttled {
		c.s.Metrics.Throttled.WithLabelValues(controlClass(t.Control)).Inc()
	}
	if single && len(answer.Throttled) > 0 {
		throttled := throttle(answer.Throttled[0])
		throttled.Queue = ""
		out["throttled"] = throttled
	}
	if !single && len(answer.Throttled) > 0 {
		list := make([]Throttled, len(answer.Throttled))
		for i, t := range answer.Throttled {
			list[i] = throttle(t)
		}
		out["throttled"] = list
	}
	return out, nil
}

func throttle(t queue.Throttled) Throttled {
	return Throttled{
		Queue: t.Queue, Control: t.Control, Limit: t.Limit, Current: t.Current, AlsoClosed: t.AlsoClosed,
		RetryAfterSeconds: int64(math.Ceil(t.RetryAfter.Seconds())),
	}
}

func leaseResult(a queue.Answer) string {
	switch {
	case len(a.Tasks) > 0:
		return "leased"
	case len(a.Throttled) > 0:
		return "throttled"
	}
	return "empty"
}

// controlClass bounds a label: semaphore:<name> counts as semaphore.
func controlClass(control string) string {
	class, _, _ := strings.Cut(control, ":")
	return class
}

func (c *call) leasedTask(t *queue.Task) (LeasedTask, error) {
	rev, err := c.s.Registry.WorkflowRev(c.Context(), c.nsNo, t.RevID)
	if err != nil {
		return LeasedTask{}, err
	}
	node, err := c.s.Engine.TaskOf(c.Context(), c.nsNo, t.RevID, t.Slot)
	if err != nil {
		return LeasedTask{}, err
	}
	ref := ""
	if node != nil {
		ref = node.Ref
	}
	out := LeasedTask{
		TaskID: queue.TaskID(t.Exec, t.TaskNo, t.Attempt.Attempt), ExecutionID: t.Exec.String(), Workflow: rev.Workflow.Metadata.Name,
		Revision: rev.Revision, TaskReferenceName: ref, Iteration: t.Iteration, Attempt: t.Attempt.Attempt, Delivery: t.Deliveries,
		TaskDefinition: t.Definition.Metadata.Name, Queue: t.Queue, Input: rawJSON(t.Input), LeaseToken: t.Token,
		LeaseExpiresAt: instant(t.LeaseUntil), HeartbeatTimeout: seconds(t.HeartbeatTimeout),
		IdempotencyKey: execution.IdempotencyKey(c.ns, t.Exec.String(), ref, t.Iteration, t.Rerun), Priority: 99 - t.Lane,
	}
	if t.Input == nil {
		out.Input = struct{}{}
	}
	if !t.DeadlineAt.IsZero() {
		out.DeadlineAt = instant(t.DeadlineAt)
	}
	return out, nil
}

func seconds(ms schema.Millis) float64 { return float64(ms) / 1000 }

// instant writes RFC 3339 UTC with milliseconds; "" for zero.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
