// Package history proves the invariants of reliability from what was recorded while processes were killed: what clients and workers
// were told, what triggers wrote at each grant and each end of a lease, and what the database holds at the end. It asks no
// counter of the engine. It is used by the long tests only.
//
// Numbers are those of the reliability goals: 1–4 and 9–15.
package history

import (
	"time"

	"nf/policies/retry"
	"nf/schema"
)

// Start is what a client was told of one start.
type Start struct {
	Key         string // idempotency key
	ExecutionID string // "" = refused or never answered
	Refused     bool   // answered 4xx: nothing may exist
}

// Verdict is what a worker was told of a report.
type Verdict struct {
	TaskID   string // execution.number.attempt
	Fence    int64
	Status   string
	Accepted bool // 200 and not replayed
}

// Grant is a lease as a trigger saw it in the transaction that wrote it.
type Grant struct {
	Execution  string
	TaskNo     int32
	Attempt    int32
	Fence      int64
	Deliveries int32
	DefID      int32
	Kind       int16
	InFlight   int64 // leases of the definition at that moment, this one included
	Over       string
	At         time.Time
}

// Row is an ended attempt, operator or skipped head, as it stands at the end.
type Row struct {
	Execution                               string
	TaskNo, Attempt                         int32
	Seq                                     int64
	Fence                                   int64
	Kind                                    int16
	Status                                  int16
	Absorbed                                bool
	DefID                                   int32
	Deliveries                              int32
	Cause                                   string
	ScheduledAt, VisibleAt, EndedAt, NextAt time.Time
	LeasedAt                                time.Time
	PolicyMs, MinimumMs                     int64
}

// Execution is an execution as it stands at the end.
type Execution struct {
	ID     string
	Open   bool
	Status int16
	Seq    int64
	Events []int64 // seq of its rare events
}

// Task is what a definition promises about a task number.
type Task struct {
	Ref        string
	Policy     retry.Policy
	RetryCount int
	AtMostOnce bool
	Cap        int64 // of its definition, 0 = none
	Budget     float64
	Timeout    schema.Millis // timeoutSeconds, 0 = none
	StartBy    schema.Millis // scheduleToStart, 0 = none
	JoinOf     []int32       // of a JOIN: the last tasks of its branches
}

// History is everything that was recorded.
type History struct {
	Starts     []Start
	Verdicts   []Verdict
	Grants     []Grant
	Rows       []Row
	Executions []Execution
	Tasks      map[int32]Task // by task number
	Rewritten  int64          // updates of a terminal status that a trigger saw
	Audited    int64          // rows of the audit log
	Actions    int64          // actions that owe a row
	Deadlocks  int64
	// Late is how late a deadline may be noticed, faults included.
	Late time.Duration
	// Batch is how many decisions one flush may hold, and Deciders how many flushes may decide at once.
	Batch, Deciders int64
}
