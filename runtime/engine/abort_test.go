//go:build unix

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

// point is a statement boundary of a transaction of the engine.
type point struct{ tx, statement string }

// how says what happens at a point.
type how int

const (
	record  how = iota // nothing; the point is noted
	fail               // the transaction fails once, the process lives
	crash              // the process dies: nothing of it ever touches the database again
	unknown            // the answer to COMMIT is lost, the process lives
)

var errInjected = errors.New("injected")

// trap sits at every statement boundary of one process.
type trap struct {
	mu      sync.Mutex
	at      point
	how     how
	seen    []point
	sprung  bool
	crashed context.CancelFunc
}

var engineTxs = []string{"start", "complete", "decide", "end", "decide-tries"}

func (tr *trap) hit(tx, statement string) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	p := point{tx, statement}
	switch {
	case tr.sprung && tr.how == crash:
		return errInjected
	case !slices.Contains(engineTxs, tx) || tr.sprung:
		return nil
	case tr.how == record:
		if !slices.Contains(tr.seen, p) {
			tr.seen = append(tr.seen, p)
		}
		return nil
	case p != tr.at:
		return nil
	}
	tr.sprung = true
	if tr.how == unknown {
		return &store.CommitUnknownError{Tx: tx, Err: errInjected}
	}
	if tr.how == crash {
		tr.crashed()
	}
	return errInjected
}

// set sets the trap anew.
func (tr *trap) set(at point, h how) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.at, tr.how, tr.sprung = at, h, false
}

// process is one engine with a trap; a process that has crashed is followed by one without.
type process struct {
	t    *testing.T
	w    *enginetest.World // on the same database, without trap: the worker's, and the reader's
	here *enginetest.World
	ctx  context.Context
	trap *trap
}

func newProcess(t *testing.T, w *enginetest.World, at point, h how) *process {
	t.Helper()
	p := &process{t: t, w: w, trap: &trap{at: at, how: h}}
	p.ctx, p.trap.crashed = context.WithCancel(t.Context())
	p.here = w.Beside(enginetest.Options{Store: func(s *store.Store) { s.Abort = p.trap.hit }})
	return p
}

// engine gives the engine that lives, and a context that ends when it dies.
func (p *process) engine() (*engine.Engine, context.Context) {
	if p.ctx.Err() != nil && p.t.Context().Err() == nil {
		p.here.Stop()
		p.here = p.w.Beside(enginetest.Options{})
		p.ctx = p.t.Context()
	}
	return p.here.Engine, p.ctx
}

// start starts with a key, again as often as it takes: whatever died, one execution comes of it.
func (p *process) start(workflow, key string) execution.ID {
	for range 20 {
		e, ctx := p.engine()
		r := e.Start(ctx, []engine.StartRequest{{Namespace: enginetest.Namespace, Workflow: workflow, Key: key}})[0]
		if r.Err == nil {
			return r.ID
		}
	}
	require.Fail(p.t, "no start")
	return execution.ID{}
}

// record reports again as often as it takes; a repeat may find its own first.
func (p *process) record(end engine.End) engine.Answer {
	for range 20 {
		e, ctx := p.engine()
		if r := e.Record(ctx, []engine.End{end})[0]; r.Err == nil {
			return r.Answer
		}
	}
	require.Fail(p.t, "no answer to a report")
	return 0
}

func (p *process) terminate(id execution.ID) {
	for range 20 {
		e, ctx := p.engine()
		if r, err := e.Terminate(ctx, id, "enough", "ann"); err == nil {
			require.Equal(p.t, "TERMINATED", r.Status)
			return
		}
	}
	require.Fail(p.t, "no answer to a terminate")
}

// work leases and ends what is ready until the execution has ended. Task b fails the first time.
func (p *process) work(id execution.ID, definition string) *engine.Execution {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		for _, l := range p.w.Claim(definition, 10) {
			var what engine.What = enginetest.Completed(`{"v":1}`)
			if l.Attempt.Attempt == 1 && l.TaskNo == 5 {
				what = enginetest.Failed("once")
			}
			if a := p.record(enginetest.EndOf(l, what)); a != engine.Replayed && a != engine.LeaseExpired {
				require.Equal(p.t, engine.Accepted, a)
			}
		}
		p.engine() // what follows may be up to a new process
		x := p.w.Get(id)
		if !x.Open() {
			return x
		}
		p.due(id)
		_ = p.w.Engine.WaitChange(p.t.Context(), id, x.Seq, 20*time.Millisecond)
	}
	require.Fail(p.t, "the execution does not end", "%+v", p.w.Get(id))
	return nil
}

// due ends parked waits whose time has come, as a sweep does.
func (p *process) due(id execution.ID) {
	rows, err := p.w.Store.Tasks(p.t.Context(), id, store.TaskPage{Limit: 500})
	require.NoError(p.t, err)
	for _, a := range rows.Open {
		if a.Place == execution.InTimer && a.Why == execution.WhyWait && a.VisibleAt.Before(time.Now()) {
			p.record(engine.End{ID: id, TaskNo: a.TaskNo, Attempt: a.Attempt.Attempt, Place: a.Place, What: engine.Due{}})
		}
	}
}

// scenario runs one execution from its start to its end.
type scenario struct {
	name string
	run  func(p *process, key string) *engine.Execution
	want string
}

func abortWorld(t *testing.T, name string) *enginetest.World {
	t.Helper()
	def := atOnce(func(d *schema.TaskDefinition) { d.Metadata.Name = name })
	final := enginetest.Definition(name+"_final", func(d *schema.TaskDefinition) { d.Retry.RetryCount = 0 })
	task := func(ref string) *schema.Task { return enginetest.Simple(ref, name, params{"v": "${init.output.x}"}) }
	full := enginetest.Workflow("full", slices.Concat(
		list(enginetest.Set("init", params{"x": 1})),
		enginetest.Fork("f", list(task("a1"), task("a2")), list(task("b")), list(enginetest.Wait("w", json.Number("0.02")))),
		list(enginetest.Switch("s", "${workflow.variables.x}", map[string][]*schema.Task{"1": list(task("one")), "2": list(task("two"))})))...)
	full.Timeout = 3_600_000
	var chain []*schema.Task
	for i := range 70 {
		chain = append(chain, enginetest.Set(fmt.Sprintf("v%d", i), params{"n": i}))
	}
	return enginetest.New(t, def, final, full, enginetest.Workflow("chain", append(chain, task("last"))...),
		enginetest.Workflow("stop", enginetest.Fork("f", list(task("a")), list(enginetest.Wait("w", "1h")))...),
		enginetest.Workflow("broken", enginetest.Fork("f", list(enginetest.Simple("a", name+"_final", nil)), list(enginetest.Wait("w", "1h")))...))
}

var scenarios = []scenario{
	{"full", func(p *process, key string) *engine.Execution { return p.work(p.start("full", key), "q") }, "COMPLETED"},
	{"chain", func(p *process, key string) *engine.Execution { return p.work(p.start("chain", key), "q") }, "COMPLETED"},
	{"stop", func(p *process, key string) *engine.Execution {
		id := p.start("stop", key)
		p.terminate(id)
		return p.work(id, "q")
	}, "TERMINATED"},
	{"broken", func(p *process, key string) *engine.Execution {
		id := p.start("broken", key)
		p.record(enginetest.EndOf(p.w.ClaimOne("q_final"), enginetest.FailedTerm("x")))
		return p.work(id, "q")
	}, "FAILED"},
}

// At every statement boundary of start, complete, decide and end, three ways: the transaction fails and the process lives, the answer to COMMIT is lost, and,
// at some, the process dies. The soak lets it die at each.
func TestBG_128_FC_094_AbortAtEveryStatementBoundary(t *testing.T) {
	t.Parallel()
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			abortEverywhere(t, s, 6, i)
		})
	}
}

// abortEverywhere aborts a scenario at each boundary that it passes. The process dies at one of many boundaries, beginning with the given one.
func abortEverywhere(t *testing.T, s scenario, one, of int) {
	t.Helper()
	w := abortWorld(t, "q")
	p := newProcess(t, w, point{}, record)
	require.Equal(t, s.want, s.run(p, "first").Status)
	points := p.trap.seen
	require.NotEmpty(t, points)
	t.Logf("%d points: %v", len(points), points)
	sprung, tries := 0, 0
	try := func(p *process, i int, h how) {
		x := s.run(p, fmt.Sprintf("%d-%d", i, h))
		require.Equal(t, s.want, x.Status, "%v %v", points[i], h)
		tries++
		if p.trap.sprung {
			sprung++
		}
	}
	for i, at := range points {
		h := fail
		if at.statement == "commit" || at.statement == "committed" {
			h = unknown
		}
		p.trap.set(at, h)
		try(p, i, h)
		if i%one == of%one {
			dying := newProcess(t, w, at, crash)
			try(dying, i, crash)
			dying.here.Stop()
			dying.here.Store.Close()
		}
		require.False(t, t.Failed(), "after %v", at)
	}
	p.here.Stop()
	storetest.CheckInvariants(t, w.URL)
	require.GreaterOrEqual(t, sprung, tries*9/10, "points that were reached again")
}

// Backends are killed at random while executions run; each runs to its end, once.
func TestBackendsKilledWhileExecutionsRun(t *testing.T) {
	t.Parallel()
	w := abortWorld(t, "q")
	conn := connect(t, w.URL)
	p := &process{t: t, w: w, ctx: t.Context(), trap: &trap{}}
	p.here = w.Beside(enginetest.Options{AppName: t.Name() + "/engine"})
	ctx, stop := context.WithCancel(t.Context()) // the kills begin once the process is up
	var wg sync.WaitGroup
	t.Cleanup(func() { stop(); wg.Wait() }) // before the connection is closed
	kills := 0
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var killed bool
			err := conn.QueryRow(t.Context(), `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM (SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE '%/engine'
				ORDER BY random() LIMIT 1) x`).Scan(&killed)
			if err == nil && killed {
				kills++
			}
			if kills == 60 { // on a machine so slow that more come, nothing would get done
				return
			}
		}
	})
	for i := range 25 {
		x := p.work(p.start("full", fmt.Sprintf("k%d", i)), "q")
		require.Equal(t, "COMPLETED", x.Status)
		require.Len(t, enginetest.Attempts(x, "b"), 2)
	}
	stop()
	wg.Wait()
	require.Positive(t, kills)
}
