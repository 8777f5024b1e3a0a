package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"nf/runtime/execution"
)

// What a payload is (nf_payload.part).
const (
	PartInput     int16 = 1
	PartOutput    int16 = 3
	PartVariables int16 = 4
)

// Writes gathers what one transaction of the engine writes and sends it in one round trip, one statement a table. It is reused:
// Reset empties it and keeps its memory. Not safe for concurrent use.
type Writes struct {
	leasesOut, permitsOut, timersOut, readyOut     *table
	leasesDisarm, readyDisarm, timersDisarm        *table
	execs, tasks, payloads, ready, eager, timers   *table
	scopes, scopesOut, vars, events                *table
	marks, marksOut, marksTried, marksDue          *table
	execsSet, execsEnding, execsOut, closed        *table
	closedScopes, closedVars, closedMarks, budgets *table

	revised map[string]*table // by day
	audits  [][]any
	budget  map[BudgetKey]execution.BudgetDelta
}

// NewWrites gives an empty set of writes.
func NewWrites() *Writes {
	travels := []uint32{
		oI32, oUUID, oI32, oI32, oI32, oI16, oI16, oI32, oI32, oI32, oI32, oI32, oI32, oI32, oI32, oTime, oTime, oTime, oTime, oTime, oText,
	}
	return &Writes{
		leasesOut:    newTable("engine_drop_leases", oI32, oUUID, oI32, oI64),
		permitsOut:   newTable("engine_drop_permits", oI32, oUUID, oI32),
		timersOut:    newTable("engine_drop_timers", oI32, oUUID, oI32),
		readyOut:     newTable("engine_drop_ready", oI32, oUUID, oI32),
		leasesDisarm: newTable("engine_disarm_leases", oI32, oUUID, oI32, oI64, oI16),
		readyDisarm:  newTable("engine_disarm_ready", oI32, oUUID, oI32, oI16),
		timersDisarm: newTable("engine_disarm_timers", oI32, oUUID, oI32, oI16),
		execs:        newTable("engine_execs_in", oI32, oUUID, oI64, oTime, oTime, oI32, oI32, oI32, oI32, oI16, oI16),
		tasks: newTable("engine_tasks_in", oI32, oUUID, oI32, oI32, oI64, oI64, oTime, oTime, oTime, oTime, oI32, oI32, oI32, oI32, oI32,
			oI32, oI16, oI16, oI32, oI16, oBool, oBool, oText, oText, oText, oText, oText, oTime, oI64, oI64, oText, oI32, oByte),
		payloads: newTable("engine_payloads_in", oI32, oUUID, oI32, oI16, oI32, oI16, oByte),
		ready:    newTable("engine_ready_in", travels...),
		eager:    newTable("engine_eager_in", append(slices.Clone(travels), oI32, oI64, oI64, oText)...),
		timers: newTable("engine_timers_in", oI32, oUUID, oI32, oI32, oI16, oI16, oTime, oTime, oTime, oTime, oTime, oI32, oI32, oI32, oI32,
			oI32, oI32, oI32, oI32, oI32, oI16, oText),
		scopes:      newTable("engine_scopes_in", oI32, oUUID, oI32, oI32, oI32, oI16, oI32, oI32, oI32, oI32, oI32, oBool),
		scopesOut:   newTable("engine_scopes_out", oI32, oUUID, oI32),
		vars:        newTable("engine_vars_in", oI32, oUUID, oText, oByte),
		events:      newTable("engine_events_in", oI32, oUUID, oI64, oTime, oText, oI32, oI32, oText, oByte),
		marks:       newTable("engine_marks_in", oI32, oUUID, oI16, oI32, oI32, oTime, oTime, oI32, oText),
		marksOut:    newTable("engine_marks_out", oI32, oUUID, oI64),
		marksTried:  newTable("engine_marks_tried", oI32, oUUID, oI64, oTime),
		marksDue:    newTable("engine_marks_due", oI32, oUUID, oI64, oTime),
		execsSet:    newTable("engine_execs_set", oI32, oUUID, oI64, oI32, oI32),
		execsEnding: newTable("engine_execs_ending", oI32, oUUID, oI64, oI32, oI32, oI16, oText, oText, oI32),
		execsOut:    newTable("engine_execs_out", oI32, oUUID),
		closed: newTable("engine_closed_in", oI32, oUUID, oI64, oTime, oTime, oTime, oI32, oI32, oI32, oI32, oI16, oI16, oI16, oText, oText,
			oI32, oText, oI32, oByte),
		closedScopes: newTable("engine_exec_scopes_out", oI32, oUUID),
		closedVars:   newTable("engine_exec_vars_out", oI32, oUUID),
		closedMarks:  newTable("engine_exec_marks_out", oI32, oUUID),
		budgets:      newTable("engine_budget_in", oI32, oI32, oI64, oI64, oI64, oI64),
		revised:      map[string]*table{},
		budget:       map[BudgetKey]execution.BudgetDelta{},
	}
}

// all gives the tables in the order in which they are sent: what goes, what comes, headers last.
func (w *Writes) all() []*table {
	return []*table{
		w.leasesOut, w.permitsOut, w.timersOut, w.readyOut, w.leasesDisarm, w.readyDisarm, w.timersDisarm, w.execs, w.tasks, w.payloads,
		w.ready, w.timers, w.scopes, w.scopesOut, w.vars, w.events, w.marks, w.marksOut, w.marksTried, w.marksDue, w.closedScopes, w.closedVars,
		w.closedMarks, w.execsSet, w.execsEnding, w.execsOut, w.closed,
	}
}

// Reset empties the set.
func (w *Writes) Reset() {
	for _, t := range w.all() {
		t.reset()
	}
	w.eager.reset()
	w.budgets.reset()
	clear(w.revised)
	clear(w.budget)
	w.audits = w.audits[:0]
}

// Rows counts the rows that will be written.
func (w *Writes) Rows() int {
	n := w.eager.rows() + len(w.budget) + len(w.audits)
	for _, t := range w.all() {
		n += t.rows()
	}
	return n
}

// Remove deletes an open attempt that this transaction has locked, with its permits. sems says how many its lease holds.
func (w *Writes) Remove(id execution.ID, r execution.Removed, sems int16) {
	t := w.timersOut
	switch r.Place {
	case execution.InReady:
		t = w.readyOut
	case execution.InLease:
		t = w.leasesOut
	case execution.InTimer:
	}
	t.id(id)
	t.cols[2].i32(r.TaskNo)
	if r.Place == execution.InLease {
		t.cols[3].i64(r.Fence)
		if sems > 0 {
			w.permitsOut.id(id)
			w.permitsOut.cols[2].i32(r.TaskNo)
		}
	}
}

// Disarm takes a deadline off an open attempt that this transaction has locked.
func (w *Writes) Disarm(id execution.ID, d execution.Disarmed) {
	what := map[execution.DeadlineClass]int16{
		execution.ClassStartToClose: 1, execution.ClassTaskTimeout: 2, execution.ClassTotal: 3, execution.ClassScheduleToStart: 4,
	}[d.Class]
	t, last := w.timersDisarm, 3
	switch d.Place {
	case execution.InReady:
		t = w.readyDisarm
	case execution.InLease:
		t, last = w.leasesDisarm, 4
		t.cols[3].i64(d.Fence)
	case execution.InTimer:
	}
	t.id(id)
	t.cols[2].i32(d.TaskNo)
	t.cols[last].i16(what)
}

// Start stores the header of a new execution.
func (w *Writes) Start(h execution.Header) {
	t := w.execs
	t.id(h.ID)
	t.cols[2].i64(h.Seq)
	t.cols[3].time(h.StartedAt)
	t.cols[4].time(h.AdmittedAt)
	t.cols[5].i32(h.DefID)
	t.cols[6].i32(h.RevID)
	t.cols[7].i32(h.NextNo)
	t.cols[8].i32(h.Loose)
	t.cols[9].i16(h.Priority)
	t.cols[10].i16(h.Depth)
}

// SetHeader stores what a decision changed of a header: old is as it was locked.
func (w *Writes) SetHeader(old, h execution.Header) {
	t := w.execsSet
	ending := old.EndStatus != h.EndStatus || old.EndCause != h.EndCause || old.EndReason != h.EndReason || old.EndNo != h.EndNo
	if ending {
		t = w.execsEnding
	} else if old.Seq == h.Seq && old.NextNo == h.NextNo && old.Loose == h.Loose {
		return
	}
	t.id(h.ID)
	t.cols[2].i64(h.Seq)
	t.cols[3].i32(h.NextNo)
	t.cols[4].i32(h.Loose)
	if ending {
		if h.EndStatus == execution.StatusOpen {
			t.cols[5].nothing()
		} else {
			t.cols[5].i16(int16(h.EndStatus))
		}
		t.cols[6].textOrNull(string(h.EndCause))
		t.cols[7].textOrNull(h.EndReason)
		t.cols[8].i32OrNull(h.EndNo)
	}
}

// Task appends an ended attempt, and its input if it was never open.
func (w *Writes) Task(id execution.ID, r execution.TaskRow) {
	t := w.tasks
	t.id(id)
	c := t.cols[2:]
	c[0].i32(r.TaskNo)
	c[1].i32(r.Attempt)
	c[2].i64(r.Seq)
	c[3].i64OrNull(r.Fence)
	c[4].time(r.ScheduledAt)
	c[5].time(r.VisibleAt)
	c[6].time(r.LeasedAt)
	c[7].time(r.EndedAt)
	c[8].i32(r.ScopeNo)
	c[9].i32(r.Slot)
	c[10].i32(r.DefID)
	c[11].i32(r.DefRev)
	c[12].i32(r.QueueID)
	c[13].i32(r.Deliveries)
	c[14].i16(int16(r.Kind))
	c[15].i16(int16(r.Status))
	c[16].i32(r.Rerun)
	codec, output := pack(r.Output)
	c[17].i16(codec)
	c[18].boolean(r.Absorbed)
	c[19].boolean(r.Exhausted)
	c[20].text(cmp.Or(r.Iteration, "0"))
	c[21].textOrNull(r.Worker)
	c[22].textOrNull(string(r.Cause))
	c[23].textOrNull(r.Reason)
	c[24].textOrNull(r.Control)
	c[25].time(r.NextDueAt)
	delay(r, c[26], c[27], c[28])
	c[29].i32OrNull(r.Width)
	c[30].bytes(output)
	if r.Input != nil {
		w.Payload(id, r.TaskNo, PartInput, r.Rerun, r.Input)
	}
}

func delay(r execution.TaskRow, policy, least, source *column) {
	if r.NextDueAt.IsZero() {
		policy.nothing()
		least.nothing()
		source.nothing()
		return
	}
	policy.i64(r.DelayPolicy)
	least.i64(r.DelayMin)
	source.textOrNull(r.DelaySource)
}

// Revise writes the decision over a result that was recorded before (S2, "recorded, not decided").
func (w *Writes) Revise(id execution.ID, r execution.TaskRow) {
	day := id.Exec.Day()
	t := w.revised[day]
	if t == nil {
		t = newTable("engine_task_decided", oI32, oUUID, oI32, oI32, oI16, oText, oText, oText, oBool, oBool, oTime, oI64, oI64, oText)
		w.revised[day] = t
	}
	t.id(id)
	c := t.cols[2:]
	c[0].i32(r.TaskNo)
	c[1].i32(r.Attempt)
	c[2].i16(int16(r.Status))
	c[3].textOrNull(string(r.Cause))
	c[4].textOrNull(r.Reason)
	c[5].textOrNull(r.Control)
	c[6].boolean(r.Absorbed)
	c[7].boolean(r.Exhausted)
	c[8].time(r.NextDueAt)
	delay(r, c[9], c[10], c[11])
}

// Payload keeps a payload. An input that is an empty object is not kept: what has no row is {}.
func (w *Writes) Payload(id execution.ID, taskNo int32, part int16, rerun int32, body []byte) {
	if body == nil || part == PartInput && string(body) == "{}" {
		return
	}
	codec, packed := pack(body)
	t := w.payloads
	t.id(id)
	t.cols[2].i32(taskNo)
	t.cols[3].i16(part)
	t.cols[4].i32(rerun)
	t.cols[5].i16(codec)
	t.cols[6].bytes(packed)
}

// Ready makes an attempt visible in its queue.
func (w *Writes) Ready(id execution.ID, a execution.Attempt) { travels(w.ready, id, a) }

// Eager leases an attempt at once for a seat of this process; if that may not be after all, it becomes ready.
func (w *Writes) Eager(id execution.ID, a execution.Attempt, seat Seat) {
	travels(w.eager, id, a)
	c := w.eager.cols[21:]
	c[0].i32(seat.Holder)
	c[1].i64(seat.ClaimID)
	c[2].i64(seat.LeaseMs)
	c[3].textOrNull(seat.Worker)
}

func travels(t *table, id execution.ID, a execution.Attempt) {
	t.id(id)
	c := t.cols[2:]
	c[0].i32(a.TaskNo)
	c[1].i32(a.Attempt)
	c[2].i32(a.QueueID)
	c[3].i16(a.Lane)
	c[4].i16(int16(a.Kind))
	c[5].i32(a.ScopeNo)
	c[6].i32(a.Slot)
	c[7].i32(a.RevID)
	c[8].i32(a.DefID)
	c[9].i32(a.DefRev)
	c[10].i32(a.Rerun)
	c[11].i32(a.Deliveries)
	c[12].i32(a.RetriesLeft)
	c[13].time(a.ScheduledAt)
	c[14].time(a.VisibleAt)
	c[15].time(a.StartBy)
	c[16].time(a.AttBy)
	c[17].time(a.TotalBy)
	c[18].text(cmp.Or(a.Iteration, "0"))
}

// Park makes an attempt wait in the timers for its VisibleAt, for its deadline, or for both.
func (w *Writes) Park(id execution.ID, a execution.Attempt) {
	t := w.timers
	t.id(id)
	c := t.cols[2:]
	c[0].i32(a.TaskNo)
	c[1].i32(max(a.Attempt, 1))
	c[2].i16(int16(a.Why))
	c[3].i16(int16(a.Kind))
	c[4].time(a.VisibleAt)
	c[5].time(a.AttBy)
	c[6].time(a.TotalBy)
	c[7].time(a.StartBy)
	c[8].time(a.ScheduledAt)
	c[9].i32(a.QueueID)
	c[10].i32(a.ScopeNo)
	c[11].i32(a.Slot)
	c[12].i32(a.RevID)
	c[13].i32(a.DefID)
	c[14].i32(a.DefRev)
	c[15].i32(a.Rerun)
	c[16].i32(a.Deliveries)
	c[17].i32(a.RetriesLeft)
	c[18].i16(a.Lane)
	c[19].text(cmp.Or(a.Iteration, "0"))
}

// Deadline arms the execution's own deadline (task 0, why 20).
func (w *Writes) Deadline(h execution.Header, at, now time.Time) {
	w.Park(h.ID, execution.Attempt{
		Attempt: 1, Why: execution.WhyWorkflowDeadline, VisibleAt: at, ScheduledAt: now, RevID: h.RevID, Lane: 99,
	})
}

// Scope puts or deletes an open scope.
func (w *Writes) Scope(id execution.ID, s execution.ScopeChange) {
	t := w.scopes
	if s.Delete {
		t = w.scopesOut
	}
	t.id(id)
	c := t.cols[2:]
	c[0].i32(s.Scope.ScopeNo)
	if s.Delete {
		return
	}
	c[1].i32(s.Scope.ParentNo)
	c[2].i32(s.Scope.Slot)
	c[3].i16(s.Scope.Kind)
	c[4].i32(s.Scope.BaseNo)
	c[5].i32(s.Scope.Width)
	c[6].i32(s.Scope.Cursor)
	c[7].i32(s.Scope.Open)
	c[8].i32(s.Scope.Pending)
	c[9].boolean(s.Scope.Fired)
}

// Var sets a variable of an open execution.
func (w *Writes) Var(id execution.ID, name string, value []byte) {
	w.vars.id(id)
	w.vars.cols[2].text(name)
	w.vars.cols[3].bytes(value)
}

// Event appends a rare event.
func (w *Writes) Event(id execution.ID, e execution.Event, at time.Time) {
	t := w.events
	t.id(id)
	c := t.cols[2:]
	c[0].i64(e.Seq)
	c[1].time(at)
	c[2].text(e.What)
	c[3].i32OrNull(e.TaskNo)
	c[4].i32OrNull(e.Attempt)
	c[5].textOrNull(e.Actor)
	c[6].bytes(e.Detail)
}

// Mark leaves a fact for a later evaluation.
func (w *Writes) Mark(m Mark) {
	t := w.marks
	t.id(m.ID)
	c := t.cols[2:]
	c[0].i16(int16(m.What))
	c[1].i32(m.TaskNo)
	c[2].i32(m.Attempt)
	c[3].time(m.Since)
	c[4].time(m.DueAt)
	c[5].i32(m.Tries)
	c[6].textOrNull(m.Detail)
}

// MarkSeen deletes a mark that an evaluation has read.
func (w *Writes) MarkSeen(m Mark) {
	w.marksOut.id(m.ID)
	w.marksOut.cols[2].i64(m.FactID)
}

// MarkTried counts a try of a mark and says when it is due again.
func (w *Writes) MarkTried(m Mark, due time.Time) {
	w.marksTried.id(m.ID)
	w.marksTried.cols[2].i64(m.FactID)
	w.marksTried.cols[3].time(due)
}

// MarkDue says when a mark is due again.
func (w *Writes) MarkDue(m Mark, due time.Time) {
	w.marksDue.id(m.ID)
	w.marksDue.cols[2].i64(m.FactID)
	w.marksDue.cols[3].time(due)
}

// Forget deletes the marks of an execution that no longer exists.
func (w *Writes) Forget(id execution.ID) { w.closedMarks.id(id) }

// Close deletes the header of an execution that has ended, with what it leaves, and appends it to the closed ones. Timed says that it
// may have a deadline of its own, vars that it may have variables, scopes that some may be open.
func (w *Writes) Close(c Closed, timed, vars, scopes bool) {
	h := c.Header
	w.execsOut.id(h.ID)
	w.closedMarks.id(h.ID)
	if timed {
		w.timersOut.id(h.ID)
		w.timersOut.cols[2].i32(0)
	}
	if vars {
		w.closedVars.id(h.ID)
	}
	if scopes {
		w.closedScopes.id(h.ID)
	}
	t := w.closed
	t.id(h.ID)
	k := t.cols[2:]
	k[0].i64(c.Seq)
	k[1].time(h.StartedAt)
	k[2].time(h.AdmittedAt)
	k[3].time(c.EndedAt)
	k[4].i32(h.DefID)
	k[5].i32(h.RevID)
	k[6].i32(h.NextNo)
	k[7].i32(h.Reruns)
	k[8].i16(int16(c.Status))
	k[9].i16(h.Priority)
	k[10].i16(h.Depth)
	k[11].textOrNull(string(c.Cause))
	k[12].textOrNull(c.Reason)
	k[13].i32OrNull(c.FailedNo)
	k[14].textOrNull(c.FailedRef)
	k[15].i32OrNull(c.OutputNo)
	k[16].bytes(c.Frames)
}

// DisarmDeadline deletes the execution's own deadline: an end has begun.
func (w *Writes) DisarmDeadline(id execution.ID) {
	w.timersOut.id(id)
	w.timersOut.cols[2].i32(0)
}

// Budget adds to the retry budget of a definition.
func (w *Writes) Budget(ns int32, d execution.BudgetDelta) {
	key := BudgetKey{ns, d.DefID}
	sum := w.budget[key]
	sum.Total += d.Total
	sum.Retries += d.Retries
	w.budget[key] = sum
}

// Budgets gives what Budget was told since the last Reset.
func (w *Writes) Budgets() map[BudgetKey]execution.BudgetDelta { return w.budget }

// Audit appends a row to the log of the namespace.
func (w *Writes) Audit(ns int32, at time.Time, actor, verb, object, reason string) {
	w.audits = append(w.audits, []any{ns, at, actor, verb, object, nullable(reason)})
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Write sends everything and COMMIT in one round trip and gives the leases that were made at once. It is the last thing of its transaction.
// Budgets come last, under the given shard (X11).
func (t *Tx) Write(ctx context.Context, w *Writes, now time.Time, shard int64) ([]Lease, error) {
	var leases []Lease
	p := t.pipeline()
	for _, part := range w.all() {
		if part.rows() > 0 {
			p.queue(part.name, "", part.args, nil)
		}
	}
	for day, part := range w.revised {
		p.queue(part.name, day, part.args, nil)
	}
	if w.eager.rows() > 0 {
		p.queue(w.eager.name, "", w.eager.args, reader(func(r *row) error {
			leases = append(leases, readLease(r))
			return nil
		}))
	}
	for _, args := range w.audits {
		p.queue("engine_audit_in", "", args, nil)
	}
	if w.fillBudgets(now, shard) {
		p.queue(w.budgets.name, "", w.budgets.args, nil)
	}
	return leases, p.sendAndCommit(ctx)
}

func readLease(r *row) Lease {
	return Lease{
		TaskKey: TaskKey{execution.ID{NS: r.i32(), Exec: r.uuid()}, r.i32()}, Attempt: r.i32(), Fence: r.i64(), LeasedAt: r.time(),
		LeaseUntil: r.time(), BeatBy: r.time(), CloseBy: r.time(), LeaseMs: r.i64(),
	}
}

func (w *Writes) fillBudgets(now time.Time, shard int64) bool {
	w.budgets.reset()
	keys := make([]BudgetKey, 0, len(w.budget))
	for key := range w.budget {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b BudgetKey) int { return cmp.Or(cmp.Compare(a.NS, b.NS), cmp.Compare(a.DefID, b.DefID)) })
	for _, key := range keys {
		c := w.budgets.cols
		c[0].i32(key.NS)
		c[1].i32(key.DefID)
		c[2].i64(floorDiv(now.Unix(), budgetBucket))
		c[3].i64(shard)
		c[4].i64(w.budget[key].Total)
		c[5].i64(w.budget[key].Retries)
	}
	return len(keys) > 0
}

// FindLeases looks for the leases of a transaction whose COMMIT was not answered, by the claim ids it used (S0).
func (t *Tx) FindLeases(ctx context.Context, keys []TaskKey, claimIDs []int64) ([]Lease, error) {
	k := newTable("engine_find_leases", oI32, oUUID, oI32, oI64)
	for i, key := range keys {
		k.id(key.ID)
		k.cols[2].i32(key.TaskNo)
		k.cols[3].i64(claimIDs[i])
	}
	var out []Lease
	p := t.pipeline()
	p.queue(k.name, "", k.args, reader(func(r *row) error { out = append(out, readLease(r)); return nil }))
	return out, p.send(ctx)
}
