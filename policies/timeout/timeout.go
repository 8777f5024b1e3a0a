// Package timeout says when the deadlines of a task and of a workflow fall due (contract 3.6, A4).
//
// All times are database time, durations whole milliseconds; a zero time is a deadline that is not armed, and so is what a zero
// duration arms.
package timeout

import (
	"time"

	"nf/schema"
)

// Class names a deadline.
type Class string

// The classes. The first four are causes of an attempt that timed out; Heartbeat and Lease mean lost work, not a timeout.
const (
	ScheduleToStart Class = "SCHEDULE_TO_START_TIMEOUT"
	StartToClose    Class = "START_TO_CLOSE_TIMEOUT"
	Task            Class = "TASK_TIMEOUT"
	Total           Class = "TOTAL_TIMEOUT"
	Heartbeat       Class = "HEARTBEAT"
	Lease           Class = "LEASE"
	Workflow        Class = "WORKFLOW_TIMEOUT"
)

// Lost says whether missing the deadline means lost work (X4).
func (c Class) Lost() bool { return c == Heartbeat || c == Lease }

// Deadline is one armed deadline.
type Deadline struct {
	Class Class
	At    time.Time
}

// Visible are the deadlines that run from the moment an attempt becomes visible.
type Visible struct {
	StartBy time.Time // scheduleToStart, while unleased
	AttBy   time.Time // timeoutSeconds, of this attempt
	TotalBy time.Time // totalTimeoutSeconds, over all attempts
}

// First gives the deadlines of the first attempt of a dispatched task, which becomes visible at that time.
func First(def *schema.TaskDefinition, visible time.Time) Visible {
	v := Again(def, visible, time.Time{})
	v.TotalBy = after(visible, def.TotalTimeout)
	return v
}

// Again gives those of a later attempt: only the total runs on.
func Again(def *schema.TaskDefinition, visible, totalBy time.Time) Visible {
	return Visible{
		StartBy: after(visible, def.ScheduleToStartTimeout),
		AttBy:   after(visible, def.Timeout),
		TotalBy: totalBy,
	}
}

// Redelivered gives scheduleToStart anew after lost work: it runs from the reclaim.
func Redelivered(def *schema.TaskDefinition, reclaimed time.Time) time.Time {
	return after(reclaimed, def.ScheduleToStartTimeout)
}

// Leased are the deadlines that run from a delivery's lease.
type Leased struct {
	LeaseMs    schema.Millis // granted
	LeaseUntil time.Time
	BeatBy     time.Time
	CloseBy    time.Time
}

// DefaultLease is the longest lease of a task without a definition (X5).
const DefaultLease schema.Millis = 3_600_000

// Grant gives the deadlines of a delivery leased by a worker; asked is the length asked for, 0 = none (contract 3.7).
func Grant(def *schema.TaskDefinition, leased time.Time, asked schema.Millis) Leased {
	longest := DefaultLease
	if def.ResponseTimeout > 0 {
		longest = def.ResponseTimeout
	}
	if asked <= 0 || asked > longest {
		asked = longest
	}
	return Leased{
		LeaseMs: asked, LeaseUntil: after(leased, asked), BeatBy: after(leased, def.HeartbeatTimeout),
		CloseBy: after(leased, def.StartToCloseTimeout),
	}
}

// OfWorkflow gives a workflow's own deadline, from its admission.
func OfWorkflow(w *schema.Workflow, admitted time.Time) time.Time { return after(admitted, w.Timeout) }

// Due gives the deadline to act on at now: of those that have passed the earliest, a timeout before lost work that has passed
// too (A4.6). ok is false when none has passed; a deadline never fires early.
func Due(now time.Time, deadlines ...Deadline) (due Deadline, ok bool) {
	for _, d := range deadlines {
		if d.At.IsZero() || d.At.After(now) {
			continue
		}
		if !ok || before(d, due) {
			due, ok = d, true
		}
	}
	return due, ok
}

// Earliest gives the deadline that falls due first; ok is false when none is armed.
func Earliest(deadlines ...Deadline) (first Deadline, ok bool) {
	for _, d := range deadlines {
		if d.At.IsZero() {
			continue
		}
		if !ok || d.At.Before(first.At) || (d.At.Equal(first.At) && before(d, first)) {
			first, ok = d, true
		}
	}
	return first, ok
}

func before(a, b Deadline) bool {
	if a.Class.Lost() != b.Class.Lost() {
		return b.Class.Lost()
	}
	return a.At.Before(b.At)
}

func after(from time.Time, d schema.Millis) time.Time {
	if d <= 0 || from.IsZero() {
		return time.Time{}
	}
	return from.Add(time.Duration(d) * time.Millisecond)
}
