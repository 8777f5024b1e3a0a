package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"nf/runtime/clock"
	"nf/runtime/decider"
	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
)

// Errors that callers branch on.
var (
	// ErrStopped says that the engine is not running: nothing was stored.
	ErrStopped = errors.New("engine is stopped")
	// ErrUnknownOutcome says that a COMMIT was not answered and it could not be found out in time what became of it: repeat with
	// the same key or token.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrEvaluation says that the decider could not go on; what was reported is recorded where it can be.
	ErrEvaluation = errors.New("evaluation failed")
)

// Eager takes next work in the transaction that makes it (S2). Implementations are safe for concurrent use and never block.
type Eager interface {
	// Reserve asks for at most n places for attempts of an ungated queue: free executor slots of this runner for which nobody
	// waits in the queue, or long polls of this process.
	Reserve(at store.QueueAt, key execution.QueueKey, n int) []store.Seat
	// Deliver hands over a lease after the commit; it answers the seat.
	Deliver(seat store.Seat, l Leased)
	// Return gives a seat back that was not used.
	Return(at store.QueueAt, seat store.Seat)
}

// Leased is an attempt that was leased in the transaction that scheduled it.
type Leased struct {
	store.Leased
	Queue execution.QueueKey
	// Input is the resolved input, JSON; nil = it is in the history (an attempt after the first): read it.
	Input []byte
}

// Listener is told after a commit what others may wait for. Implementations never block.
type Listener interface {
	// Ready names queues that got ready rows which nobody took at once.
	Ready(queues []store.QueueAt)
	// Freed names queues of which leases ended: a place or permit is free.
	Freed(queues []store.QueueAt)
}

// Options are what an engine needs. Store and Registry are required.
type Options struct {
	Store    *store.Store
	Registry *registry.Registry
	Clock    clock.Clock // nil = the system's
	// Runner is the number of this process in nf_runner: part of the shard of retry budgets (X11). 0 is for tools and tests of one process.
	Runner int32
	// Flushers is the number of parallel flushes, 2–4 (0 = 3). Starters that of parallel starts, 1–2 (0 = 1).
	Flushers int
	Starters int
	Eager    []Eager
	Listener Listener
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// Engine starts, completes, decides and ends executions. Safe for concurrent use once Run is called.
type Engine struct {
	opt      Options
	store    *store.Store
	log      *slog.Logger
	programs programs
	flushers []*flusher
	starter  *starter
	budgets  budgets
	shards   *shards
	watch    watch
	claims   atomic.Int64 // ids of eager claims
	offset   dbClock
	marked   chan struct{} // a mark was left: look soon
	parked   parked
	// breakAsk, if set, may panic in the place of the decider. Only tests set it, before Run.
	breakAsk func(execution.ID)

	mu      sync.Mutex
	running bool
	done    chan struct{} // closed when Run ends
	startAt time.Time     // database time at which Run began: marks from before are evaluated alone
}

// New makes an engine. It does nothing until Run is called.
func New(opt Options) (*Engine, error) {
	if opt.Store == nil || opt.Registry == nil {
		return nil, errors.New("engine: store and registry are required")
	}
	if opt.Clock == nil {
		opt.Clock = clock.System{}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Flushers <= 0 {
		opt.Flushers = 3
	}
	if opt.Starters <= 0 {
		opt.Starters = 1
	}
	e := &Engine{
		opt: opt, store: opt.Store, log: opt.Log, shards: newShards(opt.Runner), marked: make(chan struct{}, 1), done: make(chan struct{}),
	}
	e.programs.init(opt.Registry)
	e.budgets.init()
	e.watch.init()
	e.parked.init()
	e.claims.Store(int64(opt.Runner)<<40 | opt.Clock.Now().UnixMicro()&(1<<40-1))
	for i := range min(opt.Flushers, 4) {
		e.flushers = append(e.flushers, newFlusher(e, i))
	}
	e.starter = newStarter(e)
	return e, nil
}

// Run works until ctx ends; it then flushes what was accepted and returns. It is called once.
func (e *Engine) Run(ctx context.Context) error {
	now, err := e.readClock(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	if e.running {
		e.mu.Unlock()
		return errors.New("engine: Run is called twice")
	}
	e.running, e.startAt = true, now
	e.mu.Unlock()
	defer close(e.done)
	g, gctx := errgroup.WithContext(ctx)
	for _, f := range e.flushers {
		g.Go(func() error { return f.run(gctx) })
	}
	for range e.opt.Starters {
		g.Go(func() error { return e.starter.run(gctx) })
	}
	g.Go(func() error { return e.drain(gctx) })
	err = g.Wait()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// flusherOf gives the flusher of an execution: always the same one.
func (e *Engine) flusherOf(id execution.ID) *flusher {
	var h uint32 = 2166136261
	for _, b := range id.Exec[6:] {
		h = (h ^ uint32(b)) * 16777619
	}
	return e.flushers[int(h%uint32(len(e.flushers)))] //nolint:gosec // at most 4
}

// programs keeps compiled workflow revisions for ever: they never change.
type programs struct {
	defs *registry.Registry
	mu   sync.RWMutex
	all  map[revKey]*program
}

type revKey struct {
	ns  int32
	rev int32
}

// program is a compiled revision and what the engine asks of it again and again.
type program struct {
	*decider.Program
	rev    registry.WorkflowRev
	timed  bool // has a deadline of its own
	vars   bool // has variables
	scopes bool // has forks
}

func (p *programs) init(defs *registry.Registry) { p.defs, p.all = defs, map[revKey]*program{} }

// known gives a program that was compiled before.
func (p *programs) known(ns, rev int32) *program {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[revKey{ns, rev}]
}

// load compiles a revision. It may read the database: never call it while a connection is held.
func (p *programs) load(ctx context.Context, ns, rev int32) (*program, error) {
	if known := p.known(ns, rev); known != nil {
		return known, nil
	}
	w, err := p.defs.WorkflowRev(ctx, ns, rev)
	if err != nil {
		return nil, err
	}
	return p.add(ns, w)
}

func (p *programs) add(ns int32, w registry.WorkflowRev) (*program, error) {
	if known := p.known(ns, w.RevID); known != nil {
		return known, nil
	}
	compiled, err := decider.Compile(w.Workflow, ns, w.RevID)
	if err != nil {
		return nil, err
	}
	made := &program{Program: compiled, rev: w, timed: w.Workflow.Timeout > 0}
	made.vars = len(w.Workflow.Variables) > 0
	for slot := range compiled.Len() {
		switch execution.KindOf(compiled.Task(int32(slot)).Type) { //nolint:exhaustive // only these two matter; at most 20,000
		case execution.KindSetVariable:
			made.vars = true
		case execution.KindForkJoin:
			made.scopes = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.all[revKey{ns, w.RevID}]; known != nil {
		return known, nil
	}
	p.all[revKey{ns, w.RevID}] = made
	return made, nil
}

// dbClock follows the difference between this machine's clock and the database's, for ids only (B1.10).
type dbClock struct {
	offset atomic.Int64 // microseconds, database minus machine
	known  atomic.Bool
}

// saw notes a database time that was just read.
func (e *Engine) saw(now time.Time) {
	e.offset.offset.Store(now.Sub(e.opt.Clock.Now()).Microseconds())
	e.offset.known.Store(true)
}

// dbNow estimates the database clock.
func (e *Engine) dbNow() time.Time {
	return e.opt.Clock.Now().Add(time.Duration(e.offset.offset.Load()) * time.Microsecond)
}

func (e *Engine) readClock(ctx context.Context) (now time.Time, err error) {
	err = e.store.InTx(ctx, store.Hot, "clock", func(ctx context.Context, tx *store.Tx) error {
		now, err = tx.Now(ctx)
		return err
	})
	if err == nil {
		e.saw(now)
	}
	return now, err
}

// wake signals a channel of size 1 without blocking.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
