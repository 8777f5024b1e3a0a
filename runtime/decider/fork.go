package decider

import (
	"fmt"
	"time"

	"nf/runtime/execution"
	"nf/schema/jsontext"
)

// scopeFork is the kind of a FORK_JOIN's scope.
const scopeFork = 1

// scope is a fork's scope as this decision sees it.
type scope struct {
	execution.Scope
	stored bool // a row of it exists
	loose  bool // counted in the header: its join has fired while branches still run
	gone   bool
	dirty  bool
}

// scope gives the scope that a fork opened; nil if it is not open. ok is false if it must be loaded first.
func (m *machine) scope(fork int32) (s *scope, ok bool) {
	no := number(fork)
	if s, ok := m.scopes[no]; ok {
		if s.gone {
			return nil, true
		}
		return s, true
	}
	row, ok := m.view.Scopes[no]
	if !ok {
		m.lacks.scope(no)
		return nil, false
	}
	if row.ScopeNo != no {
		return nil, true
	}
	s = &scope{Scope: row, stored: true, loose: row.Fired && row.Open > 0}
	m.putScope(s)
	return s, true
}

func (m *machine) putScope(s *scope) {
	if m.scopes == nil {
		m.scopes = map[int32]*scope{}
	}
	m.scopes[s.ScopeNo] = s
}

// openFork opens a fork: its row, its scope, its JOIN, and the heads of its branches.
func (m *machine) openFork(n *node, at execution.Attempt, level int) {
	join := &m.p.nodes[n.join]
	s := &scope{Scope: execution.Scope{
		ScopeNo: number(n.slot), ParentNo: number(n.scope), Slot: n.slot, Kind: scopeFork, BaseNo: RootBase,
		Width: int32(len(n.branches)), Open: int32(len(n.branches)), Pending: int32(len(n.branches)), //nolint:gosec // at most 1,000
	}, dirty: true}
	if join.explicit {
		s.Pending = int32(len(join.waits)) //nolint:gosec // at most 20,000
	}
	heads := make([]any, len(n.branches))
	for i, l := range n.branches {
		heads[i] = m.p.nodes[m.p.lists[l].first].task.Ref
	}
	m.putScope(s)
	m.finish(ending{
		node: n, at: at, status: execution.Completed, output: encoded(map[string]any{"forkedBranches": heads}),
		width: s.Width, level: level,
	})
	m.openJoin(join, s, level)
	m.scheduleBranches(n, s, level)
}

// encoded writes a value that code of our own built.
func encoded(v any) []byte {
	text, err := jsontext.Encode(v)
	if err != nil {
		return nil // cannot be: texts, numbers and lists of them
	}
	return text
}

// scheduleBranches puts the next heads in line, and leaves a mark if there are more.
func (m *machine) scheduleBranches(n *node, s *scope, level int) {
	width := int32(len(n.branches)) //nolint:gosec // at most 1,000
	next := max(s.Cursor, 0)
	for ; next < min(max(s.Cursor, 0)+maxFan, width); next++ {
		m.push(m.p.lists[n.branches[next]].first, level+1)
	}
	s.Cursor, s.dirty = next, true
	if next < width {
		m.continueAt = append(m.continueAt, number(n.slot))
	}
}

// branchEnded: the sequence of a branch has ended.
func (m *machine) branchEnded(fork *node, level int) {
	s, ok := m.scope(fork.slot)
	if !ok || s == nil {
		return
	}
	s.Open, s.dirty = max(s.Open-1, 0), true
	if !m.p.nodes[fork.join].explicit {
		s.Pending = max(s.Pending-1, 0)
	}
	m.settle(fork, s, level)
}

// countDone: tasks that a fork's join names have ended successfully, or can no longer run.
func (m *machine) countDone(slot, count int32, level int) {
	s, ok := m.scope(slot)
	if !ok || s == nil { // gone: its join ended without waiting for them
		return
	}
	s.Pending, s.dirty = max(s.Pending-count, 0), true
	m.settle(&m.p.nodes[slot], s, level)
}

// settle fires the join when nothing is pending, and drops the scope when its join has fired and its branches have ended.
func (m *machine) settle(fork *node, s *scope, level int) {
	if s.Pending == 0 && !s.Fired {
		m.fire(fork, level)
	}
	m.weigh(s)
}

// weigh keeps the header's count of loose scopes, and completes the execution when the last one ends after the root's sequence.
func (m *machine) weigh(s *scope) {
	if s.Fired && s.Open == 0 {
		s.gone = true
	}
	if loose := s.Fired && s.Open > 0; loose != s.loose {
		s.loose = loose
		if loose {
			m.head.Loose++
			return
		}
		m.head.Loose = max(m.head.Loose-1, 0)
		m.maybeComplete()
	}
}

// openJoin opens a fork's JOIN with it. While it is open it needs no row of its own, unless it is parkable.
func (m *machine) openJoin(join *node, s *scope, level int) {
	at := m.fresh(join)
	r := m.firstRules(join)
	at.DefID, at.DefRev = r.pinned.DefID, r.pinned.DefRev
	at.RetriesLeft = int32(r.policy.RetryCount) //nolint:gosec // at most 100
	visible := m.later(join.task.StartDelay)
	if r.def.Timeout > 0 {
		at.AttBy = visible.Add(time.Duration(r.def.Timeout) * time.Millisecond)
	}
	if r.pinned.CheckInput != nil {
		if err := r.pinned.CheckInput(map[string]any{}); err != nil {
			m.finish(ending{
				node: join, at: at, status: execution.FailedTerm, cause: execution.CauseInputInvalid, reason: err.Error(), level: level,
			})
			return
		}
	}
	if !parkable(join) {
		return
	}
	at.VisibleAt = time.Time{}
	park(&at, execution.WhyOperatorDeadline)
	if join.task.StartDelay > 0 { // it may not fire before: one more thing it waits for
		s.Pending++
		at.VisibleAt = visible
		park(&at, execution.WhyWait)
	}
	m.schedule(execution.Schedule{Attempt: at})
}

// joinDelayed: the start delay or the back-off of a JOIN is over.
func (m *machine) joinDelayed(join *node, at execution.Attempt) {
	fork := &m.p.nodes[join.fork]
	s, ok := m.scope(fork.slot)
	if !ok {
		return
	}
	m.remove(at)
	if s == nil || s.Fired {
		return
	}
	next := at
	next.VisibleAt = time.Time{}
	park(&next, execution.WhyOperatorDeadline)
	m.schedule(execution.Schedule{Attempt: next})
	s.Pending, s.dirty = max(s.Pending-1, 0), true
	m.settle(fork, s, 0)
}

// joinHeld makes a JOIN wait for one thing more: its own back-off.
func (m *machine) joinHeld(join *node) bool {
	s, ok := m.scope(join.fork)
	if !ok {
		return false
	}
	if s != nil {
		s.Pending, s.dirty = s.Pending+1, true
	}
	return true
}

// parkable says whether a JOIN has a row among the timers while it is open: it carries the delay, the deadline and the pinned
// definition.
func parkable(join *node) bool {
	return join.task.Definition != "" || join.task.Timeout > 0 || join.task.StartDelay > 0
}

// fire completes a JOIN: its output maps each reference that it waits for to that task's output.
func (m *machine) fire(fork *node, level int) {
	join := &m.p.nodes[fork.join]
	opened, before, ok := m.joinValues(join)
	if !ok {
		m.foresee(join)
		return
	}
	at := m.fresh(join)
	r := m.firstRules(join)
	at.Attempt = before.Attempt + 1
	at.DefID, at.DefRev = r.pinned.DefID, r.pinned.DefRev
	at.ScheduledAt = latestOf(opened.EndedAt, before.EndedAt) // a row is made when the attempt before it ends, the first one with the fork
	if at.ScheduledAt.IsZero() {
		at.ScheduledAt = m.now
	}
	at.VisibleAt = at.ScheduledAt
	e := ending{node: join, at: at, status: execution.Completed, level: level}
	e.output, ok = m.gather(join)
	if !ok {
		e.status, e.cause = execution.FailedTerm, execution.CauseOutputTooLarge
		e.reason = fmt.Sprintf("the output of JOIN %q, a map of %d outputs, is over the limit of %d bytes (6 MiB)",
			join.task.Ref, len(join.waits), execution.MaxPayload)
	}
	m.finish(e)
}

// joinValues gives the values of a JOIN's fork and of its own attempts so far, and finds out whether the outputs it gathers are at
// hand.
func (m *machine) joinValues(join *node) (opened, before execution.TaskValue, ok bool) {
	opened, ok = m.task(number(join.fork))
	if parkable(join) {
		var has bool
		before, has = m.task(number(join.slot))
		ok = ok && has
	}
	for _, slot := range join.waits {
		_, has := m.task(number(slot))
		ok = ok && has
	}
	return opened, before, ok
}

// gather writes a JOIN's output; ok is false if it is over the limit, which is known before anything is built.
func (m *machine) gather(join *node) ([]byte, bool) {
	size := 2
	for _, slot := range join.waits {
		v, _ := m.task(number(slot))
		size += len(m.p.nodes[slot].task.Ref) + 4 + max(len(v.Output), 4)
		if size > execution.MaxPayload {
			return nil, false
		}
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	for i, slot := range join.waits {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsontext.AppendString(out, m.p.nodes[slot].task.Ref)
		out = append(out, ':')
		v, _ := m.task(number(slot))
		out = append(out, outputText(v)...)
	}
	return append(out, '}'), true
}

// outputText is the output of a task as JSON: null for one that never ran or was skipped, {} for one that gave none.
func outputText(v execution.TaskValue) []byte {
	switch {
	case len(v.Output) > 0:
		return v.Output
	case v.Ended && v.Status != execution.Skipped:
		return []byte("{}")
	}
	return []byte("null")
}

// joinEnded: a JOIN has ended, whichever way. The sequence goes on behind it; branches that still run are loose.
func (m *machine) joinEnded(join *node) {
	no := number(join.slot)
	if _, here := m.schedules[no]; here || parkable(join) && !m.gone[no] {
		m.remove(execution.Attempt{TaskNo: no, Place: execution.InTimer})
	}
	s, ok := m.scope(join.fork)
	if !ok || s == nil {
		return
	}
	s.Fired, s.dirty = true, true
	m.weigh(s)
}
