// Package queue hands out leased task runs through their gates, keeps leases alive, and takes them back.
//
// # One claim
//
// A queue without a gate is leased by one statement. A gated one goes through S1b of the physical design:
//
//	learn the gates → lock them, each in a statement of its own → read settings, clock and counts afresh
//	→ gate.Dequeue decides (pure) → lost leases that hold places are taken back, counted again
//	→ claim exactly that many, a permit of each semaphore in the same statement → waiters, verdict, commit
//
// In flight is the number of lease rows, never a counter, so nothing can leak: whatever deletes the lease frees the place (X9).
//
// # Who waits
//
// A long poll that finds nothing parks in the line of each of its queues, without a connection. It is woken by work that becomes ready
// or by a place that becomes free, in this process at once and in others through a notification, and by one statement a second that asks which of
// the queues with waiters hold anything. A wake-up wakes one poll; one that comes back with all it asked for wakes the next. So a job
// costs one or two claims, whatever the number of idle pollers (FC-146).
//
//	parked ──wake──▶ claims ──full──▶ answers, wakes the next
//	   ▲               │short: answers
//	   └───nothing─────┘ (throttled: only a freed place or the poll wakes its line again)
//
// # Failures
//
// A gate that is not had in 200 ms is store.ErrBusy: the claim is repeated after 50–150 ms. A COMMIT that was not answered is looked up by its claim id;
// what turns up later is released. A lease whose answer could not be written goes back without a delivery, or, under atMostOnce, counts as lost.
package queue
