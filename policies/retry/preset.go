package retry

import "nf/schema"

// The names of the presets (GR-022–034).
const (
	Standard   = "STANDARD"
	Aggressive = "AGGRESSIVE"
	Relaxed    = "RELAXED"
)

// Preset gives a built-in policy by name. All presets grow exponentially and cap before jitter only.
func Preset(name string) (Policy, bool) {
	switch name {
	case Standard:
		return Custom(5, 30_000, 2, 900_000, 20), true
	case Aggressive:
		return Custom(8, 5_000, 2, 300_000, 20), true
	case Relaxed:
		return Custom(3, 120_000, 2, 1_800_000, 20), true
	}
	return Policy{}, false
}

// Custom gives the policy of `preset: CUSTOM` (GR-026–030): attempts 1–10 with the first one counted, delays in milliseconds,
// jitter in percent 0–50.
func Custom(maxAttempts int, initial schema.Millis, multiplier float64, maxDelay schema.Millis, jitterPercent float64) Policy {
	return Policy{
		Retries: maxAttempts - 1, Logic: schema.RetryExponential, Base: initial, Factor: multiplier, Cap: maxDelay,
		Jitter: jitterPercent / 100, CapMode: CapBase,
	}
}
