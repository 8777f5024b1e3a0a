//go:build unix

package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/clock"
	"nf/runtime/queue"
	"nf/runtime/queue/queuetest"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// process is a queue with a notifier, as another process has it. Its looks for work are counted.
func process(t testing.TB, w *queuetest.World) (*queue.Queue, *store.Notifier, *atomic.Int64) {
	t.Helper()
	db := storetest.Open(t, w.URL)
	looks := &atomic.Int64{}
	db.OnTx = func(tx string, _ time.Duration, _ error) {
		if tx == "discover" {
			looks.Add(1)
		}
	}
	n := store.NewNotifier(db, clock.System{})
	q := w.QueueOn(db, n)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	running(t, q)
	return q, n, looks
}

func TestPlaceFreedInAnotherProcessWakesAPoll(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("a", 0, "erp"), queuetest.Definition("b", 0, "erp"), queuetest.Semaphore("erp", 1))
	w.Enqueue("a", 1)
	w.Enqueue("b", 1)
	here, _, _ := process(t, w)
	there, n, _ := process(t, w)
	require.Eventually(t, n.Proven, 30*time.Second, time.Millisecond)
	require.Empty(t, n.Degraded())
	first := lease(t, here, ask(w, 1, 0, "a"))
	require.Len(t, first.Tasks, 1)
	answer := leaseLater(t, there, ask(w, 1, 25*time.Second, "b"))
	parked(t, w, there, 1)
	require.Equal(t, 1, w.End(first.Tasks[0].Key()))
	here.Freed([]store.QueueAt{w.At("a")})
	require.Len(t, (<-answer).Tasks, 1, "another definition that needs the same semaphore")
}

func TestWorkMadeInAnotherProcessWakesAPoll(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("a", 0))
	here, _, _ := process(t, w)
	there, n, looks := process(t, w)
	require.Eventually(t, n.Proven, 30*time.Second, time.Millisecond)
	answer := leaseLater(t, there, ask(w, 1, 25*time.Second, "a"))
	parked(t, w, there, 1)
	require.Eventually(t, func() bool { return looks.Load() >= 6 }, 30*time.Second, 10*time.Millisecond) // backed off
	w.Enqueue("a", 1)
	start := time.Now()
	here.Ready([]store.QueueAt{w.At("a")})
	require.Len(t, (<-answer).Tasks, 1)
	t.Logf("woken after %v", time.Since(start))
}

// Notifications that never arrive cost at most the poll interval, and the listener that lost its connection says so, comes back, and spins never.
func TestListenerThatIsKilledComesBackAndPollingIsTheTruth(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("a", 0))
	q, n, _ := process(t, w)
	require.Eventually(t, n.Proven, 30*time.Second, time.Millisecond)
	kill := func() int {
		return w.Count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify($1%')`)
	}
	require.Positive(t, kill())
	require.Eventually(t, func() bool { return n.Degraded() != "" }, 30*time.Second, time.Millisecond, "notify_degraded")
	w.Enqueue("a", 1) // nobody announces it
	require.Len(t, lease(t, q, ask(w, 1, 20*time.Second, "a")).Tasks, 1)
	require.Eventually(t, n.Proven, 30*time.Second, 5*time.Millisecond)
	require.Empty(t, n.Degraded())
}

// A wake-up that nobody sends is found by looking: the poll that waits answers within the poll interval.
func TestWorkThatNobodyAnnouncesIsFoundByLooking(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("a", 0))
	q := running(t, w.Queue())
	answer := leaseLater(t, q, ask(w, 1, 25*time.Second, "a"))
	parked(t, w, q, 1)
	w.Enqueue("a", 1)
	require.Len(t, (<-answer).Tasks, 1)
}
