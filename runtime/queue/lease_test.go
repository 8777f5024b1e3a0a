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

// running starts a queue's loops for the time of the test.
func running(t testing.TB, q *queue.Queue) *queue.Queue {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = q.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return q
}

func ask(w *queuetest.World, count int, wait time.Duration, queues ...string) queue.Request {
	r := queue.Request{NS: w.NS, Namespace: queuetest.Namespace, Wait: wait, Worker: "w1"}
	for _, name := range queues {
		r.Queues = append(r.Queues, queue.Ask{Queue: name, Count: count})
	}
	return r
}

func lease(t testing.TB, q *queue.Queue, r queue.Request) queue.Answer {
	t.Helper()
	a, err := q.Lease(t.Context(), r)
	require.NoError(t, err)
	return a
}

// leaseLater asks in a goroutine of its own.
func leaseLater(t testing.TB, q *queue.Queue, r queue.Request) <-chan queue.Answer {
	t.Helper()
	answer := make(chan queue.Answer, 1)
	go func() {
		a, err := q.Lease(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		answer <- a
	}()
	return answer
}

func held(a queue.Task) queue.Held {
	return queue.Held{ID: a.ID, Namespace: queuetest.Namespace, TaskNo: a.TaskNo, Attempt: a.Attempt.Attempt, Token: a.Token}
}

func TestLeaseGivesWhatAWorkerNeeds(t *testing.T) {
	t.Parallel()
	def := queuetest.Definition("charge", 0)
	def.HeartbeatTimeout, def.StartToCloseTimeout, def.ResponseTimeout = 5_000, 20_000, 30_000
	w := queuetest.New(t, def)
	ids := w.Enqueue("charge", 3)
	q := running(t, w.Queue())
	a := lease(t, q, ask(w, 2, 0, "charge"))
	require.Len(t, a.Tasks, 2)
	require.Equal(t, ids[0], a.Tasks[0].Exec, "first come, first served")
	task := a.Tasks[0]
	require.JSONEq(t, `{"n":1}`, string(task.Input))
	require.Equal(t, "charge", task.Queue)
	require.Equal(t, schema.Millis(5_000), task.HeartbeatTimeout)
	require.Equal(t, int64(30_000), task.LeaseMs, "never longer than responseTimeoutSeconds")
	require.WithinDuration(t, task.LeasedAt.Add(5*time.Second), task.DeadlineAt, time.Millisecond, "the heartbeat comes first")
	require.WithinDuration(t, task.LeasedAt.Add(20*time.Second), task.CloseBy, time.Millisecond)
	require.Equal(t, int32(1), task.Deliveries)

	short := ask(w, 5, 0, "charge")
	short.LeaseMs = 1_500
	a = lease(t, q, short)
	require.Len(t, a.Tasks, 1)
	require.Equal(t, int64(1_500), a.Tasks[0].LeaseMs)
	require.Empty(t, lease(t, q, ask(w, 1, 0, "charge")).Tasks)
	w.Healthy()
}

func TestLeaseRefusesUnknownAndReservedQueues(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	q := w.Queue()
	_, err := q.Lease(t.Context(), ask(w, 1, 0, "charge", "nope"))
	require.ErrorIs(t, err, queue.ErrUnknownQueue)
	require.ErrorContains(t, err, `"nope"`)
	_, err = q.Lease(t.Context(), ask(w, 1, 0, "_nf.HTTP"))
	require.ErrorIs(t, err, queue.ErrReserved)
}

func TestRepeatedRequestGivesTheSameLeases(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0), queuetest.Definition("other", 0))
	w.Enqueue("charge", 4)
	q := w.Queue()
	r := ask(w, 2, 0, "charge", "other")
	r.RequestID, r.Key = "r-1", "k1"
	first := lease(t, q, r)
	require.Len(t, first.Tasks, 2)
	again := lease(t, w.Queue(), r) // another process
	require.Equal(t, tokens(first), tokens(again))
	r.Key = "k2"
	require.NotEqual(t, tokens(first), tokens(lease(t, q, r)), "another key is another request")

	r.Key = "k1"
	require.Equal(t, 2, w.End(first.Tasks[0].Key(), first.Tasks[1].Key()))
	require.Empty(t, lease(t, q, r).Tasks, "nothing is left: what is no longer held is not given again")
}

func tokens(a queue.Answer) (all []string) {
	for _, task := range a.Tasks {
		all = append(all, task.Token)
	}
	return all
}

func TestSeveralQueuesAreServedInRotation(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("a", 0), queuetest.Definition("b", 1))
	w.Enqueue("a", 10)
	w.Enqueue("b", 10)
	q := w.Queue()
	a := lease(t, q, ask(w, 2, 0, "a", "b"))
	require.Len(t, a.Tasks, 3)
	require.Len(t, a.Throttled, 1, "one throttled a queue")
	require.Equal(t, queue.Throttled{Queue: "b", Control: "concurrentExecLimit", Limit: 1, Current: 1}, a.Throttled[0])
}

func TestThrottledPollWaitsAndIsWokenByAFreedPlace(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 1))
	w.Enqueue("charge", 3)
	q := running(t, w.Queue())
	first := lease(t, q, ask(w, 1, 0, "charge"))
	require.Len(t, first.Tasks, 1)
	throttled := lease(t, q, ask(w, 1, 0, "charge"))
	require.Empty(t, throttled.Tasks)
	require.Equal(t, "concurrentExecLimit", throttled.Throttled[0].Control)

	answer := leaseLater(t, q, ask(w, 1, 20*time.Second, "charge"))
	parked(t, w, q, 1)
	start := time.Now()
	for _, err := range q.Release(t.Context(), []queue.Held{held(first.Tasks[0])}) {
		require.NoError(t, err)
	}
	a := <-answer
	require.Len(t, a.Tasks, 1)
	require.Less(t, time.Since(start), 5*time.Second)
	require.Equal(t, first.Tasks[0].Exec, a.Tasks[0].Exec, "a release goes to the head of its lane")
	require.Equal(t, int32(1), a.Tasks[0].Deliveries, "a release is no delivery")
	require.Greater(t, a.Tasks[0].Fence, first.Tasks[0].Fence)
	w.Healthy()
}

// parked waits until n polls have been noted as waiting, in the memory of the queue.
func parked(t testing.TB, _ *queuetest.World, q *queue.Queue, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return q.Waiting() == n }, 30*time.Second, time.Millisecond)
}

func TestShutdownAnswersOpenPollsAtOnce(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	q := running(t, w.Queue())
	answer := leaseLater(t, q, ask(w, 1, 30*time.Second, "charge"))
	parked(t, w, q, 1)
	q.Stop()
	require.Empty(t, (<-answer).Tasks)
	require.Empty(t, lease(t, q, ask(w, 1, 30*time.Second, "charge")).Tasks)
}

func TestPollTimeoutOfTheDefinitionShortensTheWait(t *testing.T) {
	t.Parallel()
	def := queuetest.Definition("charge", 0)
	def.PollTimeout = 0
	w := queuetest.New(t, def)
	q := running(t, w.Queue())
	start := time.Now()
	require.Empty(t, lease(t, q, ask(w, 1, 30*time.Second, "charge")).Tasks)
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestClientThatLeavesHoldsNothing(t *testing.T) {
	t.Parallel()
	once := queuetest.Definition("once", 0)
	once.Delivery = schema.AtMostOnce
	w := queuetest.New(t, queuetest.Definition("charge", 0), once)
	w.Enqueue("charge", 1)
	w.Enqueue("once", 1)
	q := running(t, w.Queue())
	for _, name := range []string{"charge", "once"} {
		a := lease(t, q, ask(w, 1, 0, name))
		q.GiveBack(t.Context(), []store.Leased{a.Tasks[0].Leased}) // the answer could not be written
	}
	a := lease(t, q, ask(w, 1, 0, "charge"))
	require.Len(t, a.Tasks, 1)
	require.Equal(t, int32(1), a.Tasks[0].Deliveries, "without a delivery")
	require.Empty(t, lease(t, q, ask(w, 1, 0, "once")).Tasks)
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM nf_lease WHERE ns > 0 AND lease_until <= nf_now()`), "under atMostOnce it counts as lost")
}

func TestFC_091_HeartbeatExtendsLeaseAndPermit(t *testing.T) {
	t.Parallel()
	def := queuetest.Definition("charge", 1, "erp")
	def.HeartbeatTimeout, def.ResponseTimeout = 2_000, 9_000
	w := queuetest.New(t, def, queuetest.Semaphore("erp", 1))
	w.Enqueue("charge", 2)
	clock := &offset{w: w}
	q := w.Queue()
	r := ask(w, 1, 0, "charge")
	r.LeaseMs = 3_000
	task := lease(t, q, r).Tasks[0]
	for range 5 { // 7.5 s of work on leases of 3 s
		clock.advance(1500 * time.Millisecond)
		res := q.Heartbeat(t.Context(), []queue.Beat{{Held: held(task)}})[0]
		require.NoError(t, res.Err)
		require.False(t, res.Cancel)
		require.Empty(t, lease(t, q, r).Tasks, "the permit is held as long as the lease")
	}
	res := q.Heartbeat(t.Context(), []queue.Beat{{Held: held(task), LeaseMs: 600_000}})[0]
	require.NoError(t, res.Err)
	require.WithinDuration(t, clock.now().Add(9*time.Second), res.LeaseUntil, 5*time.Second, "never beyond responseTimeoutSeconds")

	clock.advance(2001 * time.Millisecond) // a missed heartbeat is lost work
	next := lease(t, q, r).Tasks
	require.Len(t, next, 1)
	require.Equal(t, task.Exec, next[0].Exec, "reclaimed under the gate, at the head of its lane")
	require.Equal(t, int32(2), next[0].Deliveries)
	require.ErrorIs(t, q.Heartbeat(t.Context(), []queue.Beat{{Held: held(task)}})[0].Err, queue.ErrLeaseExpired)
	require.ErrorIs(t, q.Release(t.Context(), []queue.Held{held(task)})[0], queue.ErrLeaseExpired)
	w.Healthy()
}

// offset moves the database clock of a world.
type offset struct {
	w  *queuetest.World
	by time.Duration
}

func (o *offset) advance(d time.Duration) {
	o.by += d
	o.w.Store.SetClockOffset(o.by)
}

func (o *offset) now() time.Time { return time.Now().Add(o.by) }

func TestBeatThatMovesLittleIsNotWritten(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	w.Enqueue("charge", 1)
	clock := &offset{w: w}
	q := w.Queue()
	r := ask(w, 1, 0, "charge")
	r.LeaseMs = 30_000
	task := lease(t, q, r).Tasks[0]
	version := func() int {
		return w.Count(`SELECT xmin::text::bigint FROM nf_lease WHERE ns > 0`)
	}
	before := version()
	clock.advance(5 * time.Second)
	res := q.Heartbeat(t.Context(), []queue.Beat{{Held: held(task)}})[0]
	require.NoError(t, res.Err)
	require.Equal(t, task.LeaseUntil, res.LeaseUntil)
	require.Equal(t, before, version(), "no write below a third of the interval")
	clock.advance(6 * time.Second)
	res = q.Heartbeat(t.Context(), []queue.Beat{{Held: held(task)}})[0]
	require.NoError(t, res.Err)
	require.Greater(t, res.LeaseUntil.Sub(task.LeaseUntil), 10*time.Second)
	require.NotEqual(t, before, version())
}

func TestBeatsAreJudgedEachByItself(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	w.Enqueue("charge", 3)
	q := w.Queue()
	a := lease(t, q, ask(w, 3, 0, "charge"))
	require.Equal(t, 1, w.End(a.Tasks[1].Key()))
	forged := held(a.Tasks[2])
	forged.Token = a.Tasks[0].Token
	w.Exec(`UPDATE nf_exec SET end_status = 24 WHERE exec_id = $1`, [16]byte(a.Tasks[0].Exec))
	res := q.Heartbeat(t.Context(), []queue.Beat{{Held: held(a.Tasks[0])}, {Held: held(a.Tasks[1])}, {Held: forged}})
	require.NoError(t, res[0].Err)
	require.True(t, res[0].Cancel, "its execution is being ended")
	require.ErrorIs(t, res[1].Err, queue.ErrLeaseExpired)
	require.ErrorIs(t, res[2].Err, queue.ErrLeaseExpired)
}

// Fifty idle polls and one job: a job costs few claims, whoever waits.
func TestFC_146_FiftyIdlePollersOneJob(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	db := storetest.Open(t, w.URL)
	var claims atomic.Int64
	db.OnTx = func(tx string, _ time.Duration, _ error) {
		if tx == "claim" || tx == "claim_gated" {
			claims.Add(1)
		}
	}
	q := running(t, w.QueueOn(db, nil))
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan int, 50)
	for i := range 50 {
		r := ask(w, 1, 30*time.Second, "charge")
		r.Worker = fmt.Sprintf("w%d", i)
		go func() {
			a, err := q.Lease(ctx, r)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			got <- len(a.Tasks)
		}()
	}
	parked(t, w, q, 50)
	before := claims.Load()
	w.Enqueue("charge", 1)
	q.Ready([]store.QueueAt{w.At("charge")})
	require.Equal(t, 1, <-got)
	require.Never(t, func() bool { return claims.Load()-before > 3 }, 2500*time.Millisecond, 50*time.Millisecond)
	cancel()
	for range 49 {
		require.Zero(t, <-got)
	}
	require.LessOrEqual(t, claims.Load()-before, int64(3))
}

// An idle server with 50 polls asks the database a bounded number of times, and holds no connection meanwhile.
func TestBG_130_IdlePollersCostNothing(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0), queuetest.Definition("capped", 1))
	db := storetest.Open(t, w.URL)
	var statements atomic.Int64
	db.Abort = func(_, statement string) error {
		if statement != "commit" && statement != "committed" {
			statements.Add(1)
		}
		return nil
	}
	q := running(t, w.QueueOn(db, nil))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			r := ask(w, 1, 30*time.Second, []string{"charge", "capped"}[i%2])
			if _, err := q.Lease(ctx, r); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	parked(t, w, q, 50)
	require.Never(t, func() bool { return false }, 1200*time.Millisecond, 100*time.Millisecond) // let it back off
	before := statements.Load()
	const span = 4 * time.Second
	require.Never(t, func() bool { return statements.Load()-before > 20*int64(span/time.Second) }, span, 100*time.Millisecond)
	require.LessOrEqual(t, statements.Load()-before, int64(20), "about one statement a second for all polls")
	cancel()
	group.Wait()
}

func TestPollersAreNotedFromTheStartOfTheCall(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("charge", 0))
	q := running(t, w.Queue())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = q.Lease(ctx, ask(w, 1, 30*time.Second, "charge"))
	}()
	require.Eventually(t, func() bool {
		return w.Count(`SELECT count(*) FROM nf_poller WHERE worker = 'w1' AND polls = 1`) == 1
	}, 10*time.Second, 20*time.Millisecond)
	cancel()
	<-done
}
