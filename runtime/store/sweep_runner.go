package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// DeadRunner is a runner whose leases are not known to be gone.
type DeadRunner struct {
	No     int32
	DeadAt time.Time
	Now    time.Time
}

// BuryRunners declares those runners dead that have not beaten, once and for ever (S5c).
func (s *Store) BuryRunners(ctx context.Context) (dead []int32, err error) {
	err = s.InTx(ctx, Ctl, "runner_dead", func(ctx context.Context, tx *Tx) error {
		dead = dead[:0]
		rows, err := tx.query(ctx, "runner_dead", "")
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { dead = append(dead, r.i32()); return nil })
	})
	return dead, err
}

// UnclearedRunners gives the dead whose leases are not known to be gone.
func (s *Store) UnclearedRunners(ctx context.Context) (dead []DeadRunner, err error) {
	err = s.InTx(ctx, Ctl, "runner_uncleared", func(ctx context.Context, tx *Tx) error {
		dead = dead[:0]
		rows, err := tx.query(ctx, "runner_uncleared", "")
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { dead = append(dead, DeadRunner{r.i32(), r.time(), r.time()}); return nil })
	})
	return dead, err
}

// ClearRunner notes that nothing is leased to a dead runner any more.
func (s *Store) ClearRunner(ctx context.Context, no int32) error {
	return s.InTx(ctx, Ctl, "runner_clear", func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, "runner_clear", "", no)
		return err
	})
}

// RunnerLeases walks the leases of the given runners, a page of at most 500 after a place; orphans takes every lease whose runner is dead or missing too.
// The last page is shorter than 500.
func (s *Store) RunnerLeases(ctx context.Context, runners []int32, orphans bool, after After) (found []LeaseRow, err error) {
	no := newColumn(pgtype.Int4OID)
	for _, r := range runners {
		no.i32(r)
	}
	err = s.InTx(ctx, Ctl, "runner_leases", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "runner_leases", "", after.ID.NS, [16]byte(after.ID.Exec), after.TaskNo, no, orphans)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { found = append(found, readLeaseRow(r)); return nil })
	})
	return found, err
}

// OwnLeases walks the leases under one runner's number that are older than age, a page of at most 500 after a place: what the process
// does not know came from a COMMIT that arrived late, and is given back (S5c).
func (s *Store) OwnLeases(ctx context.Context, runner int32, age time.Duration, after After) (found []LeaseRow, err error) {
	err = s.InTx(ctx, Ctl, "runner_own_leases", func(ctx context.Context, tx *Tx) error {
		found = found[:0]
		rows, err := tx.query(ctx, "runner_own_leases", "", after.ID.NS, [16]byte(after.ID.Exec), after.TaskNo, runner, age.Milliseconds())
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			var l LeaseRow
			l.NS, l.Exec, l.TaskNo, l.LeaseKey.Attempt, l.Fence, l.QueueID, l.DefRev = r.i32(), r.uuid(), r.i32(), r.i32(), r.i64(), r.i32(), r.i32()
			l.Holder = runner
			found = append(found, l)
			return nil
		})
	})
	return found, err
}

// QueuePolled is what explains a task that nobody took.
type QueuePolled struct {
	Name      string
	Verdict   []byte // last refusal of the definition, JSON
	VerdictAt time.Time
	Polled    bool // by a worker in the last minute; runner queues: a runner is alive
}

// QueuePolled reads it.
func (s *Store) QueuePolled(ctx context.Context, q QueueAt) (p QueuePolled, err error) {
	err = s.InTx(ctx, Ctl, "queue_polled", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "queue_polled", "", q.NS, q.QueueID)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			p = QueuePolled{Name: r.text(), Verdict: r.bytes(), VerdictAt: r.time(), Polled: r.boolean()}
			return nil
		})
	})
	return p, err
}

// retirements are the statements of S17 that wave 1 needs, each of at most 1,000 rows.
var retirements = [...]string{"retire_pollers", "retire_budget", "retire_runners"}

// Retire removes what is too old to matter (S17), at most 1,000 rows a table, in transactions of their own. It gives the number of rows: run it again, after a
// pause, while that is large.
func (s *Store) Retire(ctx context.Context) (int64, error) {
	var total int64
	var failed error
	for _, name := range retirements {
		err := s.InTx(ctx, Ctl, name, func(ctx context.Context, tx *Tx) error {
			n, err := tx.exec(ctx, name, "")
			total += n
			return err
		})
		failed = errors.Join(failed, err)
	}
	oldest, err := s.oldestDay(ctx)
	if err == nil && !oldest.IsZero() {
		err = s.InTx(ctx, Ctl, "retire_idem", func(ctx context.Context, tx *Tx) error {
			n, err := tx.exec(ctx, "retire_idem", "", oldest)
			total += n
			return err
		})
	}
	return total, errors.Join(failed, err)
}

func (s *Store) oldestDay(ctx context.Context) (time.Time, error) {
	var d Days
	err := s.InTx(ctx, Ctl, "days", func(ctx context.Context, tx *Tx) (err error) {
		d, err = tx.days(ctx)
		return err
	})
	return d.First, err
}
