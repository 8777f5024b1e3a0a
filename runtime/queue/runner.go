package queue

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"nf/runtime/clock"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/telemetry"
)

// beatEvery is how often a runner beats its own row (X5).
const beatEvery = 5 * time.Second

// Runner is this process's name in the fleet: a number that is new at every start, and the beat that is the lease of everything the process executes
// itself. When the number is declared dead the runner drops its work and takes a new one. Safe for concurrent use.
type Runner struct {
	store *store.Store
	clock clock.Clock
	guard *clock.Guard
	log   *slog.Logger
	start store.RunnerStart

	mu       sync.Mutex
	no       int32
	beaten   time.Time // own clock: when the last good beat began
	draining bool
	outdated bool // the schema asks for a newer build: claim nothing
	ended    bool // signed off: no beat, no new number
	lost     chan struct{}
	offset   time.Duration // database clock minus own
}

// RegisterRunner gives this process its number. start.Instance is made here.
func RegisterRunner(ctx context.Context, s *store.Store, c clock.Clock, guard *clock.Guard, log *slog.Logger, start store.RunnerStart) (*Runner, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{store: s, clock: c, guard: guard, log: log, start: start, lost: make(chan struct{})}
	return r, r.register(ctx)
}

func (r *Runner) register(ctx context.Context) error {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	start := r.start
	began := r.clock.Now()
	start.Instance = execution.NewUUID(began, random)
	no, now, err := r.store.RegisterRunner(ctx, start)
	if err != nil {
		return err
	}
	r.guard.Observe(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.no, r.beaten, r.offset = no, began, now.Sub(r.clock.Now())
	return nil
}

// No gives the number in force.
func (r *Runner) No() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.no
}

// Claims says whether the runner may begin work, and under which number: it has beaten within its lease, is not draining, and its build fits. lost is
// closed when the number is no longer its own: everything held under it must be dropped.
func (r *Runner) Claims() (no int32, lost <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := r.clock.Now().Sub(r.beaten) < store.RunnerLease
	return r.no, r.lost, fresh && !r.draining && !r.outdated
}

// Holds says whether work that was claimed under a number may begin: the number is the runner's and its lease has not run out, as far as it can know.
func (r *Runner) Holds(no int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return no == r.no && r.clock.Now().Sub(r.beaten) < store.RunnerLease
}

// DatabaseNow estimates the database clock from the last beat. It makes ids (B1.10); it decides nothing.
func (r *Runner) DatabaseNow() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock.Now().Add(r.offset)
}

// Drain marks the runner as shutting down from its next beat on: it claims nothing more.
func (r *Runner) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Run beats every 5 s until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := r.Beat(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("runner could not beat", telemetry.KeyRunner, r.No(), telemetry.KeyError, err.Error())
			}
		}
	}
}

// Beat beats once. A runner that was declared dead announces the loss and registers anew.
func (r *Runner) Beat(ctx context.Context) error {
	r.mu.Lock()
	no, draining, ended := r.no, r.draining, r.ended
	r.mu.Unlock()
	if ended {
		return nil
	}
	began := r.clock.Now()
	beat, err := r.store.BeatRunner(ctx, no, draining)
	if err != nil {
		return err
	}
	r.guard.Observe(beat.Now)
	if beat.AliveUntil.IsZero() {
		r.log.Warn("runner was declared dead: dropping its work", telemetry.KeyRunner, no)
		r.mu.Lock()
		close(r.lost)
		r.lost, r.no, r.beaten = make(chan struct{}), 0, time.Time{}
		r.mu.Unlock()
		return r.register(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beaten, r.offset = began, beat.Now.Sub(r.clock.Now())
	if outdated := r.start.Build < beat.MinBuild; outdated != r.outdated {
		r.outdated = outdated
		r.log.Warn("the schema asks for another build", telemetry.KeyRunner, no, "build", r.start.Build, "minBuild", beat.MinBuild)
	}
	return nil
}

// SignOff ends the number at once, where a process that just vanished would count as alive until its lease has run out. It comes last:
// whatever is still leased under the number is given to others. The runner neither beats nor claims afterwards.
func (r *Runner) SignOff(ctx context.Context) error {
	r.mu.Lock()
	no := r.no
	r.ended, r.draining, r.beaten = true, true, time.Time{}
	r.mu.Unlock()
	return r.store.SignOffRunner(ctx, no)
}
