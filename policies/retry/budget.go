package retry

// MinSample is the number of attempts in the window from which on a budget can refuse (contract 3.3).
const MinSample = 20

// Refuse says whether a retry budget is spent (X11). limit is the live setting, 0–1: 1 never refuses, 0 refuses every retry once
// MinSample attempts are in the window. total counts the attempts that ended with a verdict in the window, the one under
// decision included; retries those scheduled in it, without the one under decision.
func Refuse(limit float64, total, retries int64) bool {
	if limit >= 1 || total < MinSample {
		return false
	}
	return limit <= 0 || float64(retries)/float64(total) > limit
}
