package decider

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"nf/schema"
)

// generator makes valid workflows.
type generator struct {
	t         *rapid.T
	n         int
	explicit  bool     // joins may name tasks; then no TERMINATE, whose place in a round would depend on more than the tree
	readable  []string // tasks that have ended before, by reference
	variables []string
}

var definitions = []string{"work", "twice", "patient", "alert", "strict", "total"}

// library is what the generated workflows are made of.
func library() *declared {
	return declare(
		plain("work"),
		plain("twice", func(d *schema.TaskDefinition) { d.Retry.RetryCount, d.Retry.Delay, d.Retry.Jitter = 1, 500, 0.5 }),
		plain("patient", func(d *schema.TaskDefinition) {
			d.TimeoutPolicy, d.Timeout, d.ScheduleToStartTimeout = schema.TimeoutRetry, 20_000, 7000
			d.Retry.RetryCount, d.Retry.Delay = 2, 0
		}),
		plain("alert", func(d *schema.TaskDefinition) {
			d.TimeoutPolicy, d.Timeout, d.StartToCloseTimeout, d.TotalTimeout = schema.TimeoutAlertOnly, 9000, 5000, 30_000
		}),
		plain("strict", func(d *schema.TaskDefinition) {
			d.Timeout, d.Retry.RetryCount, d.Retry.NonRetryableErrors = 15_000, 1, []string{"fatal"}
		}),
		plain("total", func(d *schema.TaskDefinition) {
			d.TimeoutPolicy, d.TotalTimeout, d.Retry.RetryCount, d.Retry.Delay = schema.TimeoutRetry, 6000, 9, 1500
		}),
		plain("waiting", func(d *schema.TaskDefinition) { // for WAIT and JOIN
			d.TimeoutPolicy, d.Timeout, d.Retry.RetryCount, d.Retry.Delay = schema.TimeoutRetry, 4000, 1, 1000
		}),
		plain("waitalert", func(d *schema.TaskDefinition) { d.TimeoutPolicy, d.Timeout = schema.TimeoutAlertOnly, 4000 }),
	)
}

func (g *generator) chance(percent int, label string) bool {
	return rapid.IntRange(0, 99).Draw(g.t, label) < percent
}

func (g *generator) ref(kind string) string {
	g.n++
	return fmt.Sprintf("%s%d", kind, g.n)
}

func (g *generator) workflow() *schema.Workflow {
	g.explicit = g.chance(60, "explicit")
	w := workflow(g.list(0, 1, 4)...)
	if g.chance(30, "output") {
		w.OutputParameters = map[string]schema.Value{"o": g.value()}
	}
	if g.chance(20, "deadline") {
		w.Timeout = 60_000
	}
	return w
}

func (g *generator) list(depth, least, most int) []*schema.Task {
	var tasks []*schema.Task
	count := rapid.IntRange(least, most).Draw(g.t, "count")
	for range count {
		tasks = append(tasks, g.tasks(depth)...)
	}
	return tasks
}

// tasks makes one task, or a fork with its join.
func (g *generator) tasks(depth int) []*schema.Task {
	kind := rapid.IntRange(0, 11).Draw(g.t, "kind")
	if depth >= 3 && kind >= 8 {
		kind -= 8
	}
	var t *schema.Task
	switch kind {
	case 0, 1, 2:
		t = simple(g.ref("s"), named(rapid.SampledFrom(definitions).Draw(g.t, "def")), with("in", g.value()))
	case 3:
		t = task(g.ref("h"), schema.TypeHTTP, with("uri", "https://example.com/x"))
	case 4, 5:
		t = g.wait()
	case 6:
		name := g.ref("v")
		t = task(name, schema.TypeSetVariable, with(name, g.value()))
		g.variables = append(g.variables, name)
	case 7:
		if g.explicit || g.chance(60, "no terminate") {
			t = simple(g.ref("s"), named("work"))
			break
		}
		t = task(g.ref("t"), schema.TypeTerminate,
			with("terminationStatus", rapid.SampledFrom([]string{"COMPLETED", "FAILED", "TERMINATED"}).Draw(g.t, "end")))
		return seq(t)
	case 8, 9:
		t = g.choice(depth)
	default:
		return g.fork(depth)
	}
	g.decorate(t)
	g.readable = append(g.readable, t.Ref)
	return seq(t)
}

func (g *generator) decorate(t *schema.Task) {
	t.Optional = g.chance(40, "optional")
	if t.Type.Class() != schema.ClassImmediate && g.chance(20, "retryCount") {
		n := rapid.IntRange(0, 2).Draw(g.t, "retries")
		t.RetryCount = &n
	}
	if g.chance(10, "startDelay") {
		t.StartDelay = 2000
	}
}

func (g *generator) wait() *schema.Task {
	t := task(g.ref("w"), schema.TypeWait, with("duration", rapid.SampledFrom([]any{json.Number("0"), "5s", json.Number("2")}).Draw(g.t, "duration")))
	switch rapid.IntRange(0, 3).Draw(g.t, "limit") {
	case 0:
		t.Timeout = 3000
	case 1:
		t.Definition = rapid.SampledFrom([]string{"waiting", "waitalert"}).Draw(g.t, "def")
	}
	return t
}

// value is a literal or a reference to what has run before.
func (g *generator) value() any {
	choices := []any{"text", true, "${workflow.input.k}", "${workflow.input.gone}"}
	for _, ref := range g.readable {
		choices = append(choices, "${"+ref+".output.k}", "${"+ref+".status}")
	}
	for _, name := range g.variables {
		choices = append(choices, "${workflow.variables."+name+"}")
	}
	return rapid.SampledFrom(choices).Draw(g.t, "value")
}

func (g *generator) choice(depth int) *schema.Task {
	t := choice(g.ref("c"), "", map[string][]*schema.Task{})
	t.InputParameters["v"] = g.value()
	for _, name := range []string{"a", "b", "true"}[:rapid.IntRange(1, 3).Draw(g.t, "cases")] {
		t.DecisionCases[name] = g.apart(depth+1, 0, 2)
	}
	t.DefaultCase = g.apart(depth+1, 0, 2)
	return t
}

// apart makes a list whose tasks nobody outside it reads.
func (g *generator) apart(depth, least, most int) []*schema.Task {
	readable, variables := slices.Clone(g.readable), slices.Clone(g.variables)
	tasks := g.list(depth, least, most)
	g.readable, g.variables = readable, variables
	return tasks
}

func (g *generator) fork(depth int) []*schema.Task {
	f := task(g.ref("f"), schema.TypeForkJoin)
	for range rapid.IntRange(1, 3).Draw(g.t, "branches") {
		f.ForkTasks = append(f.ForkTasks, g.apart(depth+1, 1, 2))
	}
	j := task(g.ref("j"), schema.TypeJoin)
	if g.explicit && g.chance(70, "joinOn") {
		all := refsIn(f.ForkTasks)
		j.JoinOn = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, min(3, len(all)), rapid.ID[string]).Draw(g.t, "names")
	}
	switch rapid.IntRange(0, 5).Draw(g.t, "join limit") {
	case 0:
		j.Definition = "waiting"
	case 1:
		j.Definition = "waitalert"
	}
	j.Optional = g.chance(50, "optional join")
	if g.chance(10, "late join") {
		j.StartDelay = 3000
	}
	if g.chance(10, "late fork") {
		f.StartDelay = 1000
	}
	g.readable = append(g.readable, j.Ref)
	return seq(f, j)
}

func refsIn(lists [][]*schema.Task) []string {
	var refs []string
	for _, tasks := range lists {
		for _, t := range tasks {
			refs = append(refs, t.Ref)
			for _, key := range slices.Sorted(maps.Keys(t.DecisionCases)) {
				refs = append(refs, refsIn([][]*schema.Task{t.DecisionCases[key]})...)
			}
			refs = append(refs, refsIn([][]*schema.Task{t.DefaultCase})...)
			refs = append(refs, refsIn(t.ForkTasks)...)
		}
	}
	return refs
}
