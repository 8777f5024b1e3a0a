package decider

import (
	"nf/runtime/execution"
	"nf/schema"
)

// RootBase is the task number of slot 0 of the root frame; 0 means the execution itself.
const RootBase = 1

// none marks an absent slot or list.
const none int32 = -1

// Program is a workflow revision, compiled once per process and kept by its revision. It is immutable and safe for concurrent use.
//
// Its nodes lie in one frame, the root: SWITCH cases and FORK_JOIN branches lie in the frame around them. A node's slot is its
// place in definition order (a SWITCH's cases by name, its default last), and its task number is RootBase + slot, so a reference
// is a primary key that is known without a search.
type Program struct {
	workflow *schema.Workflow
	ns       int32
	revID    int32
	nodes    []node
	lists    []list
	slots    map[string]int32 // by reference
	output   *inputs          // nil = output of the last completed task
	vars     *inputs          // start values of the variables
}

// node is a task of the workflow.
type node struct {
	task  *schema.Task
	kind  execution.Kind
	class schema.Class
	slot  int32
	list  int32 // the list it stands in
	next  int32 // slot of the next node in its list; none = it is the last
	scope int32 // slot of the innermost fork it lies in; none = root
	input *inputs

	// namedBy are the forks whose join names this node in joinOn: its end counts for them.
	namedBy []int32

	cases    []switchCase // SWITCH, by name
	fallback int32        // SWITCH: list of the default case
	branches []int32      // FORK_JOIN: lists, in order
	join     int32        // FORK_JOIN: slot of its JOIN
	fork     int32        // JOIN: slot of its fork
	explicit bool         // JOIN: has joinOn
	waits    []int32      // JOIN: slots whose outputs it gathers, in definition order
}

type switchCase struct {
	value string
	list  int32
}

// list is a sequence of nodes: the root, a case of a SWITCH or a branch of a fork.
type list struct {
	owner int32 // slot of the operator it belongs to; none = root
	first int32 // none = empty
	last  int32
	// named counts, for a case of a SWITCH, the nodes in it that joins of forks around that SWITCH name: when the case is not taken
	// they can no longer run, so they count as done.
	named []namedCount
}

type namedCount struct {
	fork  int32
	count int32
}

// number gives the task number of a slot; 0 for none, the execution.
func number(slot int32) int32 {
	if slot < 0 {
		return 0
	}
	return RootBase + slot
}

// node gives the node of a task number, nil if the program has none.
func (p *Program) node(taskNo int32) *node {
	slot := taskNo - RootBase
	if slot < 0 || int(slot) >= len(p.nodes) {
		return nil
	}
	return &p.nodes[slot]
}

// Workflow gives what was compiled.
func (p *Program) Workflow() *schema.Workflow { return p.workflow }

// RevID gives the workflow's revision.
func (p *Program) RevID() int32 { return p.revID }

// Len gives the number of tasks; their numbers are RootBase … RootBase + Len − 1.
func (p *Program) Len() int { return len(p.nodes) }

// at gives the node of a slot, nil if the program has none.
func (p *Program) at(slot int32) *node {
	if slot < 0 || int(slot) >= len(p.nodes) {
		return nil
	}
	return &p.nodes[slot]
}

// Task gives the task of a slot, nil if there is none.
func (p *Program) Task(slot int32) *schema.Task {
	if n := p.at(slot); n != nil {
		return n.task
	}
	return nil
}

// Ref gives the reference of a slot, "" if there is none.
func (p *Program) Ref(slot int32) string {
	if n := p.at(slot); n != nil {
		return n.task.Ref
	}
	return ""
}

// SlotOf gives the slot of a reference.
func (p *Program) SlotOf(ref string) (int32, bool) {
	slot, ok := p.slots[ref]
	return slot, ok
}

// NumberOf gives the task number of a reference.
func (p *Program) NumberOf(ref string) (int32, bool) {
	slot, ok := p.slots[ref]
	return number(slot), ok
}
