//go:build unix

// Package enginetest gives tests a running engine on a real database of its own, definitions made of Go values, and short words for what
// a worker does. Every world checks the invariants of its database when the test ends.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
	"nf/schema/jsontext"
)

// Namespace is the namespace of everything a world declares.
const Namespace = "default"

// ErrDead is what the store answers in a process that a test has killed. No loop of such a process can fail the test.
var ErrDead = errors.New("the process is dead")

// World is a database with definitions, and an engine on it. Its methods fail the test on any surprise.
type World struct {
	T        testing.TB
	URL      string
	Store    *store.Store
	Registry *registry.Registry
	Engine   *engine.Engine
	NS       int32
	claims   atomic.Int64
	stop     func()
}

// Options change a world. The zero value is fine.
type Options struct {
	Engine func(*engine.Options)
	// Built is called with the engine before it runs.
	Built func(*engine.Engine)
	// Store is called before the engine runs, for hooks.
	Store func(*store.Store)
	// AppName is the name of the connections of Beside; "" = the test's.
	AppName string
	// Broken leaves out the check of the invariants at the end.
	Broken bool
}

// New makes a world with the given objects declared and its engine running.
func New(t testing.TB, objects ...schema.Object) *World {
	t.Helper()
	return With(t, Options{}, objects...)
}

// With is New with options.
func With(t testing.TB, opt Options, objects ...schema.Object) *World {
	t.Helper()
	w := &World{T: t, URL: storetest.URL(t)}
	if !opt.Broken {
		t.Cleanup(func() {
			storetest.CheckInvariants(t, w.URL)
			require.Zero(t, storetest.Deadlocks(t, w.URL), "deadlocks")
		})
	}
	w.Store = storetest.Open(t, w.URL)
	Declare(t, w.Store, objects...)
	w.Run(opt)
	return w
}

// Beside starts a second process on the same database: a store, a registry and an engine of its own.
func (w *World) Beside(opt Options) *World {
	w.T.Helper()
	name := opt.AppName
	if name == "" {
		name = w.T.Name()
	}
	s, err := store.Open(w.T.Context(), store.Config{URL: w.URL, AppName: name, MaxConns: store.MinConns})
	require.NoError(w.T, err)
	w.T.Cleanup(s.Close)
	other := &World{T: w.T, URL: w.URL, Store: s}
	other.Run(opt)
	return other
}

// Run opens the registry and starts the engine; it stops when the test ends, or by Stop.
func (w *World) Run(opt Options) {
	w.T.Helper()
	if opt.Store != nil {
		opt.Store(w.Store)
	}
	var err error
	w.Registry, err = registry.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	w.NS, _ = w.Registry.Snapshot().Namespace(Namespace)
	o := engine.Options{Store: w.Store, Registry: w.Registry, Log: Log(w.T)}
	if opt.Engine != nil {
		opt.Engine(&o)
	}
	w.Engine, err = engine.New(o)
	require.NoError(w.T, err)
	if opt.Built != nil {
		opt.Built(w.Engine)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.T.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Engine.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrDead) {
			w.T.Errorf("engine: %v", err)
		}
	}
	w.T.Cleanup(w.stop)
}

// Stop stops the engine as a shutdown does.
func (w *World) Stop() { w.stop() }

// Declare puts objects in force as one apply of the project "test" on top of what is declared.
func Declare(t testing.TB, s *store.Store, objects ...schema.Object) {
	t.Helper()
	var generation int64
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	for _, p := range projects {
		if p.Name == "test" {
			generation = p.Generation
		}
	}
	set, err := schema.NewSet(objects...)
	require.NoError(t, err)
	req := store.ApplyRequest{
		Project: "test", BaseGeneration: generation, Digest: set.Digest(), Actor: "test", Build: 1,
	}
	for _, o := range objects {
		req.Wanted = append(req.Wanted, o.Address())
	}
	_, err = s.Apply(t.Context(), req, func(now store.Registered) ([]store.Change, error) {
		var changes []store.Change
		for _, o := range objects {
			c := store.Change{Action: store.ActionAdd, Want: &store.Declared{
				Object: o, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), File: "test.yaml", Line: 1,
			}}
			for i := range now.Objects {
				if now.Objects[i].Address == o.Address() {
					c.Action, c.Base = store.ActionChange, &now.Objects[i]
				}
			}
			changes = append(changes, c)
		}
		return changes, nil
	})
	require.NoError(t, err)
}

// Start starts a workflow of the world's namespace.
func (w *World) Start(workflow, input string) execution.ID {
	w.T.Helper()
	r := w.TryStart(engine.StartRequest{Namespace: Namespace, Workflow: workflow, Input: Object(w.T, input)})
	require.NoError(w.T, r.Err)
	require.True(w.T, r.Created)
	return r.ID
}

// TryStart starts one execution and gives the answer.
func (w *World) TryStart(r engine.StartRequest) engine.StartResult {
	w.T.Helper()
	return w.Engine.Start(w.T.Context(), []engine.StartRequest{r})[0]
}

// Object reads a JSON object.
func Object(t testing.TB, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	o, err := jsontext.DecodeObject([]byte(text), jsontext.Limits{})
	require.NoError(t, err)
	return o
}

// QueueOf gives the physical queue of a task definition.
func (w *World) QueueOf(definition string) store.QueueAt {
	w.T.Helper()
	pinned, ok := w.Registry.Snapshot().Task(w.NS, definition)
	require.True(w.T, ok, "definition %s", definition)
	return w.Queue(execution.QueueKey{NS: w.NS, Name: definition, DefID: pinned.DefID})
}

// Queue gives a physical queue.
func (w *World) Queue(key execution.QueueKey) store.QueueAt {
	w.T.Helper()
	q, err := w.Store.Queues().Ensure(w.T.Context(), store.API, key)
	require.NoError(w.T, err)
	return q.QueueAt
}

// Claim leases up to n attempts of a definition's queue, as a worker called "w" does. It does not wait.
func (w *World) Claim(definition string, n int) []store.Leased {
	w.T.Helper()
	return w.ClaimFrom(w.QueueOf(definition), n)
}

// ClaimFrom leases up to n attempts of a queue.
func (w *World) ClaimFrom(at store.QueueAt, n int) []store.Leased {
	w.T.Helper()
	leased, err := w.Store.ClaimPlain(w.T.Context(), store.API, store.Claim{Queue: at, Want: n, ClaimID: w.claims.Add(1), Worker: "w"})
	require.NoError(w.T, err)
	return leased
}

// ClaimOne leases exactly one attempt of a definition's queue.
func (w *World) ClaimOne(definition string) store.Leased {
	w.T.Helper()
	l := w.Claim(definition, 1)
	require.Len(w.T, l, 1, "work in queue %s", definition)
	return l[0]
}

// EndOf gives the End of a lease.
func EndOf(l store.Leased, what engine.What) engine.End {
	return engine.End{ID: l.ID, TaskNo: l.TaskNo, Attempt: l.Attempt.Attempt, Place: execution.InLease, Fence: l.Fence, What: what}
}

// Completed is a report COMPLETED; output is a JSON object or "".
func Completed(output string) engine.Report {
	r := engine.Report{Status: execution.Completed, Worker: "w"}
	if output != "" {
		r.Output = []byte(output)
	}
	return r
}

// Failed is a report FAILED.
func Failed(reason string) engine.Report {
	return engine.Report{Status: execution.Failed, Cause: execution.CauseWorkerFailed, Reason: reason, Worker: "w"}
}

// FailedTerm is a report FAILED_WITH_TERMINAL_ERROR.
func FailedTerm(reason string) engine.Report {
	return engine.Report{Status: execution.FailedTerm, Cause: execution.CauseWorkerTerminal, Reason: reason, Worker: "w"}
}

// Record records one end.
func (w *World) Record(end engine.End) engine.EndResult {
	w.T.Helper()
	return w.Engine.Record(w.T.Context(), []engine.End{end})[0]
}

// Report reports on a lease and requires that it is accepted.
func (w *World) Report(l store.Leased, what engine.What) {
	w.T.Helper()
	r := w.Record(EndOf(l, what))
	require.NoError(w.T, r.Err)
	require.Equal(w.T, engine.Accepted, r.Answer)
}

// Complete leases one attempt of a definition and completes it.
func (w *World) Complete(definition, output string) store.Leased {
	w.T.Helper()
	l := w.ClaimOne(definition)
	w.Report(l, Completed(output))
	return l
}

// Get reads an execution with all there is.
func (w *World) Get(id execution.ID) *engine.Execution {
	w.T.Helper()
	x, err := w.Engine.Get(w.T.Context(), id, engine.Include{Tasks: true, TaskInputs: true, Input: true, Output: true, Variables: true})
	require.NoError(w.T, err)
	return x
}

// Await waits until an execution has ended.
func (w *World) Await(id execution.ID) *engine.Execution {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		x := w.Get(id)
		if !x.Open() {
			return x
		}
		require.NoError(w.T, w.Engine.WaitChange(ctx, id, x.Seq, 2*time.Second))
	}
	require.Fail(w.T, "the execution does not end", "%+v", w.Get(id))
	return nil
}

// Task gives the newest attempt of a task of an execution.
func Task(t testing.TB, x *engine.Execution, ref string) engine.Task {
	t.Helper()
	var found *engine.Task
	for i := range x.Tasks {
		if x.Tasks[i].Ref == ref {
			found = &x.Tasks[i]
		}
	}
	require.NotNil(t, found, "task %s of %+v", ref, x.Tasks)
	return *found
}

// Attempts gives all attempts of a task.
func Attempts(x *engine.Execution, ref string) []engine.Task {
	var all []engine.Task
	for _, task := range x.Tasks {
		if task.Ref == ref {
			all = append(all, task)
		}
	}
	return all
}

// Move moves the database clock that every transaction of this world's store sees.
func (w *World) Move(d time.Duration) { w.Store.SetClockOffset(d) }

// Due records that a time of an open task has come, as a sweep does, and gives the answer.
func (w *World) Due(id execution.ID, ref string) engine.EndResult {
	w.T.Helper()
	var open store.OpenAttempt
	tasks, err := w.Store.Tasks(w.T.Context(), id, store.TaskPage{Limit: 500})
	require.NoError(w.T, err)
	x := w.Get(id)
	task := Task(w.T, x, ref)
	for _, a := range tasks.Open {
		if a.TaskNo == task.TaskNo {
			open = a.OpenAttempt
		}
	}
	return w.Record(engine.End{
		ID: id, TaskNo: task.TaskNo, Attempt: open.Attempt.Attempt, Place: open.Place, Fence: open.Fence,
		What: engine.Due{Reason: "scheduleToStart: no worker polled " + task.Queue},
	})
}

// Values reads a JSON object as Go values.
func Values(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

// Retire retires declared objects, as an apply of files that no longer hold them does.
func Retire(t testing.TB, s *store.Store, addresses ...schema.Address) {
	t.Helper()
	projects, err := s.Projects(t.Context())
	require.NoError(t, err)
	req := store.ApplyRequest{
		Project: "test", BaseGeneration: projects[0].Generation, Digest: [32]byte{1}, Actor: "test", Build: 1, Wanted: addresses,
	}
	_, err = s.Apply(t.Context(), req, func(now store.Registered) ([]store.Change, error) {
		var changes []store.Change
		for i := range now.Objects {
			for _, a := range addresses {
				if now.Objects[i].Address == a {
					changes = append(changes, store.Change{Action: store.ActionRetire, Base: &now.Objects[i]})
				}
			}
		}
		return changes, nil
	})
	require.NoError(t, err)
}

// Reclaim takes a lease back to the head of its lane, as the sweep does with lost work.
func (w *World) Reclaim(l store.Leased) {
	w.T.Helper()
	moved, err := w.Store.Reclaim(w.T.Context(), store.Ctl, store.MoveLost, []store.Move{{LeaseKey: l.Key()}})
	require.NoError(w.T, err)
	require.Len(w.T, moved, 1)
}
