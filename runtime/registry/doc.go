// Package registry serves what is declared and in force, and changes it.
//
// A Snapshot is one immutable state of everything declared: readers take the pointer and keep it for one decision, so no decision
// sees half of an apply. A Registry reads a new Snapshot within a second of an apply by anybody, at once when it is told. Contents of
// revisions that are no longer in force (P6: executions are pinned) are read when first needed and kept for the life of the process.
//
// Apply is S14: it judges the plan again under the registry lock and writes in one transaction. What a plan may do, and what
// is refused, is decided in loader/plan and nowhere else.
package registry
