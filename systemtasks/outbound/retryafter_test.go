package outbound_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/systemtasks/outbound"
)

const day = schema.Millis(86_400_000)

var now = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// TestFC_049_RetryAfterCorpus holds the parser to contract 3.4, value by value. -1 is absent.
func TestFC_049_RetryAfterCorpus(t *testing.T) {
	t.Parallel()
	const absent = schema.Millis(-1)
	for _, c := range []struct {
		id, value string
		want      schema.Millis
	}{
		{"", "0", 0},
		{"", "1", 1000},
		{"", "120", 120_000},
		{"", "  120\t", 120_000},
		{"", "007", 7000},
		{"", "86399", day - 1000},
		{"", "86400", day},
		{"", "86401", day},
		{"FC-044", "999999", day},
		{"", "9223372036854775807", day},
		{"", "9223372036854775808", day},
		{"", "123456789012345678901234567890", day},
		{"", strings.Repeat("9", 5000), day},
		{"", strings.Repeat("0", 5000) + "5", 5000},
		{"FC-050", "-5", absent},
		{"FC-049", "-3", absent},
		{"", "+5", absent},
		{"", "1.5", absent},
		{"", "1,5", absent},
		{"", "5, 6", absent},
		{"", "5s", absent},
		{"", "5 s", absent},
		{"", "1e3", absent},
		{"", "0x10", absent},
		{"", "١٢", absent},
		{"", "", absent},
		{"", " ", absent},
		{"", "soon", absent},
		{"", "2026", 2026_000},
		{"", "2026-03-04", absent},
		{"", "2026-03-04T05:08:07Z", absent},
		{"", "\u00a0120", absent},
		{"", "120\x00", absent},
		// IMF-fixdate.
		{"FC-053", "Wed, 04 Mar 2026 05:08:07 GMT", 120_000},
		{"", "Wed, 04 Mar 2026 05:06:07 GMT", 0},
		{"", "Wed, 04 Mar 2026 05:06:06 GMT", 0},
		{"", "Tue, 01 Jan 1991 00:00:00 GMT", 0},
		{"", "Thu, 05 Mar 2026 05:06:06 GMT", day - 1000},
		{"", "Thu, 05 Mar 2026 05:06:08 GMT", day},
		{"FC-052", "Fri, 31 Dec 9999 23:59:59 GMT", day},
		{"FC-052", "Sat, 01 Jan 0000 00:00:00 GMT", absent},
		{"", "Mon, 01 Jan 0001 00:00:00 GMT", 0},
		{"", "Mon, 04 Mar 2026 05:08:07 GMT", 120_000}, // the weekday carries nothing
		{"", "Wed, 04 Mar 2026 05:08:60 GMT", 172_000}, // leap second
		{"", "Wed, 04 Mar 2026 05:60:07 GMT", absent},
		{"", "Wed, 04 Mar 2026 24:00:00 GMT", absent},
		{"", "Wed, 04 Mar 2026 05:08:07 UTC", absent},
		{"", "Wed, 04 Mar 2026 05:08:07 +0000", absent},
		{"", "Wed, 04 Mar 2026 05:08:07 PST", absent},
		{"", "Wed, 04 Mar 2026 05:08:07", absent},
		{"", "Wed, 4 Mar 2026 05:08:07 GMT", absent},
		{"", "Wed, 04 Mar 2026 5:08:07 GMT", absent},
		{"", "Wed, 04 Mar 2026 05:08:07.5 GMT", absent},
		{"", "Wed, 04 mar 2026 05:08:07 GMT", absent},
		{"", "wed, 04 Mar 2026 05:08:07 GMT", absent},
		{"", "Wed, 04 Mar 26 05:08:07 GMT", absent},
		{"", "Wed, 04 Mar 12026 05:08:07 GMT", absent},
		{"", "Wed, 30 Feb 2026 05:08:07 GMT", absent},
		{"", "04 Mar 2026 05:08:07 GMT", absent},
		{"", "Wed,  04 Mar 2026 05:08:07 GMT", absent},
		// RFC 850.
		{"", "Wednesday, 04-Mar-26 05:08:07 GMT", 120_000},
		{"", "Wednesday, 04-Mar-76 05:06:07 GMT", day}, // 50 years ahead, not more
		{"", "Wednesday, 04-Mar-76 05:06:08 GMT", 0},   // a second more: 1976
		{"", "Sunday, 06-Nov-94 08:49:37 GMT", 0},
		{"", "Wednesday, 04-Mar-2026 05:08:07 GMT", absent},
		{"", "Wed, 04-Mar-26 05:08:07 GMT", absent},
		{"", "Wednesday, 04-Mar-26 05:08:07 EST", absent},
		{"", "Wednesday, 04-Mar--6 05:08:07 GMT", absent},
		{"", "Tuesday, 29-Feb-28 00:00:00 GMT", day},
		{"", "Sunday, 29-Feb-26 00:00:00 GMT", absent},
		// asctime.
		{"", "Wed Mar  4 05:08:07 2026", 120_000},
		{"", "Wed Mar 14 05:08:07 2026", day},
		{"", "Wed Mar 4 05:08:07 2026", absent},
		{"", "Wed Mar 04 05:08:07 2026", absent},
		{"", "Wed Mar  4 05:08:07 2026 GMT", absent},
	} {
		got, ok := outbound.RetryAfter([]string{c.value}, "", now)
		if c.want == absent {
			require.Falsef(t, ok, "%s %q must be absent, is %d", c.id, c.value, got)
			continue
		}
		require.Truef(t, ok, "%s %q must be valid", c.id, c.value)
		require.Equalf(t, c.want, got, "%s %q", c.id, c.value)
	}
}

func TestFC_053_DateFormIsMeasuredAgainstTheAnswersOwnDate(t *testing.T) {
	t.Parallel()
	const at = "Wed, 04 Mar 2026 05:08:07 GMT"
	for date, want := range map[string]schema.Millis{
		"Wed, 04 Mar 2026 05:06:07 GMT":     120_000,
		"Wed, 04 Mar 2026 05:07:07 GMT":     60_000,  // the server's clock is ahead of ours: the skew cancels
		"Wednesday, 04-Mar-26 05:07:07 GMT": 60_000,  // the other forms
		"Wed Mar  4 05:07:07 2026":          60_000,  //
		" Wed, 04 Mar 2026 05:07:07 GMT ":   60_000,  //
		"Fri, 04 Mar 2050 05:07:07 GMT":     0,       // past, by the server's clock
		"yesterday":                         120_000, // unreadable: the local clock
		"":                                  120_000,
		"Sat, 01 Jan 0000 00:00:00 GMT":     120_000,
	} {
		got, ok := outbound.RetryAfter([]string{at}, date, now)
		require.True(t, ok, date)
		require.Equal(t, want, got, date)
	}
	got, ok := outbound.RetryAfter([]string{"7"}, "Fri, 04 Mar 2050 05:07:07 GMT", now)
	require.True(t, ok)
	require.Equal(t, schema.Millis(7000), got, "seconds need no clock")
}

func TestRetryAfterTakesTheLargestValidHeader(t *testing.T) {
	t.Parallel()
	got, ok := outbound.RetryAfter([]string{"3", "-1", "Wed, 04 Mar 2026 05:08:07 GMT", "60", "x"}, "", now)
	require.True(t, ok)
	require.Equal(t, schema.Millis(120_000), got)
	_, ok = outbound.RetryAfter([]string{"-1", "x"}, "", now)
	require.False(t, ok)
	_, ok = outbound.RetryAfter(nil, "", now)
	require.False(t, ok)
}

// FuzzRetryAfter: whatever a server sends, the wait is in [0, 24 h] and digits alone are always seconds.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "-3", "999999999999999999999", "Wed, 04 Mar 2026 05:08:07 GMT", "Wednesday, 04-Mar-26 05:08:07 GMT", "Wed Mar  4 05:08:07 2026", "", ":60", "--"} {
		f.Add(seed, "Wed, 04 Mar 2026 05:06:07 GMT", int64(1_772_600_767))
	}
	f.Fuzz(func(t *testing.T, value, date string, unix int64) {
		at := time.Unix(unix%(1<<38), 0)
		wait, ok := outbound.RetryAfter([]string{value}, date, at)
		require.GreaterOrEqual(t, wait, schema.Millis(0))
		require.LessOrEqual(t, wait, day)
		digits := value != "" && strings.Trim(value, "0123456789") == ""
		if digits {
			require.True(t, ok)
		}
		if !ok {
			require.Zero(t, wait)
		}
		if ok && !digits {
			// A date: within a day of its own text whatever clock reads it.
			again, okAgain := outbound.RetryAfter([]string{strings.Trim(value, " \t")}, date, at)
			require.True(t, okAgain)
			require.Equal(t, wait, again)
		}
	})
}
