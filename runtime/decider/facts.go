package decider

import (
	"time"

	"nf/policies/timeout"
	"nf/runtime/execution"
	"nf/schema"
	"nf/schema/jsontext"
)

// take takes one fact. A fact that no longer applies is dropped and counted.
func (m *machine) take(f execution.Fact) {
	switch f := f.(type) {
	case execution.Started:
		m.start()
	case execution.AttemptEnded:
		m.attemptEnded(f)
	case execution.DeadlineMissed:
		m.deadlineMissed(f)
	case execution.WaitElapsed:
		m.waitElapsed(f)
	case execution.WorkflowTimedOut:
		m.workflowTimedOut()
	case execution.TerminateRequested:
		m.terminateByOperator(f)
	case execution.EvaluationContinued:
		m.goOnAt(f.TaskNo)
	default:
		m.dropped++
	}
}

// start is the first evaluation of an admitted execution.
func (m *machine) start() {
	if m.head.NextNo > RootBase || m.ending {
		m.dropped++
		return
	}
	m.head.NextNo = RootBase + int32(len(m.p.nodes)) //nolint:gosec // at most 20,000 tasks
	if m.head.AdmittedAt.IsZero() {
		m.head.AdmittedAt = m.now
	}
	m.deadline = timeout.OfWorkflow(m.p.workflow, m.head.AdmittedAt)
	if m.startVariables() {
		m.push(0, 0)
	}
}

// attemptEnded: a verdict on an open attempt.
func (m *machine) attemptEnded(f execution.AttemptEnded) {
	n := m.current(&f.Attempt)
	if n == nil {
		m.dropped++
		return
	}
	if f.Recorded {
		m.rebuild(n, &f.Attempt)
	}
	m.finish(ending{
		node: n, at: f.Attempt, recorded: f.Recorded, open: true,
		status: f.Status, cause: f.Cause, reason: f.Reason, output: f.Output, fence: f.Fence, worker: f.Worker,
		minimum: f.MinWait, source: f.Source, control: f.Control,
	})
}

// rebuild completes an attempt that was read back from its row, which keeps neither the retries left nor the total deadline. The
// total of a later attempt must come with the fact.
func (m *machine) rebuild(n *node, at *execution.Attempt) {
	r := m.rules(n, *at)
	at.RetriesLeft = max(0, int32(r.policy.RetryCount)-at.Attempt+1) //nolint:gosec // at most 100
	if at.TotalBy.IsZero() && at.Attempt == 1 && n.class.Dispatched() {
		at.TotalBy = timeout.First(r.def, at.VisibleAt).TotalBy
	}
}

// current gives the node of an attempt that a fact is about, nil if the fact does not apply any more: the program does not know
// the task, or a fact before it has ended the attempt. Deadlines that such a fact disarmed are taken off.
func (m *machine) current(at *execution.Attempt) *node {
	n := m.p.node(at.TaskNo)
	if n == nil || n.slot != at.Slot || n.kind != at.Kind {
		return nil
	}
	if row := m.row(at.TaskNo); m.gone[at.TaskNo] || row != nil && row.Attempt >= at.Attempt {
		return nil
	}
	for _, d := range m.disarmed {
		if d.TaskNo == at.TaskNo && d.Fence == at.Fence {
			*armed(at, d.Class) = time.Time{}
		}
	}
	return n
}

// armed gives the deadline of a class.
func armed(at *execution.Attempt, class execution.DeadlineClass) *time.Time {
	switch class {
	case execution.ClassScheduleToStart:
		return &at.StartBy
	case execution.ClassStartToClose:
		return &at.CloseBy
	case execution.ClassTaskTimeout:
		return &at.AttBy
	case execution.ClassTotal:
		return &at.TotalBy
	}
	return new(time.Time)
}

// deadlineMissed applies timeoutPolicy to a deadline of an open attempt (X7). A deadline never fires early: one that is not
// armed, or lies ahead, is dropped.
func (m *machine) deadlineMissed(f execution.DeadlineMissed) {
	n := m.current(&f.Attempt)
	if n == nil || m.ending {
		m.dropped++
		return
	}
	at := *armed(&f.Attempt, f.Class)
	wrongPlace := f.Class == execution.ClassStartToClose && f.Attempt.Place != execution.InLease ||
		f.Class == execution.ClassScheduleToStart && f.Attempt.Place == execution.InLease
	if at.IsZero() || at.After(m.now) || wrongPlace {
		m.dropped++
		return
	}
	if m.rules(n, f.Attempt).timeoutPolicy == schema.TimeoutAlertOnly {
		m.alert(f)
		return
	}
	m.finish(ending{
		node: n, at: f.Attempt, open: true, status: execution.TimedOut, cause: execution.Cause(f.Class),
		reason: f.Reason, control: f.Control,
	})
}

// alert is a missed deadline under ALERT_ONLY: one event for the class and attempt, and only that class is disarmed.
func (m *machine) alert(f execution.DeadlineMissed) {
	detail, err := jsontext.Encode(map[string]any{"class": string(f.Class), "attempt": f.Attempt.Attempt, "reason": f.Reason})
	if err != nil {
		detail = nil
	}
	m.event(execution.Event{What: EventDeadlineMissed, TaskNo: f.Attempt.TaskNo, Attempt: f.Attempt.Attempt, Detail: detail})
	m.disarmed = append(m.disarmed, execution.Disarmed{
		Place: f.Attempt.Place, TaskNo: f.Attempt.TaskNo, Fence: f.Attempt.Fence, Class: f.Class,
	})
}

// The rare events that the decider writes into the history.
const (
	EventDeadlineMissed = "DEADLINE_MISSED" // detail {class, attempt, reason}
	EventTerminated     = "TERMINATED"      // an operator's terminate; actor, detail {reason}
)

func (m *machine) event(e execution.Event) {
	m.head.Seq++
	e.Seq = m.head.Seq
	m.events = append(m.events, e)
}

// waitElapsed: the time of something parked has come: of a WAIT, of an operator with a start delay, of a JOIN's delay or back-off.
func (m *machine) waitElapsed(f execution.WaitElapsed) {
	at := f.Attempt
	n := m.current(&at)
	if n == nil || m.ending || at.Place != execution.InTimer || at.Why != execution.WhyWait || at.VisibleAt.After(m.now) {
		m.dropped++
		return
	}
	if !at.AttBy.IsZero() && at.AttBy.Before(at.VisibleAt) { // a timeout shorter than the wait wins
		m.deadlineMissed(execution.DeadlineMissed{Attempt: at, Class: execution.ClassTaskTimeout})
		return
	}
	switch n.kind {
	case execution.KindWait:
		m.finish(ending{node: n, at: at, open: true, status: execution.Completed, output: waited})
	case execution.KindJoin:
		m.joinDelayed(n, at)
	default:
		m.remove(at)
		m.operate(n, at, 0)
	}
}

func (m *machine) workflowTimedOut() {
	if m.ending {
		m.dropped++
		return
	}
	m.end(execution.Closing{
		Status: execution.TimedOut, Cause: execution.CauseWorkflowTimeout,
		Reason: "the workflow's timeoutSeconds has passed", Force: true,
	})
}

func (m *machine) terminateByOperator(f execution.TerminateRequested) {
	if m.ending {
		m.dropped++
		return
	}
	reason := execution.CutReason(f.Reason, execution.MaxReason)
	detail, err := jsontext.Encode(map[string]any{"reason": reason})
	if err != nil {
		detail = nil
	}
	m.event(execution.Event{What: EventTerminated, Actor: f.Actor, Detail: detail})
	m.end(execution.Closing{
		Status: execution.Terminated, Cause: execution.CauseTerminatedByOperator, Reason: reason, Force: true,
	})
}

// goOnAt goes on where an evaluation stopped: with the chunks of an end by force, with the branches of a fork that are not
// scheduled yet, or with a node whose turn had come.
func (m *machine) goOnAt(taskNo int32) {
	if m.ending {
		m.resumeEnd()
		return
	}
	n := m.p.node(taskNo)
	if n == nil || m.row(taskNo) != nil {
		m.dropped++
		return
	}
	if n.kind == execution.KindForkJoin {
		s, ok := m.scope(n.slot)
		if !ok {
			return
		}
		if s != nil {
			m.scheduleBranches(n, s, 0)
			return
		}
	}
	m.push(n.slot, 0)
}
