package systemtasks

import (
	"strings"
	"unicode/utf8"

	"nf/schema"
	"nf/schema/jsontext"
)

// The limits of what a task may give back (contract 7.1, 2.3, X2).
const (
	MaxOutput               = 6 << 20    // bytes of an output as JSON
	MaxReason               = 8 << 10    // bytes of a reason
	MaxWait   schema.Millis = 86_400_000 // longest minimum wait
)

// Conclude is the last step of every task: it masks secrets and holds an outcome to the limits, so that nothing else has to. An
// output over the limit makes the attempt fail terminally with OUTPUT_TOO_LARGE; a reason is made valid UTF-8 without NUL and cut.
func Conclude(o Outcome, secrets *Redactor) Outcome {
	switch o := o.(type) {
	case Completed:
		out, ok := boundOutput(o.Output, secrets)
		if !ok {
			return tooLarge()
		}
		if out == nil {
			out = map[string]any{}
		}
		return Completed{Output: out}
	case Failed:
		out, ok := boundOutput(o.Output, secrets)
		if !ok {
			return tooLarge()
		}
		o.Output = out
		o.Reason = CleanReason(secrets.Text(o.Reason))
		o.MinWait = min(max(o.MinWait, 0), MaxWait)
		return o
	case Released:
		return o
	}
	return Failed{Cause: CauseInvalidRequest, Reason: "the system task gave no outcome", Terminal: true}
}

func tooLarge() Failed {
	return Failed{Cause: CauseOutputTooLarge, Reason: "the output is larger than 6 MiB as JSON, or nested deeper than 256", Terminal: true}
}

// boundOutput masks an output and says whether it is within the limits.
func boundOutput(out map[string]any, secrets *Redactor) (map[string]any, bool) {
	if out == nil {
		return nil, true
	}
	masked, ok := secrets.Value(out).(map[string]any)
	if !ok {
		return nil, false
	}
	_, err := jsontext.Measure(masked, MaxOutput, jsontext.MaxDepth)
	return masked, err == nil
}

// CleanReason makes a text fit to be stored as a reason: bad characters and NUL become U+FFFD, and it is cut at 8 KiB on a
// character boundary (contract 2.3).
func CleanReason(s string) string { return Cut(CleanText(s), MaxReason) }

// CleanText replaces bytes that are no UTF-8, and NUL, by U+FFFD.
func CleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, string(utf8.RuneError)), "\x00", string(utf8.RuneError))
}

// Cut shortens valid UTF-8 to at most limit bytes, on a character boundary.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
