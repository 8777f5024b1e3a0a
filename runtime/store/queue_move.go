package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// MaxMoved is the largest number of leases that one transaction of a mover takes: each is an entry of the server's lock table.
const MaxMoved = 100

// MaxDeliveries is the number of deliveries of an attempt without a verdict (X4).
const MaxDeliveries = 5

// LeaseRow is a lease as a sweep sees it. A zero time is a deadline that is not armed.
type LeaseRow struct {
	LeaseKey
	QueueID    int32
	DefRev     int32
	Deliveries int32 // this one included
	Holder     int32
	LeaseUntil time.Time
	BeatBy     time.Time
	CloseBy    time.Time
	AttBy      time.Time
	TotalBy    time.Time
	CheckAt    time.Time // of S5b; zero elsewhere
}

// Queue names the lease's queue.
func (l LeaseRow) Queue() QueueAt { return QueueAt{l.NS, l.QueueID} }

// Lost says whether the lease or the heartbeat has run out (X4). A runner's own leases have neither.
func (l LeaseRow) Lost(now time.Time) bool { return past(l.LeaseUntil, now) || past(l.BeatBy, now) }

// TimedOut says whether a time-out is due: it wins over lost work (A4.6).
func (l LeaseRow) TimedOut(now time.Time) bool {
	return past(l.CloseBy, now) || past(l.AttBy, now) || past(l.TotalBy, now)
}

func past(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func readLeaseRow(r *row) LeaseRow {
	var l LeaseRow
	l.NS, l.Exec, l.TaskNo, l.LeaseKey.Attempt, l.Fence = r.i32(), r.uuid(), r.i32(), r.i32(), r.i64()
	l.QueueID, l.DefRev, l.Deliveries, l.Holder = r.i32(), r.i32(), r.i32(), r.i32()
	l.LeaseUntil, l.BeatBy, l.CloseBy, l.AttBy, l.TotalBy = r.time(), r.time(), r.time(), r.time(), r.time()
	return l
}

// Move takes a lease back to the head of its lane.
type Move struct {
	LeaseKey
	// StartBy is the new scheduleToStart deadline (contract 3.6: from the reclaim); zero = not armed.
	StartBy time.Time
}

// How says by what right leases are moved.
type How int

// The ways a lease goes back to its queue.
const (
	MoveLost    How = iota + 1 // its lease or heartbeat has run out; judged again on the locked row
	MoveDead                   // its runner is dead; judged again on the locked row
	MoveRelease                // its holder gives it back (S7): not a delivery
)

// Redeliver moves leases to the head of their lanes, permits freed, in the caller's transaction (S5b, S5c, S7, S1b step 4). A mover waits
// for nothing: what is locked elsewhere, is being ended, or has changed since it was found stays as it is. It gives what was moved.
func (t *Tx) Redeliver(ctx context.Context, how How, moves []Move, now time.Time) ([]Move, error) {
	if len(moves) == 0 {
		return nil, nil
	}
	moves = slices.Clone(moves[:min(len(moves), MaxMoved)])
	slices.SortFunc(moves, func(a, b Move) int { return compareLeases(a.LeaseKey, b.LeaseKey) })
	free, err := t.endLocks(ctx, moves)
	if err != nil || len(free) == 0 {
		return nil, err
	}
	locked, err := t.lockLeases(ctx, how, free, now)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	ns, id, no := newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID), newColumn(pgtype.Int4OID)
	fence, by := newColumn(pgtype.Int8OID), newColumn(pgtype.TimestamptzOID)
	for _, m := range locked {
		ns.i32(m.NS)
		id.uuid(m.Exec)
		no.i32(m.TaskNo)
		fence.i64(m.Fence)
		by.time(m.StartBy)
	}
	back := 0
	if how == MoveRelease {
		back = 1
	}
	_, err = t.exec(ctx, "lease_move", "", ns, id, no, fence, by, back)
	return locked, err
}

func compareLeases(a, b LeaseKey) int {
	if a.NS != b.NS {
		return int(a.NS) - int(b.NS)
	}
	if c := slices.Compare(a.Exec[:], b.Exec[:]); c != 0 {
		return c
	}
	return int(a.TaskNo) - int(b.TaskNo)
}

// endLocks keeps the moves whose execution is not being ended by force.
func (t *Tx) endLocks(ctx context.Context, moves []Move) (free []Move, err error) {
	n, ns, id := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID)
	for i, m := range moves {
		n.i32(int32(i))
		ns.i32(m.NS)
		id.uuid(m.Exec)
	}
	rows, err := t.query(ctx, "end_lock_try", "", n, ns, id)
	if err != nil {
		return nil, err
	}
	return free, each(rows, func(r *row) error { free = append(free, moves[r.i32()]); return nil })
}

// lockLeases locks the leases and keeps those that may still be moved.
func (t *Tx) lockLeases(ctx context.Context, how How, moves []Move, now time.Time) (locked []Move, err error) {
	n, ns, id := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID)
	no, fence := newColumn(pgtype.Int4OID), newColumn(pgtype.Int8OID)
	for i, m := range moves {
		n.i32(int32(i))
		ns.i32(m.NS)
		id.uuid(m.Exec)
		no.i32(m.TaskNo)
		fence.i64(m.Fence)
	}
	rows, err := t.query(ctx, "lease_lock", "", n, ns, id, no, fence)
	if err != nil {
		return nil, err
	}
	return locked, each(rows, func(r *row) error {
		m := moves[r.i32()]
		l := LeaseRow{LeaseKey: m.LeaseKey, Deliveries: r.i32(), Holder: r.i32(), LeaseUntil: r.time(), BeatBy: r.time(), CloseBy: r.time(), AttBy: r.time(), TotalBy: r.time()}
		switch {
		case how == MoveRelease,
			how == MoveLost && l.Lost(now) && !l.TimedOut(now) && l.Deliveries < MaxDeliveries,
			how == MoveDead && l.Holder > 0 && !l.TimedOut(now) && l.Deliveries < MaxDeliveries:
			locked = append(locked, m)
		}
		return nil
	})
}

// Reclaim moves lost leases back to their queues in a transaction of its own (S5b, S5c): at most MaxMoved; the rest is the caller's. It gives
// what was moved.
func (s *Store) Reclaim(ctx context.Context, lane Lane, how How, moves []Move) (moved []Move, err error) {
	err = s.InTx(ctx, lane, "reclaim", func(ctx context.Context, tx *Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		moved, err = tx.Redeliver(ctx, how, moves, now)
		return err
	})
	return moved, err
}

// Release gives leases back to the head of their lanes without a delivery (S7), by fence, at most MaxMoved. The answer has the order of moves: nil, or
// ErrLeaseLost where the fence is no longer in force, or ErrBusy where the lease is held by another transaction for the moment.
func (s *Store) Release(ctx context.Context, lane Lane, moves []Move) ([]error, error) {
	moved, err := s.Reclaim(ctx, lane, MoveRelease, moves)
	if err != nil {
		return nil, err
	}
	done := map[LeaseKey]bool{}
	for _, m := range moved {
		done[m.LeaseKey] = true
	}
	keys := make([]LeaseKey, len(moves))
	for i, m := range moves {
		keys[i] = m.LeaseKey
	}
	states, err := s.LeaseStates(ctx, lane, keys)
	if err != nil {
		return nil, err
	}
	out := make([]error, len(moves))
	for i, m := range moves {
		switch {
		case done[m.LeaseKey]:
		case states[i].Found:
			out[i] = ErrBusy
		default:
			out[i] = ErrLeaseLost
		}
	}
	return out, nil
}

// LeaseState is a lease that is there now.
type LeaseState struct {
	Found      bool
	Now        time.Time
	Attempt    int32
	QueueID    int32
	Holder     int32
	DefRev     int32
	LeaseMs    int64
	LeaseUntil time.Time
	BeatBy     time.Time
	DeadlineAt time.Time
	Ending     bool // its execution is being ended by force
}

// LeaseStates looks leases up by key and fence, without locks. The answer has the order of keys.
func (s *Store) LeaseStates(ctx context.Context, lane Lane, keys []LeaseKey) ([]LeaseState, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	out := make([]LeaseState, len(keys))
	n, ns, id, no, fence := leaseColumns(keys)
	err := s.InTx(ctx, lane, "lease_state", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "lease_state", "", n, ns, id, no, fence)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			out[r.i32()] = LeaseState{
				Found: true, Now: r.time(), Attempt: r.i32(), QueueID: r.i32(), Holder: r.i32(), DefRev: r.i32(), LeaseMs: r.i64(),
				LeaseUntil: r.time(), BeatBy: r.time(), DeadlineAt: r.time(), Ending: r.boolean(),
			}
			return nil
		})
	})
	return out, err
}

func leaseColumns(keys []LeaseKey) (n, ns, id, no, fence *column) {
	n, ns, id = newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID)
	no, fence = newColumn(pgtype.Int4OID), newColumn(pgtype.Int8OID)
	for i, k := range keys {
		n.i32(int32(i))
		ns.i32(k.NS)
		id.uuid(k.Exec)
		no.i32(k.TaskNo)
		fence.i64(k.Fence)
	}
	return n, ns, id, no, fence
}

// Beat extends one worker's lease (S4).
type Beat struct {
	LeaseKey
	LeaseMs int64 // new length
	BeatMs  int64 // heartbeatTimeout; 0 = none
}

// Beats extends workers' leases, at most 100, and gives the new ends in the order of beats. A zero time was not written: the lease is gone,
// or another transaction holds it for the moment; LeaseStates tells which.
func (s *Store) Beats(ctx context.Context, beats []Beat) ([]time.Time, error) {
	out := make([]time.Time, len(beats))
	order := make([]int, len(beats))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareLeases(beats[a].LeaseKey, beats[b].LeaseKey) })
	n, ns, id := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID)
	no, fence := newColumn(pgtype.Int4OID), newColumn(pgtype.Int8OID)
	lease, beat := newColumn(pgtype.Int8OID), newColumn(pgtype.Int8OID)
	for _, i := range order {
		b := beats[i]
		n.i32(int32(i)) //nolint:gosec // at most 100
		ns.i32(b.NS)
		id.uuid(b.Exec)
		no.i32(b.TaskNo)
		fence.i64(b.Fence)
		lease.i64(b.LeaseMs)
		beat.i64OrNull(b.BeatMs)
	}
	err := s.InTx(ctx, Ctl, "beat", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "lease_beat", "", n, ns, id, no, fence, lease, beat)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { out[r.i32()] = r.time(); return nil })
	})
	return out, err
}

// ExpireNow makes external leases run out now (contract 3.7: an answer that could not be written under atMostOnce): the sweep finds them lost.
func (s *Store) ExpireNow(ctx context.Context, lane Lane, keys []LeaseKey) error {
	if len(keys) == 0 {
		return nil
	}
	_, ns, id, no, fence := leaseColumns(keys)
	return s.InTx(ctx, lane, "expire", func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, "lease_expire", "", ns, id, no, fence)
		return err
	})
}

// Recheck moves the time at which beaten leases are looked at to their deadlines (S5b).
func (s *Store) Recheck(ctx context.Context, lane Lane, keys []LeaseKey) error {
	if len(keys) == 0 {
		return nil
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, compareLeases)
	n, ns, id, no, fence := leaseColumns(keys)
	return s.InTx(ctx, lane, "recheck", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "lease_lock", "", n, ns, id, no, fence)
		if err != nil {
			return err
		}
		var locked []LeaseKey
		if err := each(rows, func(r *row) error { locked = append(locked, keys[r.i32()]); r.i = len(r.values); return nil }); err != nil {
			return err
		}
		_, ns, id, no, fence := leaseColumns(locked)
		_, err = tx.exec(ctx, "lease_recheck", "", ns, id, no, fence)
		return err
	})
}

// Transient says that a mover or a beat may simply be sent again: its guards make it harmless (S0).
func Transient(err error) bool {
	var unknown *CommitUnknownError
	return errors.As(err, &unknown) || TryAgain(err) || Away(err)
}
