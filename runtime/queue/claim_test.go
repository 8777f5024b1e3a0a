//go:build unix

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/queue"
	"nf/runtime/queue/queuetest"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/schema"
)

func claim(t testing.TB, q *queue.Queue, at store.QueueAt, want int) queue.Claimed {
	t.Helper()
	got, err := q.Claimer().Claim(t.Context(), store.Hot, store.Claim{Queue: at, Want: want, ClaimID: q.NextClaim(), Worker: "w"})
	require.NoError(t, err)
	return got
}

func keys(leased []store.Leased) (all []store.LeaseKey) {
	for _, l := range leased {
		all = append(all, l.Key())
	}
	return all
}

// LIMIT must hold whatever the plan: with a nested loop forced, a claim of one of a thousand leases exactly one.
func TestFC_101_ClaimLeasesExactlyWhatItAsksFor(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("plain", 0), queuetest.Definition("capped", 500))
	for _, name := range []string{"plain", "capped"} {
		w.Enqueue(name, 1000)
		q := w.Queue()
		for _, want := range []int{1, 7, 100} {
			require.Len(t, claim(t, q, w.At(name), want).Leased, want)
		}
	}
	w.Healthy()
}

// Thirty-two polls released at once never pass a limit of three, however often.
func TestBG_38_PollersReleasedAtOnce(t *testing.T) {
	t.Parallel()
	barrier(t, 20)
}

func barrier(t testing.TB, rounds int) {
	w := queuetest.New(t, queuetest.Definition("charge", 3))
	w.WatchCaps()
	w.Enqueue("charge", 50)
	var queues []*queue.Queue
	for range 4 {
		queues = append(queues, w.QueueOn(storetest.Open(t, w.URL), nil))
	}
	at := w.At("charge")
	for range rounds {
		start := make(chan struct{})
		var group sync.WaitGroup
		var mu sync.Mutex
		var all []store.LeaseKey
		for i := range 32 {
			q := queues[i%len(queues)]
			group.Go(func() {
				<-start
				got, err := q.Claimer().Claim(t.Context(), store.Hot, store.Claim{Queue: at, Want: 10, ClaimID: q.NextClaim(), Worker: "w"})
				if err != nil && !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, keys(got.Leased)...)
			})
		}
		close(start)
		group.Wait()
		require.Len(t, all, 3)
		for _, err := range queues[0].ReleaseKeys(t.Context(), store.Hot, all) {
			require.NoError(t, err)
		}
	}
	w.NeverOver()
}

// Sixty-four pollers, many tasks: no attempt is leased twice.
func TestBG_122_NoTaskIsGivenTwice(t *testing.T) {
	t.Parallel()
	manyPollers(t, 1000)
}

func manyPollers(t testing.TB, tasks int) {
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	w.Enqueue("charge", tasks)
	at := w.At("charge")
	var mu sync.Mutex
	seen := map[store.LeaseKey]bool{}
	twice := 0
	var group sync.WaitGroup
	for range 4 {
		q := w.QueueOn(storetest.Open(t, w.URL), nil)
		for i := range 16 {
			group.Go(func() {
				for {
					got, err := q.Claimer().Claim(t.Context(), store.Hot, store.Claim{Queue: at, Want: 1 + i%5, ClaimID: q.NextClaim(), Worker: "w"})
					if err != nil {
						t.Error(err)
						return
					}
					if len(got.Leased) == 0 {
						return
					}
					mu.Lock()
					for _, l := range got.Leased {
						k := l.Key()
						k.Fence = 0
						if seen[k] {
							twice++
						}
						seen[k] = true
					}
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	require.Zero(t, twice)
	require.Len(t, seen, tasks)
	w.Healthy()
}

// A killed claim leaves a task ready or leased, never neither and never both, wherever it is cut.
func TestFC_094_ClaimCutAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("plain", 0), queuetest.Definition("charge", 2, "erp"), queuetest.Semaphore("erp", 2))
	w.Enqueue("charge", 5)
	w.Enqueue("plain", 5)
	cut := errors.New("cut")
	for name, statements := range map[string][]string{
		"plain": {"claim_plain", "commit"},
		"charge": {
			"gate_settings", "gate_semaphore_set", "lock_gate", "gate_count", "gate_semaphores", "gate_heads", "claim_gated", "gate_place", "gate_verdict",
			"commit",
		},
	} {
		for _, at := range statements {
			db := storetest.Open(t, w.URL)
			var armed atomic.Bool
			db.Abort = func(_, statement string) error {
				if armed.Load() && statement == at {
					return cut
				}
				return nil
			}
			q := w.QueueOn(db, nil)
			armed.Store(true)
			_, _ = q.Claimer().Claim(t.Context(), store.Hot, store.Claim{Queue: w.At(name), Want: 5, ClaimID: q.NextClaim(), Worker: "w"})
			require.Equal(t, 5, w.Count(`SELECT (SELECT count(*) FROM nf_ready WHERE ns > 0 AND queue_id = $1) + (SELECT count(*) FROM nf_lease WHERE ns > 0 AND queue_id = $1)`,
				w.At(name).QueueID), "%s cut at %s", name, at)
			w.Healthy()
			w.End(leasesOf(w)...)
			if n := 5 - w.Count(`SELECT count(*) FROM nf_ready WHERE ns > 0 AND queue_id = $1`, w.At(name).QueueID); n > 0 {
				w.Enqueue(name, n)
			}
		}
	}
}

func leasesOf(w *queuetest.World) (all []store.LeaseKey) {
	rows, err := w.SQL.Query(w.T.Context(), `SELECT ns, exec_id, task_no, attempt, fence FROM nf_lease WHERE ns > 0`)
	require.NoError(w.T, err)
	defer rows.Close()
	for rows.Next() {
		var k store.LeaseKey
		var id [16]byte
		require.NoError(w.T, rows.Scan(&k.NS, &id, &k.TaskNo, &k.Attempt, &k.Fence))
		k.Exec = id
		all = append(all, k)
	}
	return all
}

// A COMMIT whose answer is lost is looked up by its claim id: the leases are found, nothing is leased a second time.
func TestClaimWhoseAnswerIsLostIsLookedUp(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("plain", 0))
	w.Enqueue("plain", 3)
	db := storetest.Open(t, w.URL)
	var once atomic.Bool
	db.Abort = func(tx, statement string) error {
		if tx == "claim" && statement == "committed" && !once.Swap(true) {
			return &store.CommitUnknownError{Tx: tx, Err: errors.New("cut after COMMIT")}
		}
		return nil
	}
	q := w.QueueOn(db, nil)
	got := claim(t, q, w.At("plain"), 2)
	require.Len(t, got.Leased, 2)
	require.Equal(t, 2, w.Count(`SELECT count(*) FROM nf_lease WHERE ns > 0`))
}

// A gate that is added while a process claims the plain way turns the claim away; one that is taken away lets it go on.
func TestGateThatIsAddedAndTakenAwayCountsFromTheNextClaim(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	w.Enqueue("charge", 10)
	q := w.Queue()
	first := claim(t, q, w.At("charge"), 2)
	require.False(t, first.Gated)
	w.Declare(queuetest.Definition("charge", 3))
	got := claim(t, q, w.At("charge"), 5)
	require.True(t, got.Gated)
	require.Len(t, got.Leased, 1, "what was leased before counts")
	require.Equal(t, int64(3), got.Throttled.Limit)
	w.Declare(queuetest.Definition("charge", 1))
	require.Empty(t, claim(t, q, w.At("charge"), 5).Leased, "a lowered cap takes nothing back and grants nothing")
	require.Equal(t, 3, w.Count(`SELECT count(*) FROM nf_lease WHERE ns > 0`))
	w.Declare(queuetest.Definition("charge", 0))
	got = claim(t, q, w.At("charge"), 5)
	require.False(t, got.Gated)
	require.Len(t, got.Leased, 5)
}

// Pollers of one capped definition never hold more than a part of the pool: one claim of a definition at a time goes to the database.
func TestFC_076_CappedDefinitionLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 1))
	w.Enqueue("charge", 200)
	db := storetest.Open(t, w.URL)
	var in, most atomic.Int64
	db.Abort = func(tx, statement string) error {
		switch {
		case tx != "claim_gated":
		case statement == "gate_semaphore_set":
			if n := in.Add(1); n > most.Load() {
				most.Store(n)
			}
		case statement == "committed":
			in.Add(-1)
		}
		return nil
	}
	q := w.QueueOn(db, nil)
	at := w.At("charge")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for ctx.Err() == nil {
				got, err := q.Claimer().Claim(ctx, store.Hot, store.Claim{Queue: at, Want: 1, ClaimID: q.NextClaim(), Worker: "w"})
				if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
				_ = q.ReleaseKeys(context.WithoutCancel(ctx), store.Hot, keys(got.Leased))
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, most.Load(), int64(2), "claims of one definition at once")
	w.Healthy()
}

// Two processes whose own clocks are far apart agree on a cap: only the database decides.
func TestFC_083_SkewedRunnersAgree(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 2))
	w.WatchCaps()
	w.Enqueue("charge", 10)
	early := queue.New(queue.Options{Store: w.Store, Registry: w.Registry, Clock: shifted(-10 * time.Minute), Guard: w.Guard})
	late := queue.New(queue.Options{Store: storetest.Open(t, w.URL), Registry: w.Registry, Clock: shifted(10 * time.Minute), Guard: w.Guard})
	at := w.At("charge")
	require.Len(t, claim(t, early, at, 1).Leased, 1)
	require.Len(t, claim(t, late, at, 5).Leased, 1)
	require.Empty(t, claim(t, early, at, 5).Leased)
	require.Empty(t, claim(t, late, at, 5).Leased, "no early takeover")
	w.NeverOver()
}

type shifted time.Duration

func (s shifted) Now() time.Time { return time.Now().Add(time.Duration(s)) }

// Three tasks need the same two semaphores, written in opposite orders: no deadlock, each gets its turn.
func TestFC_157_LocksAreTakenInTheOrderOfTheirHash(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("x", 0, "a", "b"), queuetest.Definition("y", 0, "b", "a"), queuetest.Definition("z", 0, "a", "b"),
		queuetest.Semaphore("a", 1), queuetest.Semaphore("b", 1))
	w.WatchCaps()
	for _, name := range []string{"x", "y", "z"} {
		w.Enqueue(name, 5)
	}
	granted := storm{processes: 3, dispatchers: 3, grants: 150, queues: []string{"x", "y", "z"}, leaseMs: 60_000}.run(t, w)
	w.NeverOver()
	for _, name := range []string{"x", "y", "z"} {
		require.Positive(t, granted[name], name)
	}
	require.Zero(t, storetest.Deadlocks(t, w.URL))
}

// A task that needs two semaphores runs although a stream of tasks wants each of them alone.
func TestFC_100_TaskOfSeveralSemaphoresIsNotStarved(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("s1", 0, "a"), queuetest.Definition("s2", 0, "b"), queuetest.Definition("s3", 0, "c"),
		queuetest.Definition("all", 0, "a", "b", "c"), queuetest.Semaphore("a", 2), queuetest.Semaphore("b", 2), queuetest.Semaphore("c", 2))
	w.WatchCaps()
	for _, name := range []string{"s1", "s2", "s3"} {
		w.Enqueue(name, 50)
	}
	w.Enqueue("all", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for i := range 9 { // each semaphore is wanted by more than it has permits for, all the time
		q := w.QueueOn(storetest.Open(t, w.URL), nil)
		at := w.At(fmt.Sprintf("s%d", 1+i%3))
		group.Go(func() {
			for ctx.Err() == nil {
				got, err := q.Claimer().Claim(ctx, store.Hot, store.Claim{Queue: at, Want: 1, ClaimID: q.NextClaim(), Worker: "w"})
				if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
				if len(got.Leased) > 0 {
					hold := time.NewTimer(20 * time.Millisecond)
					<-hold.C
				}
				_ = q.ReleaseKeys(context.WithoutCancel(ctx), store.Hot, keys(got.Leased))
			}
		})
	}
	q := w.Queue()
	ran := false
	for !ran && ctx.Err() == nil {
		got, err := q.Claimer().Claim(ctx, store.Hot, store.Claim{Queue: w.At("all"), Want: 1, ClaimID: q.NextClaim(), Worker: "w"})
		if err != nil && !errors.Is(err, store.ErrBusy) {
			require.NoError(t, err)
		}
		ran = len(got.Leased) > 0
	}
	cancel()
	group.Wait()
	require.True(t, ran, "starved for 30 s")
	w.NeverOver()
	require.Zero(t, w.Count(`SELECT count(*) FROM nf_semaphore WHERE waiter_id IS NOT NULL AND skips = 5`), "nothing stays reserved")
}

// Twenty thousand waiting behind a cap of four cost what a few cost: the gate comes before the candidates.
func TestFC_097_RefusedClaimsReadNoBacklog(t *testing.T) {
	t.Parallel()
	refusedClaims(t, 2000)
}

func refusedClaims(t testing.TB, waiting int) {
	w := queuetest.New(t, queuetest.Definition("charge", 4))
	w.Enqueue("charge", waiting)
	q := w.Queue()
	require.Len(t, claim(t, q, w.At("charge"), 10).Leased, 4)
	before := w.Count(`SELECT coalesce(sum(idx_tup_fetch), 0)::int FROM pg_stat_user_tables WHERE relname = 'nf_ready'`)
	for range 20 {
		got := claim(t, q, w.At("charge"), 1)
		require.Empty(t, got.Leased)
		require.Equal(t, int64(4), got.Throttled.Current)
	}
	w.Exec(`SELECT pg_stat_force_next_flush()`)
	require.Less(t, w.Count(`SELECT coalesce(sum(idx_tup_fetch), 0)::int FROM pg_stat_user_tables WHERE relname = 'nf_ready'`)-before, 500)
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM nf_def_flow WHERE verdict IS NOT NULL`), "the refusal is kept for readers")
}

// Caps on many queues at once: no deadlock, each exact.
func TestFC_098_CapsOnManyQueues(t *testing.T) {
	t.Parallel()
	manyCaps(t, 40, 400)
}

func manyCaps(t testing.TB, many, grants int) {
	var objects []schema.Object
	var names []string
	for i := range many {
		name := fmt.Sprintf("q%d", i)
		names = append(names, name)
		objects = append(objects, queuetest.Definition(name, 1))
	}
	w := queuetest.New(t, objects...)
	w.WatchCaps()
	for _, name := range names {
		w.Enqueue(name, 3)
	}
	storm{processes: 2, dispatchers: 4, grants: grants, queues: names, leaseMs: 60_000}.run(t, w)
	w.NeverOver()
	require.Zero(t, storetest.Deadlocks(t, w.URL))
}

// No path of claims, beats and releases takes a second connection while it holds one: with a pool of one connection a lane none of them hangs.
func TestFC_137_NoSecondConnection(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 2, "erp"), queuetest.Semaphore("erp", 2))
	w.Enqueue("charge", 3)
	db := storetest.Open(t, w.URL)
	var inside sync.Map // goroutines are not named; transactions of one caller run one after another, so one at a time is enough here
	var nested atomic.Int64
	var open atomic.Int64
	db.OnTx = func(string, time.Duration, error) { open.Add(-1) }
	db.Abort = func(tx, statement string) error {
		if _, began := inside.LoadOrStore(tx, true); !began && statement != "committed" {
			if open.Add(1) > 1 {
				nested.Add(1)
			}
		}
		if statement == "committed" {
			inside.Delete(tx)
		}
		return nil
	}
	q := w.QueueOn(db, nil)
	open.Store(0)
	inside.Clear()
	nested.Store(0)
	a := lease(t, q, ask(w, 2, 0, "charge"))
	require.Len(t, a.Tasks, 2)
	require.NoError(t, q.Heartbeat(t.Context(), []queue.Beat{{Held: held(a.Tasks[0]), LeaseMs: 1000}})[0].Err)
	require.NoError(t, q.Release(t.Context(), []queue.Held{held(a.Tasks[0])})[0])
	require.Zero(t, nested.Load(), "a transaction began inside another one")
}

// A place that is freed is handed over at once, not at the next poll: ten tasks of 100 ms under a limit of one take about a second.
func TestBG_35_FreedPlaceIsHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 1))
	w.Enqueue("charge", 10)
	q := running(t, w.Queue())
	start := time.Now()
	var done atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for done.Load() < 10 {
				a, err := q.Lease(t.Context(), ask(w, 1, time.Second, "charge"))
				if err != nil {
					t.Error(err)
					return
				}
				for _, task := range a.Tasks {
					work := time.NewTimer(100 * time.Millisecond)
					<-work.C
					w.End(task.Key())
					done.Add(1)
					q.Freed([]store.QueueAt{w.At("charge")})
				}
			}
		})
	}
	group.Wait()
	t.Logf("10 tasks of 100 ms under a limit of 1 took %v", time.Since(start))
	require.Less(t, time.Since(start), 6*time.Second, "the goal is 2 s on an idle machine; the soak holds it")
}

// A row that was committed after the claim had read its clock is leased no earlier than it was made: kept times never go back (B1.9).
func TestLeaseNeverBeginsBeforeItsRow(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("plain", 0), queuetest.Definition("capped", 1))
	q := w.Queue()
	for _, name := range []string{"plain", "capped"} {
		w.Enqueue(name, 1)
		w.Exec(`UPDATE nf_ready SET scheduled_at = nf_now() + interval '1 min', visible_at = nf_now() + interval '1 min' WHERE ns > 0`)
		l := claim(t, q, w.At(name), 1).Leased[0]
		require.Equal(t, l.VisibleAt, l.LeasedAt, name)
		require.Equal(t, l.LeasedAt.Add(time.Hour), l.LeaseUntil, name)
	}
}
