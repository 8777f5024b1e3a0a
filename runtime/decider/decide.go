package decider

import (
	"time"

	"nf/runtime/execution"
)

// Limits of one evaluation.
const (
	// maxRounds bounds how many operators are chained before the evaluation stops and leaves a mark (contract 7.1).
	maxRounds = 64
	// maxFan is how many branches of a fork one evaluation schedules; the scope's cursor says where the next one goes on (X19).
	maxFan = 500
)

// Decide says what follows from facts, for one execution. It reads nothing but its arguments, changes none of them, cannot fail
// and never panics. If the Needs are not empty the Decision is void: load what they name into the view and call again with the
// same facts and the same now.
func (p *Program) Decide(view execution.View, defs execution.Definitions, facts []execution.Fact, now time.Time) (execution.Decision, execution.Needs) {
	m := newMachine(p, &view, defs, now)
	for _, f := range facts {
		m.take(f)
		m.run()
	}
	if needs := m.lacks.needs(); !needs.Empty() {
		return execution.Decision{}, needs
	}
	return m.decision(), execution.Needs{}
}

// Record says how a fact is kept when nothing is decided from it: the row of an ended attempt and the place it leaves. The
// decision follows from a mark, with AttemptEnded.Recorded. Facts that end no attempt are dropped.
func (p *Program) Record(view execution.View, defs execution.Definitions, f execution.Fact, now time.Time) execution.Decision {
	m := newMachine(p, &view, defs, now)
	m.ending = true
	if e, ok := f.(execution.AttemptEnded); ok {
		m.take(e)
	} else {
		m.dropped++
	}
	return m.decision()
}

// machine is one call of Decide: the view, what was changed on top of it, and what was lacking.
type machine struct {
	p    *Program
	view *execution.View
	defs execution.Definitions
	now  time.Time

	head    execution.Header
	ending  bool // by force, since before or by this decision: results are recorded without successors
	closing *execution.Closing
	lacks   lacks
	soon    map[int32]bool // tasks that a decision which lacks something would end

	todo       []arrival
	continueAt []int32

	ended     []execution.TaskRow
	revised   []execution.TaskRow
	latest    map[int32]endedAt // by task number: where its newest row of this decision stands
	events    []execution.Event
	removed   []execution.Removed
	gone      map[int32]bool // task numbers in removed
	disarmed  []execution.Disarmed
	schedules map[int32]execution.Schedule
	scopes    map[int32]*scope
	vars      map[string][]byte
	budget    map[int32]*execution.BudgetDelta
	deadline  time.Time
	dropped   int

	decoded map[place]any // parts of tasks, decoded once
}

// endedAt says where a row stands: in ended, or in revised.
type endedAt struct {
	index   int
	revised bool
}

// arrival is a node whose turn has come; level counts the operators chained before it.
type arrival struct {
	slot  int32
	level int
}

func newMachine(p *Program, view *execution.View, defs execution.Definitions, now time.Time) *machine {
	return &machine{
		p: p, view: view, defs: defs, now: now, head: view.Header,
		ending: view.Header.EndStatus != execution.StatusOpen,
	}
}

// push puts a node in line.
func (m *machine) push(slot int32, level int) { m.todo = append(m.todo, arrival{slot, level}) }

// run goes on until only open work remains, the execution ends, or the rounds are used up. Nodes are entered in the order in
// which they came up, siblings in definition order.
func (m *machine) run() {
	for len(m.todo) > 0 {
		next := m.todo[0]
		m.todo = m.todo[1:]
		switch {
		case m.ending:
		case next.level >= maxRounds:
			m.continueAt = append(m.continueAt, number(next.slot))
		default:
			m.enter(next)
		}
	}
}

// enter starts a node whose turn has come.
func (m *machine) enter(a arrival) {
	n := &m.p.nodes[a.slot]
	switch {
	case n.class.Dispatched():
		m.dispatch(n, a.level)
	case n.kind == execution.KindWait:
		m.wait(n, a.level)
	case n.task.StartDelay > 0:
		m.delayOperator(n)
	default:
		m.operate(n, m.fresh(n), a.level)
	}
}

// operate decides an immediate operator.
func (m *machine) operate(n *node, at execution.Attempt, level int) {
	switch n.kind {
	case execution.KindSwitch:
		m.choose(n, at, level)
	case execution.KindForkJoin:
		m.openFork(n, at, level)
	case execution.KindSetVariable:
		m.setVariables(n, at, level)
	case execution.KindTerminate:
		m.terminateByTask(n, at, level)
	default: // a JOIN is opened by its fork, the rest is dispatched or waits
	}
}

// leave goes on behind a task that ended for good and successfully.
func (m *machine) leave(e ending) {
	n := e.node
	if n.kind == execution.KindJoin {
		m.joinEnded(n)
	}
	for _, fork := range n.namedBy {
		m.countDone(fork, 1, e.level)
	}
	switch {
	case e.then != nil:
		e.then()
	case n.kind == execution.KindForkJoin: // its branches run; the sequence goes on behind its JOIN
	default:
		m.goOn(n, n.slot, e.level)
	}
}

// goOn passes to the next node of the list, or to what the end of the list means. last is the task that ended last.
func (m *machine) goOn(n *node, last int32, level int) {
	for {
		if n.next != none {
			m.push(n.next, level+1)
			return
		}
		owner := m.p.lists[n.list].owner
		if owner == none {
			m.rootEnded(last)
			return
		}
		n = &m.p.nodes[owner]
		if n.kind == execution.KindForkJoin {
			m.branchEnded(n, level)
			return
		}
	}
}
