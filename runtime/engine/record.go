package engine

import (
	"context"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// End says that something happened to an open attempt, or to an execution as a whole (TaskNo 0).
type End struct {
	ID      execution.ID
	TaskNo  int32
	Attempt int32
	Place   execution.Place
	Fence   int64 // with InLease
	What    What
}

// What is what happened. The set is closed: Report, Due, Lost.
type What interface{ isWhat() }

// Report is the verdict of whoever holds the lease. Place is InLease.
type Report struct {
	Status  execution.Status // Completed, Failed, FailedTerm
	Cause   execution.Cause  // empty with Completed
	Reason  string           // cut and made valid here
	Output  []byte           // JSON object of at most MaxPayload bytes; nil = {}
	Worker  string
	MinWait schema.Millis
	Source  string
}

// Due says that a time of the attempt has come: a deadline, the end of a wait, or (TaskNo 0) the execution's own deadline. It is judged
// again on the locked row; what is not due after all is dropped.
type Due struct {
	// Reason and Control stand in the row if it is scheduleToStart that was missed.
	Reason  string
	Control string
}

// Lost says that a delivery is lost and may not be repeated: DELIVERIES_EXHAUSTED or OUTCOME_UNKNOWN. It is judged again on the locked
// lease unless it is Certain (its runner is dead, its answer could not be written).
type Lost struct {
	Cause   execution.Cause
	Reason  string
	Certain bool
}

func (Report) isWhat() {}
func (Due) isWhat()    {}
func (Lost) isWhat()   {}

// Answer is what became of an End.
type Answer int

// The answers (N7).
const (
	// Accepted: recorded, and decided or marked, in one transaction that is committed.
	Accepted Answer = iota + 1
	// Replayed: it had ended by this fence with this status before; the first output stays.
	Replayed
	// LeaseExpired: the fence is gone. Status says how the attempt stands.
	LeaseExpired
	// TerminalState: this fence ended it with another status.
	TerminalState
	// Dropped: what a sweep found is no longer so.
	Dropped
	// NotFound: there is no such execution or attempt (any more).
	NotFound
)

// EndResult answers an End. With Err nothing was stored, unless it is ErrUnknownOutcome.
type EndResult struct {
	Answer Answer
	Status string // with LeaseExpired and TerminalState: COMPLETED, IN_PROGRESS, …; "" if unknown
	Err    error
}

// Record records ends and decides what follows, in batches with those of others (S2). It returns when every item is answered. Items
// whose execution is locked elsewhere wait, at most until ctx ends.
func (e *Engine) Record(ctx context.Context, ends []End) []EndResult {
	out := make([]EndResult, len(ends))
	jobs := make([]*job, len(ends))
	for i := range ends {
		jobs[i] = newJob(ctx, ends[i].ID)
		jobs[i].end = &ends[i]
		e.flusherOf(ends[i].ID).push(jobs[i])
	}
	for i, j := range jobs {
		out[i] = j.wait(e)
	}
	return out
}

// job is one thing a flusher has to do with one execution: record an end, decide its marks, or end it.
type job struct {
	ctx       context.Context
	id        execution.ID
	end       *End
	marks     bool
	terminate *Terminate
	answer    chan EndResult

	locked  int   // flushes in which it was locked elsewhere
	alone   bool  // goes alone
	wait4   bool  // and waits for its locks
	unknown bool  // a COMMIT with it was not answered
	tried   bool  // marks: tries + 1 was committed before
	orphan  bool  // marks of an execution that no longer exists
	abandon error // not nil: the execution is ended FAILED, EVALUATION_FAILED, with this reason
}

func newJob(ctx context.Context, id execution.ID) *job {
	return &job{ctx: ctx, id: id, answer: make(chan EndResult, 1)}
}

// reply answers the job, once.
func (j *job) reply(r EndResult) {
	if j.unknown && r.Answer == Replayed {
		r.Answer = Accepted // it was this job's own transaction
	}
	if j.unknown && r.Err != nil {
		r.Err = ErrUnknownOutcome
	}
	select {
	case j.answer <- r:
	default:
	}
}

// wait gives the answer. The job itself stays with its flusher, which answers in any case.
func (j *job) wait(e *Engine) EndResult {
	r, err := await(j.ctx, e, j.answer)
	if err != nil {
		return EndResult{Err: err}
	}
	return r
}

// grace is how long after its caller's end an answer is waited for: what has not begun is answered at once by then.
const grace = 2 * time.Second

// await waits for an answer. Without one, the error says whether something may be stored: ErrUnknownOutcome, or ErrStopped.
func await[R any](ctx context.Context, e *Engine, answer <-chan R) (r R, err error) {
	select {
	case r = <-answer:
		return r, nil
	case <-e.done:
	case <-ctx.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case r = <-answer:
			return r, nil
		case <-timer.C:
			return r, ErrUnknownOutcome
		case <-e.done:
		}
	}
	select {
	case r = <-answer:
		return r, nil
	default:
		return r, ErrStopped
	}
}

// key gives the key of the attempt that an end names.
func (end *End) key() store.AttemptKey {
	return store.AttemptKey{ID: end.ID, TaskNo: end.TaskNo, Attempt: end.Attempt, Place: end.Place, Fence: end.Fence}
}

// fact gives the fact that follows from an end on the locked row, nil if there is none.
func (end *End) fact(a execution.Attempt, now time.Time) execution.Fact {
	switch w := end.What.(type) {
	case Report:
		return execution.AttemptEnded{
			Attempt: a, Status: w.Status, Cause: w.Cause, Reason: execution.CutReason(w.Reason, execution.MaxReason), Output: w.Output,
			Fence: a.Fence, Worker: orElse(w.Worker, a.Worker), MinWait: w.MinWait, Source: w.Source,
		}
	case Lost:
		if a.Place != execution.InLease || !w.Certain && !lost(a, now) {
			return nil
		}
		return execution.AttemptEnded{
			Attempt: a, Status: execution.Failed, Cause: w.Cause, Reason: execution.CutReason(w.Reason, execution.MaxReason), Worker: a.Worker,
		}
	case Due:
		return due(a, w, now)
	}
	return nil
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func lost(a execution.Attempt, now time.Time) bool {
	return passed(a.LeaseUntil, now) || passed(a.BeatBy, now)
}

// passed says that an armed deadline has come: never early.
func passed(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// due judges what a sweep found on the locked row: the earliest deadline that has passed, or the end of a wait.
func due(a execution.Attempt, w Due, now time.Time) execution.Fact {
	if a.TaskNo == 0 {
		if a.Why == execution.WhyWorkflowDeadline && passed(a.VisibleAt, now) {
			return execution.WorkflowTimedOut{}
		}
		return nil
	}
	type armed struct {
		at    time.Time
		class execution.DeadlineClass
	}
	deadlines := []armed{{a.TotalBy, execution.ClassTotal}, {a.AttBy, execution.ClassTaskTimeout}}
	switch a.Place {
	case execution.InReady:
		deadlines = append(deadlines, armed{a.StartBy, execution.ClassScheduleToStart})
	case execution.InLease:
		deadlines = append(deadlines, armed{a.CloseBy, execution.ClassStartToClose})
	case execution.InTimer:
	}
	var first armed
	for _, d := range deadlines {
		if passed(d.at, now) && (first.at.IsZero() || d.at.Before(first.at)) {
			first = d
		}
	}
	waits := a.Place == execution.InTimer && a.Why == execution.WhyWait && passed(a.VisibleAt, now)
	if waits && (first.at.IsZero() || !first.at.Before(a.VisibleAt)) {
		return execution.WaitElapsed{Attempt: a}
	}
	if first.at.IsZero() {
		return nil
	}
	missed := execution.DeadlineMissed{Attempt: a, Class: first.class}
	if first.class == execution.ClassScheduleToStart {
		missed.Reason, missed.Control = w.Reason, w.Control
	}
	return missed
}
