package main

import "context"

// measures is what is compared, in this order.
func measures() []measure {
	closed := func(ctx context.Context, n int, work func(context.Context) error) (float64, map[string]float64, error) {
		return rate(ctx, n, callers, work)
	}
	// The number of an execution's last event is that of its steps and of its start and end.
	three := func(ctx context.Context, s *nfSide) func(context.Context) error {
		return func(ctx context.Context) error { return s.runToEnd(ctx, "three", 3+2) }
	}
	rateOfThree := func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error) {
		return closed(ctx, n, three(ctx, s))
	}
	return []measure{
		{
			name: "workflows_per_second", unit: "1/s", peer: "DBOS Transact, direct", n: 4_000, steps: 3,
			nf: openNF(rateOfThree), other: openDBOS(closed),
		},
		{
			name: "start_to_finish_idle_p50", unit: "ms", peer: "DBOS Transact, direct", n: 400, steps: 3,
			nf: openNF(func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error) {
				return latency(ctx, n, three(ctx, s))
			}),
			other: openDBOS(latency),
		},
		{
			name: "jobs_per_second", unit: "1/s", peer: "River", n: 40_000, steps: 1,
			nf: openNF(func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error) {
				return s.backlog(ctx, n)
			}),
			other: openRiver,
		},
		{
			// The yardstick that travels between machines: steps of workflows beside the least durable work there is.
			name: "steps_per_second", unit: "1/s", peer: "commits of one UPDATE, 8 clients", n: 4_000, steps: 3, otherN: 20_000, otherSteps: 1,
			nf: openNF(func(ctx context.Context, s *nfSide, n int) (float64, map[string]float64, error) {
				workflows, more, err := rateOfThree(ctx, s, n)
				return 3 * workflows, more, err
			}),
			other: openCommits,
		},
	}
}
