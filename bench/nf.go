package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/sweep"
	"nf/runtime/telemetry"
	"nf/runtime/worker"
	"nf/schema"
	"nf/systemtasks"
)

const (
	namespace = "default"
	build     = 1
	// connections is what each side may open to the database.
	connections = 20
)

// noop stands for HTTP: it returns 200 bytes and calls nobody.
type noop struct{ ended atomic.Int64 }

// Type implements systemtasks.Task.
func (*noop) Type() schema.TaskType { return schema.TypeHTTP }

// Run implements systemtasks.Task.
func (t *noop) Run(context.Context, systemtasks.Call) systemtasks.Outcome {
	t.ended.Add(1)
	return systemtasks.Completed{Output: payload}
}

// nfSide is nf in this process, as the peers are: engine, queue, runner, sweeps. Nothing is left out but the network door.
type nfSide struct {
	store  *store.Store
	look   *pgx.Conn // for finding out whether anything is still open
	task   *noop
	engine *engine.Engine
	stop   context.CancelFunc
	done   *errgroup.Group
	runFn  func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error)
}

func openNF(run func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error)) opener {
	return func(ctx context.Context, url string) (side, error) {
		s, err := store.Open(ctx, store.Config{URL: url, AppName: "nf-bench", MaxConns: connections})
		if err != nil {
			return nil, err
		}
		side := &nfSide{store: s, task: &noop{}, runFn: run}
		err = side.start(ctx)
		if err == nil {
			side.look, err = pgx.Connect(ctx, url)
		}
		if err != nil {
			side.close(ctx)
			return nil, err
		}
		return side, nil
	}
}

func (s *nfSide) start(ctx context.Context) error {
	if err := s.store.Migrate(ctx, build, "bench"); err != nil {
		return err
	}
	if err := declare(ctx, s.store); err != nil {
		return fmt.Errorf("declaring: %w", err)
	}
	defs, err := registry.Open(ctx, s.store)
	if err != nil {
		return err
	}
	var system clock.System
	guard := clock.NewGuard(system)
	runner, err := queue.RegisterRunner(ctx, s.store, system, guard, nil, store.RunnerStart{Host: "bench", Build: build, Version: "bench"})
	if err != nil {
		return err
	}
	catalog, err := systemtasks.NewCatalog(s.task)
	if err != nil {
		return err
	}
	notifier := store.NewNotifier(s.store, system)
	metrics := telemetry.New("bench", "")
	line := queue.New(queue.Options{Store: s.store, Registry: defs, Clock: system, Guard: guard, Notifier: notifier, Metrics: metrics})
	pool := worker.New(worker.Options{
		Store: s.store, Registry: defs, Queue: line, Runner: runner, Notifier: notifier, Catalog: catalog,
		Executors: 200, Clock: system, Metrics: metrics,
	})
	s.engine, err = engine.New(engine.Options{
		Store: s.store, Registry: defs, Clock: system, Runner: runner.No(),
		Eager: []engine.Eager{pool, worker.Polls{Queue: line}}, Listener: line, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	sweeper := sweep.New(sweep.Options{
		Store: s.store, Registry: defs, Engine: s.engine, Queue: line, Runner: runner, Clock: system, Guard: guard,
		Mine: pool.Mine, Metrics: metrics,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.done = stop, &errgroup.Group{}
	work := func(ctx context.Context) error { return pool.Run(ctx, s.engine) }
	for _, loop := range []func(context.Context) error{work, defs.Run, runner.Run, notifier.Run, line.Run, sweeper.Run, s.engine.Run} {
		s.done.Go(func() error {
			if err := loop(running); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
	}
	return nil
}

func (s *nfSide) run(ctx context.Context, n int) (float64, map[string]float64, error) {
	return s.runFn(ctx, s, n)
}

func (s *nfSide) close(ctx context.Context) {
	if s.stop != nil {
		s.stop()
		_ = s.done.Wait()
	}
	if s.look != nil {
		_ = s.look.Close(ctx)
	}
	s.store.Close()
}

// declare puts two workflows in force: three steps in a row, and one.
func declare(ctx context.Context, s *store.Store) error {
	step := func(ref string) *schema.Task {
		return &schema.Task{Ref: ref, Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://127.0.0.1/"}}
	}
	meta := func(name string) schema.Metadata { return schema.Metadata{Name: name, Namespace: namespace} }
	objects := []schema.Object{
		&schema.Workflow{Metadata: meta("three"), Tasks: []*schema.Task{step("a"), step("b"), step("c")}},
		&schema.Workflow{Metadata: meta("one"), Tasks: []*schema.Task{step("a")}},
	}
	projects, err := s.Projects(ctx)
	if err != nil || len(projects) > 0 {
		return err // declared by an earlier run
	}
	set, err := schema.NewSet(objects...)
	if err != nil {
		return err
	}
	request := store.ApplyRequest{Project: "bench", Digest: set.Digest(), Actor: "bench", Build: build}
	for _, o := range objects {
		request.Wanted = append(request.Wanted, o.Address())
	}
	_, err = s.Apply(ctx, request, func(store.Registered) ([]store.Change, error) {
		changes := make([]store.Change, 0, len(objects))
		for _, o := range objects {
			changes = append(changes, store.Change{Action: store.ActionAdd, Want: &store.Declared{
				Object: o, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), File: "bench.yaml", Line: 1,
			}})
		}
		return changes, nil
	})
	return err
}

// runToEnd starts an execution and waits until it has ended. lastSeq is the number of its last event: a start, each step, the end.
func (s *nfSide) runToEnd(ctx context.Context, workflow string, lastSeq int64) error {
	started := s.engine.Start(ctx, []engine.StartRequest{{Namespace: namespace, Workflow: workflow, Input: payload}})[0]
	if started.Err != nil {
		return started.Err
	}
	return s.engine.WaitChange(ctx, started.ID, lastSeq-1, time.Minute)
}

// backlog starts n executions of one step in batches, which are worked meanwhile, and waits until the last has ended.
func (s *nfSide) backlog(ctx context.Context, n int) (float64, map[string]float64, error) {
	goal := s.task.ended.Load() + int64(n)
	start := time.Now()
	for left := n; left > 0; left -= startBatch {
		batch := make([]engine.StartRequest, min(left, startBatch))
		for i := range batch {
			batch[i] = engine.StartRequest{Namespace: namespace, Workflow: "one", Input: payload}
		}
		for _, r := range s.engine.Start(ctx, batch) {
			if r.Err != nil {
				return 0, nil, r.Err
			}
		}
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%d calls to go: %w", goal-s.task.ended.Load(), ctx.Err())
		case <-tick.C:
		}
		if s.task.ended.Load() < goal {
			continue
		}
		if err := s.look.QueryRow(ctx, "SELECT EXISTS (SELECT FROM nf_exec e JOIN nf_ns n USING (ns) WHERE n.name = $1)", namespace).Scan(&open); err != nil {
			return 0, nil, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil, nil
}

// startBatch is how many executions are handed to the engine at once.
const startBatch = 5_000
