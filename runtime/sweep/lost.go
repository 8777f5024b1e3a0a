package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/store"
	"nf/schema"
)

// fate is what must happen to a lease that was looked at.
type fate struct {
	moves  []store.Move
	queues []store.QueueAt // of moves
	ends   []engine.End
	beaten []store.LeaseKey
}

// leases looks at leases whose time has come (S5b): beaten ones are looked at later, time-outs and the end of deliveries go to the engine, lost work goes back to
// the head of its lane. A time-out that is due together with a loss wins.
func (s *Sweeper) leases(ctx context.Context, now time.Time, resting bool) error {
	var failed error
	var open time.Time
	after := store.After{}
	note := func(at time.Time) {
		if open.IsZero() || at.Before(open) {
			open = at
		}
	}
	for {
		page, err := s.store.DueLeases(ctx, s.low.leases, after, now, pageSize)
		if err != nil {
			return errors.Join(failed, err)
		}
		if err := s.loadDefinitions(ctx, page); err != nil {
			failed = errors.Join(failed, err)
		}
		var f fate
		for _, l := range page {
			switch {
			case l.TimedOut(now):
				f.end(l, engine.Due{})
			case !l.Lost(now):
				f.beaten = append(f.beaten, l.LeaseKey)
			case resting:
				note(l.CheckAt)
			default:
				if !s.judge(&f, l, now, false) {
					note(l.CheckAt)
				}
			}
		}
		if err := s.store.Recheck(ctx, store.Ctl, f.beaten); err != nil {
			failed = errors.Join(failed, err)
		}
		if err := s.carryOut(ctx, store.MoveLost, &f); err != nil {
			failed = errors.Join(failed, err)
			if len(page) > 0 {
				note(page[0].CheckAt)
			}
		}
		if len(page) < pageSize {
			s.low.leases = s.until(now, s.low.leases, open)
			return failed
		}
		last := page[len(page)-1]
		after = store.After{At: last.CheckAt, ID: last.ID, TaskNo: last.TaskNo}
	}
}

func (f *fate) end(l store.LeaseRow, what engine.What) {
	f.ends = append(f.ends, engine.End{
		ID: l.ID, TaskNo: l.TaskNo, Attempt: l.LeaseKey.Attempt, Place: execution.InLease, Fence: l.Fence, What: what,
	})
}

// judge decides about lost work: again, or its end. False: its definition is not at hand, so nothing can be said yet.
func (s *Sweeper) judge(f *fate, l store.LeaseRow, now time.Time, dead bool) bool {
	defs := s.opt.Registry.Snapshot()
	if move, ok := queue.Again(defs, l, now); ok {
		f.moves = append(f.moves, move)
		f.queues = append(f.queues, l.Queue())
		return true
	}
	pinned, known := defs.TaskRev(l.NS, l.DefRev)
	switch {
	case l.DefRev != 0 && !known:
		return false
	case l.DefRev != 0 && pinned.Def.Delivery == schema.AtMostOnce:
		f.end(l, engine.Lost{Cause: execution.CauseOutcomeUnknown, Reason: lossText(l, dead) + "; delivery is atMostOnce", Certain: dead})
	default:
		f.end(l, engine.Lost{
			Cause: execution.CauseDeliveriesExhausted, Certain: dead,
			Reason: fmt.Sprintf("%d deliveries without a verdict; at the last %s", l.Deliveries, lossText(l, dead)),
		})
	}
	return true
}

func lossText(l store.LeaseRow, dead bool) string {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	switch {
	case dead:
		return fmt.Sprintf("runner %d died", l.Holder)
	case !l.BeatBy.IsZero() && (l.LeaseUntil.IsZero() || l.BeatBy.Before(l.LeaseUntil)):
		return "the heartbeat due at " + l.BeatBy.UTC().Format(layout) + " was missed"
	default:
		return "the lease ran out at " + l.LeaseUntil.UTC().Format(layout)
	}
}

// carryOut moves and ends.
func (s *Sweeper) carryOut(ctx context.Context, how store.How, f *fate) error {
	var failed error
	for from := 0; from < len(f.moves); from += store.MaxMoved {
		part := f.moves[from:min(from+store.MaxMoved, len(f.moves))]
		moved, err := s.store.Reclaim(ctx, store.Ctl, how, part)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		var queues []store.QueueAt
		for _, m := range moved {
			for i := range part {
				if part[i].LeaseKey == m.LeaseKey {
					queues = append(queues, f.queues[from+i])
				}
			}
		}
		s.redelivered(queues)
	}
	_, err := s.record(ctx, f.ends)
	return errors.Join(failed, err)
}

// redelivered announces lost work that is back, and the places that it held.
func (s *Sweeper) redelivered(queues []store.QueueAt) {
	if len(queues) == 0 {
		return
	}
	s.count("reclaim", len(queues))
	if m := s.opt.Metrics; m != nil {
		for _, at := range queues {
			name := ""
			if q, ok := s.store.Queues().KnownAt(at); ok {
				name = q.Key.Name
			}
			m.Redeliveries.WithLabelValues(name).Inc()
		}
	}
	s.opt.Queue.Ready(queues)
	s.opt.Queue.Freed(queues)
}

// loadDefinitions makes the definitions of leases known.
func (s *Sweeper) loadDefinitions(ctx context.Context, leases []store.LeaseRow) error {
	revs := map[int32][]int32{}
	seen := map[[2]int32]bool{}
	for _, l := range leases {
		if key := [2]int32{l.NS, l.DefRev}; l.DefRev != 0 && !seen[key] {
			seen[key] = true
			revs[l.NS] = append(revs[l.NS], l.DefRev)
		}
	}
	var failed error
	for ns, all := range revs {
		failed = errors.Join(failed, s.opt.Registry.LoadTaskRevs(ctx, ns, all))
	}
	return failed
}

// walk is what is known of the leases of a dead runner.
type walk struct {
	at   time.Time // database time of the last walk
	left bool      // it left something
}

// runners buries those who have not beaten and takes back what they held, at once and again 20 s later; with full also what is leased to numbers that
// are dead or missing, and what is leased under this runner's own number without being in its memory (S5c).
func (s *Sweeper) runners(ctx context.Context, now time.Time, full bool) error {
	if _, err := s.store.BuryRunners(ctx); err != nil {
		return err
	}
	dead, err := s.store.UnclearedRunners(ctx)
	if err != nil {
		return err
	}
	var visit []int32
	for _, d := range dead {
		w, seen := s.walks[d.No]
		if !seen || w.left || (!d.Now.Before(d.DeadAt.Add(secondWalk)) && w.at.Before(d.DeadAt.Add(secondWalk))) {
			visit = append(visit, d.No)
		}
	}
	var failed error
	left := map[int32]bool{}
	if len(visit) > 0 || full {
		left, failed = s.walkLeases(ctx, visit, full, now)
	}
	if failed != nil {
		return failed
	}
	for _, d := range dead {
		for _, no := range visit {
			if no == d.No {
				s.walks[no] = walk{at: d.Now, left: left[no]}
			}
		}
		if w := s.walks[d.No]; !w.left && !w.at.Before(d.DeadAt.Add(secondWalk)) {
			if err := s.store.ClearRunner(ctx, d.No); err != nil {
				return err
			}
			delete(s.walks, d.No)
		}
	}
	if full && s.opt.Runner != nil {
		return s.ownLeases(ctx)
	}
	return nil
}

// walkLeases takes back what dead runners hold, in one walk, and says who still holds something.
func (s *Sweeper) walkLeases(ctx context.Context, runners []int32, orphans bool, now time.Time) (left map[int32]bool, failed error) {
	left = map[int32]bool{}
	after := store.After{}
	for {
		page, err := s.store.RunnerLeases(ctx, runners, orphans, after)
		if err != nil {
			return left, errors.Join(failed, err)
		}
		if err := s.loadDefinitions(ctx, page); err != nil {
			failed = errors.Join(failed, err)
		}
		var f fate
		for _, l := range page {
			left[l.Holder] = true // looked at once more before the runner is cleared
			if l.TimedOut(now) {
				f.end(l, engine.Due{})
				continue
			}
			s.judge(&f, l, now, true)
		}
		failed = errors.Join(failed, s.carryOut(ctx, store.MoveDead, &f))
		if len(page) < pageSize {
			return left, failed
		}
		last := page[len(page)-1]
		after = store.After{ID: last.ID, TaskNo: last.TaskNo}
	}
}

// ownLeases gives back what is leased under this runner's number and not in its memory: a COMMIT that arrived late.
func (s *Sweeper) ownLeases(ctx context.Context) error {
	no := s.opt.Runner.No()
	after := store.After{}
	for no != 0 {
		page, err := s.store.OwnLeases(ctx, no, ownAge, after)
		if err != nil {
			return err
		}
		var keys []store.LeaseKey
		for _, l := range page {
			if !s.opt.Mine(l.LeaseKey) {
				keys = append(keys, l.LeaseKey)
			}
		}
		for _, err := range s.opt.Queue.ReleaseKeys(ctx, store.Ctl, keys) {
			if err != nil && !errors.Is(err, queue.ErrLeaseExpired) {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		last := page[len(page)-1]
		after = store.After{ID: last.ID, TaskNo: last.TaskNo}
	}
	return nil
}

// explanation says why nobody took a task.
type explanation struct {
	reason  string
	control string
}

// explain tells "no worker" and "gate closed" apart (A4.2).
func (s *Sweeper) explain(ctx context.Context, known map[store.QueueAt]explanation, at store.QueueAt, now time.Time) explanation {
	if e, ok := known[at]; ok {
		return e
	}
	p, err := s.store.QueuePolled(ctx, at)
	e := explanation{reason: "scheduleToStart: queue behind"}
	var v queue.Verdict
	switch {
	case err != nil:
	case p.Verdict != nil && now.Sub(p.VerdictAt) < queue.VerdictFor && json.Unmarshal(p.Verdict, &v) == nil:
		e = explanation{reason: "scheduleToStart: gate=" + v.Control, control: v.Control}
	case !p.Polled:
		e.reason = "scheduleToStart: no worker polled " + p.Name
	}
	known[at] = e
	return e
}
