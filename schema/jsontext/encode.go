package jsontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// ErrTooLarge says that a value is over the size it was measured against.
var ErrTooLarge = errors.New("JSON value is too large")

// ErrTooDeep says that a value is nested deeper than it was measured against.
var ErrTooDeep = errors.New("JSON value is nested too deep")

// TypeName gives the JSON type of a value for a message: object, list, text, number, boolean, null.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number, int, int32, int64, float64:
		return "number"
	case string:
		return "text"
	case []any, []string:
		return "list"
	case map[string]any, map[string]string:
		return "object"
	}
	return fmt.Sprintf("%T", v)
}

// Append writes a value as compact JSON: keys sorted by their bytes, numbers as they are, nothing escaped that need not be.
// Beside JSON values it takes int, int32, int64, float64, []string, map[string]string and []map[string]any, which code of
// our own builds. A text with invalid UTF-8 gets U+FFFD in its place. Any other type, NaN and infinities are an error, and so
// is a json.Number that is no number: what is written can be read again.
func Append(dst []byte, v any) ([]byte, error) {
	return appendValue(dst, v, false, 0)
}

// Encode is Append onto nothing.
func Encode(v any) ([]byte, error) { return Append(nil, v) }

// AppendCanonical is Append with each number in its canonical form, so that values that are equal are equal bytes.
func AppendCanonical(dst []byte, v any) ([]byte, error) {
	return appendValue(dst, v, true, 0)
}

// writeDepth bounds recursion; it is above MaxDepth because callers wrap values that were measured on their own.
const writeDepth = 4 * MaxDepth

func appendValue(dst []byte, v any, canonical bool, depth int) ([]byte, error) {
	if depth > writeDepth {
		return nil, ErrTooDeep
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return AppendString(dst, v), nil
	case json.Number:
		return appendNumber(dst, v, canonical)
	case map[string]any:
		return appendObject(dst, v, canonical, depth)
	case []any:
		return appendList(dst, v, canonical, depth)
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v, canonical)
	case []string:
		return appendList(dst, v, canonical, depth)
	case []map[string]any:
		return appendList(dst, v, canonical, depth)
	case map[string]string:
		return appendObject(dst, v, canonical, depth)
	}
	return nil, fmt.Errorf("value of type %T is not JSON", v)
}

func appendNumber(dst []byte, n json.Number, canonical bool) ([]byte, error) {
	if _, ok := parseDecimal(string(n), MaxExponent); !ok {
		return nil, fmt.Errorf("%q is not a JSON number", string(n))
	}
	if canonical {
		n = CanonicalNumber(n)
	}
	return append(dst, n...), nil
}

func appendFloat(dst []byte, f float64, canonical bool) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v is not a JSON number", f)
	}
	text := Float(f)
	if canonical {
		text = CanonicalNumber(text)
	}
	return append(dst, text...), nil
}

// Float writes a finite float64 as the shortest number that reads back as the same float64.
func Float(f float64) json.Number {
	return CanonicalNumber(json.Number(strconv.FormatFloat(f, 'e', -1, 64)))
}

// Integer writes an int64 as a number.
func Integer(i int64) json.Number { return json.Number(strconv.FormatInt(i, 10)) }

func appendObject[V any](dst []byte, object map[string]V, canonical bool, depth int) ([]byte, error) {
	if len(object) == 0 {
		return append(dst, '{', '}'), nil
	}
	var few [16]string
	keys := few[:0]
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var err error
	separator := byte('{')
	for _, key := range keys {
		dst = append(dst, separator)
		separator = ','
		dst = AppendString(dst, key)
		dst = append(dst, ':')
		if dst, err = appendValue(dst, object[key], canonical, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendList[V any](dst []byte, list []V, canonical bool, depth int) ([]byte, error) {
	var err error
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendValue(dst, list[i], canonical, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

const hexDigits = "0123456789abcdef"

// AppendString writes a text as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = appendEscape(append(dst, s[start:i]...), c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(append(dst, s[start:i]...), "\uFFFD"...)
			i++
			start = i
			continue
		}
		i += size
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// Measure gives the length that Append would write, without writing. It stops with ErrTooLarge as soon as the length passes
// maxBytes, so its cost is bounded by the limit and not by the value, and with ErrTooDeep beyond maxDepth levels of maps and
// lists. A limit of 0 or less is none (but for the depth that Append itself allows).
func Measure(v any, maxBytes, maxDepth int) (int, error) {
	m := meter{max: maxBytes, depth: maxDepth}
	if m.max <= 0 {
		m.max = math.MaxInt
	}
	if m.depth <= 0 {
		m.depth = writeDepth
	}
	if err := m.value(v, 0); err != nil {
		return 0, err
	}
	return m.size, nil
}

type meter struct{ size, max, depth int }

func (m *meter) add(n int) error {
	m.size += n
	if m.size > m.max {
		return ErrTooLarge
	}
	return nil
}

func (m *meter) value(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		return m.add(4)
	case bool:
		if v {
			return m.add(4)
		}
		return m.add(5)
	case string:
		return m.text(v)
	case json.Number:
		return m.add(len(v))
	case map[string]any:
		return meterObject(m, v, depth+1)
	case []any:
		return meterList(m, v, depth+1)
	case []string:
		return meterList(m, v, depth+1)
	case map[string]string:
		return meterObject(m, v, depth+1)
	case []map[string]any:
		return meterList(m, v, depth+1)
	}
	text, err := Append(nil, v)
	if err != nil {
		return err
	}
	return m.add(len(text))
}

func meterObject[V any](m *meter, object map[string]V, depth int) error {
	if depth > m.depth {
		return ErrTooDeep
	}
	if err := m.add(2 + max(0, 2*len(object)-1)); err != nil { // braces, colons, commas
		return err
	}
	for key, value := range object {
		if err := m.text(key); err != nil {
			return err
		}
		if err := m.value(value, depth); err != nil {
			return err
		}
	}
	return nil
}

func meterList[V any](m *meter, list []V, depth int) error {
	if depth > m.depth {
		return ErrTooDeep
	}
	if err := m.add(2 + max(0, len(list)-1)); err != nil {
		return err
	}
	for i := range list {
		if err := m.value(list[i], depth); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) text(s string) error {
	if err := m.add(len(s) + 2); err != nil {
		return err
	}
	extra := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\':
		case c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t':
			extra++
		case c < 0x20:
			extra += 5
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				extra += 2
			}
			i += size - 1
		}
	}
	return m.add(extra)
}

// Equal says whether two values are the same: numbers by value, maps regardless of order.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || CanonicalNumber(a) == CanonicalNumber(b))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			other, ok := b[key]
			if !ok || !Equal(value, other) {
				return false
			}
		}
		return true
	case nil:
		return b == nil
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case string:
		b, ok := b.(string)
		return ok && a == b
	}
	return false
}
