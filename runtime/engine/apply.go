package engine

import (
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// apply turns the decisions into writes. What it lacks (a queue that is new) comes back as a missingError: nothing is sent then.
func (fl *flush) apply() error {
	lacks := newMissing()
	var fresh []seated // attempts that become ready now
	for _, ev := range fl.evals {
		fresh = append(fresh, fl.schedules(ev, lacks)...)
	}
	if !lacks.empty() {
		return lacks
	}
	fl.seat(fresh)
	for _, ev := range fl.evals {
		fl.write(ev)
	}
	return nil
}

// schedules parks what is due later, and gives what becomes ready now.
func (fl *flush) schedules(ev *eval, lacks *missingError) []seated {
	var ready []seated
	for _, s := range ev.decision.Schedules {
		a := s.Attempt
		key := s.Queue
		if key != (execution.QueueKey{}) {
			q, ok := fl.e.store.Queues().Known(key)
			if !ok {
				lacks.queues[key] = true
				lacks.of[ev.id] = true
				continue
			}
			a.QueueID = q.QueueID
		} else if q, ok := fl.e.store.Queues().KnownAt(store.QueueAt{NS: ev.id.NS, QueueID: a.QueueID}); ok {
			key = q.Key
		}
		if a.Place == execution.InTimer {
			fl.f.w.Park(ev.id, a)
		} else {
			ready = append(ready, seated{
				at: store.QueueAt{NS: ev.id.NS, QueueID: a.QueueID}, key: key, task: store.TaskKey{ID: ev.id, TaskNo: a.TaskNo}, att: a, input: s.Input,
			})
		}
		if s.Input != nil {
			fl.f.w.Payload(ev.id, a.TaskNo, store.PartInput, a.Rerun, s.Input)
		}
	}
	return ready
}

// seat leases at once what this process can take, and makes the rest ready.
func (fl *flush) seat(fresh []seated) {
	wanted := map[store.QueueAt][]seated{}
	var order []store.QueueAt
	for _, s := range fresh {
		if len(wanted[s.at]) == 0 {
			order = append(order, s.at)
		}
		wanted[s.at] = append(wanted[s.at], s)
	}
	claim := fl.e.claims.Add(1)
	for _, at := range order {
		list := wanted[at]
		for _, eager := range fl.e.opt.Eager {
			if len(list) == 0 {
				break
			}
			if q, ok := fl.e.store.Queues().KnownAt(at); !ok || q.Gated {
				break
			}
			for _, seat := range eager.Reserve(at, list[0].key, len(list)) {
				if len(list) == 0 { // more than was asked for
					eager.Return(at, seat)
					continue
				}
				if seat.ClaimID == 0 {
					seat.ClaimID = claim
				}
				s := list[0]
				s.eager, s.seat = eager, seat
				fl.seats = append(fl.seats, s)
				fl.f.w.Eager(s.task.ID, s.att, seat)
				list = list[1:]
			}
		}
		for _, s := range list {
			fl.f.w.Ready(s.task.ID, s.att)
			fl.ready[at] = struct{}{}
		}
	}
}

// write adds the rest of a decision.
func (fl *flush) write(ev *eval) {
	w, d := fl.f.w, &ev.decision
	for _, r := range d.Removed {
		a := ev.attempts[r]
		w.Remove(ev.id, r, a.Sems)
		fl.freedBy(ev.id.NS, a)
	}
	for _, x := range d.Disarmed {
		w.Disarm(ev.id, x)
		fl.counts.missed(x.Class)
	}
	for _, row := range d.Ended {
		w.Task(ev.id, row)
		fl.counts.ended(ev, row)
	}
	for _, row := range d.Revised {
		w.Revise(ev.id, row)
		fl.counts.ended(ev, row)
	}
	for _, s := range d.Scopes {
		w.Scope(ev.id, s)
	}
	if d.Closing == nil || ev.forced.more {
		for name, value := range d.Vars {
			w.Var(ev.id, name, value)
		}
	}
	for _, x := range d.Events {
		w.Event(ev.id, x, fl.now)
	}
	for _, b := range d.Budget {
		w.Budget(ev.id.NS, b)
	}
	for _, m := range ev.marks {
		w.MarkSeen(m)
	}
	for _, m := range ev.leaves {
		w.Mark(m)
	}
	for _, r := range ev.retries {
		if r.counted {
			w.MarkDue(r.mark, r.due)
		} else {
			w.MarkTried(r.mark, r.due)
		}
	}
	for _, j := range ev.jobs {
		if j.terminate != nil && d.Closing != nil {
			w.Audit(ev.id.NS, fl.now, j.terminate.Actor, "terminate", "execution/"+ev.view.Namespace+"/"+ev.id.Exec.String(), j.terminate.Reason)
		}
		fl.reply(j, fl.resultOf(ev, j))
	}
	if d.Closing != nil {
		fl.end(ev)
		return
	}
	fl.goesOn(ev)
}

// resultOf answers a job whose evaluation stands.
func (fl *flush) resultOf(ev *eval, j *job) EndResult {
	if _, isReport := reportOf(j); ev.failed != nil && !isReport && ev.decision.Closing == nil {
		return EndResult{Err: ev.failed}
	}
	if ev.failed != nil && len(ev.decision.Ended) == 0 && ev.decision.Closing == nil {
		return EndResult{Err: ev.failed}
	}
	return EndResult{Answer: Accepted}
}

// goesOn writes an execution that stays open.
func (fl *flush) goesOn(ev *eval) {
	w, d := fl.f.w, &ev.decision
	h := d.Header
	if d.Continue {
		for _, no := range d.ContinueAt {
			w.Mark(store.Mark{ID: ev.id, What: store.MarkChunk, TaskNo: no, Since: fl.now, DueAt: fl.now})
		}
		ev.marked = true
	}
	if !d.Deadline.IsZero() {
		w.Deadline(h, d.Deadline, fl.now)
	}
	ev.seq = h.Seq
	if ev.fresh {
		w.Start(h)
		return
	}
	w.SetHeader(ev.old, h)
}

// end writes an execution that ends: closed if nothing is left open, else one chunk of its end (S8).
func (fl *flush) end(ev *eval) {
	w, d := fl.f.w, &ev.decision
	h, c := d.Header, d.Closing
	if ev.fresh {
		w.Start(h)
	}
	fl.cancelOpen(ev, &h)
	if c.Output != nil && c.OutputNo == 0 {
		w.Payload(ev.id, 0, store.PartOutput, 0, c.Output)
	}
	if ev.forced.more {
		if ev.prog.timed {
			w.DisarmDeadline(ev.id)
		}
		w.Mark(store.Mark{ID: ev.id, What: store.MarkChunk, Since: fl.now, DueAt: fl.now})
		w.SetHeader(ev.old, h)
		ev.seq, ev.marked = h.Seq, true
		return
	}
	scopes := scopesAfter(ev.forced.scopes, d.Scopes)
	if ev.forced.on && len(scopes) > 0 {
		var rows []execution.TaskRow
		rows, h = ev.prog.CancelJoins(scopes, h, func(forkNo int32) time.Time { return ev.forced.since[forkNo] }, fl.now)
		for _, row := range rows {
			w.Task(ev.id, row)
		}
	}
	fl.close(ev, h, scopes)
}

func (fl *flush) close(ev *eval, h execution.Header, scopes []execution.Scope) {
	w, d := fl.f.w, &ev.decision
	c := d.Closing
	closed := store.Closed{
		Header: h, Seq: h.Seq + 1, EndedAt: fl.now, Status: c.Status, Cause: c.Cause, Reason: execution.CutReason(c.Reason, execution.MaxReason),
		FailedNo: c.FailedNo, FailedRef: c.FailedRef, OutputNo: c.OutputNo,
	}
	if closed.EndedAt.Before(h.StartedAt) {
		closed.EndedAt = h.StartedAt
	}
	if c.Status == execution.Completed {
		closed.Cause = ""
	} else {
		closed.Frames = framesOf(h.Loose, scopes)
	}
	if ev.prog.vars {
		w.Payload(ev.id, 0, store.PartVariables, 0, varsText(ev.forced.vars, d.Vars))
	}
	w.Close(closed, ev.prog.timed, ev.prog.vars, ev.prog.scopes)
	ev.seq = closed.Seq
	fl.counts.finished(ev, c.Status)
}

// freedBy notes the queue of a lease that ends.
func (fl *flush) freedBy(ns int32, a execution.Attempt) {
	if a.Place == execution.InLease {
		fl.freed[store.QueueAt{NS: ns, QueueID: a.QueueID}] = struct{}{}
	}
}
