//go:build unix

// Package workertest gives tests whole processes: an engine, a queue, a runner with its pool, and sweeps, on a real database.
package workertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/queue"
	"nf/runtime/store"
	"nf/runtime/sweep"
	"nf/runtime/worker"
	"nf/schema"
	"nf/systemtasks"
)

// Options change a process. The zero value runs everything, with no system task.
type Options struct {
	Tasks     []systemtasks.Task
	Executors int
	Drain     time.Duration
	Host      string // name of the machine that the runner says it is on
	NoPool    bool   // the process executes nothing itself
	NoSweep   bool
	NoNotify  bool
	NoBeat    bool   // the runner beats once, when it registers
	Clock     *Clock // moves the database's clock too; nil = real time
	Store     func(*store.Store)
	AppName   string
	Broken    bool
	Secrets   func(ctx context.Context, namespace string, ref schema.SecretRef) (string, error)
}

// Stack is one process.
type Stack struct {
	*enginetest.World
	Queue    *queue.Queue
	Runner   *queue.Runner
	Pool     *worker.Pool
	Sweeper  *sweep.Sweeper
	Notifier *store.Notifier
	Guard    *clock.Guard

	opt   Options
	clock clock.Clock
	dead  atomic.Bool
	kill  context.CancelFunc
	done  sync.WaitGroup
	once  sync.Once
}

// New declares objects in a world of its own and runs a process in it.
func New(t testing.TB, opt Options, objects ...schema.Object) *Stack {
	t.Helper()
	s := &Stack{opt: opt}
	s.World = enginetest.With(t, s.engineOptions(t), objects...)
	s.run()
	return s
}

// Beside runs a further process on the same database.
func (s *Stack) Beside(opt Options) *Stack {
	s.T.Helper()
	other := &Stack{opt: opt}
	other.World = s.World.Beside(other.engineOptions(s.T))
	other.NS = s.NS
	other.run()
	return other
}

func (s *Stack) engineOptions(t testing.TB) enginetest.Options {
	s.clock = clock.System{}
	if s.opt.Clock != nil {
		s.clock = s.opt.Clock
	}
	s.Guard = clock.NewGuard(s.clock)
	return enginetest.Options{
		Broken: s.opt.Broken, AppName: s.opt.AppName, Store: s.hook,
		Engine: func(o *engine.Options) {
			if !s.opt.NoNotify {
				s.Notifier = store.NewNotifier(o.Store, clock.System{})
			}
			s.Queue = queue.New(queue.Options{
				Store: o.Store, Registry: o.Registry, Clock: s.clock, Guard: s.Guard, Notifier: s.Notifier, Log: o.Log,
			})
			var err error
			host := s.opt.Host
			if host == "" {
				host = "test"
			}
			s.Runner, err = queue.RegisterRunner(t.Context(), o.Store, s.clock, s.Guard, o.Log, store.RunnerStart{
				Host: host, PID: 1, Build: 1, Version: "test",
			})
			require.NoError(t, err)
			catalog, err := systemtasks.NewCatalog(s.opt.Tasks...)
			require.NoError(t, err)
			s.Pool = worker.New(worker.Options{
				Store: o.Store, Registry: o.Registry, Queue: s.Queue, Runner: s.Runner, Notifier: s.Notifier, Catalog: catalog,
				Executors: s.opt.Executors, Drain: s.opt.Drain, Clock: s.clock, Log: o.Log, Secrets: s.opt.Secrets,
			})
			o.Runner, o.Listener = s.Runner.No(), s.Queue
			if !s.opt.NoPool {
				o.Eager = []engine.Eager{s.Pool, worker.Polls{Queue: s.Queue}}
			}
		},
	}
}

func (s *Stack) hook(db *store.Store) {
	if s.opt.Clock != nil {
		s.opt.Clock.Attach(db)
	}
	if s.opt.Store != nil {
		s.opt.Store(db)
	}
	before := db.Abort
	db.Abort = func(tx, statement string) error {
		if s.dead.Load() {
			return enginetest.ErrDead
		}
		if before != nil {
			return before(tx, statement)
		}
		return nil
	}
}

// Die makes the process do nothing with the database any more, from the next statement on, as kill -9 does.
func (s *Stack) Die() { s.dead.Store(true) }

// Dead says whether Die was called.
func (s *Stack) Dead() bool { return s.dead.Load() }

func (s *Stack) run() {
	s.T.Helper()
	s.Sweeper = sweep.New(sweep.Options{
		Store: s.Store, Registry: s.Registry, Engine: s.Engine, Queue: s.Queue, Runner: s.Runner, Clock: s.clock, Guard: s.Guard,
		Mine: s.Pool.Mine, Log: enginetest.Log(s.T),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.T.Context()))
	s.kill = cancel
	loop := func(name string, run func(context.Context) error) {
		s.done.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, enginetest.ErrDead) {
				s.T.Errorf("%s: %v", name, err)
			}
		})
	}
	loop("queue", s.Queue.Run)
	loop("registry", s.Registry.Run)
	if s.Notifier != nil {
		loop("notifier", s.Notifier.Run)
	}
	if !s.opt.NoBeat {
		loop("runner", s.Runner.Run)
	}
	if !s.opt.NoPool {
		loop("pool", func(ctx context.Context) error { return s.Pool.Run(ctx, s.Engine) })
	}
	if !s.opt.NoSweep {
		loop("sweep", s.Sweeper.Run)
	}
	s.T.Cleanup(s.Shutdown)
}

// Shutdown stops the process as SIGTERM does: loops first, the engine last.
func (s *Stack) Shutdown() {
	s.once.Do(func() {
		s.kill()
		if s.dead.Load() {
			return // its loops only find errors
		}
		s.done.Wait()
		s.Stop()
	})
}

// Lease leases as an external worker does, through the door of long polls.
func (s *Stack) Lease(definition string, count int, wait time.Duration) queue.Answer {
	s.T.Helper()
	a, err := s.Queue.Lease(s.T.Context(), queue.Request{
		NS: s.NS, Namespace: enginetest.Namespace, Queues: []queue.Ask{{Queue: definition, Count: count}}, Wait: wait, Worker: "w",
	})
	require.NoError(s.T, err)
	return a
}

// Task is a system task made of a function.
type Task struct {
	Name schema.TaskType
	Do   func(ctx context.Context, call systemtasks.Call) systemtasks.Outcome
}

// Type implements systemtasks.Task.
func (t Task) Type() schema.TaskType { return t.Name }

// Run implements systemtasks.Task.
func (t Task) Run(ctx context.Context, call systemtasks.Call) systemtasks.Outcome {
	return t.Do(ctx, call)
}

// HTTP makes a task of type HTTP of a function.
func HTTP(do func(ctx context.Context, call systemtasks.Call) systemtasks.Outcome) Task {
	return Task{schema.TypeHTTP, do}
}

// Done completes with an empty output.
func Done(context.Context, systemtasks.Call) systemtasks.Outcome {
	return systemtasks.Completed{Output: map[string]any{}}
}
