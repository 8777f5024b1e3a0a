package check

import (
	"fmt"
	"slices"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/expr"
)

// expressions parses every template of a workflow (NF3201, NF3202) and holds references to tasks that have run (NF3203,
// NF3204).
func expressions(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	if w == nil {
		return
	}
	s := &scopes{checker: c, workflow: w, at: map[string]placed{}}
	for _, p := range tasks {
		if _, twice := s.at[p.task.Ref]; !twice {
			s.at[p.task.Ref] = p
		}
	}
	for _, p := range tasks {
		for _, ref := range s.parse(p.task.InputParameters, p.pointer+"/inputParameters") {
			s.fromTask(p, ref)
		}
	}
	for _, ref := range s.parse(w.Variables, "/spec/variables") {
		if ref.Root != expr.Workflow {
			s.report("NF3204", ref, "variables are set before any task runs, so ${%s} names nothing yet", ref.Source).
				Hint = "set it later with a SET_VARIABLE task"
		}
	}
	for _, ref := range s.parse(w.OutputParameters, "/spec/outputParameters") {
		if ref.Root != expr.Workflow {
			s.known(ref)
		}
	}
}

// scopes knows the tasks of one workflow.
type scopes struct {
	*checker
	workflow *schema.Workflow
	at       map[string]placed
}

// parse gives the references of a map of values and reports what is wrong with their texts.
func (s *scopes) parse(values map[string]schema.Value, pointer string) []expr.Ref {
	if len(values) == 0 {
		return nil
	}
	template, list := expr.ParseValueAt(values, pointer)
	for _, d := range list {
		s.add(d)
	}
	if len(list) > 0 {
		return nil
	}
	return template.Refs()
}

// report adds a finding about a reference.
func (s *scopes) report(code diag.Code, ref expr.Ref, format string, args ...any) *diag.Diagnostic {
	return s.add(diag.Newf(code, ref.Pointer, format, args...).Within(ref.Span))
}

// known reports a reference to a task that does not exist (NF3203).
func (s *scopes) known(ref expr.Ref) bool {
	if _, ok := s.at[ref.Root]; ok {
		return true
	}
	d := s.report("NF3203", ref, "${%s} names task %q, which workflow %q does not have", ref.Source, ref.Root, s.workflow.Metadata.Name)
	if near := diag.Nearest(ref.Root, append(sortedKeys(s.at), expr.Workflow)); len(near) > 0 {
		d.Hint = diag.Suggest(near)
	} else {
		d.Hint = "write the taskReferenceName of a task that runs before; $${ writes a literal ${"
	}
	return false
}

// fromTask holds one reference of a task's input.
func (s *scopes) fromTask(p placed, ref expr.Ref) {
	if ref.Root == expr.Workflow || !s.known(ref) {
		return
	}
	target := s.at[ref.Root]
	why, hint := s.notYet(p, target)
	if why == "" {
		return
	}
	d := s.report("NF3204", ref, "${%s}: %s", ref.Source, why)
	d.Hint = hint
	*d = d.RelatedAt(target.pointer+"/taskReferenceName", fmt.Sprintf("task %q", ref.Root))
}

// notYet says why a task may not have run when another one's input is resolved, "" if it has run (or its branch was not
// taken, which gives null).
//
// The lists around the reader are compared with those around the other task: in the list that holds both, the other one, or
// the operator that holds it, must stand before the reader or the operator that holds that.
func (s *scopes) notYet(p, target placed) (why, hint string) {
	if p.task == target.task {
		return "a task cannot refer to itself", "its own input and output are not known yet"
	}
	readers := chain(p)
	loose := "" // a fork between the two, whose join does not wait for the target
	for _, step := range chain(target) {
		i := slices.IndexFunc(readers, func(r rung) bool { return r.list == step.list })
		if i < 0 {
			if step.held && loose == "" {
				loose = s.unjoined(step, target)
			}
			continue
		}
		reader := readers[i]
		switch {
		case step.index == reader.index && step.held && reader.held:
			// both below one operator, in different lists of it
			if step.list.tasks[step.index].Type == schema.TypeForkJoin {
				return fmt.Sprintf("task %q runs in another branch, which is not joined before", target.task.Ref), "read it after the JOIN"
			}
			return fmt.Sprintf("task %q is in another case of the same SWITCH, so never both run", target.task.Ref), "read it after the SWITCH"
		case step.index == reader.index && reader.held:
			return "", "" // the operator that holds the reader: decided before
		case step.index == reader.index && step.held:
			return fmt.Sprintf("task %q is inside %q, which has not run yet", target.task.Ref, p.task.Ref), "read it after " + p.task.Ref
		case step.index >= reader.index:
			return fmt.Sprintf("task %q runs later", target.task.Ref), "move it before, or read something that is known by then"
		case !step.held:
			return "", ""
		case step.list.tasks[step.index].Type == schema.TypeForkJoin && reader.index == step.index+1 && !reader.held:
			return fmt.Sprintf("a JOIN opens together with its fork, before task %q has run", target.task.Ref), "read it in a task after the JOIN"
		}
		if loose == "" {
			loose = s.unjoined(step, target)
		}
		if loose != "" {
			return fmt.Sprintf("task %q runs in a branch that join %q does not wait for", target.task.Ref, loose), "add it to joinOn"
		}
		return "", ""
	}
	return "", ""
}

// unjoined gives the join that does not wait for a task below the fork at a place, "" if that is no fork or its join waits.
// A fork without a join is another finding (NF3106).
func (s *scopes) unjoined(step rung, target placed) string {
	if step.list.tasks[step.index].Type != schema.TypeForkJoin || step.index+1 >= len(step.list.tasks) {
		return ""
	}
	join := step.list.tasks[step.index+1]
	if join.Type != schema.TypeJoin || len(join.JoinOn) == 0 {
		return ""
	}
	for _, name := range join.JoinOn {
		on, ok := s.at[name]
		if ok && (on.task == target.task || s.doneWith(on, target)) {
			return ""
		}
	}
	return join.Ref
}

// doneWith says whether a task has run for sure when another one is done, seen from the place right after that one. What
// stands inside an operator is not done with it: a SWITCH or fork is done as soon as it is decided.
func (s *scopes) doneWith(on, target placed) bool {
	within := false
	inside(on.task, func(t *schema.Task) { within = within || t == target.task })
	if within {
		return false
	}
	why, _ := s.notYet(placed{task: &schema.Task{}, list: on.list, index: on.index + 1}, target)
	return why == ""
}

// rung is a place in a list: of a task itself, or of the operator that holds it.
type rung struct {
	list  *taskList
	index int
	held  bool // the task is below the operator at index
}

// chain gives a task's place in its own list, then that of each operator around it.
func chain(p placed) []rung {
	out := []rung{{p.list, p.index, false}}
	for l := p.list; l.parent != nil; l = l.parent {
		out = append(out, rung{l.parent, l.at, true})
	}
	return out
}
