package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/loader/check"
	"nf/schema"
)

// task makes a task that reads others.
func task(ref string, reads ...string) *schema.Task {
	t := &schema.Task{Ref: ref, Type: schema.TypeSetVariable, InputParameters: map[string]schema.Value{"v": 1}}
	for _, r := range reads {
		t.InputParameters[r] = "${" + r + ".output}"
	}
	return t
}

func fork(ref string, branches ...[]*schema.Task) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeForkJoin, ForkTasks: branches}
}

func join(ref string, on ...string) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeJoin, JoinOn: on}
}

func choice(ref string, cases map[string][]*schema.Task, otherwise ...*schema.Task) *schema.Task {
	return &schema.Task{
		Ref: ref, Type: schema.TypeSwitch, EvaluatorType: "value-param", Expression: "x", InputParameters: map[string]schema.Value{"x": 1},
		DecisionCases: cases, DefaultCase: otherwise,
	}
}

func list(tasks ...*schema.Task) []*schema.Task { return tasks }

// refused gives "reader reads target" for each NF3204 of a workflow, and fails on any other finding.
func refused(t require.TestingT, tasks []*schema.Task) map[string]bool {
	w := &schema.Workflow{Metadata: schema.Metadata{Name: "w", Namespace: "a"}, Tasks: tasks}
	out := map[string]bool{}
	byPointer := map[string]string{}
	var walk func(l []*schema.Task, at string)
	walk = func(l []*schema.Task, at string) {
		for i, task := range l {
			p := fmt.Sprintf("%s/%d", at, i)
			byPointer[p] = task.Ref
			for key, in := range task.DecisionCases {
				walk(in, p+"/decisionCases/"+key)
			}
			walk(task.DefaultCase, p+"/defaultCase")
			for b, in := range task.ForkTasks {
				walk(in, fmt.Sprintf("%s/forkTasks/%d", p, b))
			}
		}
	}
	walk(tasks, "/spec/tasks")
	for _, d := range check.All(check.Input{Objects: []schema.Object{w}}) {
		require.EqualValues(t, "NF3204", d.Code, d.Message)
		at, read, _ := strings.Cut(d.Pointer, "/inputParameters/")
		out[byPointer[at]+" reads "+read] = true
	}
	return out
}

func TestReachability(t *testing.T) {
	t.Parallel()
	got := refused(t, list(
		task("first", "last"),
		fork("f",
			list(task("l1", "first", "f", "r1"), choice("l2", map[string][]*schema.Task{"1": list(task("l21", "l1", "l2"))}, task("l22", "l21")), task("l3", "l21", "l22")),
			list(fork("inner", list(task("i1")), list(task("i2"))), join("ij", "i1"), task("r1", "i1", "i2", "ij")),
			list(task("loose1"), task("loose2", "loose1")),
		),
		join("j", "l3", "r1", "loose1"),
		task("after", "l1", "l21", "l22", "l3", "i1", "i2", "r1", "loose1", "loose2", "j", "f"),
		choice("s", map[string][]*schema.Task{"a": list(task("a1", "after"), task("a2", "a1", "b1"))}, task("b1", "a1")),
		task("last", "a1", "b1", "s"),
	))
	require.Equal(t, map[string]bool{
		"first reads last": true, "l1 reads r1": true, "l22 reads l21": true, "r1 reads i2": true, "after reads i2": true, "after reads loose2": true,
		"a2 reads b1": true, "b1 reads a1": true,
	}, got)
}

// TestReachabilityAgainstAModel runs random workflows in random orders: what the check accepts has always ended (or its branch
// was not taken) when it is read, and what it refuses was once read too early.
func TestReachabilityAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t}
		tasks := m.list(0)
		refs := m.refs
		for _, r := range m.leaves {
			for _, target := range refs {
				r.InputParameters[target] = "${" + target + ".output}"
			}
		}
		bad := refused(t, tasks)
		early := map[string]bool{}
		for range 25 {
			m.run(tasks, early, refs)
		}
		for pair := range early {
			require.True(t, bad[pair], "%s before it has run, and the check accepts it: %s", pair, describe(tasks))
		}
	})
}

// describe writes a task list in short: f{…|…} is a fork, j(…) its join, s<…:…> a switch.
func describe(tasks []*schema.Task) string {
	var parts []string
	for _, t := range tasks {
		switch t.Type {
		case schema.TypeForkJoin:
			parts = append(parts, t.Ref+"{"+describe(t.ForkTasks[0])+"|"+describe(t.ForkTasks[1])+"}")
		case schema.TypeSwitch:
			parts = append(parts, t.Ref+"<"+describe(t.DecisionCases["1"])+":"+describe(t.DefaultCase)+">")
		case schema.TypeJoin:
			parts = append(parts, t.Ref+"("+strings.Join(t.JoinOn, ",")+")")
		default:
			parts = append(parts, t.Ref)
		}
	}
	return strings.Join(parts, " ")
}

// model makes workflows and runs them, one task at a time, in an order that it draws.
type model struct {
	t      *rapid.T
	count  int
	refs   []string
	leaves []*schema.Task
}

func (m *model) name() string {
	m.count++
	ref := fmt.Sprintf("t%d", m.count)
	m.refs = append(m.refs, ref)
	return ref
}

func (m *model) list(depth int) []*schema.Task {
	var out []*schema.Task
	for range rapid.IntRange(1, 3).Draw(m.t, "tasks") {
		kind := rapid.IntRange(0, 4).Draw(m.t, "kind")
		switch {
		case kind == 0 && depth < 3:
			f := fork(m.name(), m.list(depth+1), m.list(depth+1))
			j := join(m.name())
			if rapid.Bool().Draw(m.t, "joinOn") {
				branch := f.ForkTasks[rapid.IntRange(0, 1).Draw(m.t, "branch")]
				j.JoinOn = []string{branch[rapid.IntRange(0, len(branch)-1).Draw(m.t, "on")].Ref}
			}
			out = append(out, f, j)
		case kind == 1 && depth < 3:
			out = append(out, choice(m.name(), map[string][]*schema.Task{"1": m.list(depth + 1)}, m.list(depth+1)...))
		default:
			leaf := task(m.name())
			m.leaves = append(m.leaves, leaf)
			out = append(out, leaf)
		}
	}
	return out
}

// thread runs a list of tasks.
type thread struct {
	list []*schema.Task
	at   int
	done func() // after its last task
}

// run executes the tasks in one random order and notes which reads came before what they read had run or was skipped.
func (m *model) run(tasks []*schema.Task, early map[string]bool, refs []string) {
	ended := map[string]bool{}
	var skip func(l []*schema.Task)
	skip = func(l []*schema.Task) {
		for _, s := range l {
			ended[s.Ref] = true
			for _, in := range s.DecisionCases {
				skip(in)
			}
			skip(s.DefaultCase)
			for _, in := range s.ForkTasks {
				skip(in)
			}
		}
	}
	threads := []*thread{{list: tasks}}
	rest := map[string]int{} // fork → branches that run
	for len(threads) > 0 {
		i := rapid.IntRange(0, len(threads)-1).Draw(m.t, "next")
		th := threads[i]
		if th.at == len(th.list) {
			threads = append(threads[:i:i], threads[i+1:]...)
			if th.done != nil {
				th.done()
			}
			continue
		}
		now := th.list[th.at]
		switch now.Type {
		case schema.TypeForkJoin:
			ended[now.Ref] = true
			rest[now.Ref] = len(now.ForkTasks)
			for _, branch := range now.ForkTasks {
				threads = append(threads, &thread{list: branch, done: func() { rest[now.Ref]-- }})
			}
		case schema.TypeJoin:
			open := len(now.JoinOn) == 0 && rest[th.list[th.at-1].Ref] > 0
			for _, on := range now.JoinOn {
				open = open || !ended[on]
			}
			if open {
				continue
			}
			ended[now.Ref] = true
		case schema.TypeSwitch:
			taken, other := now.DecisionCases["1"], now.DefaultCase
			if rapid.Bool().Draw(m.t, "default") {
				taken, other = other, taken
			}
			skip(other)
			ended[now.Ref] = true
			// the case runs in place of the switch: the thread goes on when it ends
			threads[i] = &thread{list: taken, done: func() { th.at++; threads = append(threads, th) }}
			continue
		default:
			for _, ref := range refs {
				if !ended[ref] && ref != now.Ref {
					early[now.Ref+" reads "+ref] = true
				}
			}
			ended[now.Ref] = true
		}
		th.at++
	}
}
