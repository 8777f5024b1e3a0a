package decider

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"nf/runtime/execution"
	"nf/schema"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// inputs is a map of values with ${…} expressions, and what they refer to.
type inputs struct {
	value expr.ValueTemplate
	// path is the `path` of a call: each of its expressions is one segment (contract 2.7).
	path *expr.Template

	tasks     []int32 // task numbers whose output or status is referenced
	taskInput []int32 // task numbers whose input is referenced
	input     bool    // of the execution
	variables bool
}

// pathKey is the input of an HTTP task that is a path.
const pathKey = "path"

// parse reads all expressions of the workflow.
func (p *Program) parse() error {
	for i := range p.nodes {
		n := &p.nodes[i]
		if len(n.task.InputParameters) == 0 || n.kind == execution.KindForkJoin || n.kind == execution.KindJoin {
			continue
		}
		in, err := p.parseMap(n.task.InputParameters, n.kind == execution.KindHTTP)
		if err != nil {
			return fmt.Errorf("%w: task %q: %w", ErrExpression, n.task.Ref, err)
		}
		n.input = in
	}
	var err error
	if p.workflow.OutputParameters != nil {
		if p.output, err = p.parseMap(p.workflow.OutputParameters, false); err != nil {
			return fmt.Errorf("%w: outputParameters: %w", ErrExpression, err)
		}
	}
	if len(p.workflow.Variables) > 0 {
		if p.vars, err = p.parseMap(p.workflow.Variables, false); err != nil {
			return fmt.Errorf("%w: variables: %w", ErrExpression, err)
		}
	}
	return nil
}

func (p *Program) parseMap(values map[string]schema.Value, call bool) (*inputs, error) {
	in := &inputs{}
	rest := make(map[string]any, len(values))
	for key, v := range values {
		text, isText := v.(string)
		if !call || key != pathKey || !isText {
			rest[key] = v
			continue
		}
		t, findings := expr.Parse(text)
		if len(findings) > 0 {
			return nil, fmt.Errorf("%s: %s", key, findings[0].Message)
		}
		in.path = &t
		p.refer(in, t.Refs())
	}
	t, findings := expr.ParseValue(rest)
	if len(findings) > 0 {
		return nil, fmt.Errorf("%s: %s", findings[0].Pointer, findings[0].Message)
	}
	in.value = t
	p.refer(in, t.Refs())
	slices.Sort(in.tasks)
	slices.Sort(in.taskInput)
	in.tasks, in.taskInput = slices.Compact(in.tasks), slices.Compact(in.taskInput)
	return in, nil
}

// refer notes what must be loaded before the references can be resolved. What does not exist gives null.
func (p *Program) refer(in *inputs, refs []expr.Ref) {
	for _, r := range refs {
		if r.Root == expr.Workflow {
			in.input = in.input || r.Part == expr.PartInput
			in.variables = in.variables || r.Part == expr.PartVariables
			continue
		}
		slot, ok := p.slots[r.Root]
		switch {
		case !ok:
		case r.Part == expr.PartInput && !p.nodes[slot].echoes():
			in.taskInput = append(in.taskInput, number(slot))
		default:
			in.tasks = append(in.tasks, number(slot))
		}
	}
}

// echoes says whether the output of a completed task is its input, which is then kept once.
func (n *node) echoes() bool {
	return n.kind == execution.KindSetVariable || n.kind == execution.KindTerminate
}

// place names a part of a task.
type place struct {
	taskNo int32
	part   string
}

// ready says whether all that an input refers to is at hand; what is not is noted.
func (m *machine) ready(in *inputs) bool {
	ok := true
	for _, no := range in.tasks {
		_, has := m.task(no)
		ok = ok && has
	}
	for _, no := range in.taskInput {
		_, has := m.inputOf(no)
		ok = ok && has
	}
	if in.input && !m.view.HasInput {
		m.lacks.Input = true
		ok = false
	}
	if in.variables {
		_, has := m.variables()
		ok = ok && has
	}
	return ok
}

// evaluated is what became of a map: its value, or why it has none, a limit that was passed or a path that may not be.
type evaluated struct {
	value map[string]any
	err   error
}

// eval resolves a map. ok is false if values must be loaded first.
func (m *machine) eval(in *inputs, limit int) (v evaluated, ok bool) {
	if in == nil {
		return evaluated{value: map[string]any{}}, true
	}
	if !m.ready(in) {
		return evaluated{}, false
	}
	limits := expr.Limits{Bytes: limit, Depth: execution.MaxDepth}
	value, err := in.value.Eval(m.lookUp, limits)
	if err != nil {
		return evaluated{err: err}, true
	}
	object, _ := value.(map[string]any)
	if in.path == nil {
		return evaluated{value: object}, true
	}
	path, err := in.path.EvalEscaped(m.lookUp, limits, schema.EscapeSegment)
	if err != nil {
		return evaluated{err: err}, true
	}
	object = maps.Clone(object) // the template's own maps are shared
	object[pathKey] = path
	if _, err := jsontext.Measure(object, limit, execution.MaxDepth); err != nil {
		return evaluated{err: err}, true
	}
	return evaluated{value: object}, true
}

// lookUp gives the value of a part of a root. Everything it may need was found ready before.
func (m *machine) lookUp(root, part string) any {
	if root == expr.Workflow {
		return m.ofWorkflow(part)
	}
	slot, ok := m.p.slots[root]
	if !ok {
		return nil
	}
	at := place{number(slot), part}
	if v, ok := m.decoded[at]; ok {
		return v
	}
	v := m.ofTask(&m.p.nodes[slot], part)
	m.remember(at, v)
	return v
}

func (m *machine) ofWorkflow(part string) any {
	switch part {
	case expr.PartInput:
		return m.decodedOnce(place{0, part}, m.view.Input)
	case expr.PartVariables:
		return m.allVariables()
	case expr.PartExecutionID:
		return m.head.Exec.String()
	case expr.PartName:
		return m.p.workflow.Metadata.Name
	case expr.PartVersion:
		if m.p.workflow.Version > 0 {
			return jsontext.Integer(m.p.workflow.Version)
		}
	case expr.PartRevision:
		return jsontext.Integer(int64(m.view.Revision))
	}
	return nil // output until the run ends, correlationId, unknown parts
}

// allVariables decodes the variables, once until one is set.
func (m *machine) allVariables() any {
	at := place{0, expr.PartVariables}
	if v, ok := m.decoded[at]; ok {
		return v
	}
	vars, ok := m.variables()
	if !ok {
		return nil
	}
	all := map[string]any{}
	for name, text := range vars {
		all[name] = decodeLoose(text)
	}
	m.remember(at, all)
	return all
}

func (m *machine) remember(at place, v any) {
	if m.decoded == nil {
		m.decoded = map[place]any{}
	}
	m.decoded[at] = v
}

func (m *machine) decodedOnce(at place, text []byte) any {
	if v, ok := m.decoded[at]; ok {
		return v
	}
	v := decodeLoose(text)
	m.remember(at, v)
	return v
}

// ofTask gives a part of a task: null while it has not ended.
func (m *machine) ofTask(n *node, part string) any {
	no := number(n.slot)
	v, _ := m.task(no)
	switch part {
	case expr.PartOutput:
		if !v.Ended || v.Status == execution.Skipped {
			return nil
		}
		return decodeLoose(orEmpty(v.Output))
	case expr.PartStatus:
		if !v.Ended {
			return nil
		}
		return v.Status.RunName(v.Absorbed)
	case expr.PartInput:
		if n.echoes() {
			if v.Status != execution.Completed {
				return nil
			}
			return decodeLoose(orEmpty(v.Output))
		}
		text, _ := m.inputOf(no)
		if text == nil {
			return nil
		}
		return decodeLoose(text)
	}
	return nil
}

func orEmpty(text []byte) []byte {
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// decodeLoose reads kept JSON; what cannot be read, or is not there, is null.
func decodeLoose(text []byte) any {
	if len(text) == 0 {
		return nil
	}
	v, err := jsontext.Decode(text, jsontext.Limits{})
	if err != nil {
		return nil
	}
	return v
}

// task gives what is known of a task: what this decision wrote, else what was loaded.
func (m *machine) task(no int32) (execution.TaskValue, bool) {
	if row := m.row(no); row != nil {
		return execution.TaskValue{
			Ended: row.NextDueAt.IsZero(), Attempt: row.Attempt, EndedAt: row.EndedAt, Status: row.Status,
			Absorbed: row.Absorbed, Output: row.Output,
		}, true
	}
	v, ok := m.view.Tasks[no]
	if !ok && !m.soon[no] {
		m.lacks.task(no)
	}
	return v, ok
}

// foresee notes, once a decision is known to lack something, what will be asked for when a task has ended well, so that one load
// serves the whole chain. Tasks that end on the way are not asked for.
func (m *machine) foresee(n *node) {
	if m.soon == nil {
		m.soon = map[int32]bool{}
	}
	for range maxRounds {
		m.soon[number(n.slot)] = true
		for _, fork := range n.namedBy {
			m.scope(fork)
		}
		if n.next != none {
			n = &m.p.nodes[n.next]
			if n.input != nil {
				m.ready(n.input)
			}
			if n.kind != execution.KindSetVariable {
				return
			}
			continue
		}
		owner := m.p.lists[n.list].owner
		if owner == none {
			if m.p.output != nil {
				m.ready(m.p.output)
			}
			return
		}
		if n = &m.p.nodes[owner]; n.kind != execution.KindForkJoin {
			continue
		}
		s, ok := m.scope(n.slot)
		if !ok || s == nil || s.Fired || s.Pending > 1 || m.p.nodes[n.join].explicit {
			return
		}
		n = &m.p.nodes[n.join]
		m.joinValues(n)
	}
}

// inputOf gives the resolved input of a task; nil if it has none.
func (m *machine) inputOf(no int32) ([]byte, bool) {
	if s, ok := m.schedules[no]; ok && s.Input != nil {
		return s.Input, true
	}
	if row := m.row(no); row != nil && row.Input != nil {
		return row.Input, true
	}
	text, ok := m.view.Inputs[no]
	if !ok {
		m.lacks.input(no)
	}
	return text, ok
}

// variables gives all variables as they stand now.
func (m *machine) variables() (iter.Seq2[string, []byte], bool) {
	// A workflow that has just started has none but those this decision set.
	fresh := m.view.Header.NextNo <= RootBase
	if !m.view.HasVars && !fresh {
		m.lacks.Vars = true
		return nil, false
	}
	return func(yield func(string, []byte) bool) {
		for name, text := range m.vars {
			if !yield(name, text) {
				return
			}
		}
		if fresh {
			return
		}
		for name, text := range m.view.Vars {
			if _, over := m.vars[name]; !over && !yield(name, text) {
				return
			}
		}
	}, true
}

// lacks gathers what a decision lacked.
type lacks struct {
	Input, Vars                    bool
	scopes, tasks, inputs, budgets map[int32]bool
}

func note(set *map[int32]bool, no int32) {
	if *set == nil {
		*set = map[int32]bool{}
	}
	(*set)[no] = true
}

func (l *lacks) scope(no int32)     { note(&l.scopes, no) }
func (l *lacks) task(no int32)      { note(&l.tasks, no) }
func (l *lacks) input(no int32)     { note(&l.inputs, no) }
func (l *lacks) budget(defID int32) { note(&l.budgets, defID) }

// needs gives it in ascending order.
func (l *lacks) needs() execution.Needs {
	return execution.Needs{
		Scopes: ascending(l.scopes), Tasks: ascending(l.tasks), Inputs: ascending(l.inputs), Budgets: ascending(l.budgets),
		Input: l.Input, Vars: l.Vars,
	}
}

func ascending(set map[int32]bool) []int32 {
	if len(set) == 0 {
		return nil
	}
	all := make([]int32, 0, len(set))
	for no := range set {
		all = append(all, no)
	}
	slices.Sort(all)
	return all
}
