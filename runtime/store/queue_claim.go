package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// MaxLease is the longest lease in milliseconds: what stands for "not asked for".
const MaxLease = int64(3_600_000_000)

// Claim is one claim of a physical queue (S1).
type Claim struct {
	Queue   QueueAt
	Want    int    // 1–100
	Holder  int32  // runner that executes the tasks itself; 0 = external worker
	ClaimID int64  // made by the claimer: how a lost reply is looked up
	LeaseMs int64  // asked for; 0 = as long as the definition allows
	Worker  string // external worker
}

func (c Claim) leaseMs() int64 {
	if c.LeaseMs <= 0 {
		return MaxLease
	}
	return c.LeaseMs
}

// Leased is a delivery that this process was given.
type Leased struct {
	execution.ID
	execution.Attempt
	DeadlineAt time.Time // earliest of lease, heartbeat and time-outs; zero = none
}

// Key names the lease.
func (l Leased) Key() LeaseKey {
	return LeaseKey{ID: l.ID, TaskNo: l.TaskNo, Attempt: l.Attempt.Attempt, Fence: l.Fence}
}

// LeaseKey names one delivery of one attempt.
type LeaseKey struct {
	execution.ID
	TaskNo  int32
	Attempt int32
	Fence   int64
}

func readLeased(r *row) Leased {
	var l Leased
	l.NS, l.Exec, l.TaskNo, l.Attempt.Attempt, l.QueueID = r.i32(), r.uuid(), r.i32(), r.i32(), r.i32()
	l.Holder, l.Fence, l.ClaimID, l.LeasedAt, l.LeaseUntil = r.i32(), r.i64(), r.i64(), r.time(), r.time()
	l.BeatBy, l.CloseBy, l.AttBy, l.TotalBy, l.DeadlineAt = r.time(), r.time(), r.time(), r.time(), r.time()
	l.LeaseMs, l.ScheduledAt, l.VisibleAt, l.ScopeNo, l.Slot = r.i64(), r.time(), r.time(), r.i32(), r.i32()
	l.RevID, l.DefID, l.DefRev, l.Rerun, l.Deliveries = r.i32(), r.i32(), r.i32(), r.i32(), r.i32()
	l.RetriesLeft, l.Lane, l.Kind, l.Sems, l.Iteration = r.i32(), r.i16(), execution.Kind(r.i16()), r.i16(), r.text()
	l.Worker, l.Place = r.text(), execution.InLease
	return l
}

// inOrder sorts as the queue had them: lane, first visible, key.
func inOrder(all []Leased) {
	slices.SortFunc(all, func(a, b Leased) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), a.VisibleAt.Compare(b.VisibleAt), cmp.Compare(a.Fence, b.Fence))
	})
}

// ErrGated says that a queue has a gate: the claim must take the gated form.
var ErrGated = errors.New("queue has a gate")

// ClaimPlain leases from a queue without a gate (S1a): one statement, one commit. Nothing leased from a queue that turned out to be gated
// is ErrGated. A *CommitUnknownError is resolved by ClaimLookup.
func (s *Store) ClaimPlain(ctx context.Context, lane Lane, c Claim) (leased []Leased, err error) {
	gated := false
	err = s.InTx(ctx, lane, "claim", func(ctx context.Context, tx *Tx) error {
		leased, gated = leased[:0], false
		rows, err := tx.query(ctx, "claim_plain", "", c.Queue.NS, c.Queue.QueueID, c.Want, c.Holder, c.ClaimID, c.leaseMs(), textOrNil(c.Worker))
		if err != nil {
			return err
		}
		if err := each(rows, func(r *row) error { leased = append(leased, readLeased(r)); return nil }); err != nil || len(leased) > 0 {
			return err
		}
		if rows, err = tx.query(ctx, "queue_by_id", "", c.Queue.NS, c.Queue.QueueID); err != nil {
			return err
		}
		return each(rows, func(r *row) error { gated = readQueue(r).Gated; return nil })
	})
	if err != nil {
		return nil, err
	}
	if gated {
		s.Queues().Seen(c.Queue, true)
		return nil, ErrGated
	}
	inOrder(leased)
	return leased, nil
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// ClaimLookup gives the leases that a claim has made and that are still held: of a repeated request, or of a claim whose COMMIT was
// not answered (S0). Only fences above `above` are looked at, and only what was leased within the given time.
func (s *Store) ClaimLookup(ctx context.Context, lane Lane, queue QueueAt, claimID, above int64, within time.Duration) (leased []Leased, err error) {
	err = s.InTx(ctx, lane, "claim_lookup", func(ctx context.Context, tx *Tx) error {
		leased = leased[:0]
		rows, err := tx.query(ctx, "claim_lookup", "", queue.NS, queue.QueueID, above, claimID, within.Milliseconds())
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { leased = append(leased, readLeased(r)); return nil })
	})
	if err != nil {
		return nil, err
	}
	inOrder(leased)
	return leased, nil
}

// LeaseInputs reads the inputs of leased tasks, by key in the leaf of their day, after the commit that leased them: they never change. The answer
// has the order of leased; a task without a stored input has nil.
func (s *Store) LeaseInputs(ctx context.Context, lane Lane, leased []Leased) ([][]byte, error) {
	out := make([][]byte, len(leased))
	byDay := map[string][]int{}
	for i, l := range leased {
		byDay[l.Exec.Day()] = append(byDay[l.Exec.Day()], i)
	}
	for day, group := range byDay {
		n, ns, id := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.UUIDOID)
		no, rerun := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID)
		for _, i := range group {
			l := leased[i]
			n.i32(int32(i)) //nolint:gosec // at most 100
			ns.i32(l.NS)
			id.uuid(l.Exec)
			no.i32(l.TaskNo)
			rerun.i32(l.Rerun)
		}
		err := s.InTx(ctx, lane, "inputs", func(ctx context.Context, tx *Tx) error {
			rows, err := tx.query(ctx, "lease_inputs", day, n, ns, id, no, rerun)
			if err != nil {
				return err
			}
			return each(rows, func(r *row) error {
				i, codec := r.i32(), r.i16()
				body, err := unpack(codec, r.bytes())
				out[i] = body
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
