// Package store holds every SQL statement, transaction and migration of nf.
//
// Statements stand in query/*.sql, one named statement each, and are called by name. Methods speak domain, never rows. The
// shape of storage, the lock order and the transactions S0–S18 are those of the physical design (see ARCHITECTURE.md).
//
// Rule of the lock order: a lock that waits is above everything the transaction holds; a lock that does not wait may be
// taken at any time.
package store
