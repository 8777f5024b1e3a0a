package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
)

// flush is one transaction of the completer, from its jobs to their answers.
type flush struct {
	f    *flusher
	e    *Engine
	jobs []*job
	defs *registry.Snapshot

	now     time.Time
	evals   []*eval                    // in key order
	of      map[execution.ID]*eval     //
	replies []reply                    // after the commit
	later   []*job                     // locked elsewhere, or too many rows: next flush
	lookUps []lookUp                   // what became of them is in the history
	seats   []seated                   // reserved for next work
	freed   map[store.QueueAt]struct{} // leases ended there
	ready   map[store.QueueAt]struct{} // ready rows came there
	inputs  map[store.TaskKey][]byte   // of what was leased at once
	leases  []store.Lease
	deltas  map[store.BudgetKey]execution.BudgetDelta
	counts  counts
}

type reply struct {
	job    *job
	result EndResult
}

// lookUp is a job whose attempt or execution was not there; where says where the task's open attempt is now, if anywhere.
type lookUp struct {
	job   *job
	where store.AttemptKey
	open  bool // the execution is open
}

// seated is a seat and the attempt that sits in it.
type seated struct {
	eager Eager
	seat  store.Seat
	at    store.QueueAt
	key   execution.QueueKey
	task  store.TaskKey
	att   execution.Attempt
	input []byte
}

func newFlush(f *flusher, jobs []*job) *flush {
	return &flush{
		f: f, e: f.e, jobs: jobs, defs: f.e.opt.Registry.Snapshot(), of: map[execution.ID]*eval{},
		freed: map[store.QueueAt]struct{}{}, ready: map[store.QueueAt]struct{}{}, inputs: map[store.TaskKey][]byte{},
		deltas: map[store.BudgetKey]execution.BudgetDelta{},
	}
}

// name is that of the transaction: what it mainly does.
func (fl *flush) name() string {
	name := "end"
	for _, j := range fl.jobs {
		switch {
		case j.end != nil:
			return "complete"
		case j.marks:
			name = "decide"
		}
	}
	return name
}

// once runs the transaction.
func (fl *flush) once(ctx context.Context) error {
	fl.f.w.Reset()
	if err := fl.countTries(ctx); err != nil {
		return err
	}
	return fl.e.store.InTx(ctx, store.Hot, fl.name(), func(ctx context.Context, tx *store.Tx) error {
		if err := fl.lock(ctx, tx); err != nil {
			return err
		}
		if len(fl.evals) == 0 {
			return nil
		}
		if err := fl.lacking(); err != nil {
			return err
		}
		if err := fl.decide(ctx, tx); err != nil {
			return err
		}
		fl.bound()
		if err := fl.force(ctx, tx); err != nil {
			return err
		}
		if err := fl.apply(); err != nil {
			return err
		}
		var err error
		fl.leases, err = tx.Write(ctx, fl.f.w, fl.now, fl.f.shard)
		return err
	})
}

// countTries commits tries + 1 before an evaluation that goes alone, so that one which kills its process cannot kill one after another (S3).
func (fl *flush) countTries(ctx context.Context) error {
	if len(fl.jobs) != 1 || !fl.jobs[0].marks || !fl.jobs[0].alone || fl.jobs[0].tried {
		return nil
	}
	j := fl.jobs[0]
	w := store.NewWrites()
	err := fl.e.store.InTx(ctx, store.Hot, "decide-tries", func(ctx context.Context, tx *store.Tx) error {
		locked, err := tx.Lock(ctx, store.Batch{Execs: []execution.ID{j.id}, Wait: true})
		if err != nil || len(locked.Headers) == 0 {
			return err
		}
		marks, err := tx.Marks(ctx, []execution.ID{j.id}, locked.Now)
		if err != nil {
			return err
		}
		for _, m := range marks[j.id] {
			w.MarkTried(m, m.Since)
		}
		_, err = tx.Write(ctx, w, locked.Now, fl.f.shard)
		return err
	})
	if err == nil {
		j.tried = true
	}
	return err
}

// lock takes the locks and sorts the jobs: what can be evaluated, what waits for the next flush, what must be looked up.
func (fl *flush) lock(ctx context.Context, tx *store.Tx) error {
	var b store.Batch
	seen := map[execution.ID]bool{}
	keys := map[store.AttemptKey]bool{}
	for _, j := range fl.jobs {
		b.Wait = b.Wait || j.wait4
		if !seen[j.id] {
			seen[j.id] = true
			b.Execs = append(b.Execs, j.id)
		}
		if j.end != nil && !keys[j.end.key()] {
			keys[j.end.key()] = true
			b.Attempts = append(b.Attempts, j.end.key())
		}
	}
	locked, err := tx.Lock(ctx, b)
	if err != nil {
		return err
	}
	fl.now = locked.Now
	fl.e.saw(locked.Now)
	peeked, err := fl.peek(ctx, tx, locked)
	if err != nil {
		return err
	}
	for _, j := range fl.jobs {
		fl.sort(j, locked, peeked)
	}
	slices.SortFunc(fl.evals, func(a, b *eval) int { return store.CompareID(a.id, b.id) })
	return fl.readMarks(ctx, tx)
}

// peek looks at what was not locked.
func (fl *flush) peek(ctx context.Context, tx *store.Tx, locked store.Locked) (store.Peeked, error) {
	var execs []execution.ID
	var tasks []store.TaskKey
	for _, j := range fl.jobs {
		if _, ok := locked.Headers[j.id]; !ok {
			execs = append(execs, j.id)
			continue
		}
		if j.end == nil {
			continue
		}
		if _, ok := locked.Attempts[j.end.key()]; !ok {
			tasks = append(tasks, store.TaskKey{ID: j.id, TaskNo: j.end.TaskNo})
		}
	}
	if len(execs) == 0 && len(tasks) == 0 {
		return store.Peeked{}, nil
	}
	return tx.Peek(ctx, execs, tasks)
}

func (fl *flush) sort(j *job, locked store.Locked, peeked store.Peeked) {
	h, ok := locked.Headers[j.id]
	if !ok {
		if peeked.Execs[j.id] {
			fl.again(j)
			return
		}
		fl.lookUps = append(fl.lookUps, lookUp{job: j})
		return
	}
	switch {
	case j.end != nil:
		fl.sortEnd(j, h, locked, peeked)
	case j.marks:
		ev := fl.evalOf(h)
		ev.jobs = append(ev.jobs, j)
		ev.wantMarks = true
	case j.abandon != nil:
		if h.EndStatus != execution.StatusOpen {
			fl.reply(j, EndResult{Answer: Dropped})
			return
		}
		ev := fl.evalOf(h)
		ev.jobs = append(ev.jobs, j)
		ev.abandon = j.abandon
	case j.terminate != nil:
		if h.EndStatus != execution.StatusOpen {
			fl.reply(j, endedAs(h.EndStatus))
			return
		}
		ev := fl.evalOf(h)
		ev.jobs = append(ev.jobs, j)
		ev.facts = append(ev.facts, execution.TerminateRequested{Reason: j.terminate.Reason, Actor: j.terminate.Actor})
	}
}

// sortEnd sorts a job that ends an attempt.
func (fl *flush) sortEnd(j *job, h execution.Header, locked store.Locked, peeked store.Peeked) {
	key := j.end.key()
	a, ok := locked.Attempts[key]
	if !ok {
		where, open := peeked.Attempts[store.TaskKey{ID: j.id, TaskNo: j.end.TaskNo}]
		if open && where == key {
			fl.again(j) // a claim, a mover or a beat has it
			return
		}
		fl.lookUps = append(fl.lookUps, lookUp{job: j, where: where, open: true})
		return
	}
	_, isReport := j.end.What.(Report)
	if !isReport && fl.e.parked.rests(j.id, fl.e.opt.Clock.Now()) {
		fl.reply(j, EndResult{Answer: Dropped})
		return
	}
	fact := j.end.fact(a, fl.now)
	if fact == nil {
		fl.reply(j, EndResult{Answer: Dropped})
		return
	}
	ev := fl.evalOf(h)
	if ev.taken[key] { // the same end twice in one flush: the second finds the first in the history
		fl.lookUps = append(fl.lookUps, lookUp{job: j, open: true})
		return
	}
	ev.taken[key] = true
	ev.attempts[removedOf(a)] = a
	ev.jobs = append(ev.jobs, j)
	ev.facts = append(ev.facts, fact)
}

func removedOf(a execution.Attempt) execution.Removed {
	return execution.Removed{Place: a.Place, TaskNo: a.TaskNo, Fence: a.Fence}
}

func (fl *flush) evalOf(h execution.Header) *eval {
	if ev := fl.of[h.ID]; ev != nil {
		return ev
	}
	ev := newEval(fl, h)
	fl.of[h.ID] = ev
	fl.evals = append(fl.evals, ev)
	return ev
}

func (fl *flush) reply(j *job, r EndResult) { fl.replies = append(fl.replies, reply{j, r}) }

// again puts a job into the next flush; after three it goes alone and waits.
func (fl *flush) again(j *job) {
	j.locked++
	if j.locked >= lockedLimit {
		j.alone, j.wait4 = true, true
	}
	fl.later = append(fl.later, j)
}

// lacking says what must be fetched before the decisions can be made.
func (fl *flush) lacking() error {
	m := newMissing()
	for _, ev := range fl.evals {
		if ev.prog == nil {
			m.revs[revKey{ev.id.NS, ev.old.RevID}] = true
			m.of[ev.id] = true
		}
		for _, a := range ev.attempts {
			if _, ok := fl.defs.TaskRev(ev.id.NS, a.DefRev); a.DefID != 0 && !ok {
				m.pins[revKey{ev.id.NS, a.DefRev}] = true
				m.of[ev.id] = true
			}
		}
	}
	if m.empty() {
		return nil
	}
	return m
}

// bound keeps a flush to its number of rows and bytes; what is beyond comes in the next one.
func (fl *flush) bound() {
	rows, bytes := 0, 0
	for i, ev := range fl.evals {
		r, b := ev.size()
		rows, bytes = rows+r, bytes+b
		if i > 0 && (rows > maxRows || bytes > maxBytes) {
			for _, left := range fl.evals[i:] {
				fl.later = append(fl.later, left.jobs...)
				fl.takeBack(left)
			}
			fl.evals = fl.evals[:i]
			return
		}
	}
}

// count notes the budget deltas of a decision, so that the next one sees them.
func (fl *flush) count(ev *eval) {
	ev.deltas = map[store.BudgetKey]execution.BudgetDelta{}
	for _, d := range ev.decision.Budget {
		key := store.BudgetKey{NS: ev.id.NS, DefID: d.DefID}
		ev.deltas[key] = d
		sum := fl.deltas[key]
		sum.Total += d.Total
		sum.Retries += d.Retries
		fl.deltas[key] = sum
	}
	fl.e.budgets.add(ev.deltas, 1)
}

func (fl *flush) takeBack(ev *eval) {
	fl.e.budgets.add(ev.deltas, -1)
	for key, d := range ev.deltas {
		sum := fl.deltas[key]
		sum.Total -= d.Total
		sum.Retries -= d.Retries
		fl.deltas[key] = sum
	}
}

// rolledBack gives back what the transaction had reserved. After an unknown end the seats stay taken until it is known.
func (fl *flush) rolledBack(err error) {
	fl.e.budgets.add(fl.deltas, -1)
	if _, ok := errors.AsType[*store.CommitUnknownError](err); ok {
		return
	}
	for _, s := range fl.seats {
		s.eager.Return(s.at, s.seat)
	}
}

// committed answers the jobs and tells whoever may wait.
func (fl *flush) committed(ctx context.Context) {
	fl.e.budgets.add(fl.deltas, -1)
	for _, r := range fl.replies {
		r.job.reply(r.result)
	}
	fl.e.deliver(fl.seats, fl.leases, fl.ready)
	if l := fl.e.opt.Listener; l != nil {
		if len(fl.ready) > 0 {
			l.Ready(keysOf(fl.ready))
		}
		if len(fl.freed) > 0 {
			l.Freed(keysOf(fl.freed))
		}
	}
	marked := false
	for _, ev := range fl.evals {
		fl.e.parked.settle(ev, fl.e.opt.Clock.Now())
		fl.e.watch.changed(ev.id, ev.seq)
		marked = marked || ev.marked
	}
	if marked {
		wake(fl.e.marked)
	}
	fl.counts.report(fl.e.opt.Metrics)
	if len(fl.later) > 0 {
		fl.f.push(fl.later...)
	}
	if len(fl.lookUps) > 0 {
		fl.e.answer(ctx, fl.lookUps)
	}
}

func keysOf(set map[store.QueueAt]struct{}) []store.QueueAt {
	out := make([]store.QueueAt, 0, len(set))
	for at := range set {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b store.QueueAt) int {
		if a.NS != b.NS {
			return int(a.NS) - int(b.NS)
		}
		return int(a.QueueID) - int(b.QueueID)
	})
	return out
}

// settle forgets or counts failures of an execution's evaluation.
func (p *parked) settle(ev *eval, now time.Time) {
	if ev.failed != nil && ev.dueFailed {
		p.failed(ev.id, now)
		return
	}
	if ev.failed == nil {
		p.clear(ev.id)
	}
}

// deliver hands leases to the seats they were made for; a seat without one is given back, its task became ready.
func (e *Engine) deliver(seats []seated, leases []store.Lease, ready map[store.QueueAt]struct{}) {
	if len(seats) == 0 {
		return
	}
	byTask := make(map[store.TaskKey]store.Lease, len(leases))
	for _, l := range leases {
		byTask[l.TaskKey] = l
	}
	for _, s := range seats {
		l, ok := byTask[s.task]
		if !ok || s.task.TaskNo == 0 {
			if ready != nil && s.task.TaskNo != 0 {
				ready[s.at] = struct{}{}
			}
			s.eager.Return(s.at, s.seat)
			continue
		}
		s.eager.Deliver(s.seat, s.leased(l))
	}
}

// leased gives the attempt as its lease stands.
func (s seated) leased(l store.Lease) Leased {
	a := s.att
	a.Place, a.Fence, a.Holder, a.ClaimID, a.Worker = execution.InLease, l.Fence, s.seat.Holder, s.seat.ClaimID, s.seat.Worker
	a.Deliveries++
	a.LeasedAt, a.LeaseUntil, a.BeatBy, a.CloseBy, a.LeaseMs = l.LeasedAt, l.LeaseUntil, l.BeatBy, l.CloseBy, l.LeaseMs
	a.StartBy = time.Time{}
	var deadline time.Time
	for _, t := range []time.Time{l.LeaseUntil, l.BeatBy, l.CloseBy, a.AttBy, a.TotalBy} {
		if !t.IsZero() && (deadline.IsZero() || t.Before(deadline)) {
			deadline = t
		}
	}
	return Leased{Leased: store.Leased{ID: s.task.ID, Attempt: a, DeadlineAt: deadline}, Queue: s.key, Input: s.input}
}

// settle finds out which eager leases of a transaction with unknown end exist, once its jobs have been seen through.
func (e *Engine) settle(ctx context.Context, seats []seated) {
	if len(seats) == 0 {
		return
	}
	keys := make([]store.TaskKey, len(seats))
	claims := make([]int64, len(seats))
	for i, s := range seats {
		keys[i], claims[i] = s.task, s.seat.ClaimID
	}
	var leases []store.Lease
	err := e.store.InTx(ctx, store.Hot, "find-leases", func(ctx context.Context, tx *store.Tx) (err error) {
		leases, err = tx.FindLeases(ctx, keys, claims)
		return err
	})
	if err != nil { // they run out, or their runner gives them back (S5c)
		e.log.Warn("completer: leases of a transaction with unknown end", "leases", len(seats), "error", err)
	}
	e.deliver(seats, leases, nil)
}

func (fl *flush) fail(ev *eval, err error) {
	ev.failed = fmt.Errorf("%w: execution %s: %w", ErrEvaluation, ev.id.Exec, err)
	fl.e.log.Error("decider: evaluation failed", "execution", ev.id.Exec.String(), "error", err)
}
