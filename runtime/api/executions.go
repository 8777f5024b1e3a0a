package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/store"
)

// Execution is an execution on the wire (contract 4.2). What is absent is left out.
type Execution struct {
	ExecutionID       string          `json:"executionId"`
	Namespace         string          `json:"namespace"`
	Workflow          string          `json:"workflow"`
	Revision          int32           `json:"revision"`
	Version           int64           `json:"version,omitempty"`
	Status            string          `json:"status"`
	AwaitingAdmission bool            `json:"awaitingAdmission"`
	AdmittedAt        string          `json:"admittedAt,omitempty"`
	StartedAt         string          `json:"startedAt"`
	EndedAt           string          `json:"endedAt,omitempty"`
	DeadlineAt        string          `json:"deadlineAt,omitempty"`
	Seq               int64           `json:"seq"`
	Input             json.RawMessage `json:"input,omitempty"`
	Output            json.RawMessage `json:"output,omitempty"`
	Variables         json.RawMessage `json:"variables,omitempty"`
	Cause             string          `json:"cause,omitempty"`
	Reason            string          `json:"reasonForIncompletion,omitempty"`
	FailedTask        string          `json:"failedTask,omitempty"`
	Tasks             []Task          `json:"tasks,omitempty"`
	TasksTruncated    bool            `json:"tasksTruncated,omitempty"`
}

// Delay is the wait before the next attempt.
type Delay struct {
	PolicyMs          int64  `json:"policyMs"`
	ProviderMinimumMs int64  `json:"providerMinimumMs"`
	SelectedMs        int64  `json:"selectedMs"`
	Source            string `json:"source,omitempty"`
}

// Task is an attempt on the wire (contract 4.2).
type Task struct {
	TaskID            string          `json:"taskId"`
	Ref               string          `json:"taskReferenceName"`
	Iteration         string          `json:"iteration"`
	Attempt           int32           `json:"attempt"`
	MaxAttempts       int32           `json:"maxAttempts"`
	Delivery          int32           `json:"delivery"`
	Type              string          `json:"type"`
	TaskDefinition    string          `json:"taskDefinition,omitempty"`
	Queue             string          `json:"queue,omitempty"`
	Status            string          `json:"status"`
	AttemptStatus     string          `json:"attemptStatus,omitempty"`
	Input             json.RawMessage `json:"input,omitempty"`
	Output            json.RawMessage `json:"output,omitempty"`
	ScheduledAt       string          `json:"scheduledAt"`
	DueAt             string          `json:"dueAt,omitempty"`
	Delayed           bool            `json:"delayed"`
	Delay             *Delay          `json:"delay,omitempty"`
	LeasedAt          string          `json:"leasedAt,omitempty"`
	EndedAt           string          `json:"endedAt,omitempty"`
	WorkerID          string          `json:"workerId,omitempty"`
	LeaseExpiresAt    string          `json:"leaseExpiresAt,omitempty"`
	DeadlineAt        string          `json:"deadlineAt,omitempty"`
	DeadlineKind      string          `json:"deadlineKind,omitempty"`
	Control           string          `json:"control,omitempty"`
	HeldSince         string          `json:"heldSince,omitempty"`
	Limit             *int64          `json:"limit,omitempty"`
	Current           *int64          `json:"current,omitempty"`
	AlsoClosed        []string        `json:"alsoClosed,omitempty"`
	Cause             string          `json:"cause,omitempty"`
	Reason            string          `json:"reasonForIncompletion,omitempty"`
	AttemptsExhausted bool            `json:"attemptsExhausted,omitempty"`
	FromCache         bool            `json:"fromCache"`
}

func executionOf(x *engine.Execution, now time.Time) Execution {
	out := Execution{
		ExecutionID: x.ID.Exec.String(), Namespace: x.Namespace, Workflow: x.Workflow, Revision: x.Revision, Version: x.Version, Status: x.Status,
		AdmittedAt: instant(x.AdmittedAt), StartedAt: instant(x.StartedAt), EndedAt: instant(x.EndedAt), DeadlineAt: instant(x.DeadlineAt), Seq: x.Seq,
		Input: rawJSON(x.Input), Output: rawJSON(x.Output), Variables: rawJSON(x.Variables), Cause: string(x.Cause), Reason: x.Reason,
		FailedTask: x.FailedTask, TasksTruncated: x.Truncated,
	}
	for i := range x.Tasks {
		out.Tasks = append(out.Tasks, taskOf(x.ID.Exec, &x.Tasks[i], now))
	}
	return out
}

func taskOf(id execution.UUID, t *engine.Task, now time.Time) Task {
	out := Task{
		TaskID: execution.TaskID(id, t.TaskNo, t.Attempt), Ref: t.Ref, Iteration: t.Iteration, Attempt: t.Attempt, MaxAttempts: t.MaxAttempts,
		Delivery: t.Deliveries, Type: string(t.Type), TaskDefinition: t.Definition, Queue: t.Queue, Status: t.Status, Input: rawJSON(t.Input),
		Output: rawJSON(t.Output), ScheduledAt: instant(t.ScheduledAt), DueAt: instant(t.DueAt), Delayed: t.Delayed, LeasedAt: instant(t.LeasedAt),
		EndedAt: instant(t.EndedAt), WorkerID: t.Worker, LeaseExpiresAt: instant(t.LeaseUntil), DeadlineAt: instant(t.DeadlineAt),
		DeadlineKind: string(t.Deadline), Control: t.Control, Cause: string(t.Cause), Reason: t.Reason, AttemptsExhausted: t.Exhausted,
	}
	if t.Absorbed {
		out.Status, out.AttemptStatus = "COMPLETED_WITH_ERRORS", t.Status
	}
	if t.Delay != nil {
		out.Delay = &Delay{PolicyMs: t.Delay.PolicyMs, ProviderMinimumMs: t.Delay.MinimumMs, SelectedMs: t.Delay.SelectedMs, Source: t.Delay.Source}
	}
	out.hold(t, now)
	return out
}

// executionID reads the id of the path; one that is none is not found, as any other that does not exist.
func (c *call) executionID() (execution.ID, error) {
	id, err := execution.ParseUUID(c.pathText("id"))
	if err != nil {
		return execution.ID{}, notFound("execution %q does not exist", cut(c.pathText("id"), 100))
	}
	return execution.ID{NS: c.nsNo, Exec: id}, nil
}

var includes = []string{"tasks", "input", "output", "variables", "taskInputs"}

func (c *call) getExecution() (any, error) {
	id, err := c.executionID()
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	with := engine.Include{Tasks: true, Input: true, Output: true, Variables: true}
	if query.Has("include") {
		with = engine.Include{}
		for part := range strings.SplitSeq(query.Get("include"), ",") {
			switch part {
			case "tasks":
				with.Tasks = true
			case "input":
				with.Input = true
			case "output":
				with.Output = true
			case "variables":
				with.Variables = true
			case "taskInputs":
				with.Tasks, with.TaskInputs = true, true
			case "":
			default:
				return nil, invalid("include", strings.Join(includes, ", "), "%q cannot be included%s", cut(part, 50), nearest(part, includes))
			}
		}
	}
	after, err := queryInt(query, "afterSeq", -1, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	wait, err := queryInt(query, "waitSeconds", 0, 0, 30)
	if err != nil {
		return nil, err
	}
	if after >= 0 && wait > 0 {
		if err := c.waitChange(id, after, time.Duration(wait)*time.Second); err != nil {
			return nil, err
		}
	}
	x, err := c.s.Engine.Get(c.Context(), id, with)
	if err != nil {
		return nil, err
	}
	return executionOf(x, c.s.Engine.DatabaseNow()), nil
}

func (c *call) waitChange(id execution.ID, after int64, wait time.Duration) error {
	leave, err := c.s.enterPoll(c.who.KeyID)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := c.untilClosing()
	defer stop()
	if err := c.s.Engine.WaitChange(ctx, id, after, wait); err != nil && c.s.closing.Err() == nil {
		return err
	}
	return nil
}

var statuses = []string{"RUNNING", "COMPLETED", "FAILED", "TIMED_OUT", "TERMINATED"}

func (c *call) listExecutions() (any, error) {
	query := c.URL.Query()
	limit, err := queryInt(query, "limit", 50, 1, 500)
	if err != nil {
		return nil, err
	}
	r := engine.ListRequest{Namespace: c.ns, Workflow: query.Get("workflow"), Statuses: query["status"], Limit: int(limit)}
	for _, s := range r.Statuses {
		if !slices.Contains(statuses, s) {
			return nil, invalid("status", strings.Join(statuses, ", "), "%q is not a status%s", cut(s, 50), nearest(s, statuses))
		}
	}
	if r.StartedAfter, err = queryTime(query, "startedAfter"); err != nil {
		return nil, err
	}
	if r.StartedBefore, err = queryTime(query, "startedBefore"); err != nil {
		return nil, err
	}
	filters := filterText(query)
	if text := query.Get("cursor"); text != "" {
		last, err := readCursor(text, filters)
		if err != nil {
			return nil, err
		}
		if r.Below, err = execution.ParseUUID(last); err != nil {
			return nil, badCursor()
		}
	}
	r.Limit++ // one more says whether there is a next page
	found, err := c.s.Engine.List(c.Context(), r)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("workflow %q does not exist in namespace %q%s", cut(r.Workflow, 255), c.ns, nearest(r.Workflow, c.workflows()))
	}
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) > int(limit) {
		found = found[:limit]
		next = writeCursor(found[limit-1].ID.Exec.String(), filters)
	}
	items := make([]Execution, len(found))
	for i := range found {
		items[i] = executionOf(&found[i], time.Time{})
	}
	return page(items, next), nil
}

func (c *call) listTasks() (any, error) {
	id, err := c.executionID()
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	limit, err := queryInt(query, "limit", 50, 1, 500)
	if err != nil {
		return nil, err
	}
	var no, attempt int64
	filters := filterText(query)
	if text := query.Get("cursor"); text != "" {
		last, err := readCursor(text, filters)
		if err != nil {
			return nil, err
		}
		if n, err := fmt.Sscanf(last, "%d.%d", &no, &attempt); err != nil || n != 2 || no < 0 || attempt < 0 || no > 1<<31-1 || attempt > 1<<31-1 {
			return nil, badCursor()
		}
	}
	items := []Task{}
	next := ""
	for len(items) < int(limit) {
		list, more, err := c.s.Engine.Tasks(c.Context(), id, int32(no), int32(attempt), int(limit)) //nolint:gosec // bounded above
		if err != nil {
			return nil, err
		}
		next = ""
		for i := range list {
			t := taskOf(id.Exec, &list[i], c.s.Engine.DatabaseNow())
			no, attempt = int64(list[i].TaskNo), int64(list[i].Attempt)
			if matches(query, &t) {
				items = append(items, t)
			}
			if len(items) == int(limit) {
				more = more || i < len(list)-1
				break
			}
		}
		if !more {
			break
		}
		next = writeCursor(fmt.Sprintf("%d.%d", no, attempt), filters)
	}
	return page(items, next), nil
}

func matches(query url.Values, t *Task) bool {
	return (!query.Has("reference") || query.Get("reference") == t.Ref) && (!query.Has("status") || slices.Contains(query["status"], t.Status)) &&
		(!query.Has("control") || query.Get("control") == t.Control)
}

// attemptOf reads {taskId} of a path below an execution.
func (c *call) attemptOf(id execution.ID) (no, attempt int32, err error) {
	exec, no, attempt, err := execution.ParseTaskID(c.pathText("taskId"))
	if err != nil || exec != id.Exec {
		return 0, 0, notFound("task %q does not exist", cut(c.pathText("taskId"), 100))
	}
	return no, attempt, nil
}

// LogLine is a line of a task log.
type LogLine struct {
	At       string `json:"at"`
	Level    string `json:"level"`
	Message  string `json:"message"`
	WorkerID string `json:"workerId,omitempty"`
}

func (c *call) listLogs() (any, error) {
	id, err := c.executionID()
	if err != nil {
		return nil, err
	}
	no, attempt, err := c.attemptOf(id)
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	limit, err := queryInt(query, "limit", 50, 1, 500)
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if text := query.Get("cursor"); text != "" {
		last, err := readCursor(text, "")
		if err != nil {
			return nil, err
		}
		if after, err = strconv.ParseInt(last, 10, 64); err != nil {
			return nil, badCursor()
		}
	}
	lines, err := c.s.Engine.Logs(c.Context(), id, no, attempt, after, int(limit)+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(lines) > int(limit) {
		lines = lines[:limit]
		next = writeCursor(strconv.FormatInt(lines[limit-1].ID, 10), "")
	}
	items := make([]LogLine, len(lines))
	for i, l := range lines {
		items[i] = LogLine{At: instant(l.At), Level: logLevels[min(max(l.Level, 0), 3)], Message: l.Message, WorkerID: l.Worker}
	}
	return page(items, next), nil
}

func (c *call) terminate() (any, error) {
	id, err := c.executionID()
	if err != nil {
		return nil, err
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	reason := body.free("reason")
	if failed := body.done(); failed != nil {
		return nil, failed
	}
	r, err := c.s.Engine.Terminate(c.Context(), id, reason, c.actor())
	if err != nil {
		return nil, err
	}
	if r.Status != "TERMINATED" {
		return nil, &failure{code: codeTerminalState, message: "the execution has ended " + r.Status, details: map[string]any{"status": r.Status}}
	}
	return map[string]any{"status": r.Status, "replayed": r.Replayed}, nil
}

// actor is who stands in the log: the key's name, and for whom if the caller says so.
func (c *call) actor() string {
	who := c.Request.Header.Get("X-Nf-Actor")
	if who == "" || len(who) > 255 || strings.ContainsFunc(who, isControl) {
		return c.who.Name
	}
	return c.who.Name + " for " + who
}

// page is a page of a list.
func page[T any](items []T, next string) map[string]any {
	out := map[string]any{"items": items}
	if next != "" {
		out["nextCursor"] = next
	}
	return out
}

// filterText is what a cursor is bound to: the query without paging.
func filterText(query url.Values) string {
	bound := url.Values{}
	for name, values := range query {
		if name != "cursor" && name != "limit" {
			bound[name] = values
		}
	}
	return bound.Encode()
}

func writeCursor(last, filters string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(last + "\n" + filters))
}

func readCursor(text, filters string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	last, bound, ok := strings.Cut(string(raw), "\n")
	if err != nil || !ok || bound != filters {
		return "", badCursor()
	}
	return last, nil
}

func badCursor() *failure {
	return invalid("cursor", "nextCursor of a page with the same filters", "the cursor is not one of these filters")
}

func queryInt(query url.Values, name string, fallback, low, high int64) (int64, error) {
	if !query.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(query.Get(name), 10, 64)
	if err != nil || n < low || n > high {
		return 0, invalid(name, fmt.Sprintf("a whole number from %d through %d", low, high), "%q is not a whole number from %d through %d", name, low, high)
	}
	return n, nil
}

func queryTime(query url.Values, name string) (time.Time, error) {
	if !query.Has(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, query.Get(name))
	if err != nil {
		return t, invalid(name, "an RFC 3339 time", "%q is not an RFC 3339 time", name)
	}
	return t.UTC(), nil
}
