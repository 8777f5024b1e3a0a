//go:build unix

// Package pgtest gives each test a Postgres database of its own, on a private server that nothing is left of afterwards.
//
// All test processes of a `make test` share one server, whose address the command pgrun puts into the environment variable
// NF_TEST_POSTGRES. A plain `go test ./pkg` starts its own on first use; it ends with the test process, however that ends.
// Databases are copies of a template, so that the schema is laid once a server and not once a test. The server syncs nothing
// to disk, and finds a deadlock after 20 ms.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"nf/runtime/pgdev"
)

// Variable names the environment variable that holds the address of a shared server.
const Variable = "NF_TEST_POSTGRES"

// Settings of a server for tests.
func Settings() map[string]string {
	return map[string]string{
		"deadlock_timeout":      "20ms",
		"max_connections":       "1000",
		"shared_buffers":        "256MB",
		"max_wal_size":          "1GB",
		"checkpoint_timeout":    "1h",
		"autovacuum_naptime":    "10s",
		"wal_level":             "minimal",
		"max_wal_senders":       "0",
		"bgwriter_lru_maxpages": "0",
	}
}

// StartServer starts an ephemeral server for tests: nothing is left of it when the process ends, however it ends.
func StartServer(ctx context.Context) (*pgdev.Server, error) {
	found, err := pgdev.FindAll(ctx, os.Getenv("NF_PG_BIN"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(TempRoot(), "nf-test-")
	if err != nil {
		return nil, err
	}
	server, err := pgdev.Start(ctx, pgdev.Options{Dir: dir, Binaries: found, Settings: Settings(), Ephemeral: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return server, nil
}

// roomInMemory is how much a file system in memory must have free to be used.
const roomInMemory = 4 << 30

// TempRoot is where the data of test servers lies: in memory where there is room, since a database is hundreds of files, which
// memory makes ten times as fast as most disks.
func TempRoot() string {
	const memory = "/dev/shm"
	var fs syscall.Statfs_t
	if runtime.GOOS == "linux" && syscall.Statfs(memory, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= roomInMemory {
		return memory
	}
	return os.TempDir()
}

// Template says what a test's database looks like at first.
type Template struct {
	// Name changes with what Fill does; at most 40 of a-z, 0-9 and _. An empty name is an empty database.
	Name string
	// Fill lays the schema. It is called once a server, and must close its connections.
	Fill func(ctx context.Context, url string) error
}

// Database makes a database for the test and gives its URL. The role owns everything. What is connected to it when the test
// ends is disconnected.
func Database(t testing.TB, from Template) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	server, err := serverURL()
	if err != nil {
		t.Fatalf("a Postgres for tests: %v", err)
	}
	name, err := server.create(ctx, from)
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() { server.drop(context.WithoutCancel(ctx), name) })
	return withDatabase(server.url, name)
}

// instance is the server that this process uses.
type instance struct {
	url     string
	numbers atomic.Int64
	admin   sync.Mutex // one CREATE DATABASE of this process at a time: they wait for each other anyway
	conn    *pgx.Conn  // to the maintenance database
	ready   map[string]bool
}

var serverURL = sync.OnceValues(func() (*instance, error) {
	if shared := os.Getenv(Variable); shared != "" {
		return &instance{url: shared, ready: map[string]bool{}}, nil
	}
	server, err := StartServer(context.Background()) // ends with the process
	if err != nil {
		return nil, err
	}
	return &instance{url: server.URL(), ready: map[string]bool{}}, nil
})

func (s *instance) create(ctx context.Context, from Template) (string, error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, withDatabase(s.url, "postgres"))
		if err != nil {
			return "", err
		}
		s.conn = conn
	}
	template := "template0"
	if from.Name != "" {
		template = "nf_template_" + from.Name
		if err := s.template(ctx, template, from.Fill); err != nil {
			return "", err
		}
	}
	name := fmt.Sprintf("nf_test_%d_%d", os.Getpid(), s.numbers.Add(1))
	return name, s.copy(ctx, name, template)
}

// drop removes a test's database, so that a long run fits into memory. A failure does not matter: the server goes anyway.
func (s *instance) drop(ctx context.Context, name string) {
	s.admin.Lock()
	defer s.admin.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, _ = s.conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// template makes the template once a server, whichever process comes first.
func (s *instance) template(ctx context.Context, name string, fill func(context.Context, string) error) error {
	if s.ready[name] {
		return nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	key := int64(hash.Sum32())
	if _, err := s.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return err
	}
	defer func() { _, _ = s.conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", key) }()
	var there bool
	err := s.conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
	if err != nil {
		return err
	}
	if !there {
		draft := name + "_draft"
		if _, err := s.conn.Exec(ctx, "DROP DATABASE IF EXISTS "+draft+" WITH (FORCE)"); err != nil {
			return err
		}
		if err := s.copy(ctx, draft, "template0"); err != nil {
			return err
		}
		if err := fill(ctx, withDatabase(s.url, draft)); err != nil {
			return fmt.Errorf("filling the template: %w", err)
		}
		if err := s.retry(ctx, "ALTER DATABASE "+draft+" RENAME TO "+name); err != nil {
			return err
		}
	}
	s.ready[name] = true
	return nil
}

func (s *instance) copy(ctx context.Context, name, template string) error {
	return s.retry(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY "+strategy)
}

// retry repeats a statement while a connection that was just closed still counts (55006).
func (s *instance) retry(ctx context.Context, sql string) error {
	for {
		_, err := s.conn.Exec(ctx, sql)
		var pg *pgconn.PgError
		if err == nil || !errors.As(err, &pg) || pg.Code != "55006" {
			return err
		}
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}

const strategy = "wal_log"

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // pgx says what is wrong with it
	}
	u.Path = "/" + strings.TrimPrefix(name, "/")
	return u.String()
}
