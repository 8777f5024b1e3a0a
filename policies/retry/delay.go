// Package retry is the pure logic of retries: how long to wait, and whether to try again at all.
//
// Delays follow one formula (contract 3.1, X1) in float64 milliseconds with one rounding. Nothing here reads a clock or rolls
// dice: the sample of the jitter is a hash of what is retried, so the same decision gives the same delay wherever it is made.
package retry

import (
	"math"

	"nf/schema"
)

// MaxDelay is the longest final delay, 24 h (X2).
const MaxDelay schema.Millis = 86_400_000

// CapMode says whether the ceiling holds after jitter too (X1).
type CapMode int

// The modes of the ceiling.
const (
	CapHard CapMode = iota // cap, jitter, clamp to [0, cap]: the default
	CapBase                // cap before jitter only: implied by a preset
)

// Policy is the canonical form of both retry families.
type Policy struct {
	Retries int // attempts after the first
	Logic   schema.RetryLogic
	Base    schema.Millis // ≥ 0
	Factor  float64       // ≥ 1
	Cap     schema.Millis // ≥ 0; 0 = every delay is 0 (C-01)
	Jitter  float64       // 0–1, proportional, ±
	CapMode CapMode
}

// Of gives the canonical form of a definition's policy.
func Of(p schema.RetryPolicy) Policy {
	return Policy{
		Retries: p.RetryCount, Logic: p.Logic, Base: p.Delay, Factor: p.BackoffScaleFactor, Cap: p.MaxDelay, Jitter: p.Jitter,
	}
}

// Delay is what must pass before the next attempt, in milliseconds.
type Delay struct {
	Policy   schema.Millis // by the formula, before the provider's minimum
	Minimum  schema.Millis // the provider's minimum as given, 0 = none
	Selected schema.Millis // min(24 h, max(policy, minimum))
}

// Next gives the delay before attempt n + 1, after attempt n failed; n counts from 1. There is none, and ok is false, when the
// policy has no attempt left (GR-012). minimum is the provider's minimum wait (X2), unit the sample in [0, 1); tests may give 1.
func Next(p Policy, n int, minimum schema.Millis, unit float64) (d Delay, ok bool) {
	if n > p.Retries {
		return Delay{}, false
	}
	return Wait(p, n, minimum, unit), true
}

// Wait is Next without the question whether an attempt is left.
func Wait(p Policy, n int, minimum schema.Millis, unit float64) Delay {
	minimum = max(minimum, 0)
	policy := p.delay(n, unit)
	return Delay{Policy: policy, Minimum: minimum, Selected: min(MaxDelay, max(policy, minimum))}
}

// delay is the formula of contract 3.1. The conversions to float64 forbid fused operations, which would round differently on
// other processors.
func (p Policy) delay(n int, unit float64) schema.Millis {
	limit := float64(max(p.Cap, 0))
	capped := p.raw(max(n, 1), limit)
	jittered := capped
	if p.Jitter > 0 {
		spread := float64(2 * p.Jitter * unit)
		jittered = float64(capped * (1 - p.Jitter + spread))
	}
	rounded := math.Floor(jittered + 0.5)
	if p.CapMode == CapHard {
		rounded = min(rounded, limit)
	}
	return schema.Millis(max(rounded, 0))
}

// raw is the delay before jitter, at most limit: never falling with n, and 0 only if the base or the limit is.
func (p Policy) raw(n int, limit float64) float64 {
	raw := float64(max(p.Base, 0))
	switch p.Logic {
	case schema.RetryFixed:
	case schema.RetryLinear:
		raw = float64(float64(raw*p.Factor) * float64(n))
	case schema.RetryExponential:
		for i := 1; i < n && raw > 0 && raw < limit && p.Factor > 1; i++ {
			raw *= p.Factor
		}
	}
	if math.IsNaN(raw) || raw > limit { // Inf too
		return limit
	}
	return max(raw, 0)
}
