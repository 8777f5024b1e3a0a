// Package sweep turns elapsed time into facts: deadlines, lost work, dead runners, due timers (S5), and does the chores of the fleet (B9).
//
// Finding is an unlocked read above a low time mark; whoever acts judges again on the locked row. What ends an attempt goes through the engine, what moves one
// waits for nothing: a row that is locked, or whose execution is being ended by force, is left for the next pass. Every runner sweeps; two that find the same row
// do it once. Sweeps never look at what kind of task a row is, so a runner reclaims the work of types that it does not know (FC-118).
//
// Times are the database's. The process's own clock only notices when that one has stepped; lost work then rests until live holders have beaten
// again (B8).
package sweep

import (
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
)

const (
	shortest  = 250 * time.Millisecond
	longest   = time.Second
	fullEvery = 60 * time.Second
	// lowBehind is what a low mark stays behind the clock: transactions that began before it may still commit older rows.
	lowBehind = 15 * time.Second
	pageSize  = 500
	// ownAge is the age at which a lease under the runner's own number must be in its memory.
	ownAge = 30 * time.Second
	// secondWalk is when the leases of a dead runner are looked for again: a transaction of the dead may have committed late.
	secondWalk = 20 * time.Second
	// setBack is how far the database's clock must have gone back for low marks to be forgotten: they would hide what becomes due by that clock.
	setBack = time.Second
	// parkFor is how long a timer that the server refuses to move is left alone.
	parkFor = 15 * time.Minute
)

// Options are what a Sweeper needs. Metrics, Log and Mine may be nil.
type Options struct {
	Store    *store.Store
	Registry *registry.Registry
	Engine   *engine.Engine
	Queue    *queue.Queue
	Runner   *queue.Runner // nil: a process that executes nothing itself
	Clock    clock.Clock
	Guard    *clock.Guard
	// Mine says whether a lease under this runner's number is in its memory.
	Mine    func(store.LeaseKey) bool
	Metrics *telemetry.Metrics
	Log     *slog.Logger
}

// Sweeper is the loop of one process.
type Sweeper struct {
	opt    Options
	store  *store.Store
	low    marks
	high   time.Time // the latest database time that the low marks follow
	fullAt time.Time // own clock: last full re-read
	walks  map[int32]walk
	keptAt time.Time
	daysAt time.Time
}

// marks are the low marks of each kind of row.
type marks struct {
	ready  time.Time
	leases time.Time
	timers map[execution.Why]time.Time
}

// The classes of timers: what goes to the queue when it is due (S5d), and what goes to the decider (S5e).
var (
	toQueue   = []execution.Why{execution.WhyBackoff, execution.WhyStartDelay, 3, 4, 7}
	toDecider = []execution.Why{execution.WhyWait, execution.WhyOperatorDeadline, execution.WhyWorkflowDeadline}
)

// New makes a Sweeper.
func New(opt Options) *Sweeper {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Mine == nil {
		opt.Mine = func(store.LeaseKey) bool { return false }
	}
	s := &Sweeper{opt: opt, store: opt.Store, walks: map[int32]walk{}}
	s.reset()
	return s
}

func (s *Sweeper) reset() {
	s.high = time.Time{}
	s.low = marks{timers: map[execution.Why]time.Time{}}
	for _, w := range toQueue {
		s.low.timers[w] = time.Time{}
	}
	for _, w := range toDecider {
		s.low.timers[w] = time.Time{}
	}
}

// Run sweeps every 250–1,000 ms and does the fleet's chores until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.loop(gctx) })
	g.Go(func() error { return s.chores(gctx) })
	return g.Wait()
}

func (s *Sweeper) loop(ctx context.Context) error {
	for {
		if err := s.Pass(ctx); err != nil {
			s.failed(ctx, "sweep", err)
		}
		wait := shortest + time.Duration(mathrand.Int64N(int64(longest-shortest)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.NewTimer(wait).C:
		}
	}
}

// Pass is one sweep. Its parts do not depend on each other: an error of one stops no other.
func (s *Sweeper) Pass(ctx context.Context) error {
	now := s.opt.Clock.Now()
	full := s.fullAt.IsZero() || now.Sub(s.fullAt) >= fullEvery
	if full {
		s.reset()
	}
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	resting := s.opt.Guard.Observe(found.Now)
	s.count("sweep", 0)
	due := map[execution.Why]bool{}
	for _, w := range found.Timers {
		due[w] = true
	}
	for _, w := range toQueue {
		if due[w] {
			err = errors.Join(err, s.moveTimers(ctx, w, found.Now), s.timers(ctx, w, true, found.Now))
		}
		s.low.timers[w] = s.behind(found.Now, s.low.timers[w])
	}
	for _, w := range toDecider {
		if due[w] {
			err = errors.Join(err, s.timers(ctx, w, false, found.Now))
			continue
		}
		s.low.timers[w] = s.behind(found.Now, s.low.timers[w])
	}
	if found.Ready {
		err = errors.Join(err, s.ready(ctx, found.Now))
	} else {
		s.low.ready = s.behind(found.Now, s.low.ready)
	}
	if found.Leases {
		err = errors.Join(err, s.leases(ctx, found.Now, resting))
	} else {
		s.low.leases = s.behind(found.Now, s.low.leases)
	}
	if (found.Runners || full) && !resting {
		err = errors.Join(err, s.runners(ctx, found.Now, full))
	}
	if full && err == nil && !resting {
		s.fullAt = now
	}
	return err
}

// look asks what is due above the low marks; again, from the beginning, if the database's clock was set back behind them.
func (s *Sweeper) look(ctx context.Context) (store.Found, error) {
	found, err := s.store.Look(ctx, store.LowMarks{Ready: s.low.ready, Leases: s.low.leases, Timers: s.low.timers})
	if err == nil && found.Now.Before(s.high.Add(-setBack)) {
		s.reset()
		found, err = s.store.Look(ctx, store.LowMarks{Ready: s.low.ready, Leases: s.low.leases, Timers: s.low.timers})
	}
	if err == nil && found.Now.After(s.high) {
		s.high = found.Now
	}
	return found, err
}

// behind is the low mark after everything up to now was finished; a mark never goes back when the clock does.
func (s *Sweeper) behind(now, low time.Time) time.Time {
	if mark := now.Add(-lowBehind); mark.After(low) {
		return mark
	}
	return low
}

// until is the low mark when something due at open was found and not finished.
func (s *Sweeper) until(now, low, open time.Time) time.Time {
	mark := s.behind(now, low)
	if !open.IsZero() && !mark.Before(open) {
		return open.Add(-time.Microsecond)
	}
	return mark
}

// record hands ends to the engine and gives, for each, whether it is finished: ended, or found to be no longer so.
func (s *Sweeper) record(ctx context.Context, ends []engine.End) (done []bool, err error) {
	done = make([]bool, len(ends))
	if len(ends) == 0 {
		return done, nil
	}
	for i, r := range s.opt.Engine.Record(ctx, ends) {
		done[i] = r.Err == nil
		if r.Err != nil {
			err = r.Err
			continue
		}
		if r.Answer == engine.Accepted {
			s.count("sweep", 1)
		}
	}
	return done, err
}

// ready ends what has waited too long (S5a).
func (s *Sweeper) ready(ctx context.Context, now time.Time) error {
	var failed error
	var open time.Time
	why := map[store.QueueAt]explanation{}
	after := store.After{}
	for {
		page, err := s.store.DueReady(ctx, s.low.ready, after, now, pageSize)
		if err != nil {
			return errors.Join(failed, err)
		}
		ends := make([]engine.End, 0, len(page))
		for _, d := range page {
			end := engine.End{ID: d.ID, TaskNo: d.TaskNo, Attempt: d.Attempt, Place: execution.InReady, What: engine.Due{}}
			if d.StartBy.Equal(d.ExpireAt) {
				e := s.explain(ctx, why, store.QueueAt{NS: d.NS, QueueID: d.QueueID}, now)
				end.What = engine.Due{Reason: e.reason, Control: e.control}
			}
			ends = append(ends, end)
		}
		done, err := s.record(ctx, ends)
		failed = errors.Join(failed, err)
		for i, ok := range done {
			if !ok && open.IsZero() {
				open = page[i].ExpireAt
			}
		}
		if len(page) < pageSize {
			s.low.ready = s.until(now, s.low.ready, open)
			return failed
		}
		after = page[len(page)-1].Place()
	}
}

// timers tells the decider of due timers of one class (S5e).
func (s *Sweeper) timers(ctx context.Context, why execution.Why, deadlines bool, now time.Time) error {
	var failed error
	var open time.Time
	after := store.After{}
	for {
		page, err := s.store.DueTimers(ctx, why, deadlines, s.low.timers[why], after, now, pageSize)
		if err != nil {
			return errors.Join(failed, err)
		}
		ends := make([]engine.End, len(page))
		for i, d := range page {
			ends[i] = engine.End{ID: d.ID, TaskNo: d.TaskNo, Attempt: d.Attempt, Place: execution.InTimer, What: engine.Due{}}
		}
		done, err := s.record(ctx, ends)
		failed = errors.Join(failed, err)
		for i, ok := range done {
			if !ok && open.IsZero() {
				open = page[i].DueAt
			}
		}
		if len(page) < pageSize {
			if !deadlines {
				s.low.timers[why] = s.until(now, s.low.timers[why], open)
			}
			return failed
		}
		after = page[len(page)-1].Place()
	}
}

// moveTimers puts what is due into its queue (S5d). A batch that the server refuses is taken one by one, and what it refuses then is parked, so that one
// bad row holds nothing up (FC-130).
func (s *Sweeper) moveTimers(ctx context.Context, why execution.Why, now time.Time) error {
	for {
		moved, locked, err := s.store.MoveTimers(ctx, why, s.low.timers[why], now)
		if err != nil && store.TooMuch(err) {
			return s.moveEach(ctx, why, now)
		}
		if err != nil {
			return err
		}
		s.moved(moved)
		if locked < store.MaxMoved {
			return nil
		}
	}
}

func (s *Sweeper) moved(moved []store.Moved) {
	var queues []store.QueueAt
	for _, m := range moved {
		for range m.N {
			queues = append(queues, m.Queue)
		}
	}
	s.count("sweep", len(queues))
	s.opt.Queue.Ready(queues)
}

func (s *Sweeper) moveEach(ctx context.Context, why execution.Why, now time.Time) error {
	keys, err := s.store.TimersDue(ctx, why, s.low.timers[why], now)
	if err != nil {
		return err
	}
	for _, key := range keys {
		at, err := s.store.MoveTimer(ctx, key, now)
		if err != nil && store.TooMuch(err) {
			s.opt.Log.Error("a timer cannot become ready and is put aside", telemetry.KeyExecution, key.Exec.String(), telemetry.KeyTask, key.TaskNo,
				telemetry.KeyError, err.Error())
			err = s.store.ParkTimer(ctx, key, parkFor)
		}
		if err != nil {
			return err
		}
		if at.QueueID != 0 {
			s.moved([]store.Moved{{Queue: at, N: 1}})
		}
	}
	return nil
}

func (s *Sweeper) count(loop string, items int) {
	m := s.opt.Metrics
	if m == nil {
		return
	}
	runner := s.runnerLabel()
	if items == 0 {
		m.RunnerPasses.WithLabelValues(runner, loop).Inc()
		return
	}
	m.RunnerItems.WithLabelValues(runner, loop).Add(float64(items))
}

func (s *Sweeper) runnerLabel() string {
	if s.opt.Runner == nil {
		return "0"
	}
	return strconv.Itoa(int(s.opt.Runner.No()))
}

func (s *Sweeper) failed(ctx context.Context, loop string, err error) {
	if ctx.Err() != nil {
		return
	}
	if s.opt.Metrics != nil {
		s.opt.Metrics.RunnerErrors.WithLabelValues(s.runnerLabel(), loop).Inc()
	}
	s.opt.Log.Warn("sweep failed", telemetry.KeyLoop, loop, telemetry.KeyError, err.Error())
}
