package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"nf/schema"
	"nf/systemtasks"
)

// RetryAfter reads the provider's minimum wait from the Retry-After headers of an answer (contract 3.4): digits alone are
// seconds, saturating at 24 h; the three date forms of RFC 9110 count from the answer's own Date, or from now if that is missing or
// unreadable, and a date in the past is 0; anything else is absent. Of several headers the largest valid one counts. The result is
// whole milliseconds in [0, 24 h]; it is false if no header is valid.
func RetryAfter(values []string, date string, now time.Time) (schema.Millis, bool) {
	from := now
	if at, ok := parseHTTPDate(trim(date), now); ok {
		from = at
	}
	var longest schema.Millis
	found := false
	for _, value := range values {
		if wait, ok := retryAfter(trim(value), from); ok {
			longest, found = max(longest, wait), true
		}
	}
	return longest, found
}

// trim takes off the white space that RFC 9110 allows around a field value.
func trim(s string) string { return strings.Trim(s, " \t") }

// retryAfter reads one value.
func retryAfter(value string, from time.Time) (schema.Millis, bool) {
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(systemtasks.MaxWait/1000) {
			return systemtasks.MaxWait, true // saturated: beyond 64 bits, or beyond 24 h
		}
		return schema.Millis(seconds) * 1000, true
	}
	at, ok := parseHTTPDate(value, from)
	if !ok {
		return 0, false
	}
	// Seconds, since a Duration ends after 292 years.
	wait := at.Unix() - from.Unix()
	return schema.Millis(min(max(wait, 0), int64(systemtasks.MaxWait/1000))) * 1000, true
}

// rfc850 is the layout of RFC 9110's second form without its two-digit year.
const rfc850 = "Monday, 02-Jan-2006 15:04:05 GMT"

// parseHTTPDate reads the three date forms of RFC 9110, strictly: time.Parse alone also takes fractions, single digits and
// any zone. Years begin with 1.
func parseHTTPDate(s string, now time.Time) (time.Time, bool) {
	for _, layout := range [...]string{http.TimeFormat, time.ANSIC} {
		if at, ok := parseExactly(layout, s); ok {
			return at, true
		}
	}
	return parseRFC850(s, now)
}

// parseExactly accepts s only if it is what layout would print, whichever weekday it names, since that carries nothing. A leap
// second counts as the last of its minute.
func parseExactly(layout, s string) (time.Time, bool) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.HasPrefix(s[i:], ":60") {
		s = s[:i] + ":59" + s[i+len(":60"):]
	}
	at, err := time.ParseInLocation(layout, s, time.UTC)
	if err != nil || at.Year() == 0 {
		return time.Time{}, false
	}
	printedDay, printed, _ := strings.Cut(at.Format(layout), " ")
	givenDay, given, _ := strings.Cut(s, " ")
	return at, printed == given && isDay(givenDay, len(printedDay) > len("Mon,"))
}

// isDay says that a word names a day of the week, in full or by its first three letters, with or without a comma.
func isDay(word string, full bool) bool {
	word = strings.TrimSuffix(word, ",")
	for day := time.Sunday; day <= time.Saturday; day++ {
		name := day.String()
		if !full {
			name = name[:3]
		}
		if word == name {
			return true
		}
	}
	return false
}

// parseRFC850 reads the form with a two-digit year: the latest year with these digits that is not more than 50 years ahead.
func parseRFC850(s string, now time.Time) (time.Time, bool) {
	day, rest, ok := strings.Cut(s, "-")
	if !ok {
		return time.Time{}, false
	}
	month, rest, ok := strings.Cut(rest, "-")
	if !ok || len(rest) < 2 {
		return time.Time{}, false
	}
	digits, err := strconv.ParseUint(rest[:2], 10, 8)
	if err != nil {
		return time.Time{}, false
	}
	century := now.UTC().Year()/100*100 + 100
	for year := century + int(digits); year > 0; year -= 100 {
		at, ok := parseExactly(rfc850, day+"-"+month+"-"+pad4(year)+rest[2:])
		if ok && !at.After(now.AddDate(50, 0, 0)) {
			return at, true
		}
		if year < century-200 {
			break
		}
	}
	return time.Time{}, false
}

// pad4 prints a year in four digits.
func pad4(year int) string {
	text := strconv.Itoa(year)
	return strings.Repeat("0", max(0, 4-len(text))) + text
}
