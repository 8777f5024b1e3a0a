//go:build unix

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

// storm is many dispatchers in several processes that claim, hold and give back; some forget.
type storm struct {
	processes   int
	dispatchers int // of each process
	grants      int // until so many leases were granted
	queues      []string
	leaseMs     int64
	forget      int                                 // one of so many leases is neither ended nor given back
	rewrite     func(statement, text string) string // a rule broken on purpose
	stopOver    bool                                // stop at the first limit that is passed
}

// run drives the storm and gives how often each queue was granted something.
func (s storm) run(t testing.TB, w *queuetest.World) map[string]int {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var total atomic.Int64
	var mu sync.Mutex
	granted := map[string]int{}
	var group sync.WaitGroup
	failures := make(chan error, s.processes*s.dispatchers)
	for range s.processes {
		db := storetest.Open(t, w.URL)
		db.Rewrite = s.rewrite
		q := w.QueueOn(db, nil)
		for range s.dispatchers {
			group.Go(func() {
				for ctx.Err() == nil && total.Load() < int64(s.grants) {
					name := s.queues[rand.IntN(len(s.queues))]
					n, err := s.turn(ctx, q, w.At(name))
					if err != nil {
						failures <- err
						stop()
						return
					}
					total.Add(int64(n))
					mu.Lock()
					granted[name] += n
					mu.Unlock()
					if s.stopOver && n > 0 {
						if counted, _ := w.Over(); counted > 0 {
							stop()
						}
					}
				}
			})
		}
	}
	over := make(chan struct{})
	go w.GiveUpUntil(over)
	group.Wait()
	close(over)
	select {
	case err := <-failures:
		require.NoError(t, err)
	default:
	}
	return granted
}

// turn is one claim and what follows.
func (s storm) turn(ctx context.Context, q *queue.Queue, at store.QueueAt) (int, error) {
	got, err := q.Claimer().Claim(ctx, store.Hot, store.Claim{
		Queue: at, Want: 1 + rand.IntN(3), ClaimID: q.NextClaim(), LeaseMs: s.leaseMs, Worker: "w",
	})
	if err != nil && !errors.Is(err, store.ErrBusy) && ctx.Err() == nil {
		return 0, err
	}
	if len(got.Leased) == 0 { // a refused poll comes again a little later
		idle := time.NewTimer(time.Duration(rand.IntN(4000)) * time.Microsecond)
		<-idle.C
		return 0, nil
	}
	var back []store.LeaseKey
	for _, l := range got.Leased {
		if s.forget > 0 && rand.IntN(s.forget) == 0 {
			continue
		}
		back = append(back, l.Key())
	}
	if len(back) > 0 && rand.IntN(2) == 0 {
		timer := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond)
		<-timer.C
	}
	for len(back) > 0 {
		var again []store.LeaseKey
		for i, err := range q.ReleaseKeys(ctx, store.Hot, back) {
			switch {
			case errors.Is(err, store.ErrBusy): // a lock was not had in time: a slow machine
				again = append(again, back[i])
			case err != nil && !errors.Is(err, queue.ErrLeaseExpired) && ctx.Err() == nil:
				return 0, fmt.Errorf("release: %w", err)
			}
		}
		back = again
	}
	return len(got.Leased), nil
}

// capStorm is the storm of a cap: 16 dispatchers in 4 processes.
func capStorm(t testing.TB, limit int64, grants int) {
	w := queuetest.New(t, queuetest.Definition("charge", limit))
	w.WatchCaps()
	w.Enqueue("charge", 40)
	storm{processes: 4, dispatchers: 4, grants: grants, queues: []string{"charge"}, leaseMs: 300, forget: 50}.run(t, w)
	w.NeverOver()
	w.Healthy()
	require.Equal(t, 40, w.Count(`SELECT (SELECT count(*) FROM nf_ready WHERE ns > 0) + (SELECT count(*) FROM nf_lease WHERE ns > 0)`), "no task is lost")
}

func TestFC_092_BG_38_CapsHoldUnderRace(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 2, 5} {
		t.Run(fmt.Sprintf("cap %d", limit), func(t *testing.T) {
			t.Parallel()
			capStorm(t, limit, 500)
		})
	}
}

// semaphoreWorld has queues that need overlapping sets of semaphores of 1–4 permits, opposite orders included.
func semaphoreWorld(t testing.TB) (*queuetest.World, []string) {
	sets := map[string][]string{
		"ab": {"a", "b"}, "ba": {"b", "a"}, "bc": {"b", "c"}, "cd": {"c", "d"}, "da": {"d", "a"}, "abcd": {"a", "b", "c", "d"}, "c": {"c"},
	}
	objects := []schema.Object{
		queuetest.Semaphore("a", 1), queuetest.Semaphore("b", 2), queuetest.Semaphore("c", 3), queuetest.Semaphore("d", 4),
	}
	var names []string
	for name, set := range sets {
		limit := int64(0)
		if len(set) == 1 {
			limit = 2
		}
		objects = append(objects, queuetest.Definition(name, limit, set...))
		names = append(names, name)
	}
	w := queuetest.New(t, objects...)
	w.WatchCaps()
	for _, name := range names {
		w.Enqueue(name, 10)
	}
	return w, names
}

func semaphoreStorm(t testing.TB, grants int) {
	w, names := semaphoreWorld(t)
	granted := storm{processes: 4, dispatchers: 4, grants: grants, queues: names, leaseMs: 300, forget: 50}.run(t, w)
	w.NeverOver()
	w.Healthy()
	for _, name := range names {
		require.Positive(t, granted[name], "queue %s was never served", name)
	}
}

func TestFC_092_SemaphoresHoldUnderRaceWithoutDeadlock(t *testing.T) {
	t.Parallel()
	semaphoreStorm(t, 500)
}

// The checker must catch what it is there for: each of these breaks one rule of the claim, and the same storm that passes above must then pass
// the cap. If a mutant lives, the test of the rule proves nothing.
func TestCapMutantsAreCaught(t *testing.T) {
	t.Parallel()
	mutants := map[string]struct {
		rewrite func(statement, text string) string
		forget  int
	}{
		"no gate lock": {rewrite: func(statement, text string) string {
			if statement == "lock_gate" {
				return "SELECT $1::bigint"
			}
			return text
		}},
		"lock inside the counting statement": {rewrite: func(statement, text string) string {
			switch statement {
			case "lock_gate":
				return "SELECT $1::bigint"
			case "gate_count": // the snapshot is taken before the lock is waited for
				return `SELECT c.* FROM (SELECT pg_advisory_xact_lock(($1::int)::bigint << 32 | $2::int) OFFSET 0) k CROSS JOIN LATERAL (` + text + ` OFFSET 0) c`
			}
			return text
		}},
		"only unexpired leases are counted": {forget: 3, rewrite: func(statement, text string) string {
			if statement == "gate_count" {
				return strings.Replace(text, "l.fence >= $3::bigint", "l.fence >= $3::bigint AND l.deadline_at > nf_now()", 1)
			}
			return text
		}},
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := queuetest.New(t, queuetest.Definition("charge", 2))
			w.WatchCaps()
			w.Enqueue("charge", 60)
			storm{
				processes: 4, dispatchers: 4, grants: 5000, queues: []string{"charge"}, leaseMs: 40, forget: m.forget, rewrite: m.rewrite, stopOver: true,
			}.run(t, w)
			counted, _ := w.Over()
			require.Positive(t, counted, "the mutant lives: the checker saw nothing in %d grants", w.Grants())
		})
	}
}
