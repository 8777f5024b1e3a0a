package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// jobArgs is a job that does nothing, with 200 bytes of arguments.
type jobArgs struct {
	Text string `json:"text"`
}

// Kind implements river.JobArgs.
func (jobArgs) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[jobArgs]
}

// Work implements river.Worker.
func (noopWorker) Work(context.Context, *river.Job[jobArgs]) error { return nil }

// riverSide inserts jobs in batches and works them at the same time; a run ends when each is recorded as completed.
type riverSide struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	events <-chan *river.Event
	cancel func()
}

const insertBatch = 5_000

func openRiver(ctx context.Context, url string) (side, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, noopWorker{})
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
		Workers:           workers,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	events, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 200_000,
	})
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		pool.Close()
		return nil, err
	}
	return &riverSide{pool, client, events, cancel}, nil
}

func (s *riverSide) run(ctx context.Context, n int) (float64, map[string]float64, error) {
	start := time.Now()
	inserted := make(chan error, 1)
	go func() { inserted <- s.insert(ctx, n) }()
	for done := 0; done < n; {
		select {
		case <-s.events:
			done++
		case err := <-inserted:
			if err != nil {
				return 0, nil, err
			}
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%d of %d jobs worked: %w", done, n, ctx.Err())
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil, nil
}

func (s *riverSide) insert(ctx context.Context, n int) error {
	text := payload["text"].(string) //nolint:forcetypeassert // it is ours
	for left := n; left > 0; left -= insertBatch {
		batch := make([]river.InsertManyParams, min(left, insertBatch))
		for i := range batch {
			batch[i].Args = jobArgs{Text: text}
		}
		if _, err := s.client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (s *riverSide) close(ctx context.Context) {
	_ = s.client.Stop(ctx)
	s.cancel()
	s.pool.Close()
}
