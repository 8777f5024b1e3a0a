// Package worker executes system tasks: it claims them from their queues, runs each with a bulkhead around its queue, and reports what came of it.
//
// # Places
//
// Calls to different Targets wait in different physical queues, so a bulkhead around a queue is one around a target. At most N calls (20) of one queue run at
// once, at most 10 × N in all. When all places are taken, the next free one goes to a queue that has none: a slow target never takes the places that others
// need. A claim asks for no more than the free places (FC-088).
//
// # Leases
//
// What this process executes is leased to its runner number; the runner's beat is the lease of all of it (X5). When the number is declared dead every call is
// canceled and its result dropped: it would be answered by its fence anyway. A call whose lease is gone, because its execution or attempt ended, is canceled
// within a second.
//
// # What a call comes to
//
//	claimed ──▶ input read, decoded ──▶ called ──▶ Completed / Failed ──▶ engine.Record
//	   │not begun                         │Released: lease lost → dropped
//	   └──────────▶ released              └Released: shutdown → released; atMostOnce and sent → OUTCOME_UNKNOWN
//
// A task that panics fails its attempt; the process lives. A task that never returns keeps its place, as it must: nobody knows what it does.
package worker
