package execution

import "nf/schema"

// kindTypes is the one table of stored kinds and their types.
var kindTypes = [...]schema.TaskType{
	KindSimple:      schema.TypeSimple,
	KindHTTP:        schema.TypeHTTP,
	KindGRPC:        schema.TypeGRPC,
	KindSwitch:      schema.TypeSwitch,
	KindForkJoin:    schema.TypeForkJoin,
	KindJoin:        schema.TypeJoin,
	KindSetVariable: schema.TypeSetVariable,
	KindTerminate:   schema.TypeTerminate,
	KindWait:        schema.TypeWait,
}

// KindOf gives the stored code of a type, 0 for an unknown one.
func KindOf(t schema.TaskType) Kind {
	for k, name := range kindTypes {
		if name == t && t != "" {
			return Kind(k)
		}
	}
	return 0
}

// Type gives the type of a stored code, "" for an unknown one.
func (k Kind) Type() schema.TaskType {
	if k < 0 || int(k) >= len(kindTypes) {
		return ""
	}
	return kindTypes[k]
}

// Class gives the class of a stored code, 0 for an unknown one.
func (k Kind) Class() schema.Class { return k.Type().Class() }

// String gives the type's name.
func (k Kind) String() string { return string(k.Type()) }

// Names of statuses as people see them (contract 2.1, 2.2). Those of open work are derived, not stored.
const (
	NameRunning             = "RUNNING"
	NamePaused              = "PAUSED"
	NameScheduled           = "SCHEDULED"
	NameInProgress          = "IN_PROGRESS"
	NameWaiting             = "WAITING"
	NameCompleted           = "COMPLETED"
	NameCompletedWithErrors = "COMPLETED_WITH_ERRORS"
	NameSkipped             = "SKIPPED"
	NameFailed              = "FAILED"
	NameFailedTerm          = "FAILED_WITH_TERMINAL_ERROR"
	NameTimedOut            = "TIMED_OUT"
	NameCanceled            = "CANCELED"
	NameTerminated          = "TERMINATED"
)

// String gives the status as people see it, "" for an open one.
func (s Status) String() string {
	switch s {
	case Completed:
		return NameCompleted
	case Skipped:
		return NameSkipped
	case Failed:
		return NameFailed
	case FailedTerm:
		return NameFailedTerm
	case TimedOut:
		return NameTimedOut
	case Canceled:
		return NameCanceled
	case Terminated:
		return NameTerminated
	case StatusOpen:
	}
	return ""
}

// ParseStatus reads a stored status by its name, StatusOpen for any other text.
func ParseStatus(name string) Status {
	for _, s := range [...]Status{Completed, Skipped, Failed, FailedTerm, TimedOut, Canceled, Terminated} {
		if s.String() == name {
			return s
		}
	}
	return StatusOpen
}

// RunName gives the status of a task run whose newest attempt ended with s: optional turns a failure into
// COMPLETED_WITH_ERRORS, while the attempt keeps its own.
func (s Status) RunName(absorbed bool) string {
	if absorbed {
		return NameCompletedWithErrors
	}
	return s.String()
}

// Successful says whether successors may run: COMPLETED, SKIPPED, or absorbed.
func (s Status) Successful(absorbed bool) bool { return absorbed || s == Completed || s == Skipped }

// Retryable says whether the retry policy is asked at all: FAILED, TIMED_OUT.
func (s Status) Retryable() bool { return s == Failed || s == TimedOut }

// OpenName gives the status of an open attempt: the table it is in says it (contract 2.2).
func (a Attempt) OpenName() string {
	switch {
	case a.Place == InLease, a.Kind.Class() == schema.ClassSpanning:
		return NameInProgress
	case a.Kind.Class() == schema.ClassWaiting:
		return NameWaiting
	}
	return NameScheduled
}

// Deadline is the earliest deadline that is armed for an open attempt, and its class: "" for lost work (lease or heartbeat). A
// timeout wins over lost work that is due together (A4).
func (a Attempt) Deadline() (DeadlineClass, bool) {
	type armed struct {
		class DeadlineClass
		unix  int64
	}
	var all []armed
	add := func(class DeadlineClass, ok bool, unix int64) {
		if ok {
			all = append(all, armed{class, unix})
		}
	}
	add(ClassTotal, !a.TotalBy.IsZero(), a.TotalBy.UnixMicro())
	add(ClassTaskTimeout, !a.AttBy.IsZero(), a.AttBy.UnixMicro())
	if a.Place == InLease {
		add(ClassStartToClose, !a.CloseBy.IsZero(), a.CloseBy.UnixMicro())
		add("", !a.BeatBy.IsZero(), a.BeatBy.UnixMicro())
		add("", !a.LeaseUntil.IsZero(), a.LeaseUntil.UnixMicro())
	} else {
		add(ClassScheduleToStart, !a.StartBy.IsZero(), a.StartBy.UnixMicro())
	}
	if len(all) == 0 {
		return "", false
	}
	first := all[0]
	for _, d := range all[1:] {
		if d.unix < first.unix {
			first = d
		}
	}
	return first.class, true
}
