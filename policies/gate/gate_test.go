package gate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/policies/gate"
	"nf/policies/limit"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func permits(total, held int64) gate.Permits {
	return gate.Permits{Semaphore: limit.Semaphore{Permits: total, Held: held}}
}

func TestDequeueNamesTheFirstClosedGateAndTheOthers(t *testing.T) {
	t.Parallel()
	controls := gate.Controls{ConcurrentExecLimit: 3, Semaphores: []string{"default/erp", "shared/db"}}
	counts := func(def, erp, db int64) gate.Counts {
		return gate.Counts{Definition: def, Semaphores: []gate.Permits{permits(2, erp), permits(4, db)}}
	}
	cases := map[string]struct {
		counts  gate.Counts
		want    int
		verdict gate.Verdict
	}{
		"all open":         {counts(0, 0, 0), 2, gate.Verdict{Allow: 2}},
		"cap closed":       {counts(3, 0, 0), 2, gate.Verdict{Control: gate.ConcurrentExecLimit, Limit: 3, Current: 3}},
		"both closed":      {counts(3, 2, 0), 1, gate.Verdict{Control: gate.ConcurrentExecLimit, Limit: 3, Current: 3, Others: []gate.Control{gate.Semaphore("default/erp")}}},
		"semaphore closed": {counts(1, 2, 4), 1, gate.Verdict{Control: gate.Semaphore("default/erp"), Limit: 2, Current: 2, Others: []gate.Control{gate.Semaphore("shared/db")}, Full: true}},
		"part":             {counts(2, 0, 0), 5, gate.Verdict{Allow: 1, Control: gate.ConcurrentExecLimit, Limit: 3, Current: 3}},
		"part, semaphore":  {counts(0, 1, 3), 3, gate.Verdict{Allow: 1, Control: gate.Semaphore("default/erp"), Limit: 2, Current: 2, Others: []gate.Control{gate.Semaphore("shared/db")}}},
		"lowered below":    {counts(9, 0, 0), 1, gate.Verdict{Control: gate.ConcurrentExecLimit, Limit: 3, Current: 9}},
		"nothing wanted":   {counts(0, 0, 0), 0, gate.Verdict{}},
		"less than none":   {counts(0, 0, 0), -4, gate.Verdict{}},
	}
	for name, c := range cases {
		require.Equal(t, c.verdict, gate.Dequeue(controls, c.counts, c.want, noon), name)
	}
}

func TestDequeueWithoutControlsAllowsAll(t *testing.T) {
	t.Parallel()
	require.Equal(t, gate.Verdict{Allow: 100}, gate.Dequeue(gate.Controls{}, gate.Counts{Definition: 1 << 40}, 100, noon))
	require.False(t, gate.Controls{}.Gated())
	require.True(t, gate.Controls{Semaphores: []string{"a/b"}}.Gated())
}

func TestReservationHoldsOthersBackOnly(t *testing.T) {
	t.Parallel()
	reserved := permits(1, 0)
	reserved.Waiter, reserved.Skips = limit.Task{NS: 1}, limit.SkipsToReserve
	controls := gate.Controls{Semaphores: []string{"default/erp"}}
	v := gate.Dequeue(controls, gate.Counts{Semaphores: []gate.Permits{reserved}}, 1, noon)
	require.Equal(t, 0, v.Allow)
	require.True(t, v.Full)
	reserved.Mine = true
	require.Equal(t, 1, gate.Dequeue(controls, gate.Counts{Semaphores: []gate.Permits{reserved}}, 1, noon).Allow)
}

// The allowance is the minimum over all gates (A0.5), a closed gate is always named, and what is allowed never passes a limit.
func TestDequeueAllowsTheMinimum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 16).Draw(t, "semaphores")
		controls := gate.Controls{ConcurrentExecLimit: rapid.Int64Range(0, 6).Draw(t, "cap")}
		counts := gate.Counts{Definition: rapid.Int64Range(0, 8).Draw(t, "leases")}
		want := rapid.IntRange(0, 10).Draw(t, "want")
		least := int64(want)
		if controls.ConcurrentExecLimit > 0 {
			least = min(least, max(0, controls.ConcurrentExecLimit-counts.Definition))
		}
		for i := range n {
			controls.Semaphores = append(controls.Semaphores, string(rune('a'+i)))
			p := permits(rapid.Int64Range(1, 6).Draw(t, "permits"), rapid.Int64Range(0, 8).Draw(t, "held"))
			counts.Semaphores = append(counts.Semaphores, p)
			least = min(least, max(0, p.Semaphore.Permits-p.Held))
		}
		v := gate.Dequeue(controls, counts, want, noon)
		if int64(v.Allow) != least {
			t.Fatalf("allowed %d, want %d", v.Allow, least)
		}
		if v.Closed() != (v.Allow < want) {
			t.Fatalf("closed is %v with %d of %d", v.Closed(), v.Allow, want)
		}
		if v.Closed() && v.Current < v.Limit {
			t.Fatalf("control %s is named with %d of %d", v.Control, v.Current, v.Limit)
		}
	})
}
