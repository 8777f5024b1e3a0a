package queue

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"nf/runtime/clock"
	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
)

// Errors that callers branch on.
var (
	// ErrUnknownQueue says that no task definition has this name and no task ever waited in such a queue.
	ErrUnknownQueue = errors.New("unknown queue")
	// ErrReserved says that the queue is served by runners only.
	ErrReserved = errors.New("queue is reserved for runners")
	// ErrLeaseExpired says that a fence is no longer in force, or that the token is not one of this task.
	ErrLeaseExpired = errors.New("lease expired")
)

const (
	// lookEvery is the longest time between two looks for work that nobody announced; with a proven listener lookProven, unless a line is
	// blocked by a gate.
	lookEvery  = time.Second
	lookProven = 5 * time.Second
	lookSoon   = 50 * time.Millisecond
	// noteEvery is how often pollers are written.
	noteEvery = 10 * time.Second
)

// Options are what a Queue needs. All but Notifier, Metrics and Log are required.
type Options struct {
	Store    *store.Store
	Registry *registry.Registry
	Clock    clock.Clock
	Guard    *clock.Guard
	Notifier *store.Notifier // nil: polling only
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// Queue is the door to queues of this process: long polls of workers, their beats and releases, and the place where everything that makes
// work ready or a place free is announced. Safe for concurrent use; long polls end by themselves only while Run runs.
type Queue struct {
	opt     Options
	store   *store.Store
	claimer *Claimer
	hub     *hub
	signer  atomic.Pointer[Signer]
	claims  atomic.Int64
	turn    atomic.Int64 // rotation of leases of several queues
	polls   pollers
	look    chan struct{}
	stop    chan struct{}
	stopped sync.Once

	mu     sync.Mutex
	ready  []func(store.QueueAt)
	freed  []func([]string)
	doubts []doubt
}

// New makes a Queue.
func New(opt Options) *Queue {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	q := &Queue{opt: opt, store: opt.Store, hub: newHub(), look: make(chan struct{}, 1), stop: make(chan struct{})}
	q.claimer = NewClaimer(opt.Store, opt.Clock, opt.Guard, func() execution.Definitions { return opt.Registry.Snapshot() })
	q.polls.init()
	var seed [8]byte
	_, _ = rand.Read(seed[:])                                                       // never fails
	q.claims.Store(int64(binary.BigEndian.Uint64(seed[:]) >> 2 & ^uint64(0xfffff))) //nolint:gosec // two bits to spare
	if opt.Notifier != nil {
		opt.Notifier.Subscribe(q.noticed)
	}
	return q
}

// Claimer gives the claimer of this process: runners claim through the same memory of gates.
func (q *Queue) Claimer() *Claimer { return q.claimer }

// NextClaim gives a claim id that no other claim has.
func (q *Queue) NextClaim() int64 { return q.claims.Add(1) }

// OnReady has fn called for each queue that got work which no long poll of this process took. fn must not block. Call it before Run.
func (q *Queue) OnReady(fn func(store.QueueAt)) { q.ready = append(q.ready, fn) }

// OnFreed has fn called when places become free under gates, which are named by tags; see GateTags. fn must not block. Call it before Run.
func (q *Queue) OnFreed(fn func(tags []string)) { q.freed = append(q.freed, fn) }

// Ready says that queues got work in a transaction of this process that is committed. It never blocks.
func (q *Queue) Ready(queues []store.QueueAt) {
	for at, n := range counted(queues) {
		if q.hub.ready(at, n) >= n {
			continue
		}
		q.readyHere(at)
		if q.opt.Notifier != nil {
			q.opt.Notifier.Send(store.NoticeReady, at)
		}
	}
}

func counted(queues []store.QueueAt) map[store.QueueAt]int {
	all := make(map[store.QueueAt]int, len(queues))
	for _, at := range queues {
		all[at]++
	}
	return all
}

func (q *Queue) readyHere(at store.QueueAt) {
	for _, fn := range q.ready {
		fn(at)
	}
}

// Freed says that leases of queues ended in a transaction of this process that is committed: places and permits are free. It never blocks.
func (q *Queue) Freed(queues []store.QueueAt) {
	for at := range counted(queues) {
		info, ok := q.store.Queues().KnownAt(at)
		if ok && !info.Gated {
			continue
		}
		q.freedHere(at)
		if q.opt.Notifier != nil {
			q.opt.Notifier.Send(store.NoticeFreed, at)
		}
	}
}

func (q *Queue) freedHere(at store.QueueAt) {
	info, ok := q.store.Queues().KnownAt(at)
	if !ok {
		q.lookSoon() // a queue that only other processes use: whoever is blocked by a shared semaphore finds out by looking
		return
	}
	tags := q.GateTags(info)
	q.hub.freed(tags)
	for _, fn := range q.freed {
		fn(tags)
	}
}

// GateTags names the gates that tasks of a queue pass.
func (q *Queue) GateTags(info store.QueueInfo) []string {
	return tagsOf(q.opt.Registry.Snapshot(), info)
}

func tagsOf(snapshot *registry.Snapshot, info store.QueueInfo) []string {
	if info.Key.DefID == 0 {
		return nil
	}
	tags := []string{fmt.Sprintf("definition:%d:%d", info.NS, info.Key.DefID)}
	if pinned, ok := snapshot.TaskByID(info.NS, info.Key.DefID); ok {
		for _, s := range pinned.Def.Semaphores {
			tags = append(tags, "semaphore:"+s.String())
		}
	}
	return tags
}

// noticed takes notifications of other processes.
func (q *Queue) noticed(n store.Notice) {
	switch n.Kind {
	case store.NoticeReady:
		if q.hub.ready(n.Queue, 1) == 0 {
			q.readyHere(n.Queue)
		}
	case store.NoticeFreed:
		q.freedHere(n.Queue)
	case store.NoticeRegistry:
		q.opt.Registry.Wake()
	case store.NoticeResync:
		q.lookSoon()
	}
}

func (q *Queue) lookSoon() {
	select {
	case q.look <- struct{}{}:
	default:
	}
}

// Reserve gives places of long polls to the engine (S2, next work, eager).
func (q *Queue) Reserve(at store.QueueAt, key execution.QueueKey, n int) []store.Seat {
	if key.System {
		return nil
	}
	return q.hub.reserve(at, n)
}

// Deliver hands a lease to the long poll that gave the place. One that has left gives it back.
func (q *Queue) Deliver(seat store.Seat, g Given) {
	if !q.hub.deliver(seat, g) {
		q.giveBackLater([]store.Leased{g.Lease})
	}
}

// Return gives an unused place back.
func (q *Queue) Return(at store.QueueAt, seat store.Seat) { q.hub.giveUp(at, seat) }

// Run looks for work that nobody announced, writes pollers and clears up doubtful claims until ctx ends; open polls then answer at once. It
// returns when all that is done.
func (q *Queue) Run(ctx context.Context) error {
	defer q.Stop()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.looking(gctx) })
	g.Go(func() error { return q.noting(gctx) })
	g.Go(func() error { return q.doubting(gctx) })
	g.Go(func() error { return q.watchRegistry(gctx) })
	return g.Wait()
}

// Stop makes open and new polls answer at once, empty (contract 4.3).
func (q *Queue) Stop() { q.stopped.Do(func() { close(q.stop) }) }

// looking asks, in one statement for all queues with parked polls, which of them hold anything: the truth behind every lost wake-up. It backs off
// from 50 ms to 1 s, 5 s with a proven listener while no gate blocks, each ± 20 %.
func (q *Queue) looking(ctx context.Context) error {
	wait := lookSoon
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.look:
			wait = lookSoon
		case <-time.NewTimer(jitter(wait)).C:
		}
		queues, blocked := q.hub.waiting()
		longest := lookEvery
		if !blocked && q.opt.Notifier != nil && q.opt.Notifier.Proven() {
			longest = lookProven
		}
		wait = min(2*wait, longest)
		if len(queues) == 0 {
			continue
		}
		found, err := q.store.Discover(ctx, store.API, queues)
		if err != nil {
			q.failed(ctx, "look", err)
			continue
		}
		for _, at := range found {
			q.hub.look(at)
		}
	}
}

// watchRegistry wakes blocked lines when limits may have changed: a higher cap counts from the next claim (A0.7).
func (q *Queue) watchRegistry(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.opt.Registry.Snapshot().Superseded():
			q.lookSoon()
		}
	}
}

func (q *Queue) failed(ctx context.Context, loop string, err error) {
	if ctx.Err() != nil {
		return
	}
	q.opt.Log.Warn("queue loop failed", telemetry.KeyLoop, loop, telemetry.KeyError, err.Error())
}

// jitter spreads a wait by ± 20 %.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + time.Duration(mathrand.Int64N(int64(d*2/5)+1))
}

// Waiting gives the number of parked polls.
func (q *Queue) Waiting() int { return q.hub.parked() }
