package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
)

// AttemptName names an attempt.
type AttemptName struct {
	ID      execution.ID
	TaskNo  int32
	Attempt int32
}

// AttemptQueue is the queue of an attempt. Found is false where there is no such attempt, or it was never queued.
type AttemptQueue struct {
	Found  bool
	Name   string
	Domain string
	System bool
}

// AttemptQueues tells the queue of each attempt, in order: which key may report it depends on it (contract 4.1 "Reports").
func (s *Store) AttemptQueues(ctx context.Context, keys []AttemptName) ([]AttemptQueue, error) {
	out := make([]AttemptQueue, len(keys))
	days := map[string][]int32{}
	for i, k := range keys {
		days[k.ID.Exec.Day()] = append(days[k.ID.Exec.Day()], int32(i))
	}
	for day, indexes := range days {
		err := s.InTx(ctx, API, "attempt_queues", func(ctx context.Context, t *Tx) error {
			return t.attemptQueues(ctx, day, indexes, keys, out)
		})
		if err != nil && Code(err) != codeUndefinedTable { // the day is gone, or never was: not found
			return nil, err
		}
	}
	return out, nil
}

// codeUndefinedTable is the SQLSTATE of a leaf that does not exist (B7).
const codeUndefinedTable = "42P01"

func (t *Tx) attemptQueues(ctx context.Context, day string, indexes []int32, keys []AttemptName, out []AttemptQueue) error {
	ns, ids := make([]int32, len(indexes)), make([]execution.UUID, len(indexes))
	numbers, attempts := make([]int32, len(indexes)), make([]int32, len(indexes))
	for i, n := range indexes {
		k := keys[n]
		ns[i], ids[i], numbers[i], attempts[i] = k.ID.NS, k.ID.Exec, k.TaskNo, k.Attempt
	}
	rows, err := t.query(ctx, "api_task_queues", day, indexes, ns, ids, numbers, attempts)
	if err != nil {
		return err
	}
	var n int32
	var q AttemptQueue
	_, err = pgx.ForEachRow(rows, []any{&n, &q.Name, &q.Domain, &q.System}, func() error {
		q.Found = q.Name != ""
		out[n] = q
		return nil
	})
	return err
}

// QueueFigures are what a queue holds. Counts stop at 10,001 a physical queue.
type QueueFigures struct {
	Name, Domain           string
	System                 bool
	DefID                  int32
	Ready, Delayed, Leased int64
	OldestReadySeconds     float64
	Pollers                int64 // workers that polled in the last minute
}

// QueueList gives the queues of a namespace by name, runners' queues included.
func (s *Store) QueueList(ctx context.Context, ns int32) ([]QueueFigures, error) {
	var all []QueueFigures
	err := s.InTx(ctx, API, "queues", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "api_queues", "", ns)
		if err != nil {
			return err
		}
		var q QueueFigures
		_, err = pgx.ForEachRow(rows, []any{&q.Name, &q.Domain, &q.System, &q.DefID, &q.Ready, &q.Delayed, &q.Leased, &q.OldestReadySeconds, &q.Pollers},
			func() error { all = append(all, q); return nil })
		return err
	})
	return all, err
}

// QueueDepth counts what a queue holds: of a definition's bare name, all its queues. At most limit are counted in each physical queue. found
// is false while nothing was ever queued there.
func (s *Store) QueueDepth(ctx context.Context, ns int32, name string, defID int32, limit int64) (q QueueFigures, found bool, err error) {
	err = s.InTx(ctx, API, "depth", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "api_depth", "", ns, name, defID, limit)
		if err != nil {
			return err
		}
		var physical int64
		_, err = pgx.ForEachRow(rows, []any{&q.Ready, &q.Delayed, &q.Leased, &q.OldestReadySeconds, &physical}, func() error { return nil })
		q.Name, q.DefID, found = name, defID, physical > 0
		return err
	})
	return q, found, err
}

// WorkerSeen is a worker that polled a queue in the last 24 hours.
type WorkerSeen struct {
	Worker, Queue, Domain string
	PolledAt              time.Time
	Leased                int64
}

// WorkersSeen lists the workers of a namespace.
func (s *Store) WorkersSeen(ctx context.Context, ns int32) ([]WorkerSeen, error) {
	var all []WorkerSeen
	err := s.InTx(ctx, API, "workers", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "api_workers", "", ns)
		if err != nil {
			return err
		}
		var w WorkerSeen
		_, err = pgx.ForEachRow(rows, []any{&w.Worker, &w.Queue, &w.Domain, &w.PolledAt, &w.Leased}, func() error {
			w.PolledAt = w.PolledAt.UTC()
			all = append(all, w)
			return nil
		})
		return err
	})
	return all, err
}

// SemaphoreFigures are the permits of a semaphore and how many are held (A8): held is a count of rows, never a counter.
type SemaphoreFigures struct {
	Namespace, Name string
	Permits, Held   int64
}

// SemaphoreList gives the semaphores of a namespace; 0 = of all.
func (s *Store) SemaphoreList(ctx context.Context, ns int32) ([]SemaphoreFigures, error) {
	var all []SemaphoreFigures
	err := s.InTx(ctx, API, "semaphores", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "api_semaphores", "", ns)
		if err != nil {
			return err
		}
		var f SemaphoreFigures
		_, err = pgx.ForEachRow(rows, []any{&f.Namespace, &f.Name, &f.Permits, &f.Held}, func() error { all = append(all, f); return nil })
		return err
	})
	return all, err
}
