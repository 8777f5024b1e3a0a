package engine

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// maxCancel is how many open attempts one transaction cancels (S8).
const maxCancel = 1000

// forced is what an end by force came to in this transaction.
type forced struct {
	on     bool
	open   []store.OpenAttempt // to be canceled now
	more   bool                // there are others: a mark goes on with them
	scopes []execution.Scope
	since  map[int32]time.Time // when the forks of scopes ended, so their JOINs opened
	vars   map[string][]byte   // of an execution that closes and has variables
}

// force takes the ending locks of executions that end by force, and locks their open attempts (S8 steps 1 and 3).
func (fl *flush) force(ctx context.Context, tx *store.Tx) error {
	var ids, withScopes []execution.ID
	for _, ev := range fl.evals {
		if c := ev.decision.Closing; c != nil && c.Force {
			ev.forced.on = true
			ids = append(ids, ev.id)
			if ev.prog.scopes {
				withScopes = append(withScopes, ev.id)
			}
		}
	}
	if len(ids) > 0 {
		if err := tx.EndLock(ctx, ids); err != nil {
			return err
		}
		open, err := tx.LockOpen(ctx, ids, maxCancel+1)
		if err != nil {
			return err
		}
		fl.share(open)
	}
	if len(withScopes) > 0 {
		scopes, err := tx.Scopes(ctx, withScopes)
		if err != nil {
			return err
		}
		for id, list := range scopes {
			fl.of[id].forced.scopes = list
		}
	}
	return fl.readRest(ctx, tx)
}

// share gives the open attempts to their executions, at most maxCancel in all; the rest follows in later chunks.
func (fl *flush) share(open []store.OpenAttempt) {
	left := maxCancel
	for _, a := range open {
		ev := fl.of[a.ID]
		gone := slices.ContainsFunc(ev.decision.Removed, func(r execution.Removed) bool {
			return r.Place == a.Place && r.TaskNo == a.TaskNo
		})
		switch {
		case gone:
		case left == 0:
			ev.forced.more = true
		default:
			left--
			ev.forced.open = append(ev.forced.open, a)
		}
	}
}

// readRest reads the variables of executions that close, to be kept with their history, and when the forks ended whose JOINs are open.
func (fl *flush) readRest(ctx context.Context, tx *store.Tx) error {
	var want store.Wanted
	for _, ev := range fl.evals {
		for _, s := range ev.forced.scopes {
			if !s.Fired && !ev.forced.more {
				want.Tasks = append(want.Tasks, store.TaskKey{ID: ev.id, TaskNo: s.ScopeNo})
			}
		}
		if ev.decision.Closing == nil || ev.forced.more || !ev.prog.vars {
			continue
		}
		if ev.view.HasVars {
			ev.forced.vars = ev.view.Vars
			continue
		}
		if !ev.fresh {
			want.Vars = append(want.Vars, ev.id)
		}
	}
	if want.Empty() {
		return nil
	}
	loaded, err := tx.Load(ctx, want)
	if err != nil {
		return err
	}
	for id, vars := range loaded.Vars {
		fl.of[id].forced.vars = vars
	}
	for task, v := range loaded.Tasks {
		ev := fl.of[task.ID]
		if ev.forced.since == nil {
			ev.forced.since = map[int32]time.Time{}
		}
		ev.forced.since[task.TaskNo] = v.EndedAt
	}
	return nil
}

// cancelOpen appends the open attempts as CANCELED and removes them, with their permits.
func (fl *flush) cancelOpen(ev *eval, h *execution.Header) {
	w := fl.f.w
	for _, a := range ev.forced.open {
		h.Seq++
		w.Task(ev.id, canceled(a.Attempt, h.Seq, fl))
		w.Remove(ev.id, removedOf(a.Attempt), a.Sems)
		fl.freedBy(ev.id.NS, a.Attempt)
		fl.counts.attempt(ev, a.Slot, a.Kind, execution.Canceled, execution.CauseExecutionEnded)
	}
}

func canceled(a execution.Attempt, seq int64, fl *flush) execution.TaskRow {
	row := execution.TaskRow{
		TaskNo: a.TaskNo, Attempt: a.Attempt, Seq: seq, ScheduledAt: a.ScheduledAt, LeasedAt: a.LeasedAt, EndedAt: fl.now, ScopeNo: a.ScopeNo,
		Slot: a.Slot, DefID: a.DefID, DefRev: a.DefRev, QueueID: a.QueueID, Deliveries: a.Deliveries, Kind: a.Kind,
		Status: execution.Canceled, Rerun: a.Rerun, Iteration: a.Iteration, Worker: a.Worker, Cause: execution.CauseExecutionEnded,
	}
	if a.Place != execution.InTimer || a.Why == execution.WhyBackoff || a.Why == execution.WhyStartDelay {
		row.VisibleAt = a.VisibleAt
	}
	if row.EndedAt.Before(row.LeasedAt) { // claimed between the clock's reading and the lock
		row.EndedAt = row.LeasedAt
	}
	if row.EndedAt.Before(row.ScheduledAt) {
		row.EndedAt = row.ScheduledAt
	}
	return row
}

// frames is what is kept of the shape of an execution that did not complete, for an operator's retry or rerun.
type frames struct {
	Loose  int32             `json:"loose,omitempty"`
	Scopes []execution.Scope `json:"scopes,omitempty"`
}

func framesOf(loose int32, scopes []execution.Scope) []byte {
	if len(scopes) == 0 {
		return nil
	}
	text, err := json.Marshal(frames{Loose: loose, Scopes: scopes})
	if err != nil {
		return nil // numbers always encode
	}
	return text
}

// scopesAfter gives the scopes as a decision leaves them.
func scopesAfter(before []execution.Scope, changes []execution.ScopeChange) []execution.Scope {
	after := slices.Clone(before)
	for _, c := range changes {
		i := slices.IndexFunc(after, func(s execution.Scope) bool { return s.ScopeNo == c.Scope.ScopeNo })
		switch {
		case c.Delete && i >= 0:
			after = slices.Delete(after, i, i+1)
		case !c.Delete && i >= 0:
			after[i] = c.Scope
		case !c.Delete:
			after = append(after, c.Scope)
		}
	}
	return after
}

// varsText gives variables as one JSON object with sorted names; nil if there are none.
func varsText(vars map[string][]byte, changed map[string][]byte) []byte {
	all := make(map[string]json.RawMessage, len(vars)+len(changed))
	for name, v := range vars {
		all[name] = v
	}
	for name, v := range changed {
		all[name] = v
	}
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil // each value was encoded by the decider
	}
	return text
}
