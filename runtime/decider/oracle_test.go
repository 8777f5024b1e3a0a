package decider

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"nf/policies/retry"
	"nf/runtime/execution"
	"nf/schema"
)

// oracle is the slow decider over the whole state: after each fact it walks the workflow's tree from the root and computes what must
// be open, counted and pending from the history alone. It shares the formulas of delays with the decider, and nothing else.
type oracle struct {
	w      *schema.Workflow
	defs   *declared
	now    time.Time
	input  map[string]any
	nodes  []*schema.Task // in definition order: number = index + 1
	no     map[string]int32
	parent map[string]string // innermost fork
	runs   map[string]*run
	vars   map[string]any
	budget map[int32]execution.Budget
	closed *execution.Closing
	ending bool
}

// run is a task run.
type run struct {
	rows []execution.TaskRow
	open *execution.Attempt
	held bool // a JOIN: a delay or a back-off runs
	live bool // a JOIN that is open
}

func (r *run) last() *execution.TaskRow {
	if r == nil || len(r.rows) == 0 {
		return nil
	}
	return &r.rows[len(r.rows)-1]
}

// over says that the task run has ended for good.
func (r *run) over() bool {
	last := r.last()
	return last != nil && last.NextDueAt.IsZero()
}

func (r *run) ok() bool {
	return r.over() && r.last().Status.Successful(r.last().Absorbed)
}

func newOracle(w *schema.Workflow, defs *declared, input string) *oracle {
	o := &oracle{
		w: w, defs: defs, no: map[string]int32{}, parent: map[string]string{}, runs: map[string]*run{}, vars: map[string]any{},
		budget: map[int32]execution.Budget{},
	}
	if err := json.Unmarshal([]byte(input), &o.input); err != nil {
		panic(err)
	}
	o.number(w.Tasks, "")
	return o
}

func (o *oracle) number(tasks []*schema.Task, fork string) {
	for _, t := range tasks {
		o.nodes = append(o.nodes, t)
		o.no[t.Ref], o.parent[t.Ref] = int32(len(o.nodes)), fork
		for _, key := range slices.Sorted(maps.Keys(t.DecisionCases)) {
			o.number(t.DecisionCases[key], fork)
		}
		o.number(t.DefaultCase, fork)
		for _, branch := range t.ForkTasks {
			o.number(branch, t.Ref)
		}
	}
}

func (o *oracle) run(ref string) *run {
	r := o.runs[ref]
	if r == nil {
		r = &run{}
		o.runs[ref] = r
	}
	return r
}

// step takes facts one by one, as the decider does.
func (o *oracle) step(now time.Time, facts []execution.Fact) {
	o.now = now
	for _, f := range facts {
		o.take(f)
		o.evaluate()
	}
	if o.ending {
		o.cancelAll()
	}
}

func (o *oracle) take(f execution.Fact) {
	switch f := f.(type) {
	case execution.Started:
		o.runs[""] = &run{}
	case execution.AttemptEnded:
		ref := o.nodes[f.Attempt.TaskNo-1].Ref
		r := o.run(ref)
		if r.open == nil || r.open.Attempt != f.Attempt.Attempt {
			return
		}
		at := *r.open
		at.LeasedAt, at.Deliveries = f.Attempt.LeasedAt, f.Attempt.Deliveries
		o.end(ref, at, f)
	case execution.DeadlineMissed:
		o.missed(f)
	case execution.WaitElapsed:
		o.elapsed(f.Attempt)
	case execution.WorkflowTimedOut:
		o.finish(execution.TimedOut, execution.CauseWorkflowTimeout, "")
	case execution.TerminateRequested:
		o.finish(execution.Terminated, execution.CauseTerminatedByOperator, "")
	}
}

func (o *oracle) missed(f execution.DeadlineMissed) {
	ref := o.nodes[f.Attempt.TaskNo-1].Ref
	r := o.run(ref)
	if o.ending || r.open == nil || r.open.Attempt != f.Attempt.Attempt || o.deadline(r.open, f.Class).IsZero() && f.Class != execution.ClassStartToClose {
		return
	}
	if o.def(ref, r.open).TimeoutPolicy == schema.TimeoutAlertOnly {
		switch f.Class {
		case execution.ClassScheduleToStart:
			r.open.StartBy = time.Time{}
		case execution.ClassTaskTimeout:
			r.open.AttBy = time.Time{}
		case execution.ClassTotal:
			r.open.TotalBy = time.Time{}
		case execution.ClassStartToClose:
		}
		return
	}
	at := *r.open
	at.LeasedAt, at.Deliveries = f.Attempt.LeasedAt, f.Attempt.Deliveries
	o.end(ref, at, execution.AttemptEnded{Status: execution.TimedOut, Cause: execution.Cause(f.Class), Reason: f.Reason})
}

func (o *oracle) deadline(at *execution.Attempt, class execution.DeadlineClass) time.Time {
	switch class {
	case execution.ClassScheduleToStart:
		return at.StartBy
	case execution.ClassTaskTimeout:
		return at.AttBy
	case execution.ClassTotal:
		return at.TotalBy
	case execution.ClassStartToClose:
	}
	return time.Time{}
}

func (o *oracle) elapsed(at execution.Attempt) {
	t := o.nodes[at.TaskNo-1]
	r := o.run(t.Ref)
	if o.ending || r.open == nil || r.open.Attempt != at.Attempt {
		return
	}
	switch t.Type {
	case schema.TypeWait:
		o.end(t.Ref, *r.open, execution.AttemptEnded{Status: execution.Completed, Output: []byte(`{"waited":true}`)})
	case schema.TypeJoin:
		r.held = false
		r.open.Why, r.open.VisibleAt = execution.WhyOperatorDeadline, time.Time{}
	default:
		open := *r.open
		r.open = nil
		o.operate(t, open)
	}
}

// def gives the definition that a task run was scheduled with, or what stands for one.
func (o *oracle) def(ref string, at *execution.Attempt) *schema.TaskDefinition {
	t := o.nodes[o.no[ref]-1]
	if t.Definition != "" {
		if at != nil && at.DefRev != 0 {
			return o.defs.revs[at.DefRev].Def
		}
		return o.defs.current[t.Definition].Def
	}
	d := &schema.TaskDefinition{Retry: schema.DefaultRetry(), TimeoutPolicy: schema.TimeoutWorkflow, Timeout: t.Timeout}
	if t.Type != schema.TypeHTTP && t.Type != schema.TypeGRPC {
		d.Retry.RetryCount = 0
	}
	return d
}

func (o *oracle) retryCount(ref string, def *schema.TaskDefinition) int {
	if c := o.nodes[o.no[ref]-1].RetryCount; c != nil {
		return *c
	}
	return def.Retry.RetryCount
}

// end is the end of an attempt: an ordinary chain of questions.
func (o *oracle) end(ref string, at execution.Attempt, f execution.AttemptEnded) {
	t, r := o.nodes[o.no[ref]-1], o.run(ref)
	wasOpen := r.open != nil
	row := execution.TaskRow{
		TaskNo: at.TaskNo, Attempt: at.Attempt, Status: f.Status, Cause: f.Cause, Reason: f.Reason, Output: f.Output, DefID: at.DefID,
		Kind: at.Kind, Deliveries: at.Deliveries,
	}
	r.open, r.live = nil, false
	def := o.def(ref, &at)
	b := o.budget[at.DefID]
	if wasOpen && at.DefID != 0 {
		b.Total++
		o.budget[at.DefID] = b
	}
	if f.Status != execution.Completed && !o.ending {
		if delay, again := o.again(ref, def, at, f, b, &row); again {
			row.NextDueAt = o.now.Add(time.Duration(delay.Selected) * time.Millisecond)
			if at.DefID != 0 {
				b.Retries++
				o.budget[at.DefID] = b
			}
			o.retry(t, def, at, row.NextDueAt)
		} else {
			row.Absorbed = t.Optional
		}
	}
	r.rows = append(r.rows, row)
	if !o.ending && r.over() && !r.ok() {
		status, cause := execution.Failed, execution.CauseTaskFailed
		if row.Status == execution.TimedOut {
			status, cause = execution.TimedOut, execution.CauseTaskTimedOut
		}
		o.finish(status, cause, ref)
	}
}

func (o *oracle) again(ref string, def *schema.TaskDefinition, at execution.Attempt, f execution.AttemptEnded, b execution.Budget, row *execution.TaskRow) (retry.Delay, bool) {
	if f.Status == execution.FailedTerm || f.Cause == execution.CauseOutcomeUnknown {
		return retry.Delay{}, false
	}
	if f.Status == execution.TimedOut && (def.TimeoutPolicy == schema.TimeoutWorkflow || f.Cause == execution.CauseTotalTimeout) {
		return retry.Delay{}, false
	}
	for _, entry := range def.Retry.NonRetryableErrors {
		if strings.Contains(f.Reason, entry) {
			row.Cause = execution.CauseNonRetryable
			return retry.Delay{}, false
		}
	}
	if at.RetriesLeft == 0 {
		row.Exhausted = true
		return retry.Delay{}, false
	}
	if at.DefID != 0 && b.Limit < 1 && b.Total >= 20 && (b.Limit == 0 || float64(b.Retries)/float64(b.Total) > b.Limit) {
		row.Cause, row.Control = execution.CauseBudgetExhausted, "retryBudget"
		return retry.Delay{}, false
	}
	policy := retry.Of(def.Retry)
	delay := retry.Wait(policy, int(at.Attempt), f.MinWait, retry.Unit(testExec.String(), ref, "0", int(at.Attempt)))
	due := o.now.Add(time.Duration(delay.Selected) * time.Millisecond)
	if o.w.Timeout > 0 && !due.Before(t0.Add(time.Duration(o.w.Timeout)*time.Millisecond)) ||
		!at.TotalBy.IsZero() && def.TimeoutPolicy != schema.TimeoutAlertOnly && !due.Before(at.TotalBy) {
		row.Cause = execution.CauseRetryPastDeadline
		return retry.Delay{}, false
	}
	return delay, true
}

func (o *oracle) retry(t *schema.Task, def *schema.TaskDefinition, at execution.Attempt, due time.Time) {
	next := execution.Attempt{
		TaskNo: at.TaskNo, Attempt: at.Attempt + 1, Kind: at.Kind, DefID: at.DefID, DefRev: at.DefRev, RetriesLeft: at.RetriesLeft - 1,
		ScheduledAt: o.now, VisibleAt: due, TotalBy: at.TotalBy, Place: execution.InTimer, Why: execution.WhyBackoff,
	}
	if def.Timeout > 0 {
		next.AttBy = due.Add(time.Duration(def.Timeout) * time.Millisecond)
	}
	r := o.run(t.Ref)
	switch t.Type {
	case schema.TypeWait:
		next.VisibleAt, next.Why = due.Add(waitOf(t)), execution.WhyWait
	case schema.TypeJoin:
		next.Why, r.held, r.live = execution.WhyWait, true, true
	default:
		if def.ScheduleToStartTimeout > 0 {
			next.StartBy = due.Add(time.Duration(def.ScheduleToStartTimeout) * time.Millisecond)
		}
		if !due.After(o.now) {
			next.Place, next.Why = execution.InReady, 0
		}
	}
	r.open = &next
}

func waitOf(t *schema.Task) time.Duration {
	d, err := schema.ParseWaitDuration(t.InputParameters["duration"])
	if err != nil {
		return 0
	}
	return time.Duration(d) * time.Millisecond
}

func (o *oracle) finish(status execution.Status, cause execution.Cause, ref string) {
	if o.ending {
		return
	}
	o.ending = true
	o.closed = &execution.Closing{Status: status, Cause: cause, FailedRef: ref, FailedNo: o.no[ref]}
}

func (o *oracle) cancelAll() {
	for ref, r := range o.runs {
		if r.open != nil || r.live {
			attempt := int32(len(r.rows)) + 1
			r.rows = append(r.rows, execution.TaskRow{
				TaskNo: o.no[ref], Attempt: attempt, Status: execution.Canceled, Cause: execution.CauseExecutionEnded,
			})
			r.open, r.live = nil, false
		}
	}
}

// begin starts a task.
func (o *oracle) begin(t *schema.Task) {
	r := o.run(t.Ref)
	if t.Type == schema.TypeJoin {
		o.fire(t)
		return
	}
	at := o.fresh(t)
	def := o.def(t.Ref, nil)
	visible := o.now.Add(time.Duration(t.StartDelay) * time.Millisecond)
	arm := func() {
		if def.Timeout > 0 {
			at.AttBy = visible.Add(time.Duration(def.Timeout) * time.Millisecond)
		}
	}
	at.RetriesLeft = int32(o.retryCount(t.Ref, def))
	switch t.Type {
	case schema.TypeSimple, schema.TypeHTTP:
		arm()
		at.VisibleAt, at.Place = visible, execution.InReady
		if def.ScheduleToStartTimeout > 0 {
			at.StartBy = visible.Add(time.Duration(def.ScheduleToStartTimeout) * time.Millisecond)
		}
		if def.TotalTimeout > 0 {
			at.TotalBy = visible.Add(time.Duration(def.TotalTimeout) * time.Millisecond)
		}
		if t.StartDelay > 0 {
			at.Place, at.Why = execution.InTimer, execution.WhyStartDelay
		}
		r.open = &at
	case schema.TypeWait:
		at.VisibleAt = visible.Add(waitOf(t))
		if !at.VisibleAt.After(o.now) {
			o.end(t.Ref, at, execution.AttemptEnded{Status: execution.Completed, Output: []byte(`{"waited":true}`)})
			return
		}
		arm()
		at.Place, at.Why = execution.InTimer, execution.WhyWait
		r.open = &at
	default:
		at.RetriesLeft = 0
		if t.StartDelay > 0 {
			at.VisibleAt, at.Place, at.Why = visible, execution.InTimer, execution.WhyWait
			r.open = &at
			return
		}
		o.operate(t, at)
	}
}

func (o *oracle) fresh(t *schema.Task) execution.Attempt {
	at := execution.Attempt{TaskNo: o.no[t.Ref], Attempt: 1, Kind: execution.KindOf(t.Type), ScheduledAt: o.now, VisibleAt: o.now}
	if t.Definition != "" {
		p := o.defs.current[t.Definition]
		at.DefID, at.DefRev = p.DefID, p.DefRev
	}
	return at
}

func (o *oracle) operate(t *schema.Task, at execution.Attempt) {
	done := func(output any) {
		text, err := json.Marshal(output)
		if err != nil {
			panic(err)
		}
		o.end(t.Ref, at, execution.AttemptEnded{Status: execution.Completed, Output: text})
	}
	switch t.Type {
	case schema.TypeSwitch:
		value := o.resolve(t.InputParameters[t.Expression])
		text, isText := value.(string)
		if b, ok := value.(bool); ok {
			text, isText = strconv.FormatBool(b), true
		}
		if f, ok := value.(float64); ok {
			text, isText = fmt.Sprint(f), true
		}
		if isText {
			done(map[string]any{"caseValue": text})
		} else {
			done(map[string]any{"caseValue": nil})
		}
		o.skipUntaken(t)
	case schema.TypeForkJoin:
		heads := []string{}
		for _, branch := range t.ForkTasks {
			heads = append(heads, branch[0].Ref)
		}
		done(map[string]any{"forkedBranches": heads})
		o.openJoin(t)
	case schema.TypeSetVariable:
		set := o.resolveAll(t.InputParameters)
		maps.Copy(o.vars, set)
		done(set)
	case schema.TypeTerminate:
		in := o.resolveAll(t.InputParameters)
		done(in)
		status := execution.ParseStatus(fmt.Sprint(in["terminationStatus"]))
		cause := execution.CauseTerminatedByTask
		if status == execution.Completed {
			cause = ""
		}
		o.finish(status, cause, "")
		if status == execution.Completed {
			o.output(t.Ref)
		}
	default: // no operator
	}
}

func (o *oracle) skipUntaken(t *schema.Task) {
	taken := o.taken(t)
	for _, list := range append(slices.Collect(maps.Values(t.DecisionCases)), t.DefaultCase) {
		if len(list) == 0 || len(taken) > 0 && taken[0] == list[0] {
			continue
		}
		o.run(list[0].Ref).rows = []execution.TaskRow{{
			TaskNo: o.no[list[0].Ref], Attempt: 1, Status: execution.Skipped, Cause: execution.CauseBranchNotTaken, Kind: execution.KindOf(list[0].Type),
		}}
	}
}

func (o *oracle) joinOf(fork string) *schema.Task { return o.nodes[o.after(fork)-1] }

// after gives the number of the JOIN behind a fork: the first task behind all its branches.
func (o *oracle) after(fork string) int32 {
	n := o.no[fork]
	var count func(tasks []*schema.Task)
	count = func(tasks []*schema.Task) {
		for _, t := range tasks {
			n++
			for _, list := range t.DecisionCases {
				count(list)
			}
			count(t.DefaultCase)
			for _, branch := range t.ForkTasks {
				count(branch)
			}
		}
	}
	for _, branch := range o.nodes[o.no[fork]-1].ForkTasks {
		count(branch)
	}
	return n + 1
}

func (o *oracle) openJoin(fork *schema.Task) {
	t := o.joinOf(fork.Ref)
	r := o.run(t.Ref)
	r.live = true
	if t.Definition == "" && t.Timeout == 0 && t.StartDelay == 0 {
		return
	}
	at := o.fresh(t)
	def := o.def(t.Ref, nil)
	at.RetriesLeft = int32(o.retryCount(t.Ref, def))
	at.Place, at.Why, at.VisibleAt = execution.InTimer, execution.WhyOperatorDeadline, time.Time{}
	visible := o.now.Add(time.Duration(t.StartDelay) * time.Millisecond)
	if def.Timeout > 0 {
		at.AttBy = visible.Add(time.Duration(def.Timeout) * time.Millisecond)
	}
	if t.StartDelay > 0 {
		at.Why, at.VisibleAt, r.held = execution.WhyWait, visible, true
	}
	r.open = &at
}

func (o *oracle) fire(join *schema.Task) {
	var fork *schema.Task
	for _, t := range o.nodes {
		if t.Type == schema.TypeForkJoin && o.joinOf(t.Ref) == join {
			fork = t
		}
	}
	refs := join.JoinOn
	if refs == nil {
		for _, branch := range fork.ForkTasks {
			refs = append(refs, branch[len(branch)-1].Ref)
		}
	}
	out := map[string]json.RawMessage{}
	for _, ref := range refs {
		out[ref] = json.RawMessage("null")
		if row := o.runs[ref].last(); row != nil && o.runs[ref].over() && row.Status != execution.Skipped {
			out[ref] = json.RawMessage("{}")
			if len(row.Output) > 0 {
				out[ref] = row.Output
			}
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	r := o.run(join.Ref)
	at := o.fresh(join)
	at.Attempt = int32(len(r.rows)) + 1
	if r.open == nil {
		r.open = &at
	}
	open := *r.open
	o.end(join.Ref, open, execution.AttemptEnded{Status: execution.Completed, Output: text})
}
