package decider

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/runtime/execution"
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

// fact draws one thing that may happen to an open attempt.
func fact(t *rapid.T, w *world, ref string) execution.Fact {
	at := w.at(ref)
	var may []execution.Fact
	for _, class := range []execution.DeadlineClass{
		execution.ClassScheduleToStart, execution.ClassStartToClose, execution.ClassTaskTimeout, execution.ClassTotal,
	} {
		if d := *armed(&at, class); !d.IsZero() {
			may = append(may, execution.DeadlineMissed{Attempt: at, Class: class, Reason: "late"})
		}
	}
	if at.Kind.Class().Dispatched() {
		if at.Place != execution.InLease && len(may) > 0 && rapid.IntRange(0, 9).Draw(t, "expire") == 0 {
			return w.due(rapid.SampledFrom(may).Draw(t, "fact"))
		}
		k := rapid.SampledFrom([]string{`{"k":"a"}`, `{"k":"b"}`, `{"k":true}`, ``}).Draw(t, "out")
		failed := w.failed(ref, rapid.SampledFrom([]string{"oops", "fatal oops"}).Draw(t, "reason"))
		failed.MinWait, failed.Source = schema.Millis(rapid.SampledFrom([]int{0, 0, 700}).Draw(t, "min")), "worker"
		unknown := failed
		unknown.Cause = execution.CauseOutcomeUnknown
		may = append(may, w.completed(ref, k), w.completed(ref, k), w.completed(ref, k), failed, failed, w.failedForGood(ref, "bad"), unknown)
	}
	if at.Place == execution.InTimer && at.Why == execution.WhyWait {
		may = append(may, execution.WaitElapsed{Attempt: at}, execution.WaitElapsed{Attempt: at})
	}
	if len(may) == 0 {
		return nil
	}
	return w.due(rapid.SampledFrom(may).Draw(t, "fact"))
}

// due moves time on until a fact may be true.
func (w *world) due(f execution.Fact) execution.Fact {
	switch f := f.(type) {
	case execution.DeadlineMissed:
		w.now = latestOf(w.now, *armed(&f.Attempt, f.Class))
		if at, ok := w.open[f.Attempt.TaskNo]; ok {
			f.Attempt = at
		}
		if armed(&f.Attempt, f.Class).IsZero() {
			return nil
		}
		return f
	case execution.WaitElapsed:
		w.now = latestOf(w.now, f.Attempt.VisibleAt)
		if !f.Attempt.AttBy.IsZero() && f.Attempt.AttBy.Before(f.Attempt.VisibleAt) {
			return nil // the deadline comes first
		}
	}
	return f
}

func TestDeciderEqualsTheOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		wf, defs, input := g.workflow(), library(), `{"k":"a"}`
		w, o := newWorld(t, wf, defs, input), newOracle(wf, defs, input)
		spent := rapid.Bool().Draw(t, "budget")
		for id := int32(1); id <= int32(len(defs.current)); id++ {
			b := execution.Budget{Limit: 1}
			if spent {
				b = execution.Budget{Limit: 0.3, Total: 18, Retries: 5}
			}
			w.limit[id], w.budget[id], o.budget[id] = b.Limit, b, b
		}
		both := func(facts ...execution.Fact) {
			w.step(facts...)
			o.step(w.now, facts)
			compare(t, w, o)
		}
		both(execution.Started{})
		for range 60 {
			if w.closed != nil {
				require.Empty(t, w.open)
				return
			}
			waits(t, w)
			facts := draw(t, w)
			if len(facts) == 0 {
				continue
			}
			twice(t, w, facts)
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "pass")) * time.Millisecond)
			both(facts...)
		}
	})
}

// draw picks one to three things that happen together.
func draw(t *rapid.T, w *world) []execution.Fact {
	if rapid.IntRange(0, 99).Draw(t, "rare") == 0 {
		return []execution.Fact{rapid.SampledFrom([]execution.Fact{
			execution.WorkflowTimedOut{}, execution.TerminateRequested{Reason: "stop", Actor: "me"},
		}).Draw(t, "end")}
	}
	var facts []execution.Fact
	refs := w.openRefs()
	for _, ref := range rapid.Permutation(refs).Draw(t, "order")[:min(len(refs), rapid.IntRange(1, 3).Draw(t, "together"))] {
		if f := fact(t, w, ref); f != nil {
			facts = append(facts, f)
		}
	}
	return facts
}

// waits holds a run that has not ended to having something that will move it on.
func waits(t *rapid.T, w *world) {
	if len(w.open) == 0 && len(w.marks) == 0 {
		require.Fail(t, "the execution waits for nothing", "scopes %v", w.scopes)
	}
	for _, at := range w.open {
		if at.Kind == execution.KindJoin {
			continue
		}
		require.True(t, at.Place != execution.InTimer || !at.VisibleAt.IsZero() || !at.AttBy.IsZero(), "nothing ends %d", at.TaskNo)
	}
}

// twice holds the decider to giving the same bytes for the same input, and to a repeated fact changing nothing.
func twice(t *rapid.T, w *world, facts []execution.Fact) {
	first := text(t, w.decide(facts...))
	require.Equal(t, first, text(t, w.decide(facts...)))
	repeated := w.decide(append(slices.Clone(facts), facts...)...)
	once := w.decide(facts...)
	repeated.Dropped = once.Dropped
	require.Equal(t, first, text(t, repeated))
}

func text(t *rapid.T, d execution.Decision) string {
	b, err := json.Marshal(d)
	require.NoError(t, err)
	return string(b)
}

// fate is what must agree about a row.
type fate struct {
	Status    string
	Cause     execution.Cause
	Absorbed  bool
	Exhausted bool
	Control   string
	Next      string
	Output    string
}

func fateOf(row execution.TaskRow) fate {
	f := fate{row.Status.String(), row.Cause, row.Absorbed, row.Exhausted, row.Control, "", ""}
	if !row.NextDueAt.IsZero() {
		f.Next = row.NextDueAt.Format(time.RFC3339Nano)
	}
	if len(row.Output) > 0 {
		var v any
		if err := json.Unmarshal(row.Output, &v); err != nil {
			panic(err)
		}
		f.Output = fmt.Sprint(v)
	}
	return f
}

func compare(t *rapid.T, w *world, o *oracle) {
	rows, must := map[string]fate{}, map[string]fate{}
	for _, row := range w.rows {
		rows[fmt.Sprintf("%s/%d", w.p.Ref(row.TaskNo-1), row.Attempt)] = fateOf(row)
	}
	for ref, r := range o.runs {
		for _, row := range r.rows {
			must[fmt.Sprintf("%s/%d", ref, row.Attempt)] = fateOf(row)
		}
	}
	require.Equal(t, must, rows)
	open, mustBeOpen := map[string]execution.Attempt{}, map[string]execution.Attempt{}
	for _, at := range w.open {
		open[w.p.Ref(at.Slot)] = comparable(at)
	}
	for ref, r := range o.runs {
		if r.open != nil {
			at := *r.open
			if claimed, ok := w.open[at.TaskNo]; ok && claimed.Place == execution.InLease { // claims are the world's
				at.Place, at.Why, at.StartBy = execution.InLease, 0, time.Time{}
			}
			mustBeOpen[ref] = comparable(at)
		}
	}
	require.Equal(t, mustBeOpen, open)
	require.Equal(t, o.closed == nil, w.closed == nil)
	if w.closed != nil {
		require.Equal(t, o.closed.Status, w.closed.Status)
		require.Equal(t, o.closed.Cause, w.closed.Cause)
		require.Equal(t, o.closed.FailedRef, w.closed.FailedRef)
		if w.closed.Status == execution.Completed {
			require.Equal(t, fateOf(execution.TaskRow{Output: o.closed.Output}), fateOf(execution.TaskRow{Output: w.closed.Output}))
		}
		return
	}
	require.Equal(t, o.scopes(), w.scopes)
	require.Equal(t, o.loose(), w.head.Loose)
	for id, b := range o.budget {
		require.Equal(t, b.Total, w.budget[id].Total)
		require.Equal(t, b.Retries, w.budget[id].Retries)
	}
	vars := map[string]any{}
	for name, v := range w.vars {
		var value any
		require.NoError(t, json.Unmarshal(v, &value))
		vars[name] = value
	}
	require.Equal(t, o.vars, vars)
}

// comparable keeps of an attempt what both must agree about.
func comparable(at execution.Attempt) execution.Attempt {
	return execution.Attempt{
		TaskNo: at.TaskNo, Attempt: at.Attempt, Kind: at.Kind, DefID: at.DefID, DefRev: at.DefRev, RetriesLeft: at.RetriesLeft,
		ScheduledAt: at.ScheduledAt, VisibleAt: at.VisibleAt, StartBy: at.StartBy, AttBy: at.AttBy, TotalBy: at.TotalBy,
		Place: at.Place, Why: at.Why,
	}
}
