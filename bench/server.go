package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/pgdev"
)

// server is the private Postgres that both sides share, one after the other.
type server struct {
	*pgdev.Server
	admin   *pgx.Conn
	dir     string
	numbers int
}

func startServer(ctx context.Context) (*server, error) {
	found, err := pgdev.FindAll(ctx, os.Getenv("NF_PG_BIN"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nf-bench-")
	if err != nil {
		return nil, err
	}
	// Ephemeral: it is gone afterwards, however this ends. But it syncs, as a server does.
	pg, err := pgdev.Start(ctx, pgdev.Options{Dir: dir, Binaries: found, Ephemeral: true, Settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "max_connections": "200",
	}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{Server: pg, dir: dir}
	if s.admin, err = pgx.Connect(ctx, pg.URL()); err != nil {
		return nil, errors.Join(err, pg.Stop(ctx))
	}
	return s, nil
}

func (s *server) stop(ctx context.Context) {
	_ = s.admin.Close(ctx)
	_ = s.Stop(ctx)
}

// database makes a fresh one.
func (s *server) database(ctx context.Context) (string, error) {
	s.numbers++
	name := fmt.Sprintf("bench_%d", s.numbers)
	_, err := s.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
	return name, err
}

func (s *server) url(database string) string {
	u, err := url.Parse(s.URL())
	if err != nil {
		return s.URL()
	}
	u.Path = "/" + database
	return u.String()
}

func (s *server) checkpoint(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// counters are what the server and this process have used so far.
type counters struct {
	wal     float64 // bytes
	commits float64
	server  time.Duration // processor time
	client  time.Duration
}

// statsDelay is how long an idle session of the server may keep its counts to itself.
const statsDelay = 1100 * time.Millisecond

// look reads the counters. It waits until sessions have told theirs.
func (s *server) look(ctx context.Context, database string) (counters, error) {
	pause := time.NewTimer(statsDelay)
	defer pause.Stop()
	var c counters
	c.client = ownTime()
	c.server = s.serverTime()
	err := s.admin.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'").Scan(&c.wal)
	if err != nil {
		return c, err
	}
	select {
	case <-ctx.Done():
		return c, ctx.Err()
	case <-pause.C:
	}
	err = s.admin.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = $1", database).Scan(&c.commits)
	return c, err
}

// since puts what was used between two looks into more.
func (c counters) since(before counters, took time.Duration, steps int, more map[string]float64) {
	more["wal_bytes_per_step"] = (c.wal - before.wal) / float64(steps)
	more["commits_per_step"] = (c.commits - before.commits) / float64(steps)
	if c.server > before.server {
		more["server_cores"] = (c.server - before.server).Seconds() / took.Seconds()
	}
	more["client_cores"] = (c.client - before.client).Seconds() / took.Seconds()
}

func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime adds up the processor time of the postmaster, its children and those that have ended; 0 on a system without /proc.
func (s *server) serverTime() time.Duration {
	text, err := os.ReadFile(filepath.Join(s.Dir(), "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	postmaster, _, _ := strings.Cut(string(text), "\n")
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	var sum time.Duration
	for _, path := range all {
		text, err := os.ReadFile(path) //nolint:gosec // of the process table
		if err != nil {
			continue
		}
		// After the name in parentheses: state, parent, …; times are fields 14 to 17 of the whole line.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		switch postmaster {
		case filepath.Base(filepath.Dir(path)): // itself, and its children that have ended
			sum += ticks(fields[11:15]) * tick
		case fields[1]:
			sum += ticks(fields[11:13]) * tick
		}
	}
	return sum
}

func ticks(fields []string) (sum time.Duration) {
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}
