package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/policies/retry"
	"nf/schema"
)

func defaults() retry.Policy { return retry.Of(schema.DefaultRetry()) }

// gr011 is CUSTOM with 6 attempts, 10 s, ×2, cap 600 s, 20 %.
func gr011() retry.Policy { return retry.Custom(6, 10_000, 2, 600_000, 20) }

type vector struct {
	n    int
	unit float64
	want schema.Millis
}

func check(t *testing.T, p retry.Policy, minimum schema.Millis, vectors ...vector) {
	t.Helper()
	for _, v := range vectors {
		d, ok := retry.Next(p, v.n, minimum, v.unit)
		require.True(t, ok)
		require.Equal(t, v.want, d.Selected, "after attempt %d, r = %v", v.n, v.unit)
	}
}

// many gives the default policy enough attempts for the vectors.
func many(p retry.Policy) retry.Policy {
	p.Retries = 1_000_000
	return p
}

func TestNF_041_to_046_DefaultPolicy(t *testing.T) {
	t.Parallel()
	check(t, many(defaults()), 0,
		vector{1, 0, 800}, vector{1, 0.5, 1000}, vector{1, 1, 1200}, // NF-041
		vector{2, 0, 1600}, vector{2, 1, 2400}, // NF-042
		vector{3, 0, 3200}, vector{3, 1, 4800}, // NF-043
		vector{8, 0, 102_400}, vector{8, 1, 153_600}, // NF-044
		vector{12, 0, 1_638_400}, vector{12, 1, 2_457_600}, // NF-045
		vector{14, 0, 2_880_000}, vector{14, 0.5, 3_600_000}, vector{14, 1, 3_600_000}, // NF-046
	)
}

func TestGR_011_CustomPolicy(t *testing.T) {
	t.Parallel()
	check(t, gr011(), 0,
		vector{1, 0, 8000}, vector{1, 1, 12_000}, vector{2, 0, 16_000}, vector{2, 1, 24_000}, vector{3, 0, 32_000},
		vector{3, 1, 48_000}, vector{4, 0, 64_000}, vector{4, 1, 96_000}, vector{5, 0, 128_000}, vector{5, 1, 192_000},
	)
}

func TestGR_012_NoDelayAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, unit := range []float64{0, 0.5, 1} {
		_, ok := retry.Next(gr011(), 6, 0, unit)
		require.False(t, ok)
	}
}

func TestGR_013_WithoutJitter(t *testing.T) {
	t.Parallel()
	p := gr011()
	p.Jitter = 0
	var sum schema.Millis
	for n := 1; n <= 5; n++ {
		d, ok := retry.Next(p, n, 0, 0.99)
		require.True(t, ok)
		require.Equal(t, schema.Millis(10_000)<<(n-1), d.Selected)
		sum += d.Selected
	}
	require.EqualValues(t, 310_000, sum)
}

func TestGR_014_GR_018_ProviderMinimum(t *testing.T) {
	t.Parallel()
	check(t, gr011(), 60_000, vector{1, 0, 60_000}, vector{1, 1, 60_000}, vector{5, 0, 128_000}, vector{5, 1, 192_000})
	d, _ := retry.Next(gr011(), 1, 60_000, 0)
	require.Equal(t, retry.Delay{Policy: 8000, Minimum: 60_000, Selected: 60_000}, d)
}

func TestGR_007_BaseModeMayPassTheCap(t *testing.T) {
	t.Parallel()
	p := many(gr011())
	for _, n := range []int{7, 8, 50} {
		check(t, p, 0, vector{n, 1, 720_000})
	}
}

func TestC_06_Linear(t *testing.T) {
	t.Parallel()
	p := retry.Policy{Retries: 9, Logic: schema.RetryLinear, Base: 10_000, Factor: 2, Cap: 3_600_000}
	check(t, p, 0, vector{1, 0, 20_000}, vector{2, 0.3, 40_000}, vector{3, 1, 60_000})
}

func TestC_01_CapZeroMeansNoDelay(t *testing.T) {
	t.Parallel()
	for _, mode := range []retry.CapMode{retry.CapHard, retry.CapBase} {
		for _, logic := range []schema.RetryLogic{schema.RetryFixed, schema.RetryLinear, schema.RetryExponential} {
			p := retry.Policy{Retries: 99, Logic: logic, Base: 5000, Factor: 3, Jitter: 0.5, CapMode: mode}
			check(t, p, 0, vector{1, 0, 0}, vector{7, 1, 0})
		}
	}
}

func TestX2_FinalDelayIsAtMostADay(t *testing.T) {
	t.Parallel()
	check(t, defaults(), 10*86_400_000, vector{1, 0, 86_400_000}, vector{1, 1, 86_400_000})
	d, _ := retry.Next(defaults(), 1, -5, 0.5)
	require.Equal(t, retry.Delay{Policy: 1000, Selected: 1000}, d, "a negative minimum is none")
}

func TestSampleVectors(t *testing.T) {
	t.Parallel()
	const id = "0198c7a0-0000-7000-8000-000000000001"
	for _, v := range []struct {
		ref, iteration string
		attempt        int
		unit           float64
		defaults, gr   schema.Millis
	}{
		{"charge", "0", 1, 0.03470836630027896, 814, 8139},
		{"charge", "0", 2, 0.42254287928260936, 1938, 19_380},
		{"poll", "3", 1, 0.2908331096487925, 916, 9163},
	} {
		unit := retry.Unit(id, v.ref, v.iteration, v.attempt)
		require.Equal(t, v.unit, unit) //nolint:testifylint // exact on purpose
		check(t, defaults(), 0, vector{v.attempt, unit, v.defaults})
		check(t, gr011(), 0, vector{v.attempt, unit, v.gr})
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		retries int
		first   schema.Millis
		top     schema.Millis
	}{
		retry.Standard: {4, 30_000, 900_000}, retry.Aggressive: {7, 5000, 300_000}, retry.Relaxed: {2, 120_000, 1_800_000},
	} {
		p, ok := retry.Preset(name)
		require.True(t, ok)
		require.Equal(t, want.retries, p.Retries)
		require.Equal(t, want.first, retry.Wait(p, 1, 0, 0.5).Selected)
		require.Equal(t, want.top, retry.Wait(p, 60, 0, 0.5).Selected)
		require.Equal(t, retry.CapBase, p.CapMode)
	}
	_, ok := retry.Preset("standard")
	require.False(t, ok)
}

func TestFC_040_LateAttemptsStayAtTheCap(t *testing.T) {
	t.Parallel()
	p := many(defaults())
	p.Jitter = 0
	for n := 40; n <= 1000; n++ {
		check(t, p, 0, vector{n, 0, 3_600_000})
	}
	check(t, p, 0, vector{1_000_000, 0, 3_600_000})
}

func TestFC_041_NeverFallingNeverBelowTheBase(t *testing.T) {
	t.Parallel()
	for _, logic := range []schema.RetryLogic{schema.RetryFixed, schema.RetryLinear, schema.RetryExponential} {
		p := retry.Policy{Retries: 200, Logic: logic, Base: 1500, Factor: 1.7, Cap: 3_600_000}
		last := schema.Millis(0)
		for n := 1; n <= 100; n++ {
			d, ok := retry.Next(p, n, 0, 0)
			require.True(t, ok)
			require.GreaterOrEqual(t, d.Selected, last)
			require.GreaterOrEqual(t, d.Selected, schema.Millis(1500))
			last = d.Selected
		}
	}
}

func TestFC_043_BeyondTheRangeOfIntegers(t *testing.T) {
	t.Parallel()
	for _, logic := range []schema.RetryLogic{schema.RetryLinear, schema.RetryExponential} {
		p := retry.Policy{Retries: 100, Logic: logic, Base: 86_400_000, Factor: 100, Cap: 86_400_000}
		check(t, p, 0, vector{60, 0, 86_400_000})
		p.Factor = math.Inf(1)
		check(t, p, 0, vector{60, 0, 86_400_000})
		p.Factor = math.NaN()
		require.LessOrEqual(t, retry.Wait(p, 60, 0, 0).Selected, retry.MaxDelay)
	}
}

func TestBG_01_ExponentialDoubles(t *testing.T) {
	t.Parallel()
	p := many(defaults())
	p.Jitter = 0
	check(t, p, 0, vector{1, 0, 1000}, vector{2, 0, 2000}, vector{3, 0, 4000}, vector{4, 0, 8000}, vector{5, 0, 16_000})
}

func TestBG_07_CeilingOfALateRetry(t *testing.T) {
	t.Parallel()
	p := many(defaults())
	p.Base, p.Jitter = 60_000, 0
	check(t, p, 0, vector{30, 0, 3_600_000})
}

func TestDelayStaysInItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := retry.Policy{
			Retries: 1 << 30,
			Logic:   rapid.SampledFrom([]schema.RetryLogic{schema.RetryFixed, schema.RetryLinear, schema.RetryExponential}).Draw(t, "logic"),
			Base:    schema.Millis(rapid.Int64Range(0, 86_400_000).Draw(t, "base")),
			Factor:  rapid.Float64Range(1, 1000).Draw(t, "factor"),
			Cap:     schema.Millis(rapid.Int64Range(0, 86_400_000).Draw(t, "cap")),
			Jitter:  rapid.Float64Range(0, 1).Draw(t, "jitter"),
			CapMode: rapid.SampledFrom([]retry.CapMode{retry.CapHard, retry.CapBase}).Draw(t, "mode"),
		}
		n := rapid.IntRange(1, 100_000).Draw(t, "n")
		unit := rapid.Float64Range(0, 1).Draw(t, "unit")
		minimum := schema.Millis(rapid.Int64Range(0, 1<<40).Draw(t, "minimum"))
		d, ok := retry.Next(p, n, minimum, unit)
		require.True(t, ok)
		require.GreaterOrEqual(t, d.Policy, schema.Millis(0))
		require.LessOrEqual(t, d.Selected, retry.MaxDelay)
		require.GreaterOrEqual(t, d.Selected, min(minimum, retry.MaxDelay))
		if p.CapMode == retry.CapHard {
			require.LessOrEqual(t, d.Policy, p.Cap)
		}
		flat := p
		flat.Jitter = 0
		require.LessOrEqual(t, retry.Wait(flat, n, 0, unit).Policy, retry.Wait(flat, n+1, 0, unit).Policy)
		if p.Base > 0 && p.Cap > 0 {
			require.Positive(t, retry.Wait(flat, n, 0, unit).Policy)
		}
	})
}

func TestFC_061_BudgetBoundaries(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		limit          float64
		total, retries int64
		refuse         bool
	}{
		{0, 19, 0, false},
		{0, 20, 0, true},
		{0, 20, 5, true},
		{0, 0, 0, false},
		{1, 20, 20, false},
		{1, 1000, 5000, false},
		{0.3, 19, 19, false},
		{0.3, 20, 6, false},
		{0.3, 20, 7, true},
		{0.3, 100, 30, false},
		{0.3, 100, 31, true},
		{0.05, 20, 1, false},
		{0.05, 20, 2, true},
	} {
		require.Equal(t, v.refuse, retry.Refuse(v.limit, v.total, v.retries), "%+v", v)
	}
}

func TestFC_059_RetriesInBackOffWeigh(t *testing.T) {
	t.Parallel()
	var total, retries int64
	for range 1000 { // all fail at once, decided one after the other
		total++
		if !retry.Refuse(0.2, total, retries) {
			retries++
		}
	}
	require.InDelta(t, 200, retries, 5)
}

func TestFC_055_BudgetComesBack(t *testing.T) {
	t.Parallel()
	require.True(t, retry.Refuse(0.3, 100, 60))
	require.False(t, retry.Refuse(0.3, 300, 0), "the window has moved on; nothing is sticky")
	require.False(t, retry.Refuse(0.3, 0, 0), "an idle hour needs no special case")
}

func TestJudgeInOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	// Everything speaks against a retry; each row takes one reason away.
	e := retry.Ended{
		Success: true, Terminal: true, TimedOut: true, TimeoutPolicy: schema.TimeoutWorkflow, Total: true, Reason: "card declined",
		NonRetryableErrors: []string{"declined"}, RetriesLeft: 0, Budget: &retry.Budget{Limit: 0, Total: 20},
		DueAt: now, Latest: [2]time.Time{now, now},
	}
	for _, step := range []struct {
		want retry.Verdict
		off  func()
	}{
		{retry.GoOn, func() { e.Success = false }},
		{retry.Terminal, func() { e.Terminal = false }},
		{retry.TimeoutEnds, func() { e.TimeoutPolicy = schema.TimeoutRetry }},
		{retry.TimeoutEnds, func() { e.Total = false }},
		{retry.NonRetryable, func() { e.Reason = "card DECLINED" }},
		{retry.Spent, func() { e.RetriesLeft = 1 }},
		{retry.BudgetSpent, func() { e.Budget = nil }},
		{retry.PastDeadline, func() { e.Latest[0] = now.Add(time.Millisecond) }},
		{retry.PastDeadline, func() { e.Latest[1] = time.Time{} }},
		{retry.Again, func() {}},
	} {
		require.Equal(t, step.want, retry.Judge(e))
		step.off()
	}
}
