package execution

import (
	"time"

	"nf/schema"
)

// Fact is something that happened to an execution, in the past tense. The set is closed.
type Fact interface{ isFact() }

// Started says that the execution was admitted: its first evaluation.
type Started struct{}

// AttemptEnded says that an open attempt came to a verdict, whoever found it. Attempt is the row as locked.
type AttemptEnded struct {
	Attempt Attempt
	Status  Status // Completed, Failed, FailedTerm, TimedOut
	Cause   Cause  // empty on success
	Reason  string // valid UTF-8, at most MaxReason
	Output  []byte // JSON object; nil = {}
	Fence   int64  // of the report; 0 = not ended by a report (N7)
	Worker  string
	// MinWait is the provider's minimum wait (X2); Source names it: worker, retryAfter, retryInfo.
	MinWait schema.Millis
	Source  string
	Control string // gate that held it last
	// Recorded: the row is in the history already (result recorded, decision postponed); Attempt is rebuilt from it, with
	// TotalBy = first attempt's visible time + totalTimeoutSeconds if Attempt is not the first (RetriesLeft is derived). The
	// Decision then has the row in Revised, not in Ended.
	Recorded bool
}

// DeadlineClass names a deadline of contract 3.6.
type DeadlineClass string

// The classes of deadlines that time an attempt out.
const (
	ClassScheduleToStart DeadlineClass = "SCHEDULE_TO_START_TIMEOUT"
	ClassStartToClose    DeadlineClass = "START_TO_CLOSE_TIMEOUT"
	ClassTaskTimeout     DeadlineClass = "TASK_TIMEOUT"
	ClassTotal           DeadlineClass = "TOTAL_TIMEOUT"
)

// DeadlineMissed says that a deadline of an open attempt has passed. The decider applies timeoutPolicy (X7): under ALERT_ONLY the
// attempt goes on and only this class is disarmed.
type DeadlineMissed struct {
	Attempt Attempt
	Class   DeadlineClass
	Reason  string
	Control string
}

// WaitElapsed says that the time of a parked WAIT, or of an operator with a start delay (why 10), has come.
type WaitElapsed struct{ Attempt Attempt }

// WorkflowTimedOut says that the workflow's own timeoutSeconds has passed.
type WorkflowTimedOut struct{}

// TerminateRequested says that an operator asked for the end.
type TerminateRequested struct {
	Reason string
	Actor  string
}

// EvaluationContinued is a mark with nothing new: go on where an evaluation stopped. TaskNo is one entry of that Decision's
// ContinueAt; 0 asks to go on with the end of an ending execution (next chunk of S8).
type EvaluationContinued struct{ TaskNo int32 }

func (Started) isFact()             {}
func (AttemptEnded) isFact()        {}
func (DeadlineMissed) isFact()      {}
func (WaitElapsed) isFact()         {}
func (WorkflowTimedOut) isFact()    {}
func (TerminateRequested) isFact()  {}
func (EvaluationContinued) isFact() {}

// TaskRow is an ended attempt, operator or skipped head: one appended row of nf_task.
type TaskRow struct {
	TaskNo      int32
	Attempt     int32
	Seq         int64
	Fence       int64 // 0 = null
	ScheduledAt time.Time
	VisibleAt   time.Time
	LeasedAt    time.Time
	EndedAt     time.Time
	ScopeNo     int32
	Slot        int32
	DefID       int32
	DefRev      int32
	QueueID     int32
	Deliveries  int32
	Kind        Kind
	Status      Status
	Rerun       int32
	Absorbed    bool // optional: the task run shows COMPLETED_WITH_ERRORS
	Exhausted   bool // retries were used up
	Iteration   string
	Worker      string
	Cause       Cause
	Reason      string
	Control     string
	NextDueAt   time.Time // the retry that followed
	DelayPolicy int64     // ms; meaningful with NextDueAt
	DelayMin    int64
	DelaySource string
	Width       int32 // forks
	Output      []byte
	// Input is the resolved input to keep as the task's payload, for a task that was never open; nil = nothing to keep. The
	// input of SET_VARIABLE and TERMINATE is their output and is not kept twice.
	Input []byte
}

// Schedule is an attempt that must become open: in nf_ready if it is due now, else in nf_timer with Why.
type Schedule struct {
	Attempt Attempt
	Queue   QueueKey // the engine fills Attempt.QueueID; zero for what is not dispatched, and for a retry, whose QueueID stays
	Input   []byte   // JSON; nil = unchanged since the first attempt
}

// Removed is an open attempt that must go, with its permits.
type Removed struct {
	Place  Place
	TaskNo int32
	Fence  int64
}

// Disarmed takes one deadline component off an open attempt (ALERT_ONLY).
type Disarmed struct {
	Place  Place
	TaskNo int32
	Fence  int64
	Class  DeadlineClass
}

// Event is a rare event of the history (nf_exec_event).
type Event struct {
	Seq     int64
	What    string // DEADLINE_MISSED, …
	TaskNo  int32
	Attempt int32
	Actor   string
	Detail  []byte // JSON
}

// BudgetDelta adds to the retry-budget buckets of a definition (X11).
type BudgetDelta struct {
	DefID   int32
	Total   int64 // attempts that ended with a verdict
	Retries int64 // retries scheduled
}

// ScopeChange puts or deletes a scope row.
type ScopeChange struct {
	Scope  Scope
	Delete bool
}

// Closing is the end of an execution. With Force, open attempts are canceled first (design/03 S8); without, nothing is open.
type Closing struct {
	Status    Status
	Cause     Cause
	Reason    string
	FailedNo  int32
	FailedRef string
	OutputNo  int32  // task whose output is the output; 0 = Output
	Output    []byte // JSON, nil = none
	Force     bool
}

// Decision is what follows from facts, for one execution. Slices are in definition order.
type Decision struct {
	Header    Header // as it must be stored; Seq counts every row of Ended and Events
	Ended     []TaskRow
	Removed   []Removed
	Disarmed  []Disarmed
	Schedules []Schedule
	Scopes    []ScopeChange
	Vars      map[string][]byte // changed variables, JSON
	Events    []Event
	Budget    []BudgetDelta
	Closing   *Closing
	// Continue asks for marks: 64 rounds are used up, or a wide fork has more branches (contract 7.1). Each entry of ContinueAt
	// becomes one EvaluationContinued.
	Continue   bool
	ContinueAt []int32
	// Revised are rows of the history that a postponed decision completes (AttemptEnded.Recorded): cause, absorbed,
	// exhausted, control, next due time and delay are written over; nothing else of the row changes.
	Revised []TaskRow
	// Deadline is the workflow's deadline to arm, from the first evaluation; zero = none.
	Deadline time.Time
	// Dropped counts facts that no longer applied.
	Dropped int
}

// TaskValue is what an expression can see of an ended or open task run: newest attempt.
type TaskValue struct {
	Ended    bool
	Attempt  int32 // newest ended attempt; 0 = none
	EndedAt  time.Time
	Status   Status
	Absorbed bool
	Output   []byte // JSON or nil
}

// Budget is the state of a definition's retry budget: the live setting and the sums of the window (A3).
type Budget struct {
	Limit   float64
	Total   int64
	Retries int64
}

// View is what the decider sees of one execution: the header, the scopes its facts touch, and the values that were asked for
// through Needs. It is a value: Decide never changes what the caller holds.
type View struct {
	Header    Header
	Namespace string
	Workflow  string // name
	Version   int64
	Revision  int32
	Scopes    map[int32]Scope     // by ScopeNo; those loaded; a loaded absence is a zero Scope
	Tasks     map[int32]TaskValue // by task number; a loaded absence is a zero TaskValue
	Inputs    map[int32][]byte    // resolved inputs of tasks, by task number
	Input     []byte              // of the execution
	HasInput  bool
	Vars      map[string][]byte // complete once HasVars
	HasVars   bool
	Budgets   map[int32]Budget // by definition; absent = not loaded. A definition without budget row has Limit 1
}

// Needs lists what Decide lacked. If it is not empty the Decision is void: load and decide again.
type Needs struct {
	Scopes  []int32
	Tasks   []int32
	Inputs  []int32
	Input   bool
	Vars    bool
	Budgets []int32
}

// Empty says that nothing is lacking.
func (n Needs) Empty() bool {
	return len(n.Scopes) == 0 && len(n.Tasks) == 0 && len(n.Inputs) == 0 && !n.Input && !n.Vars && len(n.Budgets) == 0
}
