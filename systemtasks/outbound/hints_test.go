package outbound_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/systemtasks/outbound"
)

// FC-050: a negative hint is no hint, alone and beside others; over the wire the normal delay of the policy then stands.
func TestFC_050_NegativeHintsAreAbsent(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-5", "-0", "-1", " -5 ", "-9223372036854775808", "-99999999999999999999", "−5", "--5", "- 5", "-5.5", "-1e3"} {
		_, ok := outbound.RetryAfter([]string{value}, "", now)
		require.False(t, ok, value)
		got, ok := outbound.RetryAfter([]string{value, "7", value}, "", now)
		require.True(t, ok, value)
		require.Equal(t, schema.Millis(7000), got, value)
		server := serve(t, "127.0.0.1:0", says(fmt.Sprintf("HTTP/1.1 429 x\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", value)))
		resp, failure := client(t).Do(t.Context(), get(t, server.url("/")))
		require.Nil(t, failure, value)
		require.Zero(t, resp.MinWait, value)
	}
}

// FC-052: dates at both ends of the calendar saturate or are absent, as the hint and as the answer's own Date, in all three forms; none of them overflows.
func TestFC_052_ExtremeDatesSaturate(t *testing.T) {
	t.Parallel()
	const absent = schema.Millis(-1)
	for _, c := range []struct {
		value, date string
		want        schema.Millis
	}{
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", day},
		{"Fri Dec 31 23:59:59 9999", "", day},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", day}, // more than an int64 of nanoseconds apart
		{"Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", 0},
		{"Mon, 01 Jan 0001 00:00:00 GMT", "", 0},
		{"Mon Jan  1 00:00:00 0001", "", 0},
		{"Sat, 01 Jan 0000 00:00:00 GMT", "", absent},
		{"Sat Jan  1 00:00:00 0000", "", absent},
		{"Sat, 01 Jan 10000 00:00:00 GMT", "", absent},
		{"Sat, 01 Jan -001 00:00:00 GMT", "", absent},
		{"Sat, 01 Jan 292277026596 00:00:00 GMT", "", absent},
		{"Fri, 31 Dec 9999 23:59:60 GMT", "", day},
		{"Fri, 32 Dec 9999 23:59:59 GMT", "", absent},
		{"Thu, 01 Jan 1970 00:00:00 GMT", "", 0},
		{"Tue, 19 Jan 2038 03:14:08 GMT", "", day},
		{"Mon, 29 Feb 2100 00:00:00 GMT", "", absent}, // no leap year
		{"Wednesday, 01-Jan-00 00:00:00 GMT", "", 0},
	} {
		got, ok := outbound.RetryAfter([]string{c.value}, c.date, now)
		if c.want == absent {
			require.False(t, ok, "%q must be absent, is %d", c.value, got)
			continue
		}
		require.True(t, ok, c.value)
		require.Equal(t, c.want, got, "%q from %q", c.value, c.date)
	}
}
