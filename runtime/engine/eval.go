package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nf/runtime/decider"
	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema"
)

// maxLoads bounds how often one decision may ask for more values. Two are usual.
const maxLoads = 24

// eval is the evaluation of one execution in one transaction.
type eval struct {
	id    execution.ID
	old   execution.Header // as locked
	prog  *program
	view  execution.View
	jobs  []*job
	facts []execution.Fact

	wantMarks bool
	marks     []store.Mark
	taken     map[store.AttemptKey]bool
	attempts  map[execution.Removed]execution.Attempt // locked ones
	budgets   map[int32]execution.Budget              // as loaded

	decision  execution.Decision
	deltas    map[store.BudgetKey]execution.BudgetDelta
	failed    error
	abandon   error        // ended without being evaluated
	dueFailed bool         // the failure was on facts that stay in the tables
	marked    bool         // leaves marks
	leaves    []store.Mark // new marks
	retries   []retryMark  // marks that are tried again
	forced    forced
	fresh     bool  // the execution starts in this transaction
	seq       int64 // as it will stand after the commit
}

func newEval(fl *flush, h execution.Header) *eval {
	ev := &eval{
		id: h.ID, old: h, prog: fl.e.programs.known(h.NS, h.RevID), taken: map[store.AttemptKey]bool{},
		attempts: map[execution.Removed]execution.Attempt{},
	}
	namespace, _ := fl.defs.NamespaceName(h.NS)
	ev.view = execution.View{
		Header: h, Namespace: namespace, Scopes: map[int32]execution.Scope{}, Tasks: map[int32]execution.TaskValue{},
		Inputs: map[int32][]byte{}, Budgets: map[int32]execution.Budget{},
	}
	if ev.prog != nil {
		w := ev.prog.rev
		ev.view.Workflow, ev.view.Version, ev.view.Revision = w.Workflow.Metadata.Name, w.Version, w.Revision
	}
	return ev
}

// retryMark is a mark whose evaluation failed. counted: its try was counted before.
type retryMark struct {
	mark    store.Mark
	due     time.Time
	counted bool
}

// readMarks reads the due marks of locked executions and turns them into facts (S3 step 4).
func (fl *flush) readMarks(ctx context.Context, tx *store.Tx) error {
	var ids []execution.ID
	for _, ev := range fl.evals {
		if ev.wantMarks {
			ids = append(ids, ev.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	marks, err := tx.Marks(ctx, ids, fl.now)
	if err != nil {
		return err
	}
	var keys []store.AttemptKey
	for _, list := range marks {
		for _, m := range list {
			if m.What == store.MarkAttemptEnded {
				keys = append(keys, store.AttemptKey{ID: m.ID, TaskNo: m.TaskNo, Attempt: m.Attempt})
			}
		}
	}
	recorded := map[store.AttemptKey]execution.TaskRow{}
	if len(keys) > 0 {
		rows, err := tx.Recorded(ctx, keys)
		if err != nil {
			return err
		}
		for _, r := range rows {
			recorded[store.AttemptKey{ID: r.ID, TaskNo: r.Row.TaskNo, Attempt: r.Row.Attempt}] = r.Row
		}
	}
	for _, ev := range fl.evals {
		if ev.wantMarks {
			ev.takeMarks(marks[ev.id], recorded)
		}
	}
	return nil
}

// takeMarks adds the facts of marks. A mark whose row is gone, or of a kind that is not known, is only deleted.
func (ev *eval) takeMarks(marks []store.Mark, recorded map[store.AttemptKey]execution.TaskRow) {
	ev.marks = marks
	for _, m := range marks {
		if m.Tries > tryLimit { // each try was counted before it began, and none came to an end
			ev.abandon = fmt.Errorf("%w: %d evaluations did not come to an end", ErrEvaluation, tryLimit)
		}
		switch m.What {
		case store.MarkAttemptEnded:
			if row, ok := recorded[store.AttemptKey{ID: m.ID, TaskNo: m.TaskNo, Attempt: m.Attempt}]; ok {
				fact := recordedFact(row, m.Detail, ev.old.RevID)
				ev.attempts[removedOf(fact.Attempt)] = fact.Attempt // its pinned revision must be loaded
				ev.facts = append(ev.facts, fact)
			}
		case store.MarkChunk:
			ev.facts = append(ev.facts, execution.EvaluationContinued{TaskNo: m.TaskNo})
		case store.MarkAdmitted:
			ev.facts = append(ev.facts, execution.Started{})
		case store.MarkDecide:
			ev.facts = append(ev.facts, execution.EvaluationContinued{})
		}
	}
}

// postponed is what a mark keeps of a recorded result beside its row: what the row has no column for.
type postponed struct {
	RetriesLeft int32         `json:"retriesLeft"`
	Lane        int16         `json:"lane"`
	TotalBy     *time.Time    `json:"totalBy,omitempty"`
	MinWait     schema.Millis `json:"minWaitMs,omitempty"`
	Source      string        `json:"source,omitempty"`
}

func postponedOf(f execution.AttemptEnded) string {
	p := postponed{RetriesLeft: f.Attempt.RetriesLeft, Lane: f.Attempt.Lane, MinWait: f.MinWait, Source: f.Source}
	if !f.Attempt.TotalBy.IsZero() {
		p.TotalBy = &f.Attempt.TotalBy
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "" // numbers and a time always encode
	}
	return string(text)
}

func recordedFact(row execution.TaskRow, detail string, revID int32) execution.AttemptEnded {
	var p postponed
	if json.Unmarshal([]byte(detail), &p) != nil {
		p = postponed{Lane: 99}
	}
	a := execution.Attempt{
		TaskNo: row.TaskNo, Attempt: row.Attempt, QueueID: row.QueueID, Lane: p.Lane, Kind: row.Kind, ScopeNo: row.ScopeNo, Slot: row.Slot,
		RevID: revID, DefID: row.DefID, DefRev: row.DefRev, Rerun: row.Rerun, Deliveries: row.Deliveries, RetriesLeft: p.RetriesLeft,
		ScheduledAt: row.ScheduledAt, VisibleAt: row.VisibleAt, Iteration: row.Iteration, LeasedAt: row.LeasedAt, Worker: row.Worker,
	}
	if p.TotalBy != nil {
		a.TotalBy = *p.TotalBy
	}
	return execution.AttemptEnded{
		Attempt: a, Status: row.Status, Cause: row.Cause, Reason: row.Reason, Output: row.Output, Fence: row.Fence, Worker: row.Worker,
		MinWait: p.MinWait, Source: p.Source, Control: row.Control, Recorded: true,
	}
}

// decide evaluates every execution of the flush, loading what decisions lack for all of them at once.
func (fl *flush) decide(ctx context.Context, tx *store.Tx) error {
	open := make([]*eval, 0, len(fl.evals))
	for _, ev := range fl.evals {
		switch {
		case ev.abandon != nil:
			ev.decision = decider.Abandon(ev.old, ev.abandon.Error())
		case len(ev.facts) > 0:
			open = append(open, ev)
		default:
			ev.decision.Header = ev.old
		}
	}
	for loads := 0; len(open) > 0; loads++ {
		want := store.Wanted{Now: fl.now}
		var lacking []*eval
		var needs []execution.Needs
		for _, ev := range open {
			n, done := fl.evaluate(ev, loads)
			if done {
				continue
			}
			ev.want(n, &want)
			lacking, needs = append(lacking, ev), append(needs, n)
		}
		if len(lacking) == 0 {
			return nil
		}
		loaded, err := tx.Load(ctx, want)
		if err != nil {
			return err
		}
		for i, ev := range lacking {
			ev.fill(needs[i], loaded)
		}
		open = lacking
	}
	return nil
}

// evaluate asks the decider once. done says that the decision, or the failure, stands.
func (fl *flush) evaluate(ev *eval, loads int) (needs execution.Needs, done bool) {
	for defID, b := range ev.budgets {
		ev.view.Budgets[defID] = fl.e.budgets.plus(store.BudgetKey{NS: ev.id.NS, DefID: defID}, b)
	}
	decision, needs, err := fl.ask(ev)
	if err == nil && !needs.Empty() && loads >= maxLoads {
		err = fmt.Errorf("the decision asked %d times for more values: %+v", loads, needs)
	}
	switch {
	case err != nil:
		fl.fail(ev, err)
		fl.afterFailure(ev)
	case !needs.Empty():
		return needs, false
	default:
		ev.decision = decision
	}
	fl.count(ev)
	return execution.Needs{}, true
}

// ask calls the decider; a panic is a failed evaluation, never the end of the process.
func (fl *flush) ask(ev *eval) (d execution.Decision, n execution.Needs, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if fl.e.breakAsk != nil {
		fl.e.breakAsk(ev.id)
	}
	d, n = ev.prog.Decide(ev.view, fl.defs, ev.facts, fl.now)
	return d, n, nil
}

// afterFailure makes of a failed evaluation what must still be kept: results are recorded and marked, marks are due again after 1 s and
// 10 s, and the third failure of a mark ends the execution (S3). Facts that stay in the tables are found again.
func (fl *flush) afterFailure(ev *eval) {
	for _, m := range ev.marks {
		if m.Tries+1 >= tryLimit && !fl.alone(ev) || m.Tries >= tryLimit {
			ev.decision = decider.Abandon(ev.old, execution.CutReason(ev.failed.Error(), execution.MaxReason))
			return
		}
	}
	d := execution.Decision{Header: ev.old}
	due := fl.now.Add(retryAfter(1))
	for _, fact := range ev.facts {
		ended, ok := fact.(execution.AttemptEnded)
		if _, started := fact.(execution.Started); started && ev.fresh {
			ev.leaves = append(ev.leaves, store.Mark{ID: ev.id, What: store.MarkAdmitted, Since: fl.now, DueAt: due, Tries: 1})
		}
		if !ok {
			ev.dueFailed = ev.dueFailed || !isMarkFact(fact)
			continue
		}
		if ended.Recorded {
			continue
		}
		one, err := ev.record(fl.defs, d.Header, ended, fl.now)
		if err != nil {
			continue // the lease runs out, and the work is delivered again
		}
		d.Header = one.Header
		d.Ended = append(d.Ended, one.Ended...)
		d.Removed = append(d.Removed, one.Removed...)
		d.Budget = append(d.Budget, one.Budget...)
		ev.leaves = append(ev.leaves, store.Mark{
			ID: ev.id, What: store.MarkAttemptEnded, TaskNo: ended.Attempt.TaskNo, Attempt: ended.Attempt.Attempt, Since: fl.now, DueAt: due,
			Tries: 1, Detail: postponedOf(ended),
		})
	}
	for _, m := range ev.marks {
		n, counted := int(m.Tries), fl.alone(ev)
		if !counted {
			n++
		}
		ev.retries = append(ev.retries, retryMark{m, fl.now.Add(retryAfter(n)), counted})
	}
	ev.decision = d
	ev.marks = nil // they stay
	ev.marked = true
}

func isMarkFact(f execution.Fact) bool {
	switch f.(type) {
	case execution.EvaluationContinued, execution.Started:
		return true
	}
	return false
}

// alone says that the tries of the marks were counted before this evaluation.
func (fl *flush) alone(ev *eval) bool { return len(ev.jobs) == 1 && ev.jobs[0].tried }

// record keeps an ended attempt without deciding what follows.
func (ev *eval) record(defs *registry.Snapshot, h execution.Header, f execution.AttemptEnded, now time.Time) (d execution.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	view := ev.view
	view.Header = h
	d = ev.prog.Record(view, defs, f, now)
	if len(d.Ended) == 0 {
		return d, errors.New("nothing to record")
	}
	return d, nil
}

// want adds what a decision lacked to what is loaded.
func (ev *eval) want(n execution.Needs, w *store.Wanted) {
	for _, no := range n.Scopes {
		w.Scopes = append(w.Scopes, store.TaskKey{ID: ev.id, TaskNo: no})
	}
	for _, no := range n.Tasks {
		w.Tasks = append(w.Tasks, store.TaskKey{ID: ev.id, TaskNo: no})
	}
	for _, no := range n.Inputs {
		w.Inputs = append(w.Inputs, store.TaskKey{ID: ev.id, TaskNo: no})
	}
	if n.Input {
		w.Inputs = append(w.Inputs, store.TaskKey{ID: ev.id})
	}
	if n.Vars {
		w.Vars = append(w.Vars, ev.id)
	}
	for _, defID := range n.Budgets {
		w.Budgets = append(w.Budgets, store.BudgetKey{NS: ev.id.NS, DefID: defID})
	}
}

// fill puts what was loaded into the view; what does not exist is put as its absence.
func (ev *eval) fill(n execution.Needs, loaded store.Loaded) {
	for _, no := range n.Scopes {
		ev.view.Scopes[no] = loaded.Scopes[store.TaskKey{ID: ev.id, TaskNo: no}]
	}
	for _, no := range n.Tasks {
		ev.view.Tasks[no] = loaded.Tasks[store.TaskKey{ID: ev.id, TaskNo: no}]
	}
	for _, no := range n.Inputs {
		ev.view.Inputs[no] = loaded.Inputs[store.TaskKey{ID: ev.id, TaskNo: no}]
	}
	if n.Input {
		ev.view.Input, ev.view.HasInput = loaded.Inputs[store.TaskKey{ID: ev.id}], true
		if ev.view.Input == nil {
			ev.view.Input = []byte("{}")
		}
	}
	if n.Vars {
		ev.view.Vars, ev.view.HasVars = loaded.Vars[ev.id], true
	}
	for _, defID := range n.Budgets {
		if ev.budgets == nil {
			ev.budgets = map[int32]execution.Budget{}
		}
		ev.budgets[defID] = loaded.Budgets[store.BudgetKey{NS: ev.id.NS, DefID: defID}]
		ev.view.Budgets[defID] = ev.budgets[defID]
	}
}

// size estimates the rows and bytes that a decision writes.
func (ev *eval) size() (rows, bytes int) {
	d := &ev.decision
	rows = 2 + len(d.Ended) + len(d.Removed) + 2*len(d.Schedules) + len(d.Scopes) + len(d.Vars) + len(d.Events) + len(ev.marks)
	for i := range d.Ended {
		bytes += len(d.Ended[i].Output) + len(d.Ended[i].Input)
	}
	for i := range d.Schedules {
		bytes += len(d.Schedules[i].Input)
	}
	return rows, bytes
}
