// Package store holds every SQL statement, transaction and migration of nf.
//
// # Statements
//
// Statements stand in query/*.sql, one named statement each, and are called by name: Tx.query, Tx.exec, or several in one round trip with
// Tx.pipeline. A comment above each says whose it is and which locks it takes. In a statement that names a day's leaf, {day} stands for
// YYYYMMDD. Names are unique over all files; a name begins with the part of the design it belongs to. Three tests pick up every
// statement by themselves: one prepares it on the migrated schema and holds the Go code that calls it to the parameters and columns the
// server names (P18), one explains those that touch hot tables in five states of the tables and demands the same index conditions each time
// (B1.4), and one in the packages above runs them.
//
// Methods speak domain, never rows. The shape of storage, the lock order and the transactions S0–S18 are those of the physical design (see
// ARCHITECTURE.md).
//
// # Sets
//
// A set of rows goes in as arrays, one a column, sorted by key in Go, and is unnested once: FROM unnest($1::int[], $2::uuid[]) AS k(ns,
// exec_id). What belongs to a key is found by a LATERAL look-up with LIMIT 1 (OFFSET 0 for several rows) and changed by ctid. Absent
// numbers go as 0 and become null by nullif in SQL, absent texts and times as null elements. Where a set is large and hot the
// columns write their own binary form (column), elsewhere plain slices do.
//
// # Lanes
//
// A process has three pools: Hot for claims, completions and decisions, API for requests and reads, Ctl for beats, sweeps and duties. No
// path takes a second connection while it holds one. Applies and migrations, which have no bound in time, use a connection of their own. The
// sessions of a lane hold the planner still and bound statements, locks and idle transactions; behind a pooler the same settings go with
// each transaction.
//
// # Locks
//
// Rule of the lock order: a lock that waits is above everything the transaction holds; a lock that does not wait may be taken at any
// time. Gates (L1) are advisory locks by GateKey, whose order is the lock order; LockGates takes them ascending, one statement each. The
// clock and every count are read after them.
//
// # Errors
//
// Code gives the SQLSTATE; TryAgain, TooMuch and Away say what a caller does about it. An unanswered COMMIT is a *CommitUnknownError: the caller finds
// out by the look-ups of S0 and never guesses.
package store
