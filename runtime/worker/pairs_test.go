//go:build unix

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/runtime/worker/workertest"
	"nf/schema"
)

// rivals is a small world in which everything that changes the database fights for the same few rows: executions that share semaphores in opposite orders,
// keys that several start with, deadlines of some milliseconds.
type rivals struct {
	t     *testing.T
	procs []*workertest.Stack
	sweep bool // the first process sweeps by itself

	mu    sync.Mutex
	held  []queue.Task
	known []execution.ID
	keys  int
	caps  int64
}

func rivalObjects(limit int64) []schema.Object {
	sems := func(names ...string) (refs []schema.Ref) {
		for _, n := range names {
			refs = append(refs, schema.Ref{Namespace: enginetest.Namespace, Name: n})
		}
		return refs
	}
	def := func(name string, refs []schema.Ref) *schema.TaskDefinition {
		return enginetest.Definition(name, func(d *schema.TaskDefinition) {
			d.ConcurrentExecLimit, d.Semaphores, d.RetryBudget = limit, refs, 1
			d.Retry.Logic, d.Retry.Delay, d.Retry.RetryCount = schema.RetryFixed, 5, 2
			d.Timeout, d.TimeoutPolicy, d.ResponseTimeout = 400, schema.TimeoutRetry, 150
		})
	}
	semaphore := func(name string, permits int64) schema.Object {
		return &schema.Semaphore{Metadata: schema.Metadata{Name: name, Namespace: enginetest.Namespace}, Permits: permits}
	}
	fork := enginetest.Workflow("fork", append(enginetest.Fork("f",
		[]*schema.Task{enginetest.Simple("x", "x", nil)}, []*schema.Task{enginetest.Simple("y", "y", nil)}, []*schema.Task{enginetest.Wait("w", json.Number("0.05"))}),
		enginetest.Simple("z", "z", nil))...)
	fork.Timeout = 2000
	return []schema.Object{
		def("x", sems("a", "b")), def("y", sems("b", "a")), def("z", nil), semaphore("a", 3), semaphore("b", 3),
		fork, enginetest.Workflow("line", enginetest.Simple("z", "z", nil), enginetest.Set("v", map[string]schema.Value{"n": 1}), enginetest.Simple("x", "x", nil)),
	}
}

func newRivals(t *testing.T) *rivals {
	t.Helper()
	opt := workertest.Options{NoPool: true, NoSweep: true, NoBeat: true}
	r := &rivals{t: t, caps: 3}
	r.procs = append(r.procs, workertest.New(t, opt, rivalObjects(3)...))
	r.procs = append(r.procs, r.procs[0].Beside(opt))
	return r
}

func (r *rivals) proc() *workertest.Stack { return r.procs[rand.IntN(len(r.procs))] }

// some gives up to n of the executions that were started last.
func (r *rivals) some(n int) []execution.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []execution.ID
	for range n {
		if len(r.known) > 0 {
			ids = append(ids, r.known[rand.IntN(len(r.known))])
		}
	}
	return ids
}

// leases gives up to n of what is held, which stays held or not; more is made if there is nothing.
func (r *rivals) leases(ctx context.Context, n int, keep bool) []queue.Task {
	r.mu.Lock()
	rand.Shuffle(len(r.held), func(i, j int) { r.held[i], r.held[j] = r.held[j], r.held[i] })
	n = min(n, len(r.held))
	got := append([]queue.Task(nil), r.held[:n]...)
	if !keep {
		r.held = r.held[n:]
	}
	r.mu.Unlock()
	if n == 0 {
		r.start(ctx)
		r.claim(ctx)
	}
	return got
}

// check fails the test at a deadlock that came to light; what the world may answer under load is no failure here.
func (r *rivals) check(err error) {
	if err != nil && store.Code(err) == "40P01" {
		r.t.Errorf("deadlock: %v", err)
	}
}

func (r *rivals) start(ctx context.Context) {
	r.mu.Lock()
	r.keys++
	base := r.keys / 3
	r.mu.Unlock()
	var batch []engine.StartRequest
	for _, i := range rand.Perm(4) { // the same keys, in any order
		key := ""
		if i < 3 {
			key = fmt.Sprintf("k%d-%d", base, i)
		}
		batch = append(batch, engine.StartRequest{Namespace: enginetest.Namespace, Workflow: []string{"fork", "line"}[i%2], Key: key})
	}
	for _, x := range r.proc().Engine.Start(ctx, batch) {
		r.check(x.Err)
		if x.Err == nil {
			r.mu.Lock()
			if r.known = append(r.known, x.ID); len(r.known) > 12 {
				r.known = r.known[len(r.known)-12:]
			}
			r.mu.Unlock()
		}
	}
}

func (r *rivals) claim(ctx context.Context) {
	s := r.proc()
	var asks []queue.Ask
	for _, i := range rand.Perm(3) {
		asks = append(asks, queue.Ask{Queue: []string{"x", "y", "z"}[i], Count: 1 + rand.IntN(3)})
	}
	a, err := s.Queue.Lease(ctx, queue.Request{NS: s.NS, Namespace: enginetest.Namespace, Queues: asks, Worker: "w"})
	r.check(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held = append(r.held, a.Tasks...); len(r.held) > 40 {
		r.held = r.held[len(r.held)-40:]
	}
}

func heldOf(l queue.Task) queue.Held {
	return queue.Held{ID: l.ID, Namespace: enginetest.Namespace, TaskNo: l.TaskNo, Attempt: l.Attempt.Attempt, Token: l.Token}
}

func (r *rivals) report(ctx context.Context, keep bool, what func(i int) engine.What) {
	var ends []engine.End
	for i, l := range r.leases(ctx, 5, keep) {
		ends = append(ends, enginetest.EndOf(l.Leased, what(i)))
	}
	for _, x := range r.proc().Engine.Record(ctx, ends) {
		r.check(x.Err)
	}
}

// paths are what writes, by the names of the physical design.
func (r *rivals) paths() map[string]func(context.Context) {
	return map[string]func(context.Context){
		"S1 claim": r.claim,
		"S2 complete": func(ctx context.Context) {
			r.report(ctx, false, func(int) engine.What { return enginetest.Completed(`{"v":1}`) })
		},
		"S2 fail": func(ctx context.Context) {
			r.report(ctx, rand.IntN(2) == 0, func(i int) engine.What { return enginetest.Failed(fmt.Sprint("no ", i)) })
		},
		"S4 beat": func(ctx context.Context) {
			var beats []queue.Beat
			for _, l := range r.leases(ctx, 8, true) {
				beats = append(beats, queue.Beat{Held: heldOf(l), LeaseMs: int64(100 + rand.IntN(100))})
			}
			for _, x := range r.proc().Queue.Heartbeat(ctx, beats) {
				r.check(x.Err)
			}
		},
		"S4 release": func(ctx context.Context) {
			var held []queue.Held
			for _, l := range r.leases(ctx, 5, false) {
				held = append(held, heldOf(l))
			}
			for _, err := range r.proc().Queue.Release(ctx, held) {
				r.check(err)
			}
		},
		"S5 sweep": func(ctx context.Context) {
			s := r.procs[0]
			r.check(s.Sweeper.Pass(ctx))
		},
		"S6 start": r.start,
		"S8 terminate": func(ctx context.Context) {
			for _, id := range r.some(2) {
				_, err := r.proc().Engine.Terminate(ctx, id, "enough", "ann")
				r.check(err)
			}
		},
		"S9 chores": func(ctx context.Context) {
			r.check(r.procs[1].Sweeper.Chores(ctx))
			r.check(r.procs[1].Runner.Beat(ctx))
		},
		"S14 apply": func(ctx context.Context) { r.apply(ctx) },
		"S18 read": func(ctx context.Context) {
			for _, id := range r.some(3) {
				_, err := r.proc().Engine.Get(ctx, id, engine.Include{Tasks: true, Input: true, Output: true, Variables: true, TaskInputs: true})
				r.check(err)
			}
			for _, l := range r.leases(ctx, 2, true) {
				r.check(r.proc().Engine.AddLogs(ctx, enginetest.EndOf(l.Leased, nil), "w", []store.LogLine{{Message: "hello"}}))
			}
		},
	}
}

// apply changes caps; one at a time, as the lock of the registry would have it anyway.
func (r *rivals) apply(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.caps = 3 + (r.caps+1)%3
	enginetest.Declare(r.t, r.procs[0].Store, rivalObjects(r.caps)...)
}

// pairs lets each two paths, and each with itself, run against each other for a while.
func pairs(t *testing.T, each time.Duration) {
	r := newRivals(t)
	paths := r.paths()
	var names []string
	for name := range paths {
		names = append(names, name)
	}
	alone := map[string]bool{"S5 sweep": true, "S9 chores": true, "S14 apply": true} // one loop a process
	turns := map[string]int{}
	for i, a := range names {
		for _, b := range names[i:] {
			before := storetest.Deadlocks(t, r.procs[0].URL)
			r.start(t.Context())
			r.claim(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), each)
			var all sync.WaitGroup
			var mu sync.Mutex
			for k, name := range []string{a, b, a, b} {
				if k > 1 && alone[name] || k == 1 && a == b && alone[a] {
					continue
				}
				all.Go(func() {
					n := 0
					for ; ctx.Err() == nil; n++ {
						paths[name](context.WithoutCancel(ctx))
					}
					mu.Lock()
					turns[name] += n
					mu.Unlock()
				})
			}
			all.Wait()
			cancel()
			require.Equal(t, before, storetest.Deadlocks(t, r.procs[0].URL), "deadlocks of %s against %s", a, b)
		}
	}
	t.Logf("turns: %v", turns)
	for _, name := range names {
		require.Positive(t, turns[name], name)
	}
	r.drain()
}

// drain lets everything end that was begun.
func (r *rivals) drain() {
	s := r.procs[0]
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for {
		fleet, err := s.Store.Fleet(ctx)
		require.NoError(r.t, err)
		if fleet.Running == 0 {
			return
		}
		if !r.sweep {
			require.NoError(r.t, s.Sweeper.Pass(ctx))
		}
		for _, name := range []string{"x", "y", "z"} {
			for _, l := range s.Lease(name, 100, 0).Tasks {
				x := s.Record(enginetest.EndOf(l.Leased, enginetest.Completed("")))
				if x.Err != nil && !errors.Is(x.Err, context.DeadlineExceeded) {
					r.check(x.Err)
				}
			}
		}
	}
}

// FC-149: all pairs of paths against each other, without a deadlock. The soak does it for ten minutes.
func TestFC_149_AllPairsOfPathsWithoutDeadlock(t *testing.T) {
	t.Parallel()
	pairs(t, 60*time.Millisecond)
}
