// Package decider is the state machine of a running workflow: a pure function from facts to what must follow.
//
//	facts ──▶ Decide(view, definitions, now) ──▶ Decision, or Needs: load them and ask again
//
// # Incremental
//
// A workflow revision is compiled once into a Program: nodes in slots, and for each slot what its end means. A task's number
// follows from its slot, so everything a decision touches is found by key. Decide starts from the attempts that the facts are
// about and walks forward: the next node of the list; at the end of a SWITCH's case the node behind the SWITCH; at the end of a
// branch one count in the fork's scope; at the end of the root the end of the execution. It never looks at what the facts do
// not touch, so a completion costs the same in a small and in a huge execution. What it lacks it asks for: values that the next
// input refers to, a scope whose branch ends, a retry budget. One question gathers all that is known to be needed, so one or two
// rounds are usual.
//
// # A task run
//
//	           turn has come                  claim                    verdict
//	(nothing) ───────────────▶ open: ready ─────────▶ open: leased ─────────────▶ row
//	     │                       ▲     ▲                                          │
//	     │ start delay           │ due │ back-off                                 │ retry: attempt + 1
//	     └────────▶ open: parked ┘     └──────────────── open: parked ◀───────────┤
//	                                                                              │ successful or absorbed
//	             immediate operators get their row at once ──────────────────────▶ successors
//	                                                                              │ failed for good
//	                                                                              └▶ the execution ends
//
// The end of an attempt goes through one ordered table (policies/retry.Judge); `optional` comes after it.
//
// # Forks
//
// A scope counts the branches that have not ended (open) and what the JOIN still waits for (pending). The JOIN fires at
// pending = 0, once; the scope goes when it has fired and open = 0. Between the two it is loose: the sequence behind the JOIN
// runs beside its branches, and the execution completes when the root's sequence has ended and nothing is loose. A task in a
// case that is not taken counts as done for the joins that name it. A JOIN that names a definition, or has a delay or a
// deadline, has a row among the timers while it is open; a delay or a back-off of its own is one more thing it waits for.
//
// # The end
//
// A Closing without Force means that nothing else is open. With Force the header carries the end, and open attempts are
// canceled by the engine, in chunks; from then on results are recorded without successors. What a decision had scheduled
// before it ended the execution comes as CANCELED rows and never becomes open.
//
// # What cannot happen
//
// Decide does not fail and does not panic: a value over its limit, an input that does not resolve, a duration that does not
// parse end a task as data. A fact that no longer applies is dropped and counted. The same input gives the same bytes. In tests
// a slow decider over the whole state gets the same facts and must come to the same end after each step.
//
// Nothing here is safe to change while it is shared: a Program is immutable, everything else lives for one call.
package decider
