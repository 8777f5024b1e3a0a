package decider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nf/schema"
	"nf/schema/jsontext"
)

// errNoDuration says that a WAIT's duration is absent or null.
var errNoDuration = errors.New("duration is missing: give a number of seconds, or text such as 90s, 1h30m, 2 days")

// units are the words of a duration, in milliseconds.
var units = map[string]int64{
	"s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
	"m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
	"h": 3_600_000, "hr": 3_600_000, "hrs": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
	"d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}

// ParseDuration reads the `duration` of a WAIT (D.8): a number of seconds with at most 3 decimals, or text of amounts with units
// s, m, h, d and their long forms, combinable: `90s`, `1h30m`, `2 days`, `1 hour 30 minutes`; text that is only a number is
// seconds. At most 366 days. The errors name the value and say what is accepted.
func ParseDuration(v any) (schema.Millis, error) {
	switch v := v.(type) {
	case nil:
		return 0, errNoDuration
	case json.Number:
		return seconds(v)
	case string:
		return parseWords(v)
	}
	return 0, fmt.Errorf("duration is a %s, but must be a number of seconds or text such as 90s", jsontext.TypeName(v))
}

func seconds(n json.Number) (schema.Millis, error) {
	ms, ok := jsontext.Scaled(n, 3)
	if !ok {
		if jsontext.Compare(n, "31622400") > 0 {
			return 0, tooLong(string(n))
		}
		return 0, fmt.Errorf("duration %s: a number of seconds may have at most 3 decimals", n)
	}
	return bounded(string(n), ms)
}

func bounded(text string, ms int64) (schema.Millis, error) {
	switch {
	case ms < 0:
		return 0, fmt.Errorf("duration %s is negative", text)
	case ms > int64(schema.MaxDuration):
		return 0, tooLong(text)
	}
	return schema.Millis(ms), nil
}

func tooLong(text string) error { return fmt.Errorf("duration %s is longer than 366 days", text) }

func parseWords(text string) (schema.Millis, error) {
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, errNoDuration
	}
	if jsontext.CheckNumber(rest, jsontext.Limits{}) == 0 {
		return seconds(json.Number(rest))
	}
	bad := fmt.Errorf("duration %q: write amounts with units s, m, h or d, such as 90s, 1h30m, 2 days", shorten(text))
	var total int64
	for rest != "" {
		amount, after := cutWhile(rest, func(c byte) bool { return c >= '0' && c <= '9' || c == '.' })
		word, after := cutWhile(strings.TrimLeft(after, " \t"), func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
		unit, known := units[strings.ToLower(word)]
		if amount == "" || !known {
			return 0, bad
		}
		thousandths, ok := jsontext.Scaled(json.Number(amount), 3)
		if !ok || thousandths > int64(schema.MaxDuration) {
			if ok || jsontext.Compare(json.Number(amount), "31622400000") > 0 {
				return 0, tooLong(fmt.Sprintf("%q", shorten(text)))
			}
			return 0, bad
		}
		part := thousandths * unit
		if part%1000 != 0 {
			return 0, fmt.Errorf("duration %q is not a whole number of milliseconds", shorten(text))
		}
		if total += part / 1000; total > int64(schema.MaxDuration) {
			return 0, tooLong(fmt.Sprintf("%q", shorten(text)))
		}
		rest = strings.TrimLeft(after, " \t")
	}
	return schema.Millis(total), nil
}

// cutWhile cuts the longest prefix whose bytes are all in the set.
func cutWhile(s string, in func(byte) bool) (prefix, rest string) {
	i := 0
	for i < len(s) && in(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

// shorten keeps a value in a message readable.
func shorten(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
