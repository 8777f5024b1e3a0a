package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// Found says what is due (S5). It was read without locks: whoever acts on it judges again on the locked row.
type Found struct {
	Now     time.Time
	Ready   bool // ready rows have expired
	Leases  bool // leases are to be looked at
	Runners bool // a runner has not beaten, or is dead and not cleared
	Timers  []execution.Why
}

// LowMarks are the times from which a sweep looks; zero = from the beginning.
type LowMarks struct {
	Ready  time.Time
	Leases time.Time
	Timers map[execution.Why]time.Time // the classes to look at
}

// Look asks, in one statement, whether anything is due.
func (s *Store) Look(ctx context.Context, low LowMarks) (f Found, err error) {
	why, mark := newColumn(pgtype.Int2OID), newColumn(pgtype.TimestamptzOID)
	for w, from := range low.Timers {
		why.i16(int16(w))
		mark.at(from)
	}
	err = s.InTx(ctx, Ctl, "sweep_look", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "sweep_look", "", low.Ready, low.Leases, why, mark)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			f = Found{Now: r.time(), Ready: r.boolean(), Leases: r.boolean(), Runners: r.boolean()}
			for _, w := range r.int2s() {
				f.Timers = append(f.Timers, execution.Why(w))
			}
			return nil
		})
	})
	return f, err
}

// at writes a time, the zero time as it stands: before everything that is stored.
func (c *column) at(t time.Time) {
	if t.IsZero() {
		c.i64(microsOf(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)))
		return
	}
	c.time(t)
}

// int2s reads an array of smallint.
func (r *row) int2s() []int16 {
	v := r.next(0)
	if len(v) < 20 {
		return nil
	}
	var out []int16
	for v = v[20:]; len(v) >= 6; v = v[6:] {
		out = append(out, int16(v[4])<<8|int16(v[5]))
	}
	return out
}

// After is the place behind which a page of a sweep begins: by time, then key, so that a block of rows that cannot be finished hides no later ones.
type After struct {
	At     time.Time
	ID     execution.ID
	TaskNo int32
}

// DueReady is a ready row whose deadline has passed.
type DueReady struct {
	execution.ID
	TaskNo    int32
	Attempt   int32
	QueueID   int32
	DefID     int32
	DefRev    int32
	VisibleAt time.Time
	StartBy   time.Time
	AttBy     time.Time
	TotalBy   time.Time
	ExpireAt  time.Time
}

// Place gives the row's place in a sweep.
func (d DueReady) Place() After { return After{d.ExpireAt, d.ID, d.TaskNo} }

// DueReady finds expired ready rows (S5a), at most limit, above the low mark, after a place, due by now.
func (s *Store) DueReady(ctx context.Context, low time.Time, after After, now time.Time, limit int) (found []DueReady, err error) {
	err = s.InTx(ctx, Ctl, "sweep_ready", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "sweep_ready", "", low, after.At, after.ID.NS, [16]byte(after.ID.Exec), after.TaskNo, now, limit)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			found = append(found, DueReady{
				ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, TaskNo: r.i32(), Attempt: r.i32(), QueueID: r.i32(), DefID: r.i32(), DefRev: r.i32(),
				VisibleAt: r.time(), StartBy: r.time(), AttBy: r.time(), TotalBy: r.time(), ExpireAt: r.time(),
			})
			return nil
		})
	})
	return found, err
}

// DueLeases finds leases whose time to be looked at has come (S5b).
func (s *Store) DueLeases(ctx context.Context, low time.Time, after After, now time.Time, limit int) (found []LeaseRow, err error) {
	err = s.InTx(ctx, Ctl, "sweep_leases", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "sweep_leases", "", low, after.At, after.ID.NS, [16]byte(after.ID.Exec), after.TaskNo, now, limit)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			l := readLeaseRow(r)
			l.CheckAt = r.time()
			found = append(found, l)
			return nil
		})
	})
	return found, err
}

// DueTimer is a parked attempt, or the deadline of an execution (TaskNo 0), whose time has come.
type DueTimer struct {
	execution.ID
	TaskNo  int32
	Attempt int32
	Why     execution.Why
	DefID   int32
	DefRev  int32
	WakeAt  time.Time
	AttBy   time.Time
	TotalBy time.Time
	DueAt   time.Time
}

// Place gives the row's place in a sweep.
func (d DueTimer) Place() After { return After{d.DueAt, d.ID, d.TaskNo} }

// DueTimers finds timers of one class that the decider must hear of (S5e). With deadlines only, those whose task deadline is due, not those whose
// time to become ready has come.
func (s *Store) DueTimers(ctx context.Context, why execution.Why, deadlines bool, low time.Time, after After, now time.Time, limit int) (found []DueTimer, err error) {
	err = s.InTx(ctx, Ctl, "sweep_timers", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "sweep_timers", "", int16(why), low, after.At, after.ID.NS, [16]byte(after.ID.Exec), after.TaskNo, now, deadlines, limit)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			found = append(found, DueTimer{
				ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, TaskNo: r.i32(), Attempt: r.i32(), Why: execution.Why(r.i16()), DefID: r.i32(),
				DefRev: r.i32(), WakeAt: r.time(), AttBy: r.time(), TotalBy: r.time(), DueAt: r.time(),
			})
			return nil
		})
	})
	return found, err
}

// Moved is how many attempts a queue got.
type Moved struct {
	Queue QueueAt
	N     int
}

// MoveTimers moves due timers of one class to their queues (S5d), at most MaxMoved, and says how many rows it had locked: fewer than the limit
// means that nothing more is due.
func (s *Store) MoveTimers(ctx context.Context, why execution.Why, low, now time.Time) (moved []Moved, locked int, err error) {
	err = s.InTx(ctx, Ctl, "timers_move", func(ctx context.Context, tx *Tx) error {
		moved, locked = moved[:0], 0
		rows, err := tx.query(ctx, "timers_move", "", int16(why), low, now, MaxMoved)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			moved = append(moved, Moved{QueueAt{r.i32(), r.i32()}, int(r.i64())})
			locked = int(r.i64())
			return nil
		})
	})
	return moved, locked, err
}

// TimerKey names a timer.
type TimerKey struct {
	execution.ID
	TaskNo int32
}

// TimersDue names due timers of a class, for a sweep that must take them one by one.
func (s *Store) TimersDue(ctx context.Context, why execution.Why, low, now time.Time) (keys []TimerKey, err error) {
	err = s.InTx(ctx, Ctl, "timers_due", func(ctx context.Context, tx *Tx) error {
		keys = keys[:0]
		rows, err := tx.query(ctx, "timers_due", "", int16(why), low, now, MaxMoved)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			keys = append(keys, TimerKey{execution.ID{NS: r.i32(), Exec: r.uuid()}, r.i32()})
			return nil
		})
	})
	return keys, err
}

// MoveTimer moves one due timer to its queue. QueueID 0 = nothing was moved.
func (s *Store) MoveTimer(ctx context.Context, key TimerKey, now time.Time) (at QueueAt, err error) {
	err = s.InTx(ctx, Ctl, "timer_move", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "timer_move_one", "", key.NS, [16]byte(key.Exec), key.TaskNo, now)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { at = QueueAt{r.i32(), r.i32()}; return nil })
	})
	return at, err
}

// ParkTimer puts a timer that the server refuses to move out of the way for a while.
func (s *Store) ParkTimer(ctx context.Context, key TimerKey, wait time.Duration) error {
	return s.InTx(ctx, Ctl, "timer_park", func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, "timer_park", "", key.NS, [16]byte(key.Exec), key.TaskNo, wait.Milliseconds())
		return err
	})
}
