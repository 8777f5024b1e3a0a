package engine

import (
	"context"

	"nf/runtime/execution"
	"nf/runtime/store"
)

// Terminate asks for the end of an execution (S8). Actor stands in the log.
type Terminate struct {
	Reason string
	Actor  string
}

// TerminateResult answers a terminate.
type TerminateResult struct {
	// Replayed: it was TERMINATED, or on the way there, before.
	Replayed bool
	// Status is TERMINATED, or the other terminal status that stands (then nothing was done).
	Status string
}

// Terminate ends an execution TERMINATED: open tasks are canceled, the first thousand in the transaction of this call, the others in chunks
// right after. Unknown executions are store.ErrNotFound. It waits for whoever holds the execution, at most until ctx ends.
func (e *Engine) Terminate(ctx context.Context, id execution.ID, reason, actor string) (TerminateResult, error) {
	j := newJob(ctx, id)
	j.terminate = &Terminate{Reason: execution.CutReason(reason, execution.MaxReason), Actor: actor}
	e.flusherOf(id).push(j)
	switch r := j.wait(e); {
	case r.Err != nil:
		return TerminateResult{}, r.Err
	case r.Answer == Accepted:
		return TerminateResult{Status: execution.Terminated.String()}, nil
	case r.Answer == NotFound:
		return TerminateResult{}, store.ErrNotFound
	default:
		return TerminateResult{Replayed: r.Answer == Replayed, Status: r.Status}, nil
	}
}

// abandon ends an execution whose facts the database refuses: FAILED, EVALUATION_FAILED, through S8, which evaluates nothing.
func (f *flusher) abandon(ctx context.Context, id execution.ID, cause error) {
	j := newJob(ctx, id)
	j.alone, j.abandon = true, cause
	f.push(j)
}
