//go:build unix

package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine/enginetest"
	"nf/runtime/queue"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

// A task that a long poll of the process waits for is leased in the transaction that schedules it.
func TestLongPollTakesItsTaskInTheTransactionThatMakesIt(t *testing.T) {
	t.Parallel()
	s := workertest.New(t, workertest.Options{}, enginetest.Definition("charge"),
		enginetest.Workflow("w", enginetest.Simple("a", "charge", map[string]schema.Value{"n": "${workflow.input.n}"})))
	answer := make(chan queue.Answer, 1)
	go func() { answer <- s.Lease("charge", 1, 25*time.Second) }()
	require.Eventually(t, func() bool { return s.Queue.Waiting() == 1 }, 30*time.Second, time.Millisecond)
	id := s.Start("w", `{"n": 7}`)
	a := <-answer
	require.Len(t, a.Tasks, 1)
	require.Equal(t, id, a.Tasks[0].ID)
	require.JSONEq(t, `{"n": 7}`, string(a.Tasks[0].Input))
	require.Equal(t, "w", a.Tasks[0].Worker)
	require.False(t, a.Tasks[0].LeaseUntil.IsZero())
	require.Zero(t, a.Tasks[0].Holder)
	s.Report(a.Tasks[0].Leased, enginetest.Completed(""))
	require.Equal(t, "COMPLETED", s.Await(id).Status)
}

// The next call of a sequence is leased by the transaction that completes the one before: nobody else waits in its queue.
func TestPoolTakesTheNextCallEagerly(t *testing.T) {
	t.Parallel()
	s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}},
		enginetest.Workflow("w", call("a", "", nil), call("b", "", nil), call("c", "", nil)))
	require.Equal(t, "COMPLETED", s.Await(s.Start("w", "")).Status) // the queue is known now
	for range 20 {
		require.Equal(t, "COMPLETED", s.Await(s.Start("w", "")).Status)
	}
	require.Eventually(t, func() bool { return s.Pool.Busy() == 0 }, 30*time.Second, time.Millisecond)
}
