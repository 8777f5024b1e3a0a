package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// Bounds of one flush (S2, B1.8).
const (
	maxJobs     = 200
	maxRows     = 1000
	maxBytes    = 16 << 20
	lockedLimit = 3 // flushes in which an item may be locked elsewhere before it goes alone and waits
	tryLimit    = 3
)

// flusher runs flushes one after the other. What belongs to one execution always comes to the same flusher.
type flusher struct {
	e     *Engine
	shard int64
	w     *store.Writes

	mu        sync.Mutex
	queue     []*job
	signal    chan struct{}
	lastAlone bool
	away      int // flushes in a row that the database did not take
}

func newFlusher(e *Engine, _ int) *flusher {
	return &flusher{e: e, shard: e.shards.take(), w: store.NewWrites(), signal: make(chan struct{}, 1)}
}

func (f *flusher) push(jobs ...*job) {
	f.mu.Lock()
	f.queue = append(f.queue, jobs...)
	f.mu.Unlock()
	wake(f.signal)
}

// run flushes until ctx ends, then what was accepted before.
func (f *flusher) run(ctx context.Context) error {
	for {
		if jobs := f.take(); len(jobs) > 0 {
			f.flush(ctx, jobs)
			continue
		}
		select {
		case <-f.signal:
		case <-ctx.Done():
			f.finish(ctx)
			return nil
		}
	}
}

// finish flushes what was accepted before the end, for a few seconds at most.
func (f *flusher) finish(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for end.Err() == nil {
		jobs := f.take()
		if len(jobs) == 0 {
			return
		}
		f.flush(end, jobs)
	}
}

// take gives the jobs of the next flush: a batch, or one that goes alone; in turn, if there are both.
func (f *flusher) take() []*job {
	f.mu.Lock()
	defer f.mu.Unlock()
	var batch, rest []*job
	var alone *job
	for _, j := range f.queue {
		switch {
		case j.ctx.Err() != nil && !j.unknown:
			j.reply(EndResult{Err: context.Cause(j.ctx)})
		case j.alone && alone == nil:
			alone = j
		case j.alone || len(batch) == maxJobs:
			rest = append(rest, j)
		default:
			batch = append(batch, j)
		}
	}
	switch {
	case alone == nil:
		f.lastAlone = false
	case len(batch) == 0 || !f.lastAlone:
		rest, batch = append(batch, rest...), []*job{alone}
		f.lastAlone = true
	default:
		rest = append(rest, alone)
		f.lastAlone = false
	}
	f.queue = rest
	return batch
}

// flush sees jobs through: every one is answered or back in the queue when it returns.
func (f *flusher) flush(ctx context.Context, jobs []*job) {
	tries, fetches := 0, 0
	for {
		fl := newFlush(f, jobs)
		err := fl.once(ctx)
		if err == nil {
			f.away = 0
			fl.committed(ctx)
			return
		}
		fl.rolledBack(err)
		var missing *missingError
		var unknown *store.CommitUnknownError
		switch {
		case errors.As(err, &missing) && fetches < 2*maxJobs:
			fetches++
			if err := f.e.fetch(ctx, missing); err != nil && !f.unable(ctx, jobs, missing, err) {
				return
			}
		case errors.As(err, &unknown):
			f.afterUnknown(ctx, fl, jobs)
			return
		case noPartition(err) && fetches == 0:
			fetches++
			f.e.makeDays(ctx, jobs)
		case store.TryAgain(err) && tries < tryLimit:
			tries++
			pause(ctx, jitter(20*time.Millisecond))
		case store.TryAgain(err) || store.TooMuch(err) || store.Code(err) == "57014":
			f.halve(ctx, jobs, err)
			return
		default:
			f.later(ctx, jobs, err)
			return
		}
	}
}

// unable answers what cannot be decided because a definition it needs cannot be had, and says whether to go on with the rest.
func (f *flusher) unable(ctx context.Context, jobs []*job, missing *missingError, err error) bool {
	if !errors.Is(err, store.ErrNotFound) {
		f.later(ctx, jobs, err)
		return false
	}
	var rest []*job
	for _, j := range jobs {
		if missing.of[j.id] {
			f.poison(ctx, j, err)
			continue
		}
		rest = append(rest, j)
	}
	if len(rest) > 0 {
		f.flush(ctx, rest)
	}
	return false
}

// halve sends a batch in two halves; a single job that the server refuses is poison, one that is locked elsewhere tries again later.
func (f *flusher) halve(ctx context.Context, jobs []*job, err error) {
	if len(jobs) > 1 {
		f.flush(ctx, jobs[:len(jobs)/2])
		f.flush(ctx, jobs[len(jobs)/2:])
		return
	}
	if store.TryAgain(err) {
		jobs[0].alone = true
		f.push(jobs[0])
		return
	}
	f.poison(ctx, jobs[0], err)
}

// later puts jobs back after an error that is not theirs: the database is away. It waits with full jitter, at most 5 s.
func (f *flusher) later(ctx context.Context, jobs []*job, err error) {
	f.away++
	if f.away == 1 || f.away%20 == 0 {
		f.e.log.Warn("completer: the database did not take a batch", "jobs", len(jobs), "error", err)
	}
	if ctx.Err() != nil {
		for _, j := range jobs {
			j.reply(EndResult{Err: err})
		}
		return
	}
	pause(ctx, rand.N(min(5*time.Second, 10*time.Millisecond<<min(f.away, 9))))
	f.mu.Lock()
	f.queue = append(jobs, f.queue...) //nolint:gocritic // they were first
	f.mu.Unlock()
	wake(f.signal)
}

// afterUnknown finds out what became of a transaction whose COMMIT was not answered: its jobs are simply sent again, since each finds its
// own traces (S0), and then its eager leases are looked for. The old backend may still hold its budget rows, so the shard changes.
func (f *flusher) afterUnknown(ctx context.Context, fl *flush, jobs []*job) {
	f.shard = f.e.shards.swap(f.shard)
	for _, j := range jobs {
		j.unknown = true
	}
	f.flush(ctx, jobs)
	f.e.settle(ctx, fl.seats)
}

// poison is a job that the database refuses by itself.
func (f *flusher) poison(ctx context.Context, j *job, err error) {
	f.e.log.Error("completer: an item cannot be recorded", "execution", j.id.Exec.String(), "error", err)
	j.reply(EndResult{Err: errors.Join(ErrEvaluation, err)})
	_, isReport := reportOf(j)
	if isReport { // its lease runs out and the work is delivered again
		return
	}
	if f.e.parked.failed(j.id, f.e.opt.Clock.Now()) >= tryLimit && !j.alone {
		f.abandon(ctx, j.id, err)
	}
}

func reportOf(j *job) (Report, bool) {
	if j.end == nil {
		return Report{}, false
	}
	r, ok := j.end.What.(Report)
	return r, ok
}

// makeDays makes the partitions that jobs need, after an insert was refused.
func (e *Engine) makeDays(ctx context.Context, jobs []*job) {
	seen := map[string]bool{}
	for _, j := range jobs {
		if day := j.id.Exec.Day(); !seen[day] {
			seen[day] = true
			if err := e.store.MakeDay(ctx, j.id.Exec); err != nil {
				e.log.Warn("completer: partition of a day", "day", day, "error", err)
			}
		}
	}
}

// noPartition says that an insert found no leaf for its day (B7).
func noPartition(err error) bool { return store.Code(err) == "23514" && store.Constraint(err) == "" }

// missingError lists what must be fetched, without a connection in hand, before a decision can be made.
type missingError struct {
	revs   map[revKey]bool
	pins   map[revKey]bool // task definition revisions
	queues map[execution.QueueKey]bool
	of     map[execution.ID]bool // executions that need it
}

func newMissing() *missingError {
	return &missingError{
		revs: map[revKey]bool{}, pins: map[revKey]bool{}, queues: map[execution.QueueKey]bool{}, of: map[execution.ID]bool{},
	}
}

func (m *missingError) empty() bool { return len(m.revs)+len(m.pins)+len(m.queues) == 0 }

func (m *missingError) Error() string { return "definitions or queues are not loaded yet" }

// fetch gets what a transaction lacked.
func (e *Engine) fetch(ctx context.Context, m *missingError) error {
	for rev := range m.revs {
		if _, err := e.programs.load(ctx, rev.ns, rev.rev); err != nil {
			return err
		}
	}
	pins := map[int32][]int32{}
	for pin := range m.pins {
		pins[pin.ns] = append(pins[pin.ns], pin.rev)
	}
	for ns, revs := range pins {
		if err := e.opt.Registry.LoadTaskRevs(ctx, ns, revs); err != nil {
			return err
		}
		for _, rev := range revs {
			if _, ok := e.opt.Registry.Snapshot().TaskRev(ns, rev); !ok {
				return fmt.Errorf("task definition revision %d: %w", rev, store.ErrNotFound)
			}
		}
	}
	for key := range m.queues {
		if _, err := e.store.Queues().Ensure(ctx, store.Hot, key); err != nil {
			return err
		}
	}
	return nil
}

// pause waits, or not at all if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// jitter gives between half and the whole of a time.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2)
}

// parked remembers executions whose evaluation failed on facts that stay in the tables (a deadline that has passed, a wait that is
// over), so that the sweeps that find them again do not make a hot loop: again after 1 s, then after 10 s.
type parked struct {
	mu  sync.Mutex
	all map[execution.ID]failure
}

type failure struct {
	count int
	until time.Time
}

func (p *parked) init() { p.all = map[execution.ID]failure{} }

// failed counts a failure and gives how many there were.
func (p *parked) failed(id execution.ID, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) > 10_000 {
		clear(p.all)
	}
	f := p.all[id]
	f.count++
	f.until = now.Add(retryAfter(f.count))
	p.all[id] = f
	return f.count
}

// rests says that an execution is not to be evaluated yet.
func (p *parked) rests(id execution.ID, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.all[id]
	return ok && now.Before(f.until)
}

func (p *parked) clear(id execution.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}

// retryAfter is when an evaluation that failed for the n-th time is tried again (S3).
func retryAfter(n int) time.Duration {
	if n <= 1 {
		return time.Second
	}
	return 10 * time.Second
}
