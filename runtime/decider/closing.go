package decider

import (
	"cmp"
	"slices"
	"time"

	"nf/runtime/execution"
	"nf/schema/jsontext"
)

// rootEnded: the sequence of the root has ended with the task at last. The execution is complete when no branch runs loose.
func (m *machine) rootEnded(last int32) {
	m.head.EndNo = number(last)
	m.maybeComplete()
}

// maybeComplete completes the execution if the root's sequence has ended and nothing is loose. Until then the header's EndNo
// remembers the end of the sequence.
func (m *machine) maybeComplete() {
	if m.head.EndNo == 0 || m.head.Loose > 0 || m.ending {
		return
	}
	m.complete(m.head.EndNo-RootBase, execution.Closing{Status: execution.Completed})
}

// complete ends the execution COMPLETED, with its outputParameters or the output of its last task.
func (m *machine) complete(last int32, c execution.Closing) {
	if m.p.output == nil {
		if c.Force { // chunks may follow that know no task to take it from
			v, ok := m.task(number(last))
			if !ok {
				return
			}
			c.Output = orEmpty(v.Output)
		} else {
			c.OutputNo = number(last)
		}
		m.end(c)
		return
	}
	v, ok := m.eval(m.p.output, execution.MaxPayload)
	if !ok {
		return
	}
	err := v.err
	if err == nil {
		c.Output, err = jsontext.Encode(v.value)
	}
	if err != nil {
		c = execution.Closing{
			Status: execution.Failed, Cause: execution.CauseOutputTooLarge, Reason: "outputParameters: " + err.Error(), Force: c.Force,
		}
	}
	m.end(c)
}

// taskFailed ends the execution: a task ended for good, and its failure is not absorbed.
func (m *machine) taskFailed(n *node, row execution.TaskRow) {
	if n.kind == execution.KindJoin {
		m.joinEnded(n) // its branches, if any still run, are open beside it
	}
	c := execution.Closing{
		Status: execution.Failed, Cause: execution.CauseTaskFailed, FailedNo: row.TaskNo, FailedRef: n.task.Ref, Force: m.othersOpen(n),
	}
	if row.Status == execution.TimedOut {
		c.Status, c.Cause = execution.TimedOut, execution.CauseTaskTimedOut
	}
	c.Reason = n.task.Ref + " ended " + row.Status.String() + ", " + string(row.Cause)
	if row.Reason != "" {
		c.Reason += ": " + row.Reason
	}
	c.Reason = execution.CutReason(c.Reason, execution.MaxReason)
	m.end(c)
}

// othersOpen says whether anything else may be open beside a task: nothing is, in the root's sequence, while no branch is loose.
func (m *machine) othersOpen(n *node) bool { return n.scope != none || m.head.Loose > 0 }

// end ends the execution. From here on results are recorded without successors.
func (m *machine) end(c execution.Closing) {
	if m.ending {
		return
	}
	m.ending, m.closing = true, &c
	m.head.EndNo = c.FailedNo
	if c.Force {
		m.head.EndStatus, m.head.EndCause, m.head.EndReason = c.Status, c.Cause, c.Reason
	}
}

// resumeEnd gives again what a forced end is, for its next chunk. The output, if there is one, was stored with the first.
func (m *machine) resumeEnd() {
	if m.closing != nil || m.view.Header.EndStatus == execution.StatusOpen {
		m.dropped++
		return
	}
	h := m.view.Header
	m.closing = &execution.Closing{
		Status: h.EndStatus, Cause: h.EndCause, Reason: h.EndReason, FailedNo: h.EndNo, FailedRef: m.p.Ref(h.EndNo - RootBase), Force: true,
	}
}

// Abandon ends an execution that cannot be evaluated: FAILED, EVALUATION_FAILED. It evaluates nothing.
func Abandon(h execution.Header, reason string) execution.Decision {
	h.EndStatus, h.EndCause, h.EndNo = execution.Failed, execution.CauseEvaluationFailed, 0
	h.EndReason = execution.CutReason(reason, execution.MaxReason)
	return execution.Decision{Header: h, Closing: &execution.Closing{
		Status: h.EndStatus, Cause: h.EndCause, Reason: h.EndReason, Force: true,
	}}
}

// decision writes down what was decided, in definition order.
func (m *machine) decision() execution.Decision {
	if m.closing != nil {
		m.cancelSchedules()
		m.continueAt, m.deadline = nil, time.Time{}
	}
	disarmed := slices.DeleteFunc(m.disarmed, func(d execution.Disarmed) bool { return m.gone[d.TaskNo] })
	d := execution.Decision{
		Removed: m.removed, Disarmed: disarmed, Vars: m.vars, Closing: m.closing,
		Continue: len(m.continueAt) > 0, ContinueAt: m.continueAt, Deadline: m.deadline, Dropped: m.dropped,
	}
	d.Schedules = m.scheduled()
	d.Scopes = m.scopeChanges()
	for _, b := range m.budget {
		if b.Total != 0 || b.Retries != 0 {
			d.Budget = append(d.Budget, *b)
		}
	}
	slices.SortFunc(d.Budget, func(a, b execution.BudgetDelta) int { return cmp.Compare(a.DefID, b.DefID) })
	d.Ended, d.Events, d.Revised, d.Header = m.ended, m.events, m.revised, m.head
	return d
}

func (m *machine) scheduled() []execution.Schedule {
	if len(m.schedules) == 0 {
		return nil
	}
	all := make([]execution.Schedule, 0, len(m.schedules))
	for _, s := range m.schedules {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b execution.Schedule) int { return cmp.Compare(a.Attempt.TaskNo, b.Attempt.TaskNo) })
	return all
}

// scopeChanges gives the scopes that this decision changed; one that it opened and ended leaves no trace.
func (m *machine) scopeChanges() []execution.ScopeChange {
	var all []execution.ScopeChange
	for _, s := range m.scopes {
		switch {
		case s.gone && s.stored:
			all = append(all, execution.ScopeChange{Scope: s.Scope, Delete: true})
		case !s.gone && s.dirty:
			all = append(all, execution.ScopeChange{Scope: s.Scope})
		}
	}
	slices.SortFunc(all, func(a, b execution.ScopeChange) int { return cmp.Compare(a.Scope.ScopeNo, b.Scope.ScopeNo) })
	return all
}

// cancelSchedules ends what this decision scheduled before it ended the execution: it never becomes open.
func (m *machine) cancelSchedules() {
	for _, s := range m.scheduled() {
		n := m.p.node(s.Attempt.TaskNo)
		row := m.newRow(ending{node: n, at: s.Attempt, status: execution.Canceled, cause: execution.CauseExecutionEnded})
		row.Input = s.Input
		m.appendRow(row)
	}
	m.schedules = nil
}
