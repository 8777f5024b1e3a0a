package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nf/schema/jsontext"
)

// errNoWait says that a WAIT's duration is absent or null.
var errNoWait = errors.New("duration is missing: give a number of seconds, or text such as 90s, 1h30m, 2 days")

// waitUnit gives a unit of a duration in milliseconds, 0 for an unknown word.
func waitUnit(word string) int64 {
	switch strings.ToLower(word) {
	case "s", "sec", "secs", "second", "seconds":
		return 1000
	case "m", "min", "mins", "minute", "minutes":
		return 60_000
	case "h", "hr", "hrs", "hour", "hours":
		return 3_600_000
	case "d", "day", "days":
		return 86_400_000
	}
	return 0
}

// ParseWaitDuration reads the `duration` of a WAIT (D.8): a number of seconds with at most 3 decimals, or text of amounts with
// units s, m, h, d and their long forms, combinable: `90s`, `1h30m`, `2 days`, `1 hour 30 minutes`; text that is only a number
// is seconds. From 0 to 366 days. The errors name the value and say what is accepted.
func ParseWaitDuration(v Value) (Millis, error) {
	switch v := v.(type) {
	case nil:
		return 0, errNoWait
	case json.Number:
		return waitSeconds(v)
	case string:
		return waitWords(v)
	}
	return 0, fmt.Errorf("duration is a %s, but must be a number of seconds or text such as 90s", jsontext.TypeName(v))
}

func waitSeconds(n json.Number) (Millis, error) {
	if jsontext.Compare(n, "0") < 0 {
		return 0, fmt.Errorf("duration %s is negative", shorten(string(n)))
	}
	ms, ok := jsontext.Scaled(n, 3)
	switch {
	case ok && ms <= int64(MaxDuration):
		return Millis(ms), nil
	case jsontext.Compare(n, "31622400") > 0:
		return 0, waitTooLong(string(n))
	}
	return 0, fmt.Errorf("duration %s: a number of seconds may have at most 3 decimals", shorten(string(n)))
}

func waitTooLong(text string) error {
	return fmt.Errorf("duration %s is longer than 366 days", shorten(text))
}

func waitWords(text string) (Millis, error) {
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, errNoWait
	}
	if jsontext.CheckNumber(rest, jsontext.Limits{}) != jsontext.Syntax {
		return waitSeconds(json.Number(rest))
	}
	var total int64
	for rest != "" {
		amount, after := cutWhile(rest, func(c byte) bool { return c >= '0' && c <= '9' || c == '.' })
		word, after := cutWhile(strings.TrimLeft(after, " \t"), func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
		part, err := waitPart(amount, waitUnit(word), text)
		if err != nil {
			return 0, err
		}
		if total += part; total > int64(MaxDuration) {
			return 0, waitTooLong(text)
		}
		rest = strings.TrimLeft(after, " \t")
	}
	return Millis(total), nil
}

// waitPart is one amount with its unit, in milliseconds.
func waitPart(amount string, unit int64, text string) (int64, error) {
	bad := fmt.Errorf("duration %q: write amounts with units s, m, h or d, such as 90s, 1h30m, 2 days", shorten(text))
	if amount == "" || unit == 0 {
		return 0, bad
	}
	if trimmed := strings.TrimLeft(amount, "0"); trimmed != "" && trimmed[0] != '.' {
		amount = trimmed
	} else {
		amount = "0" + trimmed
	}
	number := json.Number(amount)
	if jsontext.CheckNumber(amount, jsontext.Limits{}) == jsontext.Syntax {
		return 0, bad
	}
	if jsontext.Compare(number, "31622400") > 0 { // seconds or more of anything
		return 0, waitTooLong(text)
	}
	thousandths, ok := jsontext.Scaled(number, 3)
	if !ok || thousandths*unit%1000 != 0 {
		return 0, fmt.Errorf("duration %q is not a whole number of milliseconds", shorten(text))
	}
	return thousandths * unit / 1000, nil
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
