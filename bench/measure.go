package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// side is one product, open on its own database.
type side interface {
	// run does the work n times and gives the figure of the measure; more holds further figures by name.
	run(ctx context.Context, n int) (value float64, more map[string]float64, err error)
	close(ctx context.Context)
}

// opener opens a side on a database. The first time it also lays the schema.
type opener func(ctx context.Context, url string) (side, error)

// measure compares two sides.
type measure struct {
	name  string
	unit  string
	peer  string
	n     int // how often the work is done in a run
	steps int // steps of one piece of work, for what a step costs
	nf    opener
	other opener
	// otherN and otherSteps are the peer's, where they differ.
	otherN     int
	otherSteps int
}

// result is one line of results.json.
type result struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	NF        float64 `json:"nf"` // median
	Peer      string  `json:"peer"`
	PeerValue float64 `json:"peer_value"` // median
	Ratio     float64 `json:"ratio"`      // nf / peer
	Runs      []round `json:"runs"`
}

// round is one run of each side.
type round struct {
	NF       float64            `json:"nf"`
	Peer     float64            `json:"peer"`
	NFMore   map[string]float64 `json:"nf_more,omitempty"`
	PeerMore map[string]float64 `json:"peer_more,omitempty"`
}

func (r result) String() string {
	pick := func(of func(round) float64) (lo, hi float64) {
		values := make([]float64, 0, len(r.Runs))
		for _, run := range r.Runs {
			values = append(values, of(run))
		}
		return slices.Min(values), slices.Max(values)
	}
	nfLow, nfHigh := pick(func(x round) float64 { return x.NF })
	peerLow, peerHigh := pick(func(x round) float64 { return x.Peer })
	return fmt.Sprintf("%-34s nf %.4g (%.4g–%.4g) %s, %s %.4g (%.4g–%.4g), ratio %.2f",
		r.Name, r.NF, nfLow, nfHigh, r.Unit, r.Peer, r.PeerValue, peerLow, peerHigh, r.Ratio)
}

// take runs both sides in turn, rounds times.
func (m measure) take(ctx context.Context, s *server, rounds int, scale float64) (result, error) {
	if m.otherN == 0 {
		m.otherN, m.otherSteps = m.n, m.steps
	}
	n, otherN := scaled(m.n, scale), scaled(m.otherN, scale)
	ours, err := s.database(ctx)
	if err != nil {
		return result{}, err
	}
	theirs, err := s.database(ctx)
	if err != nil {
		return result{}, err
	}
	r := result{Name: m.name, Unit: m.unit, Peer: m.peer}
	for range rounds {
		var one round
		if one.NF, one.NFMore, err = m.once(ctx, s, ours, m.nf, n, m.steps); err != nil {
			return r, fmt.Errorf("nf: %w", err)
		}
		if one.Peer, one.PeerMore, err = m.once(ctx, s, theirs, m.other, otherN, m.otherSteps); err != nil {
			return r, fmt.Errorf("%s: %w", m.peer, err)
		}
		r.Runs = append(r.Runs, one)
	}
	r.NF = median(r.Runs, func(x round) float64 { return x.NF })
	r.PeerValue = median(r.Runs, func(x round) float64 { return x.Peer })
	if r.PeerValue > 0 {
		r.Ratio = r.NF / r.PeerValue
	}
	return r, nil
}

// once opens a side, warms it up, runs it between two looks at the counters, and closes it, so that it does not disturb the other.
func (measure) once(ctx context.Context, s *server, database string, open opener, n, steps int) (float64, map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	side, err := open(ctx, s.url(database))
	if err != nil {
		return 0, nil, err
	}
	defer side.close(context.WithoutCancel(ctx))
	if _, _, err := side.run(ctx, max(8, n/20)); err != nil {
		return 0, nil, fmt.Errorf("warming up: %w", err)
	}
	if err := s.checkpoint(ctx); err != nil {
		return 0, nil, err
	}
	before, err := s.look(ctx, database)
	if err != nil {
		return 0, nil, err
	}
	start := time.Now()
	value, more, err := side.run(ctx, n)
	if err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	after, err := s.look(ctx, database)
	if err != nil {
		return 0, nil, err
	}
	if more == nil {
		more = map[string]float64{}
	}
	after.since(before, took, n*steps, more)
	return value, more, nil
}

func scaled(n int, scale float64) int { return max(8, int(float64(n)*scale)) }

func median(runs []round, of func(round) float64) float64 {
	values := make([]float64, 0, len(runs))
	for _, r := range runs {
		values = append(values, of(r))
	}
	return quantile(values, 0.5)
}

// quantile sorts the values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}
