package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/policies/limit"
)

var (
	noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	t1   = limit.Task{NS: 1, Exec: [16]byte{1}, No: 1}
	t2   = limit.Task{NS: 1, Exec: [16]byte{2}, No: 1}
)

func TestRoomIsNeverNegative(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(3), limit.Room(5, 2))
	require.Equal(t, int64(0), limit.Room(5, 5))
	require.Equal(t, int64(0), limit.Room(2, 5), "a cap lowered below what is held grants nothing")
}

func TestFreeSetsOneAsideForTheReservation(t *testing.T) {
	t.Parallel()
	s := limit.Semaphore{Permits: 3, Held: 1, Waiter: t1, Skips: limit.SkipsToReserve, Until: noon}
	require.Equal(t, int64(1), s.Free(false))
	require.Equal(t, int64(2), s.Free(true))
	s.Skips = 4
	require.Equal(t, int64(2), s.Free(false), "a place alone reserves nothing")
}

func TestSettleClearsPlacesThatAreOverOrOfTasksThatAreNotReady(t *testing.T) {
	t.Parallel()
	s := limit.Semaphore{Permits: 1, Waiter: t1, Skips: 2, Until: noon.Add(time.Second)}
	require.Equal(t, s, s.Settle(noon, true))
	empty := limit.Semaphore{Permits: 1}
	require.Equal(t, empty, s.Settle(noon, false))
	require.Equal(t, empty, s.Settle(noon.Add(time.Second), true))
	require.Equal(t, empty, s.Leave(t1))
	require.Equal(t, s, s.Leave(t2))
	require.Equal(t, empty, empty.Leave(limit.Task{}))
}

func TestFifthSkipReservesAllSemaphoresOfTheWaiter(t *testing.T) {
	t.Parallel()
	all := []limit.Semaphore{{Permits: 1, Held: 1}, {Permits: 2, Held: 0}}
	for skip := 1; skip <= 4; skip++ {
		all = limit.Skip(all, t1, noon)
		require.Equal(t, limit.Semaphore{Permits: 1, Held: 1, Waiter: t1, Skips: skip, Until: noon.Add(limit.PlaceFor)}, all[0])
		require.Equal(t, limit.Semaphore{Permits: 2}, all[1], "a semaphore that is not full gets no waiter")
	}
	all = limit.Skip(all, t1, noon)
	for _, s := range all {
		require.True(t, s.Reserved())
		require.Equal(t, t1, s.Waiter)
	}
	later := limit.Skip(all, t1, noon.Add(10*time.Second))
	require.Equal(t, all, later, "a reservation is not renewed")
}

func TestWaiterIsNeverDisplacedByAPlace(t *testing.T) {
	t.Parallel()
	all := limit.Skip([]limit.Semaphore{{Permits: 1, Held: 1}}, t1, noon)
	require.Equal(t, all, limit.Skip(all, t2, noon))
}

func TestReservationWaitsForThatOfAnotherTask(t *testing.T) {
	t.Parallel()
	mine := limit.Semaphore{Permits: 1, Held: 1, Waiter: t1, Skips: 4, Until: noon.Add(time.Second)}
	other := limit.Semaphore{Permits: 1, Held: 0, Waiter: t2, Skips: limit.SkipsToReserve, Until: noon.Add(time.Second)}
	got := limit.Skip([]limit.Semaphore{mine, other}, t1, noon)
	require.Equal(t, 4, got[0].Skips)
	require.Equal(t, noon.Add(limit.PlaceFor), got[0].Until, "it keeps its place")
	require.Equal(t, other, got[1])

	got = limit.Skip([]limit.Semaphore{mine, {Permits: 1, Held: 1, Waiter: t2, Skips: 3, Until: noon.Add(time.Second)}}, t1, noon)
	require.True(t, got[0].Reserved())
	require.True(t, got[1].Reserved(), "a mere place gives way to a reservation")
	require.Equal(t, t1, got[1].Waiter)
}

// A semaphore never has a reservation without a waiter, never two reservations for one, and the reservation of one task spans all of
// its semaphores or none.
func TestSkipKeepsItsInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "semaphores")
		all := make([]limit.Semaphore, n)
		for i := range all {
			all[i].Permits = rapid.Int64Range(1, 3).Draw(t, "permits")
		}
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "pass")) * time.Second)
			for i := range all {
				all[i].Held = rapid.Int64Range(0, all[i].Permits).Draw(t, "held")
				all[i] = all[i].Settle(now, rapid.IntRange(0, 9).Draw(t, "ready") > 0)
			}
			head := rapid.SampledFrom([]limit.Task{t1, t2}).Draw(t, "head")
			before := append([]limit.Semaphore(nil), all...)
			all = limit.Skip(all, head, now)
			for i, s := range all {
				if s.Waiter == (limit.Task{}) && (s.Skips != 0 || !s.Until.IsZero()) {
					t.Fatalf("semaphore %d has a place without a waiter: %+v", i, s)
				}
				if s.Skips > limit.SkipsToReserve {
					t.Fatalf("semaphore %d was skipped %d times", i, s.Skips)
				}
				if before[i].Reserved() && s != before[i] {
					t.Fatalf("a reservation of semaphore %d changed: %+v → %+v", i, before[i], s)
				}
				if s.Reserved() && !before[i].Reserved() {
					for _, o := range all {
						if o.Waiter != head || !o.Reserved() {
							t.Fatalf("only a part is reserved: %+v", all)
						}
					}
				}
			}
		}
	})
}
