//go:build unix

// Package queuetest makes small worlds for tests of queues, sweeps and runners: a database of its own, declared objects, and tasks that wait.
package queuetest

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"nf/runtime/clock"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

// Namespace is where the objects of a world are.
const Namespace = "default"

// World is one database with what was declared in it.
type World struct {
	T        testing.TB
	URL      string
	Store    *store.Store
	Registry *registry.Registry
	Guard    *clock.Guard
	NS       int32
	SQL      *pgxpool.Pool // for what only a test may do

	generation int64
	applied    map[schema.Address]schema.Object
}

// New makes a world in which the objects are declared.
func New(t testing.TB, objects ...schema.Object) *World {
	t.Helper()
	w := open(t, storetest.URL(t))
	w.Declare(objects...)
	return w
}

// Join opens a world that another process has made.
func Join(t testing.TB, url string) *World {
	t.Helper()
	w := open(t, url)
	w.refresh()
	return w
}

func open(t testing.TB, url string) *World {
	t.Helper()
	w := &World{
		T: t, URL: url, Store: storetest.Open(t, url), Guard: clock.NewGuard(clock.System{}), applied: map[schema.Address]schema.Object{},
	}
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 2
	w.SQL, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(w.SQL.Close)
	return w
}

// Declare adds or changes objects.
func (w *World) Declare(objects ...schema.Object) {
	w.T.Helper()
	ctx := context.Background()
	for _, o := range objects {
		w.applied[o.Address()] = o
	}
	req := store.ApplyRequest{Project: "test", BaseGeneration: w.generation, Commit: "c", Actor: "test", Build: 1}
	digest := [32]byte{}
	_, err := rand.Read(digest[:])
	require.NoError(w.T, err)
	req.Digest = digest
	for a := range w.applied {
		req.Wanted = append(req.Wanted, a)
	}
	slices.SortFunc(req.Wanted, func(a, b schema.Address) int { return compare(a.String(), b.String()) })
	done, err := w.Store.Apply(ctx, req, w.changes)
	require.NoError(w.T, err)
	w.generation = done.Generation
	w.refresh()
}

func (w *World) refresh() {
	w.T.Helper()
	ctx := context.Background()
	if w.Registry == nil {
		var err error
		w.Registry, err = registry.Open(ctx, w.Store)
		require.NoError(w.T, err)
	}
	require.NoError(w.T, w.Registry.Refresh(ctx))
	ns, ok := w.Registry.Snapshot().Namespace(Namespace)
	require.True(w.T, ok)
	w.NS = ns
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (w *World) changes(r store.Registered) ([]store.Change, error) {
	var changes []store.Change
	seen := map[schema.Address]bool{}
	for i := range r.Objects {
		o := &r.Objects[i]
		seen[o.Address] = true
		if want := declared(w.applied[o.Address]); want.Digest != o.Digest {
			changes = append(changes, store.Change{Action: store.ActionChange, Base: o, Want: want})
		}
	}
	for a, o := range w.applied {
		if !seen[a] {
			changes = append(changes, store.Change{Action: store.ActionAdd, Want: declared(o)})
		}
	}
	return changes, nil
}

func declared(o schema.Object) *store.Declared {
	return &store.Declared{Object: o, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), File: "test.yaml", Line: 1}
}

// Definition makes a task definition with the defaults of contract 1.4; change it before it is declared.
func Definition(name string, limit int64, semaphores ...string) *schema.TaskDefinition {
	d := &schema.TaskDefinition{
		Metadata: schema.Metadata{Name: name, Namespace: Namespace}, Retry: schema.DefaultRetry(), RetryBudget: 0.3,
		ResponseTimeout: 3_600_000, PollTimeout: 30_000, TimeoutPolicy: schema.TimeoutWorkflow, Delivery: schema.AtLeastOnce,
		ConcurrentExecLimit: limit,
	}
	for _, s := range semaphores {
		d.Semaphores = append(d.Semaphores, schema.Ref{Namespace: Namespace, Name: s})
	}
	return d
}

// Semaphore makes a semaphore.
func Semaphore(name string, permits int64) *schema.Semaphore {
	return &schema.Semaphore{Metadata: schema.Metadata{Name: name, Namespace: Namespace}, Permits: permits}
}

// Queue makes a Queue over the world's store.
func (w *World) Queue() *queue.Queue { return w.QueueOn(w.Store, nil) }

// QueueOn makes a Queue over another store of the same database: another process.
func (w *World) QueueOn(s *store.Store, n *store.Notifier) *queue.Queue {
	w.T.Helper()
	reg := w.Registry
	if s != w.Store {
		var err error
		reg, err = registry.Open(w.T.Context(), s)
		require.NoError(w.T, err)
	}
	return queue.New(queue.Options{Store: s, Registry: reg, Clock: clock.System{}, Guard: clock.NewGuard(clock.System{}), Notifier: n})
}

// At gives the queue of a definition, made if needed.
func (w *World) At(definition string) store.QueueAt {
	w.T.Helper()
	pinned, ok := w.Registry.Snapshot().Task(w.NS, definition)
	require.True(w.T, ok, definition)
	info, err := w.Store.Queues().Ensure(w.T.Context(), store.API, execution.QueueKey{NS: w.NS, Name: definition, DefID: pinned.DefID})
	require.NoError(w.T, err)
	return info.QueueAt
}

// Enqueue lets n tasks of a definition wait in its queue, each the only task of an execution of its own, and gives the executions.
func (w *World) Enqueue(definition string, n int) []execution.UUID {
	w.T.Helper()
	at := w.At(definition)
	pinned, _ := w.Registry.Snapshot().Task(w.NS, definition)
	ids := make([]execution.UUID, n)
	raw := make([][16]byte, n)
	for i := range ids {
		var random [10]byte
		_, err := rand.Read(random[:])
		require.NoError(w.T, err)
		ids[i] = execution.NewUUID(time.Now(), random)
		raw[i] = ids[i]
	}
	ctx := w.T.Context()
	tx, err := w.SQL.Begin(ctx)
	require.NoError(w.T, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `INSERT INTO nf_exec (ns, exec_id, started_at, admitted_at, def_id, rev_id, next_no)
		SELECT $1, id, nf_now(), nf_now(), 1, 1, 2 FROM unnest($2::uuid[]) id`, w.NS, raw)
	require.NoError(w.T, err)
	_, err = tx.Exec(ctx, `INSERT INTO nf_payload (ns, exec_id, task_no, part, body) SELECT $1, id, 1, 1, '{"n":1}' FROM unnest($2::uuid[]) id`, w.NS, raw)
	require.NoError(w.T, err)
	_, err = tx.Exec(ctx, `INSERT INTO nf_ready (ns, queue_id, lane, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev,
		retries_left, scheduled_at, visible_at, start_by)
		SELECT $1, $3, 99, 1, id, 1, 1, 0, 0, 1, $4, $5, 3, nf_now(), nf_now(), CASE WHEN $6 > 0 THEN nf_now() + $6 * interval '1 ms' END
		  FROM unnest($2::uuid[]) WITH ORDINALITY AS x(id, o) ORDER BY o`,
		w.NS, raw, at.QueueID, pinned.DefID, pinned.DefRev, int64(pinned.Def.ScheduleToStartTimeout))
	require.NoError(w.T, err)
	require.NoError(w.T, tx.Commit(ctx))
	return ids
}

// Count runs a query that gives one number.
func (w *World) Count(sql string, args ...any) int {
	w.T.Helper()
	var n int
	require.NoError(w.T, w.SQL.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// Exec runs a statement that only a test may run.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	_, err := w.SQL.Exec(context.Background(), sql, args...)
	require.NoError(w.T, err)
}

// End ends leases as a completion does, by fence: the row and its permits. It gives how many were still held.
func (w *World) End(leases ...store.LeaseKey) int {
	w.T.Helper()
	n := 0
	for _, l := range leases {
		n += w.Count(`WITH d AS (DELETE FROM nf_lease WHERE ns = $1 AND exec_id = $2 AND task_no = $3 AND fence = $4 RETURNING 1),
			s AS (DELETE FROM nf_lease_sem WHERE ns = $1 AND exec_id = $2 AND task_no = $3 AND fence = $4)
			SELECT count(*) FROM d`, l.NS, [16]byte(l.Exec), l.TaskNo, l.Fence)
	}
	return n
}

// Healthy holds the database to the invariant queries of the lock order's page: call it at the end of a test.
func (w *World) Healthy() {
	w.T.Helper()
	require.Zero(w.T, w.Count(`SELECT count(*) FROM (SELECT ns, exec_id, task_no FROM nf_ready UNION ALL SELECT ns, exec_id, task_no FROM nf_lease
		UNION ALL SELECT ns, exec_id, task_no FROM nf_timer) a WHERE ns > 0 GROUP BY ns, exec_id, task_no HAVING count(*) > 1
		UNION ALL SELECT 0 LIMIT 1`)-0, "an attempt is in two tables")
	require.Zero(w.T, w.Count(`SELECT count(*) FROM nf_lease_sem s WHERE s.ns > 0 AND NOT EXISTS (
		SELECT FROM nf_lease l WHERE l.ns = s.ns AND l.exec_id = s.exec_id AND l.task_no = s.task_no AND l.fence = s.fence)`), "a permit without a lease")
	require.Zero(w.T, w.Count(`SELECT count(*) FROM nf_lease l WHERE l.ns > 0 AND l.sems <> (
		SELECT count(*) FROM nf_lease_sem s WHERE s.ns = l.ns AND s.exec_id = l.exec_id AND s.task_no = l.task_no)`), "a lease with other permits than it says")
}
