// Package systemtasks is the contract of a task type that the runner executes itself, and the set of such types.
//
// A system task knows neither engine, store nor queue. It gets a Call and gives an Outcome; it never returns a Go error,
// because a task's failure is data (design/01 §5.1, principle 5).
package systemtasks

import (
	"context"

	"nf/schema"
)

// Call is one delivery of one attempt of a system task.
type Call struct {
	Namespace   string
	ExecutionID string
	TaskRef     string
	Iteration   string
	Attempt     int
	// IdempotencyKey is stable over attempts and deliveries (X17, contract 3.5).
	IdempotencyKey string
	// Input is the resolved input with secretRefs still in place: map[string]any as decoded with json.Number. A secretRef in it
	// stood in the definition (schema.CheckSecretRefs has been applied). It is never changed.
	Input map[string]any
	// Target is the declared Target that the task names, nil if it names none. It is owned by files: only then is its own
	// scheme, host and port exempt from the private-address rule (X18). An unowned Target must not be handed over here.
	Target *schema.Target
	// Secrets resolves a reference in the given namespace at dispatch and gives the value without the reference's prefix. The
	// value must never leave the call unredacted.
	Secrets func(ctx context.Context, namespace string, ref schema.SecretRef) (string, error)
}

// Outcome is what a call came to: Completed, Failed or Released.
type Outcome interface{ isOutcome() }

// Completed ends the attempt COMPLETED.
type Completed struct {
	Output map[string]any // JSON value, redacted
}

// Failed ends the attempt FAILED, or FAILED_WITH_TERMINAL_ERROR if Terminal.
type Failed struct {
	Cause    string // closed list, contract 2.4
	Reason   string // contract 2.6; redacted, valid UTF-8, cut at 8 KiB
	Terminal bool
	Output   map[string]any // kept on failure too, same shape as on success
	// MinWait is the provider's minimum wait before the next attempt (X2); Source names it: retryAfter, retryInfo. 0 and "" = none.
	MinWait schema.Millis
	Source  string
}

// Released gives no verdict: the task or its execution was canceled, or the runner is shutting down (contract 2.6). Sent says
// whether a request may have left the process.
type Released struct{ Sent bool }

func (Completed) isOutcome() {}
func (Failed) isOutcome()    {}
func (Released) isOutcome()  {}

// Task is a system task type.
type Task interface {
	Type() schema.TaskType
	// Run executes one call and honours ctx: when ctx ends it returns soon, with Released. Safe for concurrent use.
	Run(ctx context.Context, call Call) Outcome
}
