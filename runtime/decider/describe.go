package decider

import (
	"time"

	"nf/runtime/execution"
	"nf/schema"
)

// OpenJoin is a JOIN that is open without a row of its own: its fork's scope says so.
type OpenJoin struct {
	TaskNo  int32
	Slot    int32
	ScopeNo int32 // scope it lies in; 0 = root
	ForkNo  int32 // its scheduledAt is the end of this task
}

// OpenJoins derives the open JOINs of an execution from its open scopes, in definition order. Those with a definition, a delay or a
// deadline have a row among the timers and are not listed twice.
func (p *Program) OpenJoins(scopes []execution.Scope) []OpenJoin {
	var all []OpenJoin
	for i := range p.nodes {
		fork := &p.nodes[i]
		if fork.kind != execution.KindForkJoin || parkable(&p.nodes[fork.join]) {
			continue
		}
		for _, s := range scopes {
			if s.ScopeNo == number(fork.slot) && !s.Fired {
				join := &p.nodes[fork.join]
				all = append(all, OpenJoin{
					TaskNo: number(join.slot), Slot: join.slot, ScopeNo: number(join.scope), ForkNo: number(fork.slot),
				})
			}
		}
	}
	return all
}

// CancelJoins gives the rows of the JOINs that a forced end cancels and that have no row of their own among the timers, and the
// header with its seq moved on. scopes are all that are open. since gives the time at which a fork's task ended, when the JOIN
// opened; nil or a zero time = not known, and now stands for it.
func (p *Program) CancelJoins(scopes []execution.Scope, h execution.Header, since func(forkNo int32) time.Time, now time.Time) ([]execution.TaskRow, execution.Header) {
	var rows []execution.TaskRow
	for _, j := range p.OpenJoins(scopes) {
		h.Seq++
		opened := now
		if since != nil && !since(j.ForkNo).IsZero() {
			opened = since(j.ForkNo)
		}
		rows = append(rows, execution.TaskRow{
			TaskNo: j.TaskNo, Attempt: 1, Seq: h.Seq, ScheduledAt: opened, EndedAt: latestOf(now, opened), ScopeNo: j.ScopeNo,
			Slot: j.Slot, Kind: execution.KindJoin, Status: execution.Canceled, Rerun: h.Reruns, Iteration: rootIteration,
			Cause: execution.CauseExecutionEnded,
		})
	}
	return rows, h
}

// MaxAttempts gives how many attempts a task run may have, the first included; def is its definition as pinned, nil = none.
func (p *Program) MaxAttempts(slot int32, def *schema.TaskDefinition) int32 {
	n := p.at(slot)
	if n == nil {
		return 0
	}
	if def == nil {
		def = builtIn(n)
	}
	return int32(policyOf(n, def).RetryCount) + 1 //nolint:gosec // at most 101
}
