package engine

import (
	"context"
	"maps"
	"slices"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// endedAs answers a terminate of an execution that has ended, or is ending, with a status.
func endedAs(s execution.Status) EndResult {
	if s == execution.Terminated {
		return EndResult{Answer: Replayed, Status: s.String()}
	}
	return EndResult{Answer: TerminalState, Status: s.String()}
}

// answer answers jobs whose attempt or execution was not there, from the history (N7). It reads after the transaction that missed them:
// what they lost to is committed.
func (e *Engine) answer(ctx context.Context, all []lookUp) {
	days := map[string][]lookUp{}
	for _, l := range all {
		days[l.job.id.Exec.Day()] = append(days[l.job.id.Exec.Day()], l)
	}
	for _, day := range slices.Sorted(maps.Keys(days)) {
		e.answerDay(ctx, day, days[day])
	}
}

func (e *Engine) answerDay(ctx context.Context, day string, list []lookUp) {
	var keys []store.AttemptKey
	var execs []execution.ID
	for _, l := range list {
		if l.job.end != nil {
			keys = append(keys, store.AttemptKey{ID: l.job.id, TaskNo: l.job.end.TaskNo, Attempt: l.job.end.Attempt})
		}
		if !l.open && !slices.Contains(execs, l.job.id) {
			execs = append(execs, l.job.id)
		}
	}
	var rows map[store.AttemptKey]store.Answer
	var closed map[execution.ID]store.ClosedAs
	err := e.store.InTx(ctx, store.Hot, "answer", func(ctx context.Context, tx *store.Tx) (err error) {
		if len(execs) > 0 {
			if closed, err = tx.ClosedAs(ctx, day, execs); err != nil {
				return err
			}
		}
		if len(keys) > 0 {
			rows, err = tx.Answers(ctx, day, keys)
		}
		return err
	})
	if store.Code(err) == "42P01" { // the day is gone
		err = nil
	}
	for _, l := range list {
		if err != nil {
			l.job.reply(EndResult{Err: err})
			continue
		}
		l.job.reply(l.result(rows, closed))
	}
}

// result answers one job.
func (l lookUp) result(rows map[store.AttemptKey]store.Answer, closed map[execution.ID]store.ClosedAs) EndResult {
	j := l.job
	end, isClosed := closed[j.id]
	if j.end == nil {
		switch {
		case j.terminate == nil: // marks of an execution that no longer exists
			j.orphan = j.marks
			return EndResult{Answer: Dropped}
		case isClosed:
			return endedAs(end.Status)
		}
		return EndResult{Answer: NotFound}
	}
	report, isReport := reportOf(j)
	if !isReport {
		return EndResult{Answer: Dropped}
	}
	row, ok := rows[store.AttemptKey{ID: j.id, TaskNo: j.end.TaskNo, Attempt: j.end.Attempt}]
	switch {
	case ok && row.Fence == j.end.Fence && row.Fence != 0:
		if reported(row) == report.Status {
			return EndResult{Answer: Replayed, Status: row.Status.String()}
		}
		return EndResult{Answer: TerminalState, Status: row.Status.String()}
	case ok:
		return EndResult{Answer: LeaseExpired, Status: row.Status.String()}
	case !l.open && !isClosed:
		return EndResult{Answer: NotFound}
	}
	return EndResult{Answer: LeaseExpired, Status: l.standing()}
}

// standing names how the attempt stands that has no row.
func (l lookUp) standing() string {
	if l.where.Attempt != l.job.end.Attempt {
		return ""
	}
	if l.where.Place == execution.InLease {
		return execution.NameInProgress
	}
	return execution.NameScheduled
}

// reported gives the status as it was reported (N7): what the check of the output turned into a failure was COMPLETED.
func reported(a store.Answer) execution.Status {
	if a.Status == execution.FailedTerm && (a.Cause == execution.CauseOutputInvalid || a.Cause == execution.CauseOutputTooLarge) {
		return execution.Completed
	}
	return a.Status
}
