//go:build unix

package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
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
	"nf/systemtasks"
)

// mortals are processes that die and are replaced while workers use whichever lives.
type mortals struct {
	t   *testing.T
	opt workertest.Options

	mu    sync.Mutex
	procs []*workertest.Stack
}

func (m *mortals) pick() *workertest.Stack {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.procs[rand.IntN(len(m.procs))]
}

// kill lets one die and puts another in its place.
func (m *mortals) kill() {
	m.mu.Lock()
	i := rand.IntN(len(m.procs))
	victim, other := m.procs[i], m.procs[(i+1)%len(m.procs)]
	m.mu.Unlock()
	victim.Die()
	fresh := other.Beside(m.opt)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.procs[i] = fresh
}

// work leases and completes until the context ends. A report whose answer is lost is sent again, to whoever lives.
func (m *mortals) work(ctx context.Context, done *atomic.Int64) {
	for ctx.Err() == nil {
		s := m.pick()
		a, err := s.Queue.Lease(ctx, queue.Request{
			NS: s.NS, Namespace: enginetest.Namespace, Queues: []queue.Ask{{Queue: "step", Count: 1}}, Wait: time.Second, LeaseMs: 2000, Worker: "w",
		})
		if err != nil {
			continue
		}
		for _, task := range a.Tasks {
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(ctx, 2*time.Second)
				r := m.pick().Engine.Record(call, []engine.End{enginetest.EndOf(task.Leased, enginetest.Completed(""))})[0]
				cancel()
				if r.Err == nil {
					if r.Answer == engine.Accepted {
						done.Add(1)
					}
					break
				}
			}
		}
	}
}

// killed runs executions of a sequence while processes die, and gives the longest time between the completion of a task and the scheduling of the next,
// and between that and its first lease.
func killed(t *testing.T, runs, kills, workers int) (schedule, lease time.Duration) {
	const steps = 20
	m := &mortals{t: t, opt: workertest.Options{NoPool: true}}
	var tasks []*schema.Task
	for i := range steps {
		tasks = append(tasks, enginetest.Simple(fmt.Sprintf("t%d", i), "step", nil))
	}
	first := workertest.New(t, m.opt, enginetest.Definition("step"), enginetest.Workflow("w", tasks...))
	m.procs = []*workertest.Stack{first, first.Beside(m.opt)}
	watcher := first.Beside(workertest.Options{NoPool: true, NoSweep: true})
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { m.work(ctx, &done) })
	}
	var ids []execution.ID
	for i := range runs {
		key := fmt.Sprint("k", i)
		require.Eventually(t, func() bool {
			call, end := context.WithTimeout(ctx, 2*time.Second)
			defer end()
			r := m.pick().Engine.Start(call, []engine.StartRequest{{Namespace: enginetest.Namespace, Workflow: "w", Key: key}})[0]
			if r.Err == nil {
				ids = append(ids, r.ID)
			}
			return r.Err == nil
		}, 30*time.Second, time.Millisecond)
	}
	for k := range kills {
		at := int64(runs*steps) * int64(k+1) / int64(kills+1)
		require.Eventually(t, func() bool { return done.Load() >= at }, 5*time.Minute, 5*time.Millisecond, "the work goes on")
		m.kill()
	}
	for _, id := range ids {
		require.Eventually(t, func() bool { return !watcher.Get(id).Open() }, 2*time.Minute, 20*time.Millisecond)
		require.Equal(t, "COMPLETED", watcher.Get(id).Status)
	}
	cancel()
	all.Wait()
	require.Equal(t, runs*steps, storetest.Int(t, watcher.URL, `SELECT count(*) FROM nf_task WHERE status = 10`), "each task completed once")
	next := `SELECT coalesce(max(extract(epoch FROM %s) * 1000), 0)::int FROM nf_task p JOIN nf_task n ON n.ns = p.ns AND n.exec_id = p.exec_id AND n.task_no = p.task_no + 1`
	schedule = time.Duration(storetest.Int(t, watcher.URL, fmt.Sprintf(next, "n.scheduled_at - p.ended_at"))) * time.Millisecond
	lease = time.Duration(storetest.Int(t, watcher.URL, fmt.Sprintf(next, "n.leased_at - p.ended_at")+` WHERE n.deliveries = 1`)) * time.Millisecond
	return schedule, lease
}

// BG-127, BG-29: the next task is scheduled at once, however often processes die. The soak does 1,000 runs and ten kills.
func TestBG_127_NextTaskIsScheduledAtOnceThoughProcessesDie(t *testing.T) {
	t.Parallel()
	schedule, lease := killed(t, 12, 3, 12)
	t.Logf("longest from completion to the next task: scheduled %v, leased %v", schedule, lease)
	require.Less(t, schedule, 5*time.Second)
	require.Less(t, lease, 10*time.Second, "nobody else waits for workers")
}

// burst starts executions at a steady rate, each with forks, calls, waits and a sequence that one evaluation does not finish, and requires that the backlog is gone
// soon after the load. It gives how long that took.
func burst(t *testing.T, perSecond int, span time.Duration) time.Duration {
	tasks := enginetest.Fork("f", []*schema.Task{call("a", "", nil)}, []*schema.Task{call("b", "", nil), enginetest.Wait("w", json.Number("0.1"))})
	for i := range 70 { // more than one evaluation takes
		tasks = append(tasks, enginetest.Set(fmt.Sprintf("s%d", i), map[string]schema.Value{"n": i}))
	}
	opt := workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}}
	s := workertest.New(t, opt, enginetest.Workflow("w", append(tasks, call("c", "", nil))...))
	other := s.Beside(opt)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	started := 0
	for begun := time.Now(); time.Since(begun) < span; {
		<-tick.C
		due := int(time.Since(begun).Seconds()*float64(perSecond)) - started
		batch := make([]engine.StartRequest, max(due, 0))
		for i := range batch {
			batch[i] = engine.StartRequest{Namespace: enginetest.Namespace, Workflow: "w"}
		}
		for _, r := range []*workertest.Stack{s, other}[started%2].Engine.Start(t.Context(), batch) {
			require.NoError(t, r.Err)
		}
		started += len(batch)
	}
	after := time.Now()
	var fleet store.Fleet
	require.Eventually(t, func() bool {
		var err error
		fleet, err = s.Store.Fleet(t.Context())
		require.NoError(t, err)
		return fleet.Running == 0
	}, 2*time.Minute, 50*time.Millisecond, "the backlog is worked off")
	gone := time.Since(after)
	require.Zero(t, fleet.Marks)
	require.Zero(t, fleet.Ready+fleet.Leased+fleet.Delayed+fleet.TimersOverdue)
	require.Equal(t, started, storetest.Int(t, s.URL, `SELECT count(*) FROM nf_exec_closed WHERE status = 10`))
	t.Logf("%d started, backlog gone %v after the load", started, gone)
	return gone
}

// BG-131: the queue of evaluations is empty again after a load. The soak does 200 starts a second for five minutes.
func TestBG_131_BacklogReturnsToZeroAfterTheLoad(t *testing.T) {
	t.Parallel()
	require.Less(t, burst(t, 40, 2*time.Second), 20*time.Second)
}

// goroutine gives the number of the running goroutine.
func goroutine() int {
	buf := make([]byte, 64)
	fields := bytes.Fields(buf[:runtime.Stack(buf, false)])
	n, _ := strconv.Atoi(string(fields[1]))
	return n
}

// nesting finds transactions that are begun by a goroutine while it is inside another one: it would hold two connections.
type nesting struct {
	mu    sync.Mutex
	open  map[int]string
	found map[string]int
	txs   map[string]int
}

func (n *nesting) watch(db *store.Store) {
	n.open, n.found, n.txs = map[int]string{}, map[string]int{}, map[string]int{}
	before := db.OnTx
	db.Abort = func(tx, _ string) error {
		g := goroutine()
		n.mu.Lock()
		defer n.mu.Unlock()
		switch outer, inside := n.open[g]; {
		case !inside:
			n.open[g] = tx
			n.txs[tx]++
		case outer != tx:
			n.found[tx+" inside "+outer]++
		}
		return nil
	}
	db.OnTx = func(tx string, took time.Duration, err error) {
		g := goroutine()
		n.mu.Lock()
		if n.open[g] == tx {
			delete(n.open, g)
		}
		n.mu.Unlock()
		if before != nil {
			before(tx, took, err)
		}
	}
}

// FC-137: no path of a whole process takes a second connection while it holds one: starts, claims, completions, evaluations, sweeps, terminates, reads,
// logs, changes of definitions, duties.
func TestFC_137_NoPathTakesASecondConnection(t *testing.T) {
	t.Parallel()
	var n nesting
	opt := workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}, Store: n.watch}
	objects := append(rivalObjects(3), enginetest.Workflow("http", call("a", "", nil), enginetest.Wait("w", json.Number("0.01")), call("b", "", nil)))
	s := workertest.New(t, opt, objects...)
	r := &rivals{t: t, caps: 3, sweep: true, procs: []*workertest.Stack{s, s}}
	for range 3 {
		require.Equal(t, "COMPLETED", s.Await(s.Start("http", "")).Status)
		for name, path := range r.paths() {
			if name == "S5 sweep" || name == "S9 chores" || name == "S14 apply" {
				continue // its own loops do that
			}
			path(t.Context())
		}
	}
	enginetest.Declare(t, s.Store, append(rivalObjects(4), objects[len(objects)-1])...)
	_, err := s.Engine.List(t.Context(), engine.ListRequest{Namespace: enginetest.Namespace, Limit: 10})
	require.NoError(t, err)
	r.drain()
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("%v", n.txs)
	require.Greater(t, len(n.txs), 15)
	require.Empty(t, n.found)
}

// Goroutines that wait for each other are no second connection, but callers that outnumber the connections must not block each other either: far more callers of all kinds than
// there are connections all get their answers.
func TestFC_137_ManyCallersFewConnections(t *testing.T) {
	t.Parallel()
	r := newRivals(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Int64
	for range 60 {
		all.Go(func() {
			s := r.proc()
			for range 3 {
				x := s.Engine.Start(ctx, []engine.StartRequest{{Namespace: enginetest.Namespace, Workflow: "line"}})[0]
				if x.Err != nil {
					failed.Add(1)
					continue
				}
				if _, err := s.Engine.Get(ctx, x.ID, engine.Include{Tasks: true}); err != nil {
					failed.Add(1)
				}
				r.claim(ctx)
				if _, err := s.Engine.Terminate(ctx, x.ID, "x", "ann"); err != nil && !errors.Is(err, store.ErrNotFound) {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, ctx.Err())
	require.Zero(t, failed.Load())
}
