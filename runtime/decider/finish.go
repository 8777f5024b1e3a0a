package decider

import (
	"fmt"
	"time"

	"nf/policies/retry"
	"nf/policies/timeout"
	"nf/runtime/execution"
	"nf/schema"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// ending is the end of an attempt, on its way to a row.
type ending struct {
	node     *node
	at       execution.Attempt
	open     bool // it is in one of the three tables (or its row was recorded) rather than ended as it began
	recorded bool

	status  execution.Status
	cause   execution.Cause
	reason  string
	output  []byte
	input   []byte // of a task that was never open, to keep
	fence   int64
	worker  string
	minimum schema.Millis
	source  string
	control string
	width   int32
	level   int

	// then says what follows a successful or absorbed end; nil = the next node.
	then func()
}

// rules are what a definition says about the end of a task's attempts, as pinned on the task run (P6).
type rules struct {
	pinned        execution.Pinned
	def           *schema.TaskDefinition // never nil
	policy        schema.RetryPolicy     // with the task's own retryCount laid over
	timeoutPolicy schema.TimeoutPolicy
}

// builtIn is what holds for a task without a definition: the built-in retry policy for what is dispatched, no retry for the rest
// (contract 1.6), no deadline but a timeoutSeconds of its own.
func builtIn(n *node) *schema.TaskDefinition {
	def := &schema.TaskDefinition{Retry: schema.DefaultRetry(), TimeoutPolicy: schema.TimeoutWorkflow, RetryBudget: 1}
	if !n.class.Dispatched() {
		def.Retry.RetryCount = 0
	}
	def.Timeout = n.task.Timeout
	return def
}

// rules gives the rules of a task run that is open: those it was first scheduled with.
func (m *machine) rules(n *node, at execution.Attempt) rules {
	if at.DefID != 0 {
		if pinned, ok := m.defs.TaskRev(m.head.NS, at.DefRev); ok && pinned.Def != nil {
			return m.overlay(n, pinned)
		}
	}
	return m.firstRules(n)
}

// firstRules gives the rules of a task run that is scheduled for the first time: those in force.
func (m *machine) firstRules(n *node) rules {
	if n.task.Definition != "" {
		if pinned, ok := m.defs.Task(m.head.NS, n.task.Definition); ok && pinned.Def != nil {
			return m.overlay(n, pinned)
		}
	}
	return m.overlay(n, execution.Pinned{Def: builtIn(n)})
}

func (m *machine) overlay(n *node, pinned execution.Pinned) rules {
	return rules{pinned: pinned, def: pinned.Def, policy: policyOf(n, pinned.Def), timeoutPolicy: pinned.Def.TimeoutPolicy}
}

// policyOf is a definition's retry policy with the task's own retryCount laid over it (3.3).
func policyOf(n *node, def *schema.TaskDefinition) schema.RetryPolicy {
	policy := def.Retry
	if n.task.RetryCount != nil {
		policy.RetryCount = *n.task.RetryCount
	}
	if n.class == schema.ClassImmediate {
		policy.RetryCount = 0
	}
	return policy
}

// finish ends an attempt: the ordered rules of D.0 "End of an attempt" say what becomes of the task run.
func (m *machine) finish(e ending) {
	r := m.rules(e.node, e.at)
	m.checkOutput(&e, r)
	if m.ending {
		if !e.recorded {
			m.keep(e, m.newRow(e))
		} else {
			m.dropped++
		}
		return
	}
	verdict, delay, ok := m.judge(e, r)
	if !ok {
		return
	}
	row := m.newRow(e)
	row.Exhausted = verdict == retry.Spent
	switch verdict {
	case retry.NonRetryable:
		row.Cause = execution.CauseNonRetryable
	case retry.BudgetSpent:
		row.Cause, row.Control = execution.CauseBudgetExhausted, ControlRetryBudget
	case retry.PastDeadline:
		row.Cause = execution.CauseRetryPastDeadline
	case retry.GoOn, retry.Terminal, retry.TimeoutEnds, retry.Spent, retry.Again:
	}
	again, scheduled := execution.Schedule{}, false
	if verdict == retry.Again {
		due := m.later(delay.Selected)
		if again, scheduled = m.nextAttempt(e, r, due); !scheduled {
			return // lacks what the next attempt needs
		}
		row.NextDueAt, row.DelayPolicy, row.DelayMin = due, int64(delay.Policy), int64(delay.Minimum)
		row.DelaySource = sourcePolicy
		if delay.Minimum > delay.Policy {
			row.DelaySource = e.source
		}
		m.count(e.at.DefID, 0, 1)
	}
	row.Absorbed = verdict != retry.GoOn && verdict != retry.Again && e.node.task.Optional
	m.keep(e, row)
	switch {
	case scheduled:
		m.schedule(again)
	case verdict == retry.GoOn || row.Absorbed:
		m.leave(e)
	default:
		m.taskFailed(e.node, row)
	}
}

// ControlRetryBudget is the control of an attempt whose retry the budget refused (contract 2.5).
const ControlRetryBudget = "retryBudget"

// sourcePolicy is the source of a delay that the policy set; a provider's minimum that was longer names its own.
const sourcePolicy = "policy"

// checkOutput holds the output of a COMPLETED attempt to its size and to outputSchema; a misfit is terminal, since the effect has
// happened and a repeat would not mend the shape. A misfit with the schema is kept, to be looked at.
func (m *machine) checkOutput(e *ending, r rules) {
	if len(e.output) > execution.MaxPayload {
		e.status, e.cause = execution.FailedTerm, execution.CauseOutputTooLarge
		e.reason = fmt.Sprintf("the output is %d bytes, over the limit of %d (6 MiB)", len(e.output), execution.MaxPayload)
		e.output = nil
		return
	}
	if e.status != execution.Completed || r.pinned.CheckOutput == nil {
		return
	}
	value, err := decodeOutput(e.output)
	if err == nil {
		err = r.pinned.CheckOutput(value)
	}
	if err != nil {
		e.status, e.cause, e.reason = execution.FailedTerm, execution.CauseOutputInvalid, err.Error()
	}
}

// decodeOutput reads a kept output or input; nil stands for {}.
func decodeOutput(text []byte) (any, error) {
	if len(text) == 0 {
		return map[string]any{}, nil
	}
	return jsontext.Decode(text, jsontext.Limits{})
}

// judge asks the retry rules. ok is false if the budget must be loaded first.
func (m *machine) judge(e ending, r rules) (retry.Verdict, retry.Delay, bool) {
	f := retry.Ended{
		Success:  e.status == execution.Completed,
		Terminal: e.status == execution.FailedTerm || e.cause == execution.CauseOutcomeUnknown,
		TimedOut: e.status == execution.TimedOut, TimeoutPolicy: r.timeoutPolicy,
		Total:  e.cause == execution.CauseTotalTimeout,
		Reason: e.reason, NonRetryableErrors: r.policy.NonRetryableErrors, RetriesLeft: e.at.RetriesLeft,
	}
	if f.Success || f.Terminal {
		return retry.Judge(f), retry.Delay{}, true
	}
	// n counts from 1 again once an operator's retry has given fresh retries; the hash keeps the attempt's number.
	n := min(max(1, r.policy.RetryCount-int(e.at.RetriesLeft)+1), int(e.at.Attempt))
	unit := retry.Unit(m.head.Exec.String(), e.node.task.Ref, iterationOf(e.at), int(e.at.Attempt))
	delay := retry.Wait(retry.Of(r.policy), n, e.minimum, unit)
	f.DueAt = m.later(delay.Selected)
	f.Latest[0] = timeout.OfWorkflow(m.p.workflow, m.head.AdmittedAt)
	if r.timeoutPolicy != schema.TimeoutAlertOnly { // else the total only alerts, so it makes no wait impossible
		f.Latest[1] = e.at.TotalBy
	}
	verdict := retry.Judge(f)
	if verdict < retry.BudgetSpent || e.at.DefID == 0 {
		return verdict, delay, true
	}
	budget, ok := m.budgetOf(e.at.DefID, !e.recorded)
	if !ok {
		return 0, retry.Delay{}, false
	}
	f.Budget = &budget
	return retry.Judge(f), delay, true
}

func iterationOf(at execution.Attempt) string {
	if at.Iteration == "" {
		return rootIteration
	}
	return at.Iteration
}

// rootIteration is the iteration of what runs outside loops.
const rootIteration = "0"

// newRow is the row of an attempt as it ended, before the rules have looked at it.
func (m *machine) newRow(e ending) execution.TaskRow {
	at := e.at
	row := execution.TaskRow{
		TaskNo: at.TaskNo, Attempt: at.Attempt, Fence: e.fence, ScheduledAt: at.ScheduledAt, VisibleAt: at.VisibleAt,
		LeasedAt: at.LeasedAt, EndedAt: latestOf(m.now, at.ScheduledAt, at.LeasedAt), ScopeNo: at.ScopeNo, Slot: at.Slot,
		DefID: at.DefID, DefRev: at.DefRev, QueueID: at.QueueID, Deliveries: at.Deliveries, Kind: at.Kind, Status: e.status,
		Rerun: at.Rerun, Iteration: iterationOf(at), Worker: e.worker, Control: e.control, Width: e.width, Output: e.output,
		Input: e.input,
	}
	if e.status != execution.Completed && e.status != execution.Skipped {
		row.Cause, row.Reason = causeOf(e), execution.CutReason(e.reason, execution.MaxReason)
	}
	return row
}

// causeOf gives the cause of a failure; one that came without a cause is a worker's, or a deadline's.
func causeOf(e ending) execution.Cause {
	switch {
	case e.cause != "":
		return e.cause
	case e.status == execution.FailedTerm:
		return execution.CauseWorkerTerminal
	case e.status == execution.TimedOut:
		return execution.CauseTaskTimeout
	}
	return execution.CauseWorkerFailed
}

// latestOf keeps time from running backwards: a time that is written is never before the kept times before it.
func latestOf(now time.Time, kept ...time.Time) time.Time {
	for _, t := range kept {
		if t.After(now) {
			now = t
		}
	}
	return now
}

// keep writes the row of an attempt: appended, with the attempt gone from its place; or, when it was recorded before, completed.
func (m *machine) keep(e ending, row execution.TaskRow) {
	if m.latest == nil {
		m.latest = map[int32]endedAt{}
	}
	if e.recorded {
		m.latest[row.TaskNo] = endedAt{len(m.revised), true}
		m.revised = append(m.revised, row)
		return
	}
	if e.open {
		m.remove(e.at)
	}
	if e.open || row.Kind == execution.KindJoin { // what was never open has had no verdict
		m.count(row.DefID, 1, 0)
	}
	m.appendRow(row)
}

func (m *machine) appendRow(row execution.TaskRow) {
	if m.latest == nil {
		m.latest = map[int32]endedAt{}
	}
	m.head.Seq++
	row.Seq = m.head.Seq
	m.latest[row.TaskNo] = endedAt{len(m.ended), false}
	m.ended = append(m.ended, row)
	for _, part := range [...]string{expr.PartOutput, expr.PartStatus, expr.PartInput} {
		delete(m.decoded, place{row.TaskNo, part})
	}
}

// row gives the newest row that this decision wrote for a task, nil if it wrote none.
func (m *machine) row(taskNo int32) *execution.TaskRow {
	at, ok := m.latest[taskNo]
	switch {
	case !ok:
		return nil
	case at.revised:
		return &m.revised[at.index]
	}
	return &m.ended[at.index]
}

// remove takes an open attempt from its place: one that this decision scheduled is simply not scheduled.
func (m *machine) remove(at execution.Attempt) {
	if _, ok := m.schedules[at.TaskNo]; ok {
		delete(m.schedules, at.TaskNo)
		return
	}
	if m.gone == nil {
		m.gone = map[int32]bool{}
	}
	m.gone[at.TaskNo] = true
	m.removed = append(m.removed, execution.Removed{Place: at.Place, TaskNo: at.TaskNo, Fence: at.Fence})
}

// count adds to the retry-budget buckets of a definition (X11).
func (m *machine) count(defID int32, total, retries int64) {
	if defID == 0 {
		return
	}
	if m.budget == nil {
		m.budget = map[int32]*execution.BudgetDelta{}
	}
	d := m.budget[defID]
	if d == nil {
		d = &execution.BudgetDelta{DefID: defID}
		m.budget[defID] = d
	}
	d.Total += total
	d.Retries += retries
}

// budgetOf gives the state of a budget as Refuse takes it: what was loaded and what this decision added, the attempt under
// decision included once.
func (m *machine) budgetOf(defID int32, includeThis bool) (retry.Budget, bool) {
	loaded, ok := m.view.Budgets[defID]
	if !ok {
		m.lacks.budget(defID)
		return retry.Budget{}, false
	}
	b := retry.Budget{Limit: loaded.Limit, Total: loaded.Total, Retries: loaded.Retries}
	if d := m.budget[defID]; d != nil {
		b.Total += d.Total
		b.Retries += d.Retries
	}
	if includeThis {
		b.Total++
	}
	return b, true
}

// nextAttempt is the attempt after one that failed, visible at due. Its deadlines start there; the total runs on. ok is false if
// the task's input must be loaded first.
func (m *machine) nextAttempt(e ending, r rules, due time.Time) (execution.Schedule, bool) {
	old := e.at
	next := execution.Attempt{
		TaskNo: old.TaskNo, Attempt: old.Attempt + 1, QueueID: old.QueueID, Lane: old.Lane, Kind: old.Kind,
		ScopeNo: old.ScopeNo, Slot: old.Slot, RevID: old.RevID, DefID: old.DefID, DefRev: old.DefRev, Rerun: old.Rerun,
		RetriesLeft: old.RetriesLeft - 1, ScheduledAt: m.now, VisibleAt: due, Iteration: iterationOf(old),
	}
	deadlines := timeout.Again(r.def, due, old.TotalBy)
	next.AttBy = deadlines.AttBy
	switch {
	case e.node.class.Dispatched():
		next.StartBy, next.TotalBy = deadlines.StartBy, deadlines.TotalBy
		m.place(&next, execution.WhyBackoff)
	case e.node.kind == execution.KindWait:
		wake, ok := m.wakeAgain(e.node, due)
		if !ok {
			return execution.Schedule{}, false
		}
		next.VisibleAt = wake
		park(&next, execution.WhyWait)
	default: // a JOIN: it may not fire before the back-off is over, which counts like one more thing it waits for
		if held := old.Why == execution.WhyWait; !held && !m.joinHeld(e.node) {
			return execution.Schedule{}, false
		}
		park(&next, execution.WhyWait)
	}
	return execution.Schedule{Attempt: next}, true
}

// place says where a dispatched attempt goes: visible now, or parked until it is.
func (m *machine) place(at *execution.Attempt, why execution.Why) {
	if at.VisibleAt.After(m.now) {
		park(at, why)
		return
	}
	at.Place = execution.InReady
}

// later is the time that lies a duration ahead.
func (m *machine) later(d schema.Millis) time.Time {
	return m.now.Add(time.Duration(d) * time.Millisecond)
}

func park(at *execution.Attempt, why execution.Why) { at.Place, at.Why = execution.InTimer, why }

func (m *machine) schedule(s execution.Schedule) {
	if m.schedules == nil {
		m.schedules = map[int32]execution.Schedule{}
	}
	m.schedules[s.Attempt.TaskNo] = s
}
