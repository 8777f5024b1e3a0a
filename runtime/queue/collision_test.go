//go:build unix

package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/runtime/queue/queuetest"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// FC-157 with hashes that collide: every gate of a class has one and the same lock, and semaphores whose order by name is not that of their locks are taken by
// definitions in every order. A collision costs waiting, never a deadlock, and no cap is passed.
func TestFC_157_CollidingHashesCostWaitingOnly(t *testing.T) {
	t.Parallel()
	w := queuetest.New(t, queuetest.Definition("x", 2, "a", "b", "c"), queuetest.Definition("y", 0, "c", "b", "a"), queuetest.Definition("z", 1, "b"),
		queuetest.Semaphore("a", 1), queuetest.Semaphore("b", 2), queuetest.Semaphore("c", 3))
	w.WatchCaps()
	names := []string{"x", "y", "z"}
	for _, name := range names {
		w.Enqueue(name, 5)
	}
	granted := storm{
		processes: 3, dispatchers: 3, grants: 150, queues: names, leaseMs: 60_000,
		rewrite: func(statement, text string) string {
			if statement == "lock_gate" { // the class alone is left of the key
				return "SELECT pg_advisory_xact_lock(($1::bigint >> 56) << 56)"
			}
			return text
		},
	}.run(t, w)
	w.NeverOver()
	w.Healthy()
	for _, name := range names {
		require.Positive(t, granted[name], name)
	}
	require.Zero(t, storetest.Deadlocks(t, w.URL))
}

// The order of the keys is not that of names or numbers: what the storms above prove is therefore no accident of the names. Classes come first.
func TestFC_157_OrderOfKeysIsNotThatOfNumbers(t *testing.T) {
	t.Parallel()
	install := execution.UUID{7}
	against := 0
	for id := range int32(50) {
		a, b := store.ObjectGate(install, store.GateSemaphore, 1, id), store.ObjectGate(install, store.GateSemaphore, 1, id+1)
		require.NotEqual(t, a, b)
		require.Greater(t, a, store.ObjectGate(install, store.GateDefinition, 1, id), "classes come first")
		if a > b {
			against++
		}
	}
	require.Positive(t, against, "numbers and keys are ordered differently, so the order matters")
}
