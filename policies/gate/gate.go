// Package gate holds the fixed order of the gates that a queued task passes before it is leased (A22), computes the allowance of a claim,
// and names the gate that holds what is left.
//
// SQL counts under the locks of the gates, this package decides once, SQL claims with exactly that limit (A0.5, X10). A gate that is
// not configured has no reading, so an ungated queue passes with what it wants. To add a gate: give Controls its setting, Counts its
// count, and put its reading at its place in readings; nothing else knows the order.
//
//	queuePaused → namespaceSuspended → queueBreaker
//	→ caps:  maxRunning, concurrentExecLimit, targetMaxConcurrent
//	→ rates: queueRateLimit, rateLimit, targetRateLimit
//	→ per candidate: TTL, flowKey, semaphore:<namespace/name>
//
// Present are concurrentExecLimit and the semaphores. All tasks of a queue need the same semaphores, so these too are read once a claim.
package gate

import (
	"time"

	"nf/policies/limit"
)

// Control names a gate (contract 2.5).
type Control string

// ConcurrentExecLimit is the cap of a task definition.
const ConcurrentExecLimit Control = "concurrentExecLimit"

// Semaphore names the gate of a semaphore by namespace/name.
func Semaphore(address string) Control { return Control("semaphore:" + address) }

// Controls are the settings in force of what a queue's tasks must pass. The zero value gates nothing.
type Controls struct {
	ConcurrentExecLimit int64    // of the definition, over all its queues; 0 = unlimited
	Semaphores          []string // namespace/name, in the order of Counts.Semaphores
}

// Gated says whether anything is configured.
func (c Controls) Gated() bool { return c.ConcurrentExecLimit > 0 || len(c.Semaphores) > 0 }

// Counts is what is in flight, counted under the gates' locks.
type Counts struct {
	Definition int64 // leases of the definition, expired or not (A5)
	Semaphores []Permits
}

// Permits is the state of one semaphore as this queue sees it.
type Permits struct {
	limit.Semaphore
	// Mine says that the waiter of the semaphore stands in this queue; it then comes first in the claim.
	Mine bool
}

// Verdict is the outcome of all gates.
type Verdict struct {
	// Allow is how many tasks may be leased: 0 … want.
	Allow int
	// Control is the first gate that is closed once Allow tasks are leased; empty if none held anything back.
	Control Control
	// Limit and Current are those of Control, Current with the Allow tasks included.
	Limit, Current int64
	// Others are the further closed gates, in order (C-57).
	Others []Control
	// RetryAt is when a rate opens again; zero where only the end of other work can say.
	RetryAt time.Time
	// Full says that a semaphore, and no cap or rate before it, allows nothing: the head of the queue is skipped (A8).
	Full bool
}

// Closed says whether a gate held something back.
func (v Verdict) Closed() bool { return v.Control != "" }

// reading is one gate's answer.
type reading struct {
	control        Control
	limit, current int64
	free           int64
	retryAt        time.Time
	perCandidate   bool
}

// Dequeue decides how many of want tasks of one queue may be leased at now. want below 1 allows nothing.
func Dequeue(controls Controls, counts Counts, want int, now time.Time) Verdict {
	want = max(want, 0)
	all := readings(controls, counts, now)
	allow, before := int64(want), int64(want)
	for _, r := range all {
		allow = min(allow, r.free)
		if !r.perCandidate {
			before = min(before, r.free)
		}
	}
	v := Verdict{Allow: int(allow), Full: want > 0 && allow == 0 && before > 0}
	if allow == int64(want) {
		return v
	}
	for _, r := range all {
		if r.free > allow {
			continue
		}
		if v.Control == "" {
			v.Control, v.Limit, v.Current, v.RetryAt = r.control, r.limit, r.current+allow, r.retryAt
			continue
		}
		v.Others = append(v.Others, r.control)
	}
	return v
}

// readings asks every configured gate, in the order of A22.
func readings(controls Controls, counts Counts, _ time.Time) []reading {
	var all []reading
	if controls.ConcurrentExecLimit > 0 {
		all = append(all, reading{
			control: ConcurrentExecLimit, limit: controls.ConcurrentExecLimit, current: counts.Definition,
			free: limit.Room(controls.ConcurrentExecLimit, counts.Definition),
		})
	}
	for i, name := range controls.Semaphores {
		s := counts.Semaphores[i]
		all = append(all, reading{
			control: Semaphore(name), limit: s.Semaphore.Permits, current: s.Held, free: s.Free(s.Mine), perCandidate: true,
		})
	}
	return all
}
