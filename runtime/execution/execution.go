// Package execution holds the words of a running workflow: statuses, causes, what is open, what has ended, what happened
// (facts) and what must follow (a Decision). It is pure; store, decider and engine speak it.
//
// Codes are those of design/03 B2 and are stored: never reuse one.
package execution

import (
	"time"

	"nf/schema"
)

// ID names an execution: internal number of the namespace, UUID v7.
type ID struct {
	NS   int32
	Exec UUID
}

// Kind is the stored code of a task type.
type Kind int16

// The kinds of wave 1.
const (
	KindSimple      Kind = 1
	KindHTTP        Kind = 2
	KindGRPC        Kind = 3
	KindSwitch      Kind = 4
	KindForkJoin    Kind = 5
	KindJoin        Kind = 6
	KindSetVariable Kind = 7
	KindTerminate   Kind = 8
	KindWait        Kind = 9
)

// Status is a stored terminal status of an attempt or an execution. Open statuses are not stored: the table an attempt is in says it.
type Status int16

// The stored statuses. Zero means open.
const (
	Completed  Status = 10
	Skipped    Status = 12
	Failed     Status = 20
	FailedTerm Status = 21 // FAILED_WITH_TERMINAL_ERROR
	TimedOut   Status = 22
	Canceled   Status = 23 // tasks
	Terminated Status = 24 // executions
	StatusOpen Status = 0
)

// Cause is a word of the closed list of contract 2.4.
type Cause string

// The causes of wave 1.
const (
	CauseWorkerFailed         Cause = "WORKER_FAILED"
	CauseWorkerTerminal       Cause = "WORKER_TERMINAL_ERROR"
	CauseHTTPStatus           Cause = "HTTP_STATUS"
	CauseGRPCStatus           Cause = "GRPC_STATUS"
	CauseConnectionFailed     Cause = "CONNECTION_FAILED"
	CauseCallTimeout          Cause = "CALL_TIMEOUT"
	CauseInvalidRequest       Cause = "INVALID_REQUEST"
	CauseInputInvalid         Cause = "INPUT_INVALID"
	CauseOutputInvalid        Cause = "OUTPUT_INVALID"
	CauseOutputTooLarge       Cause = "OUTPUT_TOO_LARGE"
	CauseSecretUnavailable    Cause = "SECRET_UNAVAILABLE"
	CauseNonRetryable         Cause = "NON_RETRYABLE_ERROR"
	CauseBudgetExhausted      Cause = "RETRY_BUDGET_EXHAUSTED"
	CauseRetryPastDeadline    Cause = "RETRY_PAST_DEADLINE"
	CauseDeliveriesExhausted  Cause = "DELIVERIES_EXHAUSTED"
	CauseOutcomeUnknown       Cause = "OUTCOME_UNKNOWN"
	CauseScheduleToStart      Cause = "SCHEDULE_TO_START_TIMEOUT"
	CauseStartToClose         Cause = "START_TO_CLOSE_TIMEOUT"
	CauseTaskTimeout          Cause = "TASK_TIMEOUT"
	CauseTotalTimeout         Cause = "TOTAL_TIMEOUT"
	CauseExecutionEnded       Cause = "EXECUTION_ENDED"
	CauseBranchNotTaken       Cause = "BRANCH_NOT_TAKEN"
	CauseTaskFailed           Cause = "TASK_FAILED"
	CauseTaskTimedOut         Cause = "TASK_TIMED_OUT"
	CauseWorkflowTimeout      Cause = "WORKFLOW_TIMEOUT"
	CauseTerminatedByTask     Cause = "TERMINATED_BY_TASK"
	CauseTerminatedByOperator Cause = "TERMINATED_BY_OPERATOR"
	CauseEvaluationFailed     Cause = "EVALUATION_FAILED"
)

// MaxReason is the longest reason kept, in bytes; longer ones are cut on a character boundary (contract 7.1).
const MaxReason = 8 << 10

// MaxPayload is the largest input or output in JSON bytes (6 MiB), MaxVariables that of all variables together.
const (
	MaxPayload   = 6 << 20
	MaxVariables = 256 << 10
	MaxDepth     = 256
)

// Header is the row of an open execution (nf_exec).
type Header struct {
	ID
	Seq        int64 // last event, gap-free; 1 = started
	StartedAt  time.Time
	AdmittedAt time.Time
	DefID      int32 // Workflow object
	RevID      int32 // pinned revision (P6)
	NextNo     int32 // next free task number; at most 1 = never evaluated
	Loose      int32 // scopes whose join has fired while branches still run
	Reruns     int32
	Priority   int16
	Depth      int16
	EndStatus  Status // set: ending by force, chunk by chunk
	EndCause   Cause
	EndReason  string
	// EndNo is the task that ended it by failing. Without EndStatus: the task whose end was the end of the root's sequence while
	// scopes are still loose; it is then stored like the rest.
	EndNo int32
}

// Scope is an open fork (nf_scope kind 1).
type Scope struct {
	ScopeNo  int32 // task number of the operator that opened it
	ParentNo int32 // scope it lies in; 0 = root
	Slot     int32
	Kind     int16
	BaseNo   int32
	Width    int32
	Cursor   int32
	Open     int32 // branches that have not ended
	Pending  int32 // what the join still waits for
	Fired    bool
}

// Place says in which table an open attempt is.
type Place int8

// The places of an open attempt.
const (
	InReady Place = iota + 1
	InLease
	InTimer
)

// Why a parked attempt is parked (nf_timer.why).
type Why int16

// The reasons of wave 1.
const (
	WhyBackoff          Why = 1
	WhyStartDelay       Why = 2
	WhyWait             Why = 10
	WhyOperatorDeadline Why = 16
	WhyWorkflowDeadline Why = 20
)

// Attempt is an open attempt: the columns that travel through nf_ready, nf_lease and nf_timer (⟨T⟩ of design/03). A zero time
// is a deadline that is not armed.
type Attempt struct {
	TaskNo      int32
	Attempt     int32
	QueueID     int32
	Lane        int16 // 99 − priority
	Kind        Kind
	ScopeNo     int32
	Slot        int32
	RevID       int32 // workflow revision
	DefID       int32 // task definition, 0 = none
	DefRev      int32 // its revision when the task run was first scheduled
	Rerun       int32
	Deliveries  int32 // so far; in a lease: this one included
	RetriesLeft int32
	ScheduledAt time.Time
	VisibleAt   time.Time // in a timer: wake_at
	StartBy     time.Time // scheduleToStart; not in a lease
	AttBy       time.Time // timeoutSeconds
	TotalBy     time.Time // totalTimeoutSeconds
	Iteration   string

	Place Place
	Why   Why // in a timer

	// In a lease.
	Fence      int64
	Holder     int32 // runner that executes it itself; 0 = external worker
	ClaimID    int64
	LeasedAt   time.Time
	LeaseUntil time.Time
	BeatBy     time.Time
	CloseBy    time.Time
	LeaseMs    int64
	Sems       int16
	Worker     string
}

// QueueKey names a physical queue (nf_queue): calls to different Targets, or without a Target hosts by hash, wait apart.
type QueueKey struct {
	NS       int32
	Name     string // <definition>, or _nf.<TYPE>[.<definition>]
	Domain   string
	System   bool // leased by runners only
	DefID    int32
	TargetNS int32
	TargetID int32
	Shard    int16 // 0–63
}

// Pinned is a task definition at one revision, as the decider needs it.
type Pinned struct {
	DefID  int32
	DefRev int32
	Def    *schema.TaskDefinition
	// CheckInput and CheckOutput hold a decoded JSON value to the definition's schema. nil = no schema. They never panic.
	CheckInput  func(any) error
	CheckOutput func(any) error
}

// TargetRef is a Target in force.
type TargetRef struct {
	NS int32
	ID int32
}

// Definitions is one immutable view of what is declared, as the decider needs it. Implementations do no I/O; what a
// pinned revision needs is loaded before.
type Definitions interface {
	// Task gives the definition in force, for a first scheduling.
	Task(ns int32, name string) (Pinned, bool)
	// TaskRev gives a definition by its revision, for later attempts of a task run.
	TaskRev(ns int32, defRev int32) (Pinned, bool)
	// Target gives the Target in force that ref names.
	Target(ref schema.Ref) (TargetRef, bool)
}
