package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// callers is how many callers at once the rate of workflows is taken with.
const callers = 32

// rate has a number of callers do a piece of work n times altogether and gives how often a second it was done.
func rate(ctx context.Context, n, callers int, work func(context.Context) error) (float64, map[string]float64, error) {
	var left atomic.Int64
	left.Store(int64(n))
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range callers {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := work(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, nil, err
	}
	return float64(n) / time.Since(start).Seconds(), nil, nil
}

// latency does a piece of work n times, one after the other, and gives the median in milliseconds.
func latency(ctx context.Context, n int, work func(context.Context) error) (float64, map[string]float64, error) {
	took := make([]float64, 0, n)
	for range n {
		start := time.Now()
		if err := work(ctx); err != nil {
			return 0, nil, err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	return quantile(took, 0.5), map[string]float64{"p99_ms": quantile(took, 0.99)}, nil
}
