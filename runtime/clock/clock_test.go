package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/clock"
)

func TestFakeMovesOnlyWhenTold(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	fake := clock.NewFake(start)
	require.Equal(t, start, fake.Now())
	require.Equal(t, start.Add(time.Hour), fake.Advance(time.Hour))
	require.Equal(t, start, fake.Advance(-time.Hour))
	fake.Set(start.Add(time.Minute))
	require.Equal(t, start.Add(time.Minute), fake.Now())
}

// B8: a step of the database clock, forwards or backwards, makes lost-work reclaim rest for 20 s; drift within 2 s does not.
func TestGuardRestsAfterAStepOfTheDatabaseClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		own    time.Duration
		db     time.Duration
		resets bool
	}{
		{"together", time.Minute, time.Minute, false},
		{"a little ahead", time.Minute, time.Minute + clock.StepLimit, false},
		{"a little behind", time.Minute, time.Minute - clock.StepLimit, false},
		{"stepped forwards", time.Second, 61 * time.Second, true},
		{"stepped backwards", time.Second, -59 * time.Second, true},
		{"just over", time.Second, time.Second + clock.StepLimit + time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			fake := clock.NewFake(start)
			guard := clock.NewGuard(fake)
			require.False(t, guard.Observe(start.Add(time.Hour)), "the first look compares nothing")
			fake.Advance(c.own)
			db := start.Add(time.Hour + c.db)
			require.Equal(t, c.resets, guard.Observe(db))
			require.Equal(t, c.resets, guard.Resting())
			fake.Advance(clock.RestFor - time.Millisecond)
			require.Equal(t, c.resets, guard.Observe(db.Add(clock.RestFor-time.Millisecond)))
			fake.Advance(time.Millisecond)
			require.False(t, guard.Resting())
		})
	}
}
