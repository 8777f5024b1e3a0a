package api

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// fields reads the fields of one JSON object strictly: each is asked for by name, and done refuses what nobody asked for
// (contract 4.1 "Unknown"). The first mistake is kept; later reads give zero values.
type fields struct {
	at    string // JSON Pointer of the object, "" = the body
	value map[string]any
	asked map[string]bool
	err   *failure
}

func newFields(at string, value map[string]any) *fields {
	return &fields{at: at, value: value, asked: map[string]bool{}}
}

func (f *fields) pointer(name string) string {
	return f.at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func (f *fields) fail(name, expected, format string, args ...any) {
	if f.err == nil {
		f.err = invalid(f.pointer(name), expected, format, args...)
	}
}

// get gives a field that is present and not null.
func (f *fields) get(name string) (any, bool) {
	f.asked[name] = true
	v, ok := f.value[name]
	if ok && v == nil {
		f.fail(name, "a value, or leave it out", "%q is null; leave it out instead", name)
		return nil, false
	}
	return v, ok
}

// text reads a string of min to max characters. Control characters are refused: such a text names something.
func (f *fields) text(name string, required bool, maxChars int) string {
	v, ok := f.get(name)
	if !ok {
		if required {
			f.fail(name, fmt.Sprintf("text of 1 to %d characters", maxChars), "%q is missing", name)
		}
		return ""
	}
	s, ok := v.(string)
	if !ok || s == "" || utf8.RuneCountInString(s) > maxChars || strings.ContainsFunc(s, isControl) {
		f.fail(name, fmt.Sprintf("text of 1 to %d characters without control characters", maxChars), "%q is not a text of 1 to %d characters", name, maxChars)
		return ""
	}
	return s
}

// free reads a text that is kept as it comes (a reason, a log message).
func (f *fields) free(name string) string {
	v, ok := f.get(name)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		f.fail(name, "text", "%q is not a text", name)
	}
	return s
}

// integer reads a whole number from low through high; absent = fallback.
func (f *fields) integer(name string, fallback, low, high int64) int64 {
	v, ok := f.get(name)
	if !ok {
		return fallback
	}
	number, _ := v.(json.Number)
	n, ok := jsontext.Int(number)
	if !ok || n < low || n > high {
		f.fail(name, fmt.Sprintf("a whole number from %d through %d", low, high), "%q is not a whole number from %d through %d", name, low, high)
		return fallback
	}
	return n
}

// millis reads a duration in seconds with at most 3 decimals, at least low; absent = 0.
func (f *fields) millis(name string, low int64) int64 {
	v, ok := f.get(name)
	if !ok {
		return 0
	}
	number, isNumber := v.(json.Number)
	ms, exact := int64(0), false
	if isNumber {
		ms, exact = jsontext.Scaled(number, 3)
	}
	if !exact || ms < low || ms > int64(schema.MaxDuration) {
		f.fail(name, fmt.Sprintf("seconds, at least %g, with at most 3 decimals", float64(low)/1000), "%q is not a duration in seconds", name)
		return 0
	}
	return ms
}

// object reads a JSON object; absent = nil.
func (f *fields) object(name string) map[string]any {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		f.fail(name, "an object", "%q is not an object", name)
	}
	return m
}

// list reads a list of low through high entries.
func (f *fields) list(name string, low, high int) []any {
	v, ok := f.get(name)
	if !ok {
		f.fail(name, fmt.Sprintf("a list of %d to %d entries", low, high), "%q is missing", name)
		return nil
	}
	l, ok := v.([]any)
	if !ok || len(l) < low || len(l) > high {
		f.fail(name, fmt.Sprintf("a list of %d to %d entries", low, high), "%q is not a list of %d to %d entries", name, low, high)
		return nil
	}
	return l
}

// time reads an RFC 3339 instant; absent = zero.
func (f *fields) time(name string) time.Time {
	v, ok := f.get(name)
	if !ok {
		return time.Time{}
	}
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		f.fail(name, "an RFC 3339 time", "%q is not an RFC 3339 time", name)
	}
	return t.UTC()
}

// done gives the first mistake, unknown fields included.
func (f *fields) done() *failure {
	if f.err != nil {
		return f.err
	}
	for _, name := range sortedKeys(f.value) {
		if !f.asked[name] {
			return invalid(f.pointer(name), "one of: "+strings.Join(sortedKeys(f.asked), ", "), "unknown field %q%s", name, nearest(name, sortedKeys(f.asked)))
		}
	}
	return nil
}

// nearest proposes a known name for one that is not.
func nearest(name string, known []string) string {
	if best := diag.Nearest(name, known); len(best) > 0 {
		return fmt.Sprintf("; did you mean %q?", best[0])
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) }
