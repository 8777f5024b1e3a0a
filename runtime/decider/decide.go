package decider

import (
	"time"

	"nf/runtime/execution"
)

// Decide says what follows from facts, for one execution. It reads nothing but its arguments, changes none of them, cannot fail
// and never panics. If the Needs are not empty the Decision is void: load what they name into the view and call again with the
// same facts and the same now.
func (p *Program) Decide(view execution.View, defs execution.Definitions, facts []execution.Fact, now time.Time) (execution.Decision, execution.Needs) {
	return execution.Decision{Header: view.Header, Dropped: len(facts)}, execution.Needs{}
}
