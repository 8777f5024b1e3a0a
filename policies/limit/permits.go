// Package limit is the arithmetic of limits: how much of a cap or a semaphore is free, and who comes next when it is not.
//
// The package is pure: what is held is counted elsewhere, under the locks of the gates (X9, X10), and handed in with the time.
package limit

import "time"

// Room gives how many more fit below a cap, never less than 0. A cap that was lowered below what is held has no room until
// enough has come back (X9).
func Room(limit, held int64) int64 { return max(0, limit-held) }

// The fairness of semaphores (A8).
const (
	// PlaceFor is how long a waiter keeps its place while nobody claims its queue, and how long a reservation lasts.
	PlaceFor = 30 * time.Second
	// SkipsToReserve is the number of skipped claims after which the semaphores are reserved for the waiter.
	SkipsToReserve = 5
)

// Task names a task that waits: namespace, execution, task number. The zero Task is nobody.
type Task struct {
	NS   int32
	Exec [16]byte
	No   int32
}

// Semaphore is a pool of permits with what is held of it and who waits for it.
//
// Invariant: without a waiter Skips is 0 and Until zero. Skips = SkipsToReserve means that one permit is reserved for Waiter.
type Semaphore struct {
	Permits int64 // 1 – 1,000,000
	Held    int64 // counted up to Permits at least
	Waiter  Task
	Skips   int       // 0 – SkipsToReserve
	Until   time.Time // end of the place, or of the reservation
}

// Reserved says whether a permit is set aside for the waiter.
func (s Semaphore) Reserved() bool { return s.Waiter != Task{} && s.Skips >= SkipsToReserve }

// Free gives the permits that may be granted to others than the waiter, or, if mine, to the waiter and those behind it.
func (s Semaphore) Free(mine bool) int64 {
	held := s.Held
	if s.Reserved() && !mine {
		held++
	}
	return Room(s.Permits, held)
}

// Settle clears a place that has run out, or whose task is no longer ready: leased, ended, or gone.
func (s Semaphore) Settle(now time.Time, ready bool) Semaphore {
	if s.Waiter == (Task{}) || (ready && s.Until.After(now)) {
		return s
	}
	return s.cleared()
}

// Leave clears the place of a task that was leased.
func (s Semaphore) Leave(t Task) Semaphore {
	if s.Waiter != t || t == (Task{}) {
		return s
	}
	return s.cleared()
}

func (s Semaphore) cleared() Semaphore {
	s.Waiter, s.Skips, s.Until = Task{}, 0, time.Time{}
	return s
}

// Skip records that head, the first task of its queue, was passed over because one of its semaphores is full. all are the
// semaphores that head needs, settled, with their gates held; the answer has the same order.
//
// head becomes the waiter of each full one that has none: a waiter is never displaced by a place. Where it is the waiter, the
// skip counts and the place is renewed. At the fifth skip every semaphore is reserved for head, unless one of them is already reserved
// for another task; then head stays at four and waits on. A reservation is not renewed: a task whose queue has lost its claimers
// blocks the others for PlaceFor at most.
func Skip(all []Semaphore, head Task, now time.Time) []Semaphore {
	out := make([]Semaphore, len(all))
	reserve, taken := false, false
	for i, s := range all {
		switch {
		case s.Waiter == (Task{}) && s.Free(true) == 0:
			s.Waiter, s.Skips, s.Until = head, 1, now.Add(PlaceFor)
		case s.Waiter == head && !s.Reserved():
			s.Skips++
			s.Until = now.Add(PlaceFor)
		}
		if s.Waiter == head && s.Skips >= SkipsToReserve && !all[i].Reserved() { // its fifth skip
			reserve = true
		}
		taken = taken || (s.Reserved() && s.Waiter != head)
		out[i] = s
	}
	if !reserve {
		return out
	}
	for i := range out {
		switch {
		case all[i].Reserved() && all[i].Waiter == head: // not renewed
		case !taken:
			out[i].Waiter, out[i].Skips, out[i].Until = head, SkipsToReserve, now.Add(PlaceFor)
		case out[i].Waiter == head:
			out[i].Skips = min(out[i].Skips, SkipsToReserve-1)
		}
	}
	return out
}
