package reload

import "time"

// Timing are the waits of a loop.
type Timing struct {
	Quiet   time.Duration // without a hint, before a look
	Ceiling time.Duration // after the first hint, whatever comes after it
	Poll    time.Duration // between looks without any hint
	Confirm time.Duration // between the two equal reads that a retirement without commits needs (P9)
	Busy    time.Duration // of a busy source, before it is told
}

// Default waits (contract 5.1, design C10). Quiet and Poll are the defaults of flags.
const (
	DefaultQuiet = 100 * time.Millisecond
	DefaultPoll  = 30 * time.Second
)

// timing gives the waits of a loop.
func timing(quiet, poll time.Duration) Timing {
	return Timing{Quiet: quiet, Ceiling: max(5*time.Second, quiet), Poll: poll, Confirm: 5 * time.Second, Busy: time.Minute}
}

// Wake says what asked for a look. Several may at once.
type Wake uint8

// What asks for a look.
const (
	Hint    Wake = 1 << iota // something happened in a folder
	Poll                     // it is time
	Notice                   // another process has changed what is in force
	Asked                    // a signal, a request
	Retry                    // the last pass was not the end of it
	Confirm                  // the second read of a retirement
)

// String names the strongest of them.
func (w Wake) String() string {
	for _, name := range []struct {
		w    Wake
		name string
	}{{Asked, "request"}, {Hint, "change"}, {Confirm, "second read"}, {Retry, "retry"}, {Notice, "notice"}, {Poll, "poll"}} {
		if w&name.w != 0 {
			return name.name
		}
	}
	return "start"
}

// agenda is what a project waits for. A zero time is nothing.
type agenda struct {
	firstHint, lastHint  time.Time
	poll, retry, confirm time.Time
	notice, asked        bool
}

// hinted notes a hint.
func (a agenda) hinted(now time.Time) agenda {
	if a.firstHint.IsZero() {
		a.firstHint = now
	}
	a.lastHint = now
	return a
}

// due says what asks for a look now. Where nothing does, it says how long nothing will.
func (a agenda) due(now time.Time, t Timing) (Wake, time.Duration) {
	var wake Wake
	wait := t.Poll
	at := func(when time.Time, w Wake) {
		switch {
		case when.IsZero():
		case !now.Before(when):
			wake |= w
		default:
			wait = min(wait, when.Sub(now))
		}
	}
	at(a.hintAt(t), Hint)
	at(a.poll, Poll)
	at(a.retry, Retry)
	at(a.confirm, Confirm)
	if a.notice {
		wake |= Notice
	}
	if a.asked {
		wake |= Asked
	}
	if wake != 0 {
		return wake, 0
	}
	return 0, wait
}

// hintAt is when the hints are acted upon: once it has been quiet, but never later than the ceiling.
func (a agenda) hintAt(t Timing) time.Time {
	if a.firstHint.IsZero() {
		return time.Time{}
	}
	quiet, ceiling := a.lastHint.Add(t.Quiet), a.firstHint.Add(t.Ceiling)
	if ceiling.Before(quiet) {
		return ceiling
	}
	return quiet
}

// taken is the agenda after a look has begun: everything that asked for it is answered by it.
func (agenda) taken() agenda { return agenda{} }

// maxRetry bounds the waits between tries that fail for reasons of the world.
const maxRetry = 30 * time.Second

// after is the agenda once a look has ended. failures counts the looks in a row that the world made fail; jitter is from [0, 1).
func (a agenda) after(r Result, failures int, now time.Time, jitter float64, t Timing) agenda {
	a.poll = now.Add(time.Duration(float64(t.Poll) * (0.9 + 0.2*jitter)))
	switch r {
	case Busy:
		a.retry = now.Add(max(t.Quiet, 100*time.Millisecond))
	case Waiting:
		a.retry = now.Add(min(t.Poll, 2*time.Second))
	case Errored:
		a.retry = now.Add(min(t.Poll, backoff(failures, jitter)))
	case Applied, Unchanged, Pending, Refused, Behind, Failed:
	}
	return a
}

// backoff is the wait after so many failures in a row: 250 ms, doubled, at most maxRetry, less up to a fifth.
func backoff(failures int, jitter float64) time.Duration {
	wait := 250 * time.Millisecond
	for range min(max(failures, 1), 10) - 1 {
		wait *= 2
	}
	return time.Duration(float64(min(wait, maxRetry)) * (1 - 0.2*jitter))
}

// sighting is the first of the two equal reads that a retirement without commits needs.
type sighting struct {
	digest [32]byte
	at     time.Time
}

// confirmed says whether a read is the second equal one, long enough after the first. If not, the sighting to remember is given back.
func (s sighting) confirmed(digest [32]byte, now time.Time, t Timing) (sighting, bool) {
	if s.at.IsZero() || s.digest != digest || now.Before(s.at) {
		return sighting{digest, now}, false
	}
	return s, now.Sub(s.at) >= t.Confirm
}

// again says whether a set that was judged before must be judged again (design C10 step 4). A mere hint that changed nothing is no reason where the files
// were in force already: a program that keeps writing beside the manifests must not keep the database busy.
func again(wake Wake, same bool, last Result) bool {
	if !same || wake&^Hint != 0 {
		return true
	}
	return last != Unchanged && last != Applied
}

// stateOf is the state that a result leaves a project in. loaded says that this process has loaded a sound set of the project before.
func stateOf(r Result, loaded bool) State {
	switch r {
	case Applied, Unchanged:
		return OK
	case Pending:
		return StatePending
	case Refused:
		return StateRefused
	case Behind:
		return StateBehind
	case Waiting:
		return StateWaiting
	case Busy:
		return StateBusy
	case Failed, Errored:
		if loaded {
			return StateFailed
		}
		return StateDegraded
	}
	return StateFailed
}
