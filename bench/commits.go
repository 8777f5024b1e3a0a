package main

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgxpool"
)

// commits is the yardstick: what the machine does of the least durable work there is, one UPDATE of one row a commit. Ratios to it
// travel between machines.
type commits struct{ pool *pgxpool.Pool }

const (
	commitClients = 8
	commitRows    = 100_000
)

func openCommits(ctx context.Context, url string) (side, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{
		"CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 90)",
		"INSERT INTO account SELECT n, 0 FROM generate_series(1, $1::int) AS n ON CONFLICT DO NOTHING",
	} {
		args := []any{commitRows}
		if sql[0] == 'C' {
			args = nil
		}
		if _, err := pool.Exec(ctx, sql, args...); err != nil {
			pool.Close()
			return nil, err
		}
	}
	return &commits{pool}, nil
}

func (c *commits) run(ctx context.Context, n int) (float64, map[string]float64, error) {
	return rate(ctx, n, commitClients, func(ctx context.Context) error {
		_, err := c.pool.Exec(ctx, "UPDATE account SET balance = balance + 1 WHERE id = $1", 1+rand.IntN(commitRows))
		return err
	})
}

func (c *commits) close(context.Context) { c.pool.Close() }
