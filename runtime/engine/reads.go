package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema"
)

// Execution is an execution as readers see it (contract 4.2). JSON values are nil where there is none or it was not asked for.
type Execution struct {
	ID         execution.ID
	Namespace  string
	Workflow   string
	Revision   int32
	Version    int64
	Status     string
	Seq        int64
	StartedAt  time.Time
	AdmittedAt time.Time
	EndedAt    time.Time // zero while open
	DeadlineAt time.Time // zero = none
	Priority   int16
	Cause      execution.Cause
	Reason     string
	FailedTask string // reference of the task that ended it
	FailedNo   int32
	Input      []byte
	Output     []byte
	Variables  []byte
	Tasks      []Task
	Truncated  bool // there are more tasks than were read
}

// Open says whether the execution has not ended.
func (x *Execution) Open() bool { return x.EndedAt.IsZero() }

// Task is an attempt as readers see it (contract 4.2).
type Task struct {
	TaskNo      int32
	Attempt     int32
	Ref         string
	Iteration   string
	MaxAttempts int32
	Deliveries  int32
	Type        schema.TaskType
	Definition  string
	Queue       string
	Status      string // of the attempt
	Absorbed    bool   // the task run is COMPLETED_WITH_ERRORS, the attempt keeps its own status
	Exhausted   bool
	Input       []byte
	Output      []byte
	ScheduledAt time.Time
	DueAt       time.Time // when it becomes, or became, visible
	Delayed     bool      // DueAt is ahead: back-off or start delay
	Delay       *Delay    // of an ended attempt: the wait before the next one
	LeasedAt    time.Time
	EndedAt     time.Time
	Worker      string
	LeaseUntil  time.Time
	DeadlineAt  time.Time
	Deadline    execution.DeadlineClass
	Control     string
	Cause       execution.Cause
	Reason      string
	Width       int32
	// Verdict is the last refusal of the gates of a ready task's definition, as the queue wrote it; nil = none.
	Verdict   []byte
	VerdictAt time.Time
}

// Delay is a wait between two attempts (contract 3.1), in milliseconds.
type Delay struct {
	PolicyMs   int64
	MinimumMs  int64
	SelectedMs int64
	Source     string
	DueAt      time.Time
}

// maxTasks is how many attempts GET of an execution shows.
const maxTasks = 1000

// Include says what is read of an execution beside its header.
type Include struct {
	Tasks      bool
	TaskInputs bool
	Input      bool
	Output     bool
	Variables  bool
}

// Get reads one execution (S18). store.ErrNotFound if there is none, or retention has dropped it.
func (e *Engine) Get(ctx context.Context, id execution.ID, with Include) (*Execution, error) {
	row, err := e.store.Execution(ctx, id, store.Include{Input: with.Input, Output: with.Output, Variables: with.Variables, Scopes: with.Tasks})
	if err != nil {
		return nil, err
	}
	rev, err := e.opt.Registry.WorkflowRev(ctx, id.NS, row.RevID)
	if err != nil {
		return nil, err
	}
	x := e.executionOf(row, rev)
	if !with.Tasks {
		return x, nil
	}
	x.Tasks, x.Truncated, err = e.tasks(ctx, row, store.TaskPage{TaskNo: 0, Limit: maxTasks + 1, Inputs: with.TaskInputs, Outputs: true}, maxTasks)
	return x, err
}

func (e *Engine) executionOf(row store.ExecutionRow, rev registry.WorkflowRev) *Execution {
	namespace, _ := e.opt.Registry.Snapshot().NamespaceName(row.NS)
	x := &Execution{
		ID: row.ID, Namespace: namespace, Revision: rev.Revision, Version: rev.Version, Status: execution.NameRunning, Seq: row.Seq,
		StartedAt: row.StartedAt, AdmittedAt: row.AdmittedAt, EndedAt: row.EndedAt, DeadlineAt: row.DeadlineAt, Priority: row.Priority,
		Cause: row.Cause, Reason: row.Reason, FailedTask: row.FailedRef, FailedNo: row.FailedNo, Input: row.Input, Output: row.Output,
		Variables: row.VarsText,
	}
	if rev.Workflow != nil {
		x.Workflow = rev.Workflow.Metadata.Name
	}
	if !row.Open {
		x.Status = row.Status.String()
	}
	if row.Variables != nil {
		x.Variables = objectOf(row.Variables)
	}
	return x
}

// objectOf gives variables as one JSON object, {} if there are none.
func objectOf(vars map[string][]byte) []byte {
	if text := varsText(vars, nil); text != nil {
		return text
	}
	return []byte("{}")
}

// Tasks reads attempts of an execution in order of (task number, attempt), after the given one; more says that there are others.
func (e *Engine) Tasks(ctx context.Context, id execution.ID, afterNo, afterAttempt int32, limit int) (list []Task, more bool, err error) {
	row, err := e.store.Execution(ctx, id, store.Include{Scopes: true})
	if err != nil {
		return nil, false, err
	}
	page := store.TaskPage{TaskNo: afterNo, Attempt: afterAttempt, Limit: int32(limit) + 1, Inputs: true, Outputs: true} //nolint:gosec // at most 1,000
	return e.tasks(ctx, row, page, limit)
}

func (e *Engine) tasks(ctx context.Context, row store.ExecutionRow, page store.TaskPage, limit int) ([]Task, bool, error) {
	prog, err := e.programs.load(ctx, row.NS, row.RevID)
	if err != nil {
		return nil, false, err
	}
	read, err := e.store.Tasks(ctx, row.ID, page)
	if err != nil {
		return nil, false, err
	}
	if err := e.pinAll(ctx, row.NS, read); err != nil {
		return nil, false, err
	}
	v := &taskViewer{e: e, prog: prog, ns: row.NS, inputs: read.Inputs, now: e.dbNow()}
	var out []Task
	ended := map[[2]int32]bool{}
	forkEnded := map[int32]time.Time{}
	for i := range read.Ended {
		t := &read.Ended[i]
		ended[[2]int32{t.TaskNo, t.Attempt}] = true
		forkEnded[t.TaskNo] = t.EndedAt
		out = append(out, v.ended(ctx, t))
	}
	for i := range read.Open {
		t := &read.Open[i]
		after := t.TaskNo > page.TaskNo || t.TaskNo == page.TaskNo && t.Attempt.Attempt > page.Attempt
		if after && !ended[[2]int32{t.TaskNo, t.Attempt.Attempt}] {
			out = append(out, v.open(ctx, t))
		}
	}
	for _, j := range prog.OpenJoins(row.Scopes) {
		if j.TaskNo > page.TaskNo && !ended[[2]int32{j.TaskNo, 1}] {
			out = append(out, v.join(j.TaskNo, j.Slot, forkEnded[j.ForkNo]))
		}
	}
	slices.SortStableFunc(out, func(a, b Task) int {
		if a.TaskNo != b.TaskNo {
			return int(a.TaskNo) - int(b.TaskNo)
		}
		return int(a.Attempt) - int(b.Attempt)
	})
	if len(out) > limit {
		return out[:limit], true, nil
	}
	return out, false, nil
}

// pinAll loads the revisions of definitions that tasks name.
func (e *Engine) pinAll(ctx context.Context, ns int32, read store.Tasks) error {
	snapshot := e.opt.Registry.Snapshot()
	var lacks []int32
	want := func(defID, defRev int32) {
		if _, ok := snapshot.TaskRev(ns, defRev); defID != 0 && !ok && !slices.Contains(lacks, defRev) {
			lacks = append(lacks, defRev)
		}
	}
	for i := range read.Ended {
		want(read.Ended[i].DefID, read.Ended[i].DefRev)
	}
	for i := range read.Open {
		want(read.Open[i].DefID, read.Open[i].DefRev)
	}
	if len(lacks) == 0 {
		return nil
	}
	return e.opt.Registry.LoadTaskRevs(ctx, ns, lacks)
}

// taskViewer turns rows into what readers see.
type taskViewer struct {
	e      *Engine
	prog   *program
	ns     int32
	inputs map[int32][]byte
	now    time.Time
}

// common fills what follows from the program and the pinned definition.
func (v *taskViewer) common(ctx context.Context, t *Task, slot, defID, defRev, queueID int32) {
	var def *schema.TaskDefinition
	if defID != 0 {
		if pinned, ok := v.e.opt.Registry.Snapshot().TaskRev(v.ns, defRev); ok {
			def = pinned.Def
		}
	}
	if task := v.prog.Task(slot); task != nil {
		t.Ref, t.Type, t.Definition = task.Ref, task.Type, task.Definition
		t.MaxAttempts = v.prog.MaxAttempts(slot, def)
	}
	if queueID != 0 {
		if q, err := v.e.store.Queues().ByID(ctx, store.API, store.QueueAt{NS: v.ns, QueueID: queueID}); err == nil {
			t.Queue = q.Key.Name
			if q.Key.Domain != "" {
				t.Queue += ":" + q.Key.Domain
			}
		}
	}
	if input, ok := v.inputs[t.TaskNo]; ok {
		t.Input = input
	} else if v.inputs != nil {
		t.Input = []byte("{}")
	}
}

func (v *taskViewer) ended(ctx context.Context, r *execution.TaskRow) Task {
	t := Task{
		TaskNo: r.TaskNo, Attempt: r.Attempt, Iteration: r.Iteration, Deliveries: r.Deliveries, Status: r.Status.String(), Absorbed: r.Absorbed,
		Exhausted: r.Exhausted, Output: r.Output, ScheduledAt: r.ScheduledAt, DueAt: r.VisibleAt, LeasedAt: r.LeasedAt, EndedAt: r.EndedAt,
		Worker: r.Worker, Control: r.Control, Cause: r.Cause, Reason: r.Reason, Width: r.Width,
	}
	if !r.NextDueAt.IsZero() {
		t.Delay = &Delay{
			PolicyMs: r.DelayPolicy, MinimumMs: r.DelayMin, SelectedMs: min(max(r.DelayPolicy, r.DelayMin), 86_400_000), Source: r.DelaySource,
			DueAt: r.NextDueAt,
		}
	}
	v.common(ctx, &t, r.Slot, r.DefID, r.DefRev, r.QueueID)
	if t.Input != nil && (r.Kind == execution.KindSetVariable || r.Kind == execution.KindTerminate) && r.Output != nil {
		t.Input = r.Output // kept once (TaskRow.Input)
	}
	return t
}

func (v *taskViewer) open(ctx context.Context, a *store.OpenTask) Task {
	t := Task{
		TaskNo: a.TaskNo, Attempt: a.Attempt.Attempt, Iteration: a.Iteration, Deliveries: a.Deliveries, ScheduledAt: a.ScheduledAt,
		Verdict: a.Verdict, VerdictAt: a.VerdictAt, Worker: a.Worker, LeasedAt: a.LeasedAt, LeaseUntil: a.LeaseUntil,
		Status: execution.NameScheduled, DueAt: a.VisibleAt,
	}
	deadline := func(at time.Time, class execution.DeadlineClass) {
		if !at.IsZero() && (t.DeadlineAt.IsZero() || at.Before(t.DeadlineAt)) {
			t.DeadlineAt, t.Deadline = at, class
		}
	}
	deadline(a.AttBy, execution.ClassTaskTimeout)
	deadline(a.TotalBy, execution.ClassTotal)
	switch a.Place {
	case execution.InLease:
		t.Status = execution.NameInProgress
		deadline(a.CloseBy, execution.ClassStartToClose)
	case execution.InReady:
		deadline(a.StartBy, execution.ClassScheduleToStart)
	case execution.InTimer:
		switch {
		case a.Kind == execution.KindWait && a.Why == execution.WhyWait:
			t.Status = execution.NameWaiting
		case a.Why == execution.WhyOperatorDeadline:
			t.Status = execution.NameInProgress
		default:
			t.Delayed = a.VisibleAt.After(v.now)
		}
	}
	v.common(ctx, &t, a.Slot, a.DefID, a.DefRev, a.QueueID)
	return t
}

// join gives a JOIN that is open and has no row of its own: it opened with its fork.
func (v *taskViewer) join(taskNo, slot int32, opened time.Time) Task {
	t := Task{TaskNo: taskNo, Attempt: 1, Iteration: "0", Status: execution.NameInProgress, ScheduledAt: opened, DueAt: opened}
	if task := v.prog.Task(slot); task != nil {
		t.Ref, t.Type, t.Definition, t.MaxAttempts = task.Ref, task.Type, task.Definition, 1
	}
	return t
}

// ListRequest selects executions of a namespace, newest start first.
type ListRequest struct {
	Namespace     string
	Workflow      string   // "" = all
	Statuses      []string // RUNNING, COMPLETED, FAILED, TIMED_OUT, TERMINATED; empty = all
	StartedAfter  time.Time
	StartedBefore time.Time
	Below         execution.UUID // keyset: the last id of the page before; zero = from the newest
	Limit         int            // 1–500
}

// List gives one page of executions as summaries: without payloads and tasks (S18). An unknown workflow is store.ErrNotFound.
func (e *Engine) List(ctx context.Context, r ListRequest) ([]Execution, error) {
	snapshot := e.opt.Registry.Snapshot()
	ns, ok := snapshot.Namespace(r.Namespace)
	if !ok {
		return nil, fmt.Errorf("namespace %s: %w", r.Namespace, store.ErrNotFound)
	}
	f := store.ListFilter{NS: ns, After: r.StartedAfter, Before: r.StartedBefore, Below: r.Below, Limit: int32(r.Limit)} //nolint:gosec // at most 500
	if r.Workflow != "" {
		o, ok := snapshot.Object(schema.Address{Kind: schema.KindWorkflow, Namespace: r.Namespace, Name: r.Workflow})
		if !ok {
			return nil, fmt.Errorf("workflow %s: %w", r.Workflow, store.ErrNotFound)
		}
		f.DefID = o.ID
	}
	all := []execution.Status{execution.Completed, execution.Failed, execution.TimedOut, execution.Terminated}
	f.Running = len(r.Statuses) == 0 || slices.Contains(r.Statuses, execution.NameRunning)
	for _, s := range all {
		if len(r.Statuses) == 0 || slices.Contains(r.Statuses, s.String()) {
			f.Statuses = append(f.Statuses, s)
		}
	}
	rows, err := e.store.List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]Execution, 0, len(rows))
	for _, row := range rows {
		rev, err := e.opt.Registry.WorkflowRev(ctx, ns, row.RevID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		x := Execution{
			ID: execution.ID{NS: ns, Exec: row.Exec}, Namespace: r.Namespace, Revision: rev.Revision, Version: rev.Version,
			Status: execution.NameRunning, Seq: row.Seq, StartedAt: row.StartedAt, EndedAt: row.EndedAt, Cause: row.Cause, Reason: row.Reason,
			FailedTask: row.FailedRef,
		}
		if rev.Workflow != nil {
			x.Workflow = rev.Workflow.Metadata.Name
		}
		if row.Status != execution.StatusOpen {
			x.Status = row.Status.String()
		}
		out = append(out, x)
	}
	return out, nil
}

// Logs gives lines of an attempt after a line, oldest first (S18).
func (e *Engine) Logs(ctx context.Context, id execution.ID, taskNo, attempt int32, after int64, limit int) ([]store.LogLine, error) {
	return e.store.Logs(ctx, id, taskNo, attempt, after, int32(limit)) //nolint:gosec // at most 500
}

// AddLogs appends lines to the log of an attempt under its fence; store.ErrLeaseLost if that is gone.
func (e *Engine) AddLogs(ctx context.Context, end End, worker string, lines []store.LogLine) error {
	return e.store.AddLogs(ctx, end.key(), worker, lines)
}
