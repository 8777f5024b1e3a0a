package check

import (
	"strconv"

	"nf/schema"
	"nf/schema/jsontext"
)

// placed is a task with its place in the workflow.
type placed struct {
	task    *schema.Task
	pointer string
	list    *taskList
	index   int // in list
}

// taskList is a list of tasks: the workflow's own, a case of a SWITCH, or a branch of a FORK_JOIN.
type taskList struct {
	tasks  []*schema.Task
	owner  *schema.Task // operator that holds the list, nil for the workflow's own
	parent *taskList    // list that the owner stands in
	at     int          // place of the owner in parent
}

// place lists all tasks of a workflow, each operator before what it holds, in the order of the manifest (cases by name).
func place(w *schema.Workflow) []placed {
	p := &placer{}
	p.list(&taskList{tasks: w.Tasks}, "/spec/tasks")
	return p.out
}

type placer struct{ out []placed }

func (p *placer) list(l *taskList, pointer string) {
	for i, t := range l.tasks {
		at := pointer + "/" + strconv.Itoa(i)
		p.out = append(p.out, placed{t, at, l, i})
		for _, key := range sortedKeys(t.DecisionCases) {
			p.list(&taskList{t.DecisionCases[key], t, l, i}, at+"/decisionCases/"+jsontext.EscapePointer(key))
		}
		p.list(&taskList{t.DefaultCase, t, l, i}, at+"/defaultCase")
		for b, branch := range t.ForkTasks {
			p.list(&taskList{branch, t, l, i}, at+"/forkTasks/"+strconv.Itoa(b))
		}
	}
}

// inside calls visit for every task that an operator holds, at any depth.
func inside(t *schema.Task, visit func(*schema.Task)) {
	each := func(list []*schema.Task) {
		for _, in := range list {
			visit(in)
			inside(in, visit)
		}
	}
	for _, key := range sortedKeys(t.DecisionCases) {
		each(t.DecisionCases[key])
	}
	each(t.DefaultCase)
	for _, branch := range t.ForkTasks {
		each(branch)
	}
}
