package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Sentinels that callers branch on.
var (
	ErrNotFound  = errors.New("not found")
	ErrStale     = errors.New("stale")
	ErrLeaseLost = errors.New("lease lost")
)

// Lane names one of the three pools of a process (design/03 B8): no path takes a second connection while it holds one.
type Lane int

// The pools.
const (
	Hot Lane = iota // claims, completions, decisions
	API             // requests and reads
	Ctl             // beats, sweeps, duties: never shared with the others
)

// Store is the door to one environment's database. Safe for concurrent use.
type Store struct {
	pools [3]*pgxpool.Pool
	// Abort, if set, is called before each statement and before COMMIT with the transaction's name and the statement's; an
	// error aborts there. Only tests and the soak set it, before first use.
	Abort func(tx, statement string) error
	// OnStatement, if set, is told each transaction's name, duration and error. Set before first use.
	OnTx func(tx string, took time.Duration, err error)
}

// Tx is one transaction. Not safe for concurrent use.
type Tx struct {
	s    *Store
	tx   pgx.Tx
	name string
}

// InTx runs fn in one READ COMMITTED transaction and commits. An error of fn rolls back. The name is that of the transaction in
// metrics and abort points. An error of COMMIT itself is a *CommitUnknownError unless the server answered that it rolled back.
func (s *Store) InTx(ctx context.Context, lane Lane, name string, fn func(context.Context, *Tx) error) (err error) {
	start := time.Now() //nolint:forbidigo // duration of a metric
	if s.OnTx != nil {
		defer func() { s.OnTx(name, time.Since(start), err) }() //nolint:forbidigo // duration of a metric
	}
	conn, err := s.pools[lane].Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: connection: %w", name, err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("%s: begin: %w", name, err)
	}
	t := &Tx{s: s, tx: tx, name: name}
	defer func() {
		if err != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			_ = tx.Rollback(end)
		}
	}()
	if err := fn(ctx, t); err != nil {
		return err
	}
	if err := t.abort("commit"); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) || errors.Is(err, pgx.ErrTxCommitRollback) {
			return fmt.Errorf("%s: commit: %w", name, err)
		}
		return &CommitUnknownError{Tx: name, Err: err}
	}
	return t.abort("committed")
}

// CommitUnknownError says that COMMIT was sent and not answered: the caller finds out by the look-ups of design/03 S0.
type CommitUnknownError struct {
	Tx  string
	Err error
}

func (e *CommitUnknownError) Error() string {
	return fmt.Sprintf("%s: commit not answered: %v", e.Tx, e.Err)
}

// Unwrap gives the cause.
func (e *CommitUnknownError) Unwrap() error { return e.Err }

func (t *Tx) abort(statement string) error {
	if t.s.Abort == nil {
		return nil
	}
	return t.s.Abort(t.name, statement)
}

// query runs a named statement that gives rows; day is for statements that name a day's leaf.
func (t *Tx) query(ctx context.Context, name, day string, args ...any) (pgx.Rows, error) {
	if err := t.abort(name); err != nil {
		return nil, err
	}
	rows, err := t.tx.Query(ctx, statement(name, day), args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// exec runs a named statement and gives the number of rows it touched.
func (t *Tx) exec(ctx context.Context, name, day string, args ...any) (int64, error) {
	if err := t.abort(name); err != nil {
		return 0, err
	}
	tag, err := t.tx.Exec(ctx, statement(name, day), args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return tag.RowsAffected(), nil
}

// pipeline sends several named statements in one round trip; fn of each reads its answer, in order.
type pipeline struct {
	t     *Tx
	batch pgx.Batch
	reads []namedRead
	err   error
}

type namedRead struct {
	name string
	read func(pgx.BatchResults) error
}

func (t *Tx) pipeline() *pipeline { return &pipeline{t: t} }

func (p *pipeline) queue(name, day string, args []any, read func(pgx.BatchResults) error) {
	if p.err != nil {
		return
	}
	if p.err = p.t.abort(name); p.err != nil {
		return
	}
	p.batch.Queue(statement(name, day), args...)
	if read == nil {
		read = func(r pgx.BatchResults) error { _, err := r.Exec(); return err }
	}
	p.reads = append(p.reads, namedRead{name, read})
}

// send runs what was queued and reads every answer.
func (p *pipeline) send(ctx context.Context) error {
	if p.err != nil || len(p.reads) == 0 {
		return p.err
	}
	results := p.t.tx.SendBatch(ctx, &p.batch)
	for _, r := range p.reads {
		if err := r.read(results); err != nil {
			_ = results.Close()
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return results.Close()
}
