package decider

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"nf/runtime/execution"
	"nf/schema"
)

// Errors of Compile that callers may branch on.
var (
	// ErrStructure says that the tasks of a workflow do not fit together; `nf validate` refuses such a workflow.
	ErrStructure = errors.New("workflow structure")
	// ErrExpression says that an expression does not parse.
	ErrExpression = errors.New("expression")
)

// Compile turns a workflow revision into a Program. ns is the internal number of its namespace. What the loader's checks accept
// always compiles; the errors wrap ErrStructure or ErrExpression and name the task.
func Compile(w *schema.Workflow, ns, revID int32) (*Program, error) {
	p := &Program{workflow: w, ns: ns, revID: revID, slots: map[string]int32{}}
	if w == nil || len(w.Tasks) == 0 {
		return nil, fmt.Errorf("%w: no tasks", ErrStructure)
	}
	if _, err := p.addList(w.Tasks, none, none); err != nil {
		return nil, err
	}
	if err := p.linkJoins(); err != nil {
		return nil, err
	}
	p.linkCases()
	if err := p.parse(); err != nil {
		return nil, err
	}
	return p, nil
}

// addList lays out a list of tasks and everything nested in it, in definition order.
func (p *Program) addList(tasks []*schema.Task, owner, scope int32) (int32, error) {
	at := int32(len(p.lists)) //nolint:gosec // at most 20,000 tasks
	p.lists = append(p.lists, list{owner: owner, first: none, last: none})
	previous := none
	for _, t := range tasks {
		slot, err := p.addNode(t, at, scope)
		if err != nil {
			return none, err
		}
		if previous == none {
			p.lists[at].first = slot
		} else {
			p.nodes[previous].next = slot
		}
		previous = slot
	}
	p.lists[at].last = previous
	return at, nil
}

func (p *Program) addNode(t *schema.Task, in, scope int32) (int32, error) {
	kind := execution.KindOf(t.Type)
	if kind == 0 {
		return none, fmt.Errorf("%w: task %q: type %q is unknown", ErrStructure, t.Ref, t.Type)
	}
	if _, twice := p.slots[t.Ref]; twice {
		return none, fmt.Errorf("%w: task %q stands twice", ErrStructure, t.Ref)
	}
	slot := int32(len(p.nodes)) //nolint:gosec // at most 20,000 tasks
	p.slots[t.Ref] = slot
	p.nodes = append(p.nodes, node{
		task: t, kind: kind, class: t.Type.Class(), slot: slot, list: in, next: none, scope: scope,
		fallback: none, join: none, fork: none,
	})
	switch kind {
	case execution.KindSwitch:
		return slot, p.addCases(slot, t, scope)
	case execution.KindForkJoin:
		return slot, p.addBranches(slot, t)
	default:
		return slot, nil
	}
}

func (p *Program) addCases(slot int32, t *schema.Task, scope int32) error {
	var cases []switchCase
	for _, value := range slices.Sorted(maps.Keys(t.DecisionCases)) {
		l, err := p.addList(t.DecisionCases[value], slot, scope)
		if err != nil {
			return err
		}
		cases = append(cases, switchCase{value, l})
	}
	fallback, err := p.addList(t.DefaultCase, slot, scope)
	if err != nil {
		return err
	}
	p.nodes[slot].cases, p.nodes[slot].fallback = cases, fallback
	return nil
}

func (p *Program) addBranches(slot int32, t *schema.Task) error {
	var branches []int32
	for _, tasks := range t.ForkTasks {
		if len(tasks) == 0 {
			return fmt.Errorf("%w: task %q: a branch is empty", ErrStructure, t.Ref)
		}
		l, err := p.addList(tasks, slot, slot)
		if err != nil {
			return err
		}
		branches = append(branches, l)
	}
	if len(branches) == 0 {
		return fmt.Errorf("%w: task %q: no branches", ErrStructure, t.Ref)
	}
	p.nodes[slot].branches = branches
	return nil
}

// linkJoins ties each fork to the JOIN behind it and finds what the join waits for.
func (p *Program) linkJoins() error {
	for i := range p.nodes {
		fork := &p.nodes[i]
		if fork.kind != execution.KindForkJoin {
			continue
		}
		if fork.next == none || p.nodes[fork.next].kind != execution.KindJoin {
			return fmt.Errorf("%w: task %q: the next task must be its JOIN", ErrStructure, fork.task.Ref)
		}
		join := &p.nodes[fork.next]
		fork.join, join.fork = join.slot, fork.slot
		if err := p.linkJoin(fork, join); err != nil {
			return err
		}
	}
	for i := range p.nodes {
		if n := &p.nodes[i]; n.kind == execution.KindJoin && n.fork == none {
			return fmt.Errorf("%w: task %q: a JOIN stands right after its FORK_JOIN", ErrStructure, n.task.Ref)
		}
	}
	return nil
}

func (p *Program) linkJoin(fork, join *node) error {
	if join.task.JoinOn == nil {
		for _, l := range fork.branches {
			join.waits = append(join.waits, p.lists[l].last)
		}
		return nil
	}
	join.explicit = true
	for _, ref := range join.task.JoinOn {
		slot, ok := p.slots[ref]
		if !ok || !p.inside(slot, fork.slot) {
			return fmt.Errorf("%w: task %q: joinOn names %q, which is no task of its fork", ErrStructure, join.task.Ref, ref)
		}
		if !slices.Contains(join.waits, slot) {
			join.waits = append(join.waits, slot)
			p.nodes[slot].namedBy = append(p.nodes[slot].namedBy, fork.slot)
		}
	}
	if len(join.waits) == 0 {
		return fmt.Errorf("%w: task %q: joinOn is empty", ErrStructure, join.task.Ref)
	}
	slices.Sort(join.waits)
	return nil
}

// inside says whether a node lies in a branch of a fork, at any depth.
func (p *Program) inside(slot, fork int32) bool {
	for scope := p.nodes[slot].scope; scope != none; scope = p.nodes[scope].scope {
		if scope == fork {
			return true
		}
	}
	return false
}

// linkCases counts for each case of each SWITCH the nodes in it that joins around the SWITCH name.
func (p *Program) linkCases() {
	for i := range p.nodes {
		n := &p.nodes[i]
		if len(n.namedBy) == 0 {
			continue
		}
		for l := n.list; p.lists[l].owner != none; l = p.nodes[p.lists[l].owner].list {
			owner := &p.nodes[p.lists[l].owner]
			if owner.kind != execution.KindSwitch {
				continue
			}
			for _, fork := range n.namedBy {
				if p.inside(owner.slot, fork) {
					p.lists[l].count(fork)
				}
			}
		}
	}
}

func (l *list) count(fork int32) {
	for i := range l.named {
		if l.named[i].fork == fork {
			l.named[i].count++
			return
		}
	}
	l.named = append(l.named, namedCount{fork, 1})
}
