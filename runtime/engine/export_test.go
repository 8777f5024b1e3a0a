//go:build unix

package engine

import "nf/runtime/execution"

// BreakAsk has f called in the place of each evaluation; it may panic. Call it before Run.
func (e *Engine) BreakAsk(f func(execution.ID)) { e.breakAsk = f }
