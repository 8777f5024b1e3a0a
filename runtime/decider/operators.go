package decider

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"

	"nf/runtime/execution"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// fresh is the first attempt of a task whose turn has come now. It is in no table.
func (m *machine) fresh(n *node) execution.Attempt {
	return execution.Attempt{
		TaskNo: number(n.slot), Attempt: 1, Lane: 99 - m.head.Priority, Kind: n.kind, ScopeNo: number(n.scope), Slot: n.slot,
		RevID: m.head.RevID, Rerun: m.head.Reruns, ScheduledAt: m.now, VisibleAt: m.now, Iteration: rootIteration,
	}
}

// delayOperator parks an immediate operator with a start delay; its WaitElapsed decides it.
func (m *machine) delayOperator(n *node) {
	at := m.fresh(n)
	at.VisibleAt = m.later(n.task.StartDelay)
	park(&at, execution.WhyWait)
	m.schedule(execution.Schedule{Attempt: at})
}

// choose decides a SWITCH: the case whose name is exactly the value's text runs, else the default; the heads of all others are
// SKIPPED, and what lies in them counts as done for the joins that name it.
func (m *machine) choose(n *node, at execution.Attempt, level int) {
	e := ending{node: n, at: at, level: level}
	input, ok := m.resolve(n, m.firstRules(n), &e)
	if !ok {
		if e.cause != "" {
			m.finishUntaken(n, e)
		}
		return
	}
	value, isText := caseValue(input.value[n.task.Expression])
	taken := n.fallback
	for _, c := range n.cases {
		if isText && c.value == value {
			taken = c.list
		}
	}
	e.status, e.input = execution.Completed, input.keep()
	e.output = []byte(`{"caseValue":null}`)
	if isText {
		e.output = encoded(map[string]any{"caseValue": value})
	}
	e.then = func() { m.follow(n, taken, level) }
	m.finish(e)
}

// finishUntaken ends a SWITCH that failed: if that is absorbed, none of its branches is taken.
func (m *machine) finishUntaken(n *node, e ending) {
	e.then = func() { m.follow(n, none, e.level) }
	m.finish(e)
}

// follow goes on behind a SWITCH that has ended: into the list taken, or past it.
func (m *machine) follow(n *node, taken int32, level int) {
	for _, c := range n.cases {
		if c.list != taken {
			m.skip(c.list, level)
		}
	}
	if n.fallback != taken {
		m.skip(n.fallback, level)
	}
	if taken != none && m.p.lists[taken].first != none {
		m.push(m.p.lists[taken].first, level+1)
		return
	}
	m.goOn(n, n.slot, level)
}

// skip marks the head of a list that does not run.
func (m *machine) skip(at int32, level int) {
	l := &m.p.lists[at]
	if l.first == none {
		return
	}
	head := &m.p.nodes[l.first]
	row := m.newRow(ending{node: head, at: m.fresh(head), status: execution.Skipped})
	row.Cause = execution.CauseBranchNotTaken
	m.appendRow(row)
	for _, c := range l.named {
		m.countDone(c.fork, c.count, level)
	}
}

// caseValue is the text that a SWITCH compares: a string as it is, a boolean, a number in canonical JSON. Null, lists and
// objects match nothing.
func caseValue(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	case json.Number:
		return string(jsontext.CanonicalNumber(v)), true
	}
	return "", false
}

// setVariables decides a SET_VARIABLE. Over the limit nothing is set.
func (m *machine) setVariables(n *node, at execution.Attempt, level int) {
	e := ending{node: n, at: at, level: level}
	input, ok := m.resolve(n, m.firstRules(n), &e)
	if !ok {
		if e.cause != "" {
			m.finish(e)
		}
		return
	}
	all, ok := m.variables()
	if !ok {
		return
	}
	changed := texts(input.value)
	if size := sizeOfVariables(all, changed); size > execution.MaxVariables {
		e.status, e.cause, e.reason = execution.FailedTerm, execution.CauseOutputTooLarge, tooManyVariables(size)
		m.finish(e)
		return
	}
	m.setAll(changed)
	e.status, e.output = execution.Completed, input.text
	m.finish(e)
}

// texts writes each value.
func texts(values map[string]any) map[string][]byte {
	all := make(map[string][]byte, len(values))
	for name, value := range values {
		all[name] = encoded(value)
	}
	return all
}

func tooManyVariables(size int) string {
	return fmt.Sprintf("the workflow's variables would be %d bytes together, over the limit of %d (256 KiB)", size, execution.MaxVariables)
}

// sizeOfVariables is the length of all variables as one JSON object.
func sizeOfVariables(all iter.Seq2[string, []byte], changed map[string][]byte) int {
	size := 1
	add := func(name string, value []byte) {
		size += len(jsontext.AppendString(nil, name)) + len(value) + 2
	}
	for name, value := range all {
		if _, over := changed[name]; !over {
			add(name, value)
		}
	}
	for name, value := range changed {
		add(name, value)
	}
	return max(size, 2)
}

func (m *machine) setAll(changed map[string][]byte) {
	if m.vars == nil {
		m.vars = map[string][]byte{}
	}
	maps.Copy(m.vars, changed)
	delete(m.decoded, place{0, expr.PartVariables})
}

// startVariables sets the workflow's declared variables; ok is false if that ended the execution.
func (m *machine) startVariables() bool {
	if m.p.vars == nil {
		return true
	}
	m.vars = map[string][]byte{} // start values see no variables
	v, ok := m.eval(m.p.vars, execution.MaxPayload)
	if !ok {
		return false
	}
	err, changed := v.err, texts(v.value)
	if size := sizeOfVariables(maps.All(m.vars), changed); err == nil && size > execution.MaxVariables {
		err = errors.New(tooManyVariables(size))
	}
	if err != nil {
		m.end(execution.Closing{Status: execution.Failed, Cause: execution.CauseOutputTooLarge, Reason: "variables: " + err.Error()})
		return false
	}
	m.setAll(changed)
	return true
}

// terminateByTask decides a TERMINATE.
func (m *machine) terminateByTask(n *node, at execution.Attempt, level int) {
	e := ending{node: n, at: at, level: level}
	input, ok := m.resolve(n, m.firstRules(n), &e)
	if !ok {
		if e.cause != "" {
			m.finish(e)
		}
		return
	}
	closing, err := closingOf(input.value)
	if err != nil {
		e.status, e.cause, e.reason = execution.FailedTerm, execution.CauseInputInvalid, err.Error()
		m.finish(e)
		return
	}
	closing.Force = m.othersOpen(n)
	e.status, e.output = execution.Completed, input.text
	e.then = func() { m.endByTask(n, closing) }
	m.finish(e)
}

// closingOf reads the input of a TERMINATE.
func closingOf(input map[string]any) (execution.Closing, error) {
	c := execution.Closing{Status: execution.Completed}
	switch status := input["terminationStatus"]; status {
	case nil, execution.NameCompleted:
	case execution.NameFailed:
		c.Status, c.Cause = execution.Failed, execution.CauseTerminatedByTask
	case execution.NameTerminated:
		c.Status, c.Cause = execution.Terminated, execution.CauseTerminatedByTask
	default:
		return c, fmt.Errorf("terminationStatus is %s, but must be COMPLETED, FAILED or TERMINATED", encoded(status))
	}
	switch reason := input["terminationReason"].(type) {
	case nil:
	case string:
		c.Reason = execution.CutReason(reason, execution.MaxReason)
	default:
		c.Reason = execution.CutReason(string(encoded(reason)), execution.MaxReason)
	}
	switch output := input["workflowOutput"].(type) {
	case nil:
	case map[string]any:
		if c.Status != execution.Completed {
			return c, errors.New("workflowOutput goes with terminationStatus COMPLETED only")
		}
		c.Output = encoded(output)
	default:
		return c, fmt.Errorf("workflowOutput is a %s, but must be an object", jsontext.TypeName(output))
	}
	return c, nil
}

// endByTask ends the execution as a TERMINATE says. One that completes it without an output of its own gives the workflow's.
func (m *machine) endByTask(n *node, c execution.Closing) {
	if c.Status != execution.Completed || c.Output != nil {
		m.end(c)
		return
	}
	m.complete(n.slot, c)
}
