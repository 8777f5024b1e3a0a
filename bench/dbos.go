package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// payload is what each step returns: 200 bytes of JSON.
var payload = map[string]any{"text": strings.Repeat("x", 200-len(`{"text":""}`))}

// dbosSide is DBOS Transact in direct mode: the caller's goroutine runs the workflow, each step is recorded as it ends.
type dbosSide struct {
	ctx  dbos.Context
	pool *pgxpool.Pool
	kind func(context.Context, int, func(context.Context) error) (float64, map[string]float64, error)
}

func openDBOS(kind func(context.Context, int, func(context.Context) error) (float64, map[string]float64, error)) opener {
	return func(ctx context.Context, url string) (side, error) {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = 20
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		d, err := dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
			AppName: "bench", SystemDBPool: pool, ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			pool.Close()
			return nil, err
		}
		dbos.RegisterWorkflow(d, threeSteps)
		if err := dbos.Launch(d); err != nil {
			pool.Close()
			return nil, err
		}
		return &dbosSide{d, pool, kind}, nil
	}
}

func threeSteps(ctx dbos.Context, _ map[string]any) (map[string]any, error) {
	var last map[string]any
	for range 3 {
		out, err := dbos.RunAsStep(ctx, func(context.Context) (map[string]any, error) { return payload, nil })
		if err != nil {
			return nil, err
		}
		last = out
	}
	return last, nil
}

func (s *dbosSide) run(ctx context.Context, n int) (float64, map[string]float64, error) {
	return s.kind(ctx, n, func(context.Context) error {
		handle, err := dbos.RunWorkflow(s.ctx, threeSteps, payload)
		if err != nil {
			return err
		}
		_, err = handle.GetResult()
		return err
	})
}

func (s *dbosSide) close(context.Context) {
	_ = dbos.Shutdown(s.ctx, 5*time.Second)
	s.pool.Close()
}
