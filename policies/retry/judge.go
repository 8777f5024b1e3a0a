package retry

import (
	"strings"
	"time"

	"nf/schema"
)

// Verdict is what becomes of a task run whose attempt ended.
type Verdict int

// The verdicts, in the order in which their rules are tried (contract 2.3, D.0 "End of an attempt").
const (
	GoOn         Verdict = iota + 1 // successful: successors run
	Terminal                        // never retried, whatever the policy
	TimeoutEnds                     // TIMED_OUT under TIME_OUT_WF, or by totalTimeoutSeconds
	NonRetryable                    // the reason holds an entry of nonRetryableErrors
	Spent                           // no attempt left
	BudgetSpent                     // the retry budget refuses
	PastDeadline                    // the next attempt would start too late
	Again                           // the next attempt
)

// Ended describes an attempt that has ended. A missed deadline under ALERT_ONLY ends nothing and never comes here.
type Ended struct {
	Success  bool
	Terminal bool // FAILED_WITH_TERMINAL_ERROR, or a cause that is final (OUTCOME_UNKNOWN)

	TimedOut      bool
	TimeoutPolicy schema.TimeoutPolicy
	Total         bool // by totalTimeoutSeconds: never retried

	Reason             string
	NonRetryableErrors []string // case-sensitive substrings
	RetriesLeft        int32

	// Budget is nil when the definition has none, or when it is not read yet: call Judge again with it if the answer is later
	// than BudgetSpent.
	Budget *Budget

	DueAt time.Time // of the next attempt
	// Latest are the deadlines that the next attempt must start before: the workflow's and the total. A zero time is none.
	Latest [2]time.Time
}

// Budget is the state of a retry budget, as Refuse takes it.
type Budget struct {
	Limit   float64
	Total   int64
	Retries int64
}

// rules is the ordered table: the first that applies decides.
var rules = [...]struct {
	verdict Verdict
	applies func(Ended) bool
}{
	{GoOn, func(e Ended) bool { return e.Success }},
	{Terminal, func(e Ended) bool { return e.Terminal }},
	{TimeoutEnds, func(e Ended) bool { return e.TimedOut && (e.Total || e.TimeoutPolicy != schema.TimeoutRetry) }},
	{NonRetryable, func(e Ended) bool { return Matches(e.NonRetryableErrors, e.Reason) }},
	{Spent, func(e Ended) bool { return e.RetriesLeft <= 0 }},
	{BudgetSpent, func(e Ended) bool {
		return e.Budget != nil && Refuse(e.Budget.Limit, e.Budget.Total, e.Budget.Retries)
	}},
	{PastDeadline, func(e Ended) bool { return tooLate(e.DueAt, e.Latest[0]) || tooLate(e.DueAt, e.Latest[1]) }},
}

// Judge says what becomes of a task run whose attempt ended: the first rule that applies. `optional` comes after it and is the
// caller's.
func Judge(e Ended) Verdict {
	for _, r := range rules {
		if r.applies(e) {
			return r.verdict
		}
	}
	return Again
}

// Matches says whether reason contains one of the entries (NF-030, C-13).
func Matches(entries []string, reason string) bool {
	for _, entry := range entries {
		if entry != "" && strings.Contains(reason, entry) {
			return true
		}
	}
	return false
}

func tooLate(due, latest time.Time) bool { return !latest.IsZero() && !due.Before(latest) }
