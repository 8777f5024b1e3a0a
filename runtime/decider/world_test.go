package decider

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/schema"
)

// t0 is the start of every test's time.
var t0 = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

var testExec = func() execution.UUID {
	id, err := execution.ParseUUID("0198c7a0-0000-7000-8000-000000000001")
	if err != nil {
		panic(err)
	}
	return id
}()

// failer is what the world needs of a test, or of a rapid check.
type failer interface {
	require.TestingT
	Helper()
}

// declared is a Definitions with task definitions by name. An edit adds a revision; old ones stay readable.
type declared struct {
	current map[string]execution.Pinned
	revs    map[int32]execution.Pinned
	targets map[schema.Ref]execution.TargetRef
}

func (d *declared) Task(_ int32, name string) (execution.Pinned, bool) {
	p, ok := d.current[name]
	return p, ok
}

func (d *declared) TaskRev(_, rev int32) (execution.Pinned, bool) {
	p, ok := d.revs[rev]
	return p, ok
}

func (d *declared) Target(ref schema.Ref) (execution.TargetRef, bool) {
	t, ok := d.targets[ref]
	return t, ok
}

func (d *declared) put(def *schema.TaskDefinition) execution.Pinned {
	name := def.Metadata.Name
	id := int32(len(d.current)) + 1
	if old, ok := d.current[name]; ok {
		id = old.DefID
	}
	p := execution.Pinned{DefID: id, DefRev: int32(len(d.revs)) + 100, Def: def}
	d.current[name], d.revs[p.DefRev] = p, p
	return p
}

// plain is a definition with the defaults of contract 1.4, but without jitter.
func plain(name string, changes ...func(*schema.TaskDefinition)) *schema.TaskDefinition {
	def := &schema.TaskDefinition{
		Metadata: schema.Metadata{Name: name, Namespace: "default"}, Retry: schema.DefaultRetry(), RetryBudget: 0.3,
		ResponseTimeout: 3_600_000, TimeoutPolicy: schema.TimeoutWorkflow, Delivery: schema.AtLeastOnce,
	}
	def.Retry.Jitter = 0
	for _, change := range changes {
		change(def)
	}
	return def
}

func declare(defs ...*schema.TaskDefinition) *declared {
	d := &declared{current: map[string]execution.Pinned{}, revs: map[int32]execution.Pinned{}, targets: map[schema.Ref]execution.TargetRef{}}
	for _, def := range defs {
		d.put(def)
	}
	return d
}

// world keeps one execution as the engine and the store would: it hands the decider what it asks for and nothing else.
type world struct {
	t        failer
	p        *Program
	defs     *declared
	now      time.Time
	head     execution.Header
	input    []byte
	open     map[int32]execution.Attempt
	queues   map[int32]execution.QueueKey
	inputs   map[int32][]byte
	rows     []execution.TaskRow
	events   []execution.Event
	scopes   map[int32]execution.Scope
	vars     map[string][]byte
	marks    []int32
	closed   *execution.Closing
	limit    map[int32]float64
	budget   map[int32]execution.Budget
	fence    int64
	deadline time.Time

	asked   []execution.Needs // of the last decision, round by round
	last    execution.Decision
	dropped int
}

// workflow makes a workflow of tasks.
func workflow(tasks ...*schema.Task) *schema.Workflow {
	return &schema.Workflow{Metadata: schema.Metadata{Name: "orders", Namespace: "default"}, Tasks: tasks}
}

func newWorld(t failer, w *schema.Workflow, defs *declared, input string) *world {
	t.Helper()
	p, err := Compile(w, 1, 7)
	require.NoError(t, err)
	return &world{
		t: t, p: p, defs: defs, now: t0, input: []byte(input), open: map[int32]execution.Attempt{}, queues: map[int32]execution.QueueKey{},
		inputs: map[int32][]byte{}, scopes: map[int32]execution.Scope{}, vars: map[string][]byte{}, limit: map[int32]float64{},
		budget: map[int32]execution.Budget{},
		head: execution.Header{
			ID: execution.ID{NS: 1, Exec: testExec}, Seq: 1, StartedAt: t0, AdmittedAt: t0, DefID: 50, RevID: 7, NextNo: 1,
		},
	}
}

// start makes a world and starts the execution.
func start(t failer, w *schema.Workflow, defs *declared, input string) *world {
	t.Helper()
	world := newWorld(t, w, defs, input)
	world.step(execution.Started{})
	return world
}

// step decides facts and applies the decision.
func (w *world) step(facts ...execution.Fact) execution.Decision {
	w.t.Helper()
	d := w.decide(facts...)
	w.apply(d)
	return d
}

// settle feeds back the marks that decisions left.
func (w *world) settle() {
	w.t.Helper()
	for len(w.marks) > 0 && w.closed == nil {
		no := w.marks[0]
		w.marks = w.marks[1:]
		w.step(execution.EvaluationContinued{TaskNo: no})
	}
}

func (w *world) decide(facts ...execution.Fact) execution.Decision {
	w.t.Helper()
	view := execution.View{Header: w.head, Namespace: "default", Workflow: "orders", Revision: 3}
	if w.head.NextNo <= RootBase {
		view.Input, view.HasInput = w.input, true
	}
	w.asked = nil
	for range 12 { // two for each fork that closes around another, at the very most
		d, needs := w.p.Decide(view, w.defs, facts, w.now)
		if needs.Empty() {
			w.last = d
			return d
		}
		w.asked = append(w.asked, needs)
		w.load(&view, needs)
	}
	require.Fail(w.t, "the decider goes on asking", "%+v", w.asked)
	return execution.Decision{}
}

func (w *world) load(view *execution.View, needs execution.Needs) {
	if view.Scopes == nil {
		view.Scopes, view.Tasks = map[int32]execution.Scope{}, map[int32]execution.TaskValue{}
		view.Inputs, view.Budgets = map[int32][]byte{}, map[int32]execution.Budget{}
	}
	for _, no := range needs.Scopes {
		view.Scopes[no] = w.scopes[no]
	}
	for _, no := range needs.Tasks {
		view.Tasks[no] = w.value(no)
	}
	for _, no := range needs.Inputs {
		view.Inputs[no] = w.inputs[no]
	}
	for _, id := range needs.Budgets {
		b := w.budget[id]
		b.Limit = 1
		if limit, ok := w.limit[id]; ok {
			b.Limit = limit
		}
		view.Budgets[id] = b
	}
	if needs.Input {
		view.Input, view.HasInput = w.input, true
	}
	if needs.Vars {
		view.Vars, view.HasVars = maps.Clone(w.vars), true
	}
}

func (w *world) value(no int32) execution.TaskValue {
	for _, row := range slices.Backward(w.rows) {
		if row.TaskNo == no {
			return execution.TaskValue{
				Ended: row.NextDueAt.IsZero(), Attempt: row.Attempt, EndedAt: row.EndedAt, Status: row.Status,
				Absorbed: row.Absorbed, Output: row.Output,
			}
		}
	}
	return execution.TaskValue{}
}

func (w *world) apply(d execution.Decision) {
	w.t.Helper()
	require.Nil(w.t, w.closed, "a decision after the end")
	seq := w.head.Seq
	w.dropped += d.Dropped
	for _, r := range d.Removed {
		at, ok := w.open[r.TaskNo]
		require.True(w.t, ok, "removed %d, which is not open", r.TaskNo)
		require.Equal(w.t, at.Place, r.Place, "place of %d", r.TaskNo)
		delete(w.open, r.TaskNo)
	}
	var seqs []int64
	for _, row := range d.Ended {
		require.False(w.t, row.EndedAt.Before(row.ScheduledAt))
		require.Equal(w.t, row.Cause == "", row.Status == execution.Completed, "cause %q of %s", row.Cause, row.Status)
		seqs = append(seqs, row.Seq)
		w.keepRow(row)
	}
	for _, e := range d.Events {
		seqs = append(seqs, e.Seq)
		w.events = append(w.events, e)
	}
	slices.Sort(seqs)
	for _, s := range seqs {
		seq++
		require.Equal(w.t, seq, s, "seq has a gap")
	}
	require.Equal(w.t, seq, d.Header.Seq)
	for _, r := range d.Revised {
		w.revise(r)
	}
	for _, off := range d.Disarmed {
		at, ok := w.open[off.TaskNo]
		require.True(w.t, ok)
		*armed(&at, off.Class) = time.Time{}
		w.open[off.TaskNo] = at
	}
	for _, s := range d.Schedules {
		w.put(s)
	}
	w.applyRest(d)
}

func (w *world) applyRest(d execution.Decision) {
	w.t.Helper()
	for _, c := range d.Scopes {
		if c.Delete {
			require.Contains(w.t, w.scopes, c.Scope.ScopeNo)
			delete(w.scopes, c.Scope.ScopeNo)
			continue
		}
		require.GreaterOrEqual(w.t, c.Scope.Width, c.Scope.Open)
		require.GreaterOrEqual(w.t, c.Scope.Width, c.Scope.Cursor)
		w.scopes[c.Scope.ScopeNo] = c.Scope
	}
	maps.Copy(w.vars, d.Vars)
	for _, b := range d.Budget {
		sum := w.budget[b.DefID]
		sum.Total += b.Total
		sum.Retries += b.Retries
		w.budget[b.DefID] = sum
	}
	require.Equal(w.t, d.Continue, len(d.ContinueAt) > 0)
	w.marks = append(w.marks, d.ContinueAt...)
	w.head = d.Header
	if !d.Deadline.IsZero() {
		w.deadline = d.Deadline
	}
	if d.Closing != nil {
		w.close(d)
	}
}

// close ends the execution as the engine does.
func (w *world) close(d execution.Decision) {
	w.t.Helper()
	require.Empty(w.t, d.Schedules)
	require.Empty(w.t, d.ContinueAt)
	if !d.Closing.Force {
		require.Empty(w.t, w.open, "open although the end is not by force")
		require.Empty(w.t, w.scopes)
	} else {
		require.Equal(w.t, d.Closing.Status, w.head.EndStatus)
	}
	for _, no := range slices.Sorted(maps.Keys(w.open)) {
		at := w.open[no]
		w.head.Seq++
		w.rows = append(w.rows, execution.TaskRow{
			TaskNo: no, Attempt: at.Attempt, Seq: w.head.Seq, ScheduledAt: at.ScheduledAt, EndedAt: w.now, ScopeNo: at.ScopeNo, Slot: at.Slot,
			Kind: at.Kind, Status: execution.Canceled, Cause: execution.CauseExecutionEnded,
		})
	}
	rows, head := w.p.CancelJoins(slices.Collect(maps.Values(w.scopes)), w.head, nil, w.now)
	w.rows, w.head = append(w.rows, rows...), head
	clear(w.open)
	clear(w.scopes)
	closing := *d.Closing
	if closing.OutputNo != 0 {
		closing.Output = w.value(closing.OutputNo).Output
	}
	w.closed = &closing
}

func (w *world) keepRow(row execution.TaskRow) {
	for _, old := range w.rows {
		require.False(w.t, old.TaskNo == row.TaskNo && old.Attempt == row.Attempt, "task %d attempt %d stands twice", row.TaskNo, row.Attempt)
	}
	w.rows = append(w.rows, row)
	if row.Input != nil {
		w.inputs[row.TaskNo] = row.Input
	}
}

func (w *world) revise(r execution.TaskRow) {
	for i := range w.rows {
		old := &w.rows[i]
		if old.TaskNo == r.TaskNo && old.Attempt == r.Attempt {
			old.Cause, old.Absorbed, old.Exhausted, old.Control = r.Cause, r.Absorbed, r.Exhausted, r.Control
			old.NextDueAt, old.DelayPolicy, old.DelayMin, old.DelaySource = r.NextDueAt, r.DelayPolicy, r.DelayMin, r.DelaySource
			return
		}
	}
	require.Fail(w.t, "revised a row that is not there")
}

func (w *world) put(s execution.Schedule) {
	at := s.Attempt
	_, twice := w.open[at.TaskNo]
	require.False(w.t, twice, "two open attempts of %d", at.TaskNo)
	require.NotZero(w.t, at.Place)
	if at.Kind.Class().Dispatched() {
		if at.QueueID == 0 {
			require.NotEmpty(w.t, s.Queue.Name)
			w.queues[at.TaskNo] = s.Queue
			at.QueueID = 900 + at.TaskNo
		} else {
			require.Zero(w.t, s.Queue)
		}
	}
	if s.Input != nil {
		require.True(w.t, json.Valid(s.Input))
		w.inputs[at.TaskNo] = s.Input
	}
	w.open[at.TaskNo] = at
}

// no gives the task number of a reference.
func (w *world) no(ref string) int32 {
	no, ok := w.p.NumberOf(ref)
	require.True(w.t, ok, ref)
	return no
}

// at gives the open attempt of a reference.
func (w *world) at(ref string) execution.Attempt {
	w.t.Helper()
	at, ok := w.open[w.no(ref)]
	require.True(w.t, ok, "%s is not open", ref)
	return at
}

// leased moves an attempt that is visible into a lease, as a claim does.
func (w *world) leased(ref string) execution.Attempt {
	w.t.Helper()
	at := w.at(ref)
	if at.Place == execution.InLease || !at.Kind.Class().Dispatched() {
		return at
	}
	if at.Place == execution.InTimer {
		w.now = latestOf(w.now, at.VisibleAt)
	}
	at.Place, at.Why, at.StartBy, at.LeasedAt, at.Deliveries = execution.InLease, 0, time.Time{}, w.now, at.Deliveries+1
	w.fence++
	at.Fence, at.Worker = w.fence, "w1"
	if p, ok := w.defs.TaskRev(1, at.DefRev); ok && p.Def.StartToCloseTimeout > 0 {
		at.CloseBy = w.now.Add(time.Duration(p.Def.StartToCloseTimeout) * time.Millisecond)
	}
	w.open[at.TaskNo] = at
	return at
}

func (w *world) completed(ref, output string) execution.AttemptEnded {
	at := w.leased(ref)
	f := execution.AttemptEnded{Attempt: at, Status: execution.Completed, Fence: at.Fence, Worker: at.Worker}
	if output != "" {
		f.Output = []byte(output)
	}
	return f
}

func (w *world) failed(ref, reason string) execution.AttemptEnded {
	at := w.leased(ref)
	return execution.AttemptEnded{
		Attempt: at, Status: execution.Failed, Cause: execution.CauseWorkerFailed, Reason: reason, Fence: at.Fence, Worker: at.Worker,
	}
}

func (w *world) failedForGood(ref, reason string) execution.AttemptEnded {
	f := w.failed(ref, reason)
	f.Status, f.Cause = execution.FailedTerm, execution.CauseWorkerTerminal
	return f
}

func (w *world) missed(ref string, class execution.DeadlineClass) execution.DeadlineMissed {
	at := w.at(ref)
	w.now = latestOf(w.now, *armed(&at, class))
	return execution.DeadlineMissed{Attempt: at, Class: class, Reason: "late"}
}

func (w *world) elapsed(ref string) execution.WaitElapsed {
	at := w.at(ref)
	w.now = latestOf(w.now, at.VisibleAt)
	return execution.WaitElapsed{Attempt: at}
}

// row gives the newest row of a reference.
func (w *world) row(ref string) execution.TaskRow {
	w.t.Helper()
	no := w.no(ref)
	for _, row := range slices.Backward(w.rows) {
		if row.TaskNo == no {
			return row
		}
	}
	require.Fail(w.t, "no row", ref)
	return execution.TaskRow{}
}

func (w *world) has(ref string) bool {
	no := w.no(ref)
	return slices.ContainsFunc(w.rows, func(r execution.TaskRow) bool { return r.TaskNo == no })
}

// openRefs lists what is open, in definition order.
func (w *world) openRefs() []string {
	refs := []string{}
	for _, no := range slices.Sorted(maps.Keys(w.open)) {
		refs = append(refs, w.p.Ref(no-RootBase))
	}
	return refs
}

func (w *world) ended(status execution.Status, cause execution.Cause) {
	w.t.Helper()
	require.NotNil(w.t, w.closed, "the execution has not ended; open: %v", w.openRefs())
	require.Equal(w.t, status.String()+" "+string(cause), w.closed.Status.String()+" "+string(w.closed.Cause), w.closed.Reason)
}

func TestCompileRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	cases := map[string]*schema.Workflow{
		"no tasks":       workflow(),
		"twice":          workflow(simple("a"), simple("a")),
		"unknown type":   workflow(task("a", "NOPE")),
		"fork alone":     workflow(fork("f", seq(simple("a")))),
		"fork then task": workflow(fork("f", seq(simple("a"))), simple("b")),
		"join alone":     workflow(join("j")),
		"empty branch":   workflow(fork("f", seq()), join("j")),
		"no branches":    workflow(fork("f"), join("j")),
		"join outside":   workflow(simple("x"), fork("f", seq(simple("a"))), join("j", "x")),
		"join unknown":   workflow(fork("f", seq(simple("a"))), join("j", "zz")),
		"expression":     workflow(simple("a", with("k", "${nope"))),
	}
	for name, w := range cases {
		_, err := Compile(w, 1, 1)
		require.Error(t, err, name)
	}
}
