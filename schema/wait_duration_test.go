package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
)

func TestParseWaitDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[any]schema.Millis{
		json.Number("0"): 0, json.Number("90"): 90_000, json.Number("1.5"): 1500, json.Number("1e3"): 1_000_000,
		json.Number("-0"): 0, json.Number("31622400"): schema.MaxDuration, json.Number("0.001"): 1,
		"90s": 90_000, "1h30m": 5_400_000, "2 days": 172_800_000, "1 hour 30 minutes": 5_400_000, "0s": 0, "1.5h": 5_400_000,
		"15": 15_000, " 5 S ": 5000, "1d2h3m4s": 93_784_000, "366d": schema.MaxDuration, "01h": 3_600_000, "0.5m": 30_000, "00s": 0,
		"10 Minutes": 600_000, "1e2": 100_000,
	} {
		got, err := schema.ParseWaitDuration(in)
		require.NoError(t, err, "%v", in)
		require.Equal(t, want, got, "%v", in)
	}
	for in, part := range map[any]string{
		nil: "missing", "": "missing", "  ": "missing", true: "boolean",
		json.Number("-1"): "negative", "-1": "negative", json.Number("31622401"): "366 days", json.Number("1e300"): "366 days",
		json.Number("0.0001"): "3 decimals", "soon": "units", "5 parsecs": "units", "1h30": "units", "h": "units", "-5s": "units",
		"5s,": "units", "1..5s": "units", "367d": "366 days", "99999999999999999999999999d": "366 days", "200d200d": "366 days",
		"0.0001s": "milliseconds", "2024-01-01": "units", "5.s": "units", ".5s": "", "1ms": "units",
	} {
		_, err := schema.ParseWaitDuration(in)
		if part == "" {
			require.NoError(t, err, "%v", in)
			continue
		}
		require.ErrorContains(t, err, part, "%v", in)
	}
	_, err := schema.ParseWaitDuration([]any{})
	require.ErrorContains(t, err, "list")
}

func FuzzParseWaitDuration(f *testing.F) {
	for _, seed := range []string{"90s", "1h30m", "2 days", "1e9", "-5", "９s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := schema.ParseWaitDuration(text)
		if err == nil {
			require.GreaterOrEqual(t, d, schema.Millis(0))
			require.LessOrEqual(t, d, schema.MaxDuration)
		}
	})
}
