package engine

import (
	"context"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// Bounds of the drain of marks (S3).
const (
	drainMarks = 200
	drainExecs = 50
	drainIdle  = time.Second
	lowLag     = 15 * time.Second // a low mark never passes now less this
	reread     = time.Minute      // a full read, from the beginning
)

// drain evaluates marks, oldest first (S3), until ctx ends. Polling is the truth; a mark that this process leaves wakes it.
func (e *Engine) drain(ctx context.Context) error {
	var d drainer
	for {
		more, err := e.drainOnce(ctx, &d)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			e.log.Warn("drain of marks", "error", err)
			more, d.next = false, drainIdle // never a hot loop, whatever the last pass had found
		}
		if more {
			continue
		}
		timer := time.NewTimer(min(jitter(drainIdle), d.next))
		select {
		case <-timer.C:
		case <-e.marked:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// drainer is what the drain remembers between passes.
type drainer struct {
	low    time.Time // due times up to here are done with
	full   time.Time // when the whole index was read last
	next   time.Duration
	deaths bool // a runner died in the last minute
}

// drainOnce evaluates the oldest due marks once and says whether there may be more.
func (e *Engine) drainOnce(ctx context.Context, d *drainer) (bool, error) {
	var due []store.DueMark
	var now time.Time
	var more time.Time
	err := e.store.InTx(ctx, store.Hot, "find-marks", func(ctx context.Context, tx *store.Tx) (err error) {
		if now, err = tx.Now(ctx); err != nil {
			return err
		}
		if now.Sub(d.full) >= reread || now.Before(d.full) { // or the clock was set back
			d.low, d.full = time.Time{}, now
		}
		if due, err = tx.DueMarks(ctx, d.low, drainMarks); err != nil || len(due) == 0 {
			more, err = nextOr(ctx, tx, err)
			return err
		}
		d.deaths, err = tx.RecentDeaths(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	e.saw(now)
	d.next = drainIdle
	if !more.IsZero() {
		d.next = max(more.Sub(now), time.Millisecond)
	}
	low := now.Add(-lowLag)
	jobs := map[execution.ID]*job{}
	var order []*job
	for _, m := range due {
		if m.DueAt.Add(-time.Microsecond).Before(low) {
			low = m.DueAt.Add(-time.Microsecond) // found and not finished yet
		}
		j := jobs[m.ID]
		if j == nil {
			if len(order) == drainExecs {
				continue
			}
			j = newJob(ctx, m.ID)
			j.marks = true
			jobs[m.ID] = j
			order = append(order, j)
		}
		j.alone = j.alone || m.Tries > 0 || m.Since.Before(e.startAt) || d.deaths
	}
	d.low = low
	for _, j := range order {
		e.flusherOf(j.id).push(j)
	}
	failed := false
	for _, j := range order {
		failed = j.wait(e).Err != nil || failed
	}
	e.forget(ctx, order)
	return len(order) > 0 && !failed, nil
}

// nextOr reads when the next mark is due, if none is.
func nextOr(ctx context.Context, tx *store.Tx, err error) (time.Time, error) {
	if err != nil {
		return time.Time{}, err
	}
	return tx.NextMark(ctx)
}

// forget deletes marks of executions that no longer exist. There are none in a healthy system.
func (e *Engine) forget(ctx context.Context, jobs []*job) {
	var gone []execution.ID
	for _, j := range jobs {
		if j.orphan {
			gone = append(gone, j.id)
		}
	}
	if len(gone) == 0 {
		return
	}
	w := store.NewWrites()
	for _, id := range gone {
		w.Forget(id)
	}
	err := e.store.InTx(ctx, store.Hot, "forget-marks", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Write(ctx, w, time.Time{}, 0)
		return err
	})
	if err != nil {
		e.log.Warn("marks without an execution", "executions", len(gone), "error", err)
	}
}
