package main

import (
	"context"
	"errors"
	"testing"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	values := []float64{9, 1, 5, 3, 7}
	for q, want := range map[float64]float64{0: 1, 0.5: 5, 0.99: 9, 1: 9} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("nothing has no median")
	}
}

func TestRateStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, _, err := rate(t.Context(), 1_000, 4, func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// Every side does its work, on a small scale, and says what it cost.
func TestEachMeasureRuns(t *testing.T) {
	t.Parallel()
	s, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(context.WithoutCancel(t.Context()))
	for _, m := range measures() {
		r, err := m.take(t.Context(), s, 1, 0.002)
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		if r.NF <= 0 || r.PeerValue <= 0 || r.Ratio <= 0 || len(r.Runs) != 1 {
			t.Errorf("%s: %+v", m.name, r)
		}
		for _, more := range []map[string]float64{r.Runs[0].NFMore, r.Runs[0].PeerMore} {
			if more["wal_bytes_per_step"] <= 0 || more["commits_per_step"] <= 0 {
				t.Errorf("%s: %v", m.name, more)
			}
		}
	}
}
