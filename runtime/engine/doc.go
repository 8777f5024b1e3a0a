// Package engine records facts and evaluates executions.
//
// One path ends attempts, whoever found the end: a worker's report, the runner's own outcome, a deadline that a sweep found.
// All go through Record into one completer. An execution always goes to the same flusher of the process; a flush starts when the
// previous one returns, so at idle a completion costs one commit, and under load batches grow by themselves. There is no timer.
//
// A flush is one transaction (S2): lock the executions, lock the attempts, load what the decisions need, decide (pure, package
// decider), write everything in one round trip, commit. What is locked elsewhere waits for the next flush. What cannot be decided
// is recorded and marked; the drain of marks (S3) decides it later. Ends by force (S8) cancel open attempts chunk by chunk.
//
// Nothing here takes a second connection while it holds one: definitions and queues that are missing are fetched between two
// tries of the same transaction. Wake-ups happen after the commit and outside of it.
package engine
