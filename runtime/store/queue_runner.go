package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// RunnerLease is how long a runner's beat holds everything that it executes itself (X5).
const RunnerLease = 15 * time.Second

// RunnerStart is a process that wants to run tasks.
type RunnerStart struct {
	Instance execution.UUID // made by the process: a start whose reply was lost is found by it
	Host     string
	PID      int32
	Build    int64
	Version  string
}

// RegisterRunner gives a new runner its number (S16) and the database's time. The number is new at every start, whatever the host is called. Safe to
// repeat with the same instance.
func (s *Store) RegisterRunner(ctx context.Context, r RunnerStart) (no int32, now time.Time, err error) {
	read := func(r *row) error { no, now = r.i32(), r.time(); return nil }
	find := func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "runner_by_instance", "", [16]byte(r.Instance))
		if err != nil {
			return err
		}
		return each(rows, read)
	}
	err = s.InTx(ctx, Ctl, "runner_register", func(ctx context.Context, tx *Tx) error {
		if err := find(ctx, tx); err != nil || no != 0 {
			return err
		}
		rows, err := tx.query(ctx, "runner_insert", "", [16]byte(r.Instance), r.Host, r.PID, r.Build, r.Version, RunnerLease.Milliseconds())
		if err != nil {
			return err
		}
		return each(rows, read)
	})
	if unknown, ok := errors.AsType[*CommitUnknownError](err); ok {
		no = 0
		if err = s.InTx(ctx, Ctl, "runner_register", find); err == nil && no == 0 {
			err = unknown
		}
	}
	if err == nil && no == 0 {
		err = ErrNotFound // the instance was declared dead: it needs a new one
	}
	return no, now, err
}

// RunnerBeat is the answer to a runner's beat.
type RunnerBeat struct {
	Now        time.Time // database time
	AliveUntil time.Time // zero: the runner was declared dead; its number never beats again
	MinBuild   int64     // builds below it stop claiming (B8)
}

// BeatRunner extends a runner's own row, which is the lease of all it executes itself (S4).
func (s *Store) BeatRunner(ctx context.Context, no int32, draining bool) (b RunnerBeat, err error) {
	err = s.InTx(ctx, Ctl, "runner_beat", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "runner_beat", "", no, RunnerLease.Milliseconds(), draining)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			b = RunnerBeat{Now: r.time(), AliveUntil: r.time(), MinBuild: r.i64()}
			return nil
		})
	})
	return b, err
}

// SignOffRunner declares a runner dead by its own word, at a clean end: at once, not when its lease runs out. What it still holds is
// taken back as from any dead runner (S5c). One that is dead already stays so; no error.
func (s *Store) SignOffRunner(ctx context.Context, no int32) error {
	return s.InTx(ctx, Ctl, "runner_sign_off", func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, "runner_sign_off", "", no)
		return err
	})
}

// Poll is what one worker did on one queue since the last flush.
type Poll struct {
	Queue     QueueAt
	Worker    string
	Polls     int64
	Leased    int64
	Throttled int64
}

// NotePollers writes who polled what (S16), one statement, in key order.
func (s *Store) NotePollers(ctx context.Context, polls []Poll) error {
	if len(polls) == 0 {
		return nil
	}
	polls = slices.Clone(polls)
	slices.SortFunc(polls, func(a, b Poll) int {
		if a.Queue.NS != b.Queue.NS {
			return int(a.Queue.NS) - int(b.Queue.NS)
		}
		if a.Queue.QueueID != b.Queue.QueueID {
			return int(a.Queue.QueueID) - int(b.Queue.QueueID)
		}
		return strings.Compare(a.Worker, b.Worker)
	})
	ns, id, worker := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.TextOID)
	n, leased, throttled := newColumn(pgtype.Int8OID), newColumn(pgtype.Int8OID), newColumn(pgtype.Int8OID)
	for _, p := range polls {
		ns.i32(p.Queue.NS)
		id.i32(p.Queue.QueueID)
		worker.text(p.Worker)
		n.i64(p.Polls)
		leased.i64(p.Leased)
		throttled.i64(p.Throttled)
	}
	return s.InTx(ctx, Ctl, "pollers", func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, "poller_upsert", "", ns, id, worker, n, leased, throttled)
		return err
	})
}

// TakeDuty takes or renews a chore for ttl (B9). False: another runner has it. The chore must be safe to run twice all the same.
func (s *Store) TakeDuty(ctx context.Context, name string, runner int32, ttl time.Duration) (mine bool, err error) {
	err = s.InTx(ctx, Ctl, "duty", func(ctx context.Context, tx *Tx) error {
		rows, err := tx.query(ctx, "duty_take", "", name, runner, ttl.Milliseconds())
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { mine = r.i64() > 0; return nil })
	})
	return mine, err
}
