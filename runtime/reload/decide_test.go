package reload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// simulate runs an agenda over hints at the given times after start and gives when looks happen, each of which takes no time and finds nothing to wait for.
func simulate(hints []time.Duration, until time.Duration, t Timing) (looks []time.Duration) {
	a := agenda{}.after(Unchanged, 0, start, 0.5, t)
	now := start
	for {
		wake, wait := a.due(now, t)
		if wake != 0 {
			looks = append(looks, now.Sub(start))
			a = a.taken().after(Unchanged, 0, now, 0.5, t)
			continue
		}
		next := now.Add(wait)
		if len(hints) > 0 && !start.Add(hints[0]).After(next) {
			next = start.Add(hints[0])
			hints = hints[1:]
			if next.After(now) {
				now = next
			}
			a = a.hinted(now)
			continue
		}
		if now = next; now.Sub(start) > until {
			return looks
		}
	}
}

// w05: files saved within the quiet time are one look. w08: a file that is empty for 50 ms is not looked at meanwhile.
func TestW05_W08_HintsWithinTheQuietTimeAreOneLook(t *testing.T) {
	t.Parallel()
	var saves []time.Duration
	for i := range 11 {
		saves = append(saves, time.Duration(i)*9*time.Millisecond)
	}
	require.Equal(t, []time.Duration{190 * time.Millisecond}, simulate(saves, 10*time.Second, timing(DefaultQuiet, DefaultPoll)))
	require.Equal(t, []time.Duration{150 * time.Millisecond}, simulate([]time.Duration{0, 50 * time.Millisecond}, 10*time.Second, timing(DefaultQuiet, DefaultPoll)))
}

// w09: a change every 99 ms for 30 s is looked at every 5 s.
func TestW09_ATrickleDoesNotStarveTheLook(t *testing.T) {
	t.Parallel()
	var trickle []time.Duration
	for at := time.Duration(0); at < 30*time.Second; at += 99 * time.Millisecond {
		trickle = append(trickle, at)
	}
	looks := simulate(trickle, 40*time.Second, timing(DefaultQuiet, time.Hour))
	require.GreaterOrEqual(t, len(looks), 6)
	before := time.Duration(0)
	for _, at := range looks {
		require.LessOrEqual(t, at-before, 5*time.Second+100*time.Millisecond)
		before = at
	}
}

// Every hint is followed by a look, not before it has been quiet unless the ceiling is reached, and never later than the ceiling after it. Without hints
// there is one look a poll.
func TestEveryHintIsFollowedByALook(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := timing(time.Duration(rapid.IntRange(1, 2000).Draw(t, "quiet"))*time.Millisecond, time.Duration(rapid.IntRange(1, 60).Draw(t, "poll"))*time.Second)
		var hints []time.Duration
		at := time.Duration(0)
		for _, gap := range rapid.SliceOfN(rapid.IntRange(0, 3000), 0, 40).Draw(t, "gaps") {
			at += time.Duration(gap) * time.Millisecond
			hints = append(hints, at)
		}
		looks := simulate(hints, at+3*w.Poll, w)
		for _, h := range hints {
			found := false
			for _, l := range looks {
				found = found || l >= h && l <= h+w.Ceiling
			}
			require.True(t, found, "hint at %s, looks %v", h, looks)
		}
		before := time.Duration(0)
		for _, l := range looks {
			require.LessOrEqual(t, l-before, time.Duration(1.1*float64(w.Poll))+time.Millisecond, "looks %v", looks)
			before = l
		}
	})
}

// A look that was not the end of it is repeated, soon at first, never faster than a bound and never rarer than polls.
func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	w := timing(DefaultQuiet, DefaultPoll)
	rapid.Check(t, func(t *rapid.T) {
		failures, jitter := rapid.IntRange(0, 1000).Draw(t, "failures"), rapid.Float64Range(0, 0.999).Draw(t, "jitter")
		for _, r := range []Result{Busy, Waiting, Errored} {
			a := agenda{}.after(r, failures, start, jitter, w)
			wake, wait := a.due(start, w)
			require.Zero(t, wake)
			require.GreaterOrEqual(t, wait, 100*time.Millisecond)
			require.LessOrEqual(t, wait, 33*time.Second)
		}
		require.LessOrEqual(t, backoff(failures, jitter), backoff(failures+1, jitter))
	})
	require.LessOrEqual(t, backoff(1, 0), time.Second)
	require.Equal(t, maxRetry, backoff(100, 0))
}

// w23: a hint during back-off does not wait for it.
func TestW23_AHintDoesNotWaitForTheBackOff(t *testing.T) {
	t.Parallel()
	w := timing(DefaultQuiet, DefaultPoll)
	a := agenda{}.after(Errored, 50, start, 0, w).hinted(start)
	_, wait := a.due(start, w)
	require.Equal(t, w.Quiet, wait)
}

// P9: a retirement without commits needs two equal reads at least 5 s apart, whatever was read in between.
func TestASecondReadConfirmsOnlyItsEqual(t *testing.T) {
	t.Parallel()
	w := timing(DefaultQuiet, DefaultPoll)
	rapid.Check(t, func(t *rapid.T) {
		var s sighting
		now := start
		var since time.Time // how long the digest has been the same, by reads
		last := byte(255)
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 3*4000)).Draw(t, "steps") {
			digest := byte(step % 3)
			now = now.Add(time.Duration(step/3) * time.Millisecond)
			if digest != last {
				last, since = digest, now
			}
			var ok bool
			s, ok = s.confirmed([32]byte{digest}, now, w)
			require.Equal(t, now.Sub(since) >= w.Confirm, ok)
		}
	})
}

// A mere hint that changed nothing is no reason to ask the database; everything else is, and so is anything that is not in force.
func TestWhatIsJudgedAgain(t *testing.T) {
	t.Parallel()
	require.False(t, again(Hint, true, Unchanged))
	require.False(t, again(Hint, true, Applied))
	for _, r := range []Result{Pending, Refused, Behind, Failed, Errored, Waiting, ""} {
		require.True(t, again(Hint, true, r), r)
	}
	for _, w := range []Wake{Poll, Notice, Asked, Retry, Confirm, Hint | Poll} {
		require.True(t, again(w, true, Unchanged), w)
	}
	require.True(t, again(Hint, false, Unchanged))
}

func TestStates(t *testing.T) {
	t.Parallel()
	require.Equal(t, StateDegraded, stateOf(Failed, false))
	require.Equal(t, StateFailed, stateOf(Failed, true))
	for r, want := range map[Result]State{
		Applied: OK, Unchanged: OK, Pending: StatePending, Refused: StateRefused, Behind: StateBehind, Waiting: StateWaiting, Busy: StateBusy,
	} {
		require.Equal(t, want, stateOf(r, true))
		require.Equal(t, want, stateOf(r, false))
	}
}
