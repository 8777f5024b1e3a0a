package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
	pools   [3]*pgxpool.Pool
	base    *pgx.ConnConfig // of the URL, without the settings of a lane
	version int             // server_version_num
	pooler  bool            // settings go with each transaction
	offset  atomic.Int64    // nf.clock_offset_ms of each transaction; tests only
	install atomic.Pointer[Install]

	queuesOnce sync.Once
	queues     *QueueCache

	// Abort, if set, is called before each statement and before COMMIT with the transaction's name and the statement's; an
	// error aborts there. Only tests and the soak set it, before first use.
	Abort func(tx, statement string) error
	// Rewrite, if set, changes the text of a statement. Only tests that break a rule on purpose set it, before first use.
	Rewrite func(statement, text string) string
	// OnTx, if set, is told each transaction's name, duration and error. Set before first use.
	OnTx func(tx string, took time.Duration, err error)
}

// Tx is one transaction. Not safe for concurrent use.
type Tx struct {
	s           *Store
	conn        *pgx.Conn
	name        string
	lockTimeout time.Duration     // what a wait for a lock is bounded by when nothing else is said
	settings    map[string]string // that the connection does not have of itself
	begun       bool              // BEGIN goes with the first statement
	committed   bool              // COMMIT went with the last one
}

// SetClockOffset moves the database clock that this Store's transactions see, from the next transaction on. Tests only; processes
// of their own follow `ALTER DATABASE … SET nf.clock_offset_ms`.
func (s *Store) SetClockOffset(d time.Duration) { s.offset.Store(d.Milliseconds()) }

// InTx runs fn in one READ COMMITTED transaction and commits. An error of fn rolls back. The name is that of the transaction in
// metrics and abort points. An error of COMMIT itself is a *CommitUnknownError unless the server answered that it rolled back.
// The whole transaction has a deadline one second above the server's (B8).
func (s *Store) InTx(ctx context.Context, lane Lane, name string, fn func(context.Context, *Tx) error) (err error) {
	start := time.Now() //nolint:forbidigo // duration of a metric
	if s.OnTx != nil {
		defer func() { s.OnTx(name, time.Since(start), err) }() //nolint:forbidigo // duration of a metric
	}
	ctx, cancel := context.WithTimeout(ctx, laneLimits[lane].transaction+time.Second)
	defer cancel()
	conn, err := s.pools[lane].Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: connection: %w", name, err)
	}
	defer conn.Release()
	var settings map[string]string
	if s.pooler {
		settings = laneSettings(lane, s.version)
	}
	return s.run(ctx, conn.Conn(), name, settings, lockTimeout, fn)
}

// run is one transaction on a connection. A connection that is of no more use is closed.
func (s *Store) run(ctx context.Context, conn *pgx.Conn, name string, settings map[string]string, wait time.Duration,
	fn func(context.Context, *Tx) error,
) (err error) {
	if offset := s.offset.Load(); offset != 0 {
		if settings = maps.Clone(settings); settings == nil {
			settings = map[string]string{}
		}
		settings["nf.clock_offset_ms"] = strconv.FormatInt(offset, 10)
	}
	t := &Tx{s: s, conn: conn, name: name, lockTimeout: wait, settings: settings}
	defer func() {
		if err != nil {
			err = t.rollback(ctx, err)
		}
	}()
	if err := fn(ctx, t); err != nil {
		return err
	}
	if !t.committed {
		if err := t.commit(ctx); err != nil {
			return err
		}
	}
	return t.abort("committed")
}

// prologue puts what begins the transaction in front of a batch, if it has not begun, and gives the number of answers to read for it.
func (t *Tx) prologue(b *pgx.Batch) int {
	if t.begun {
		return 0
	}
	t.begun = true
	b.Queue("begin")
	if len(t.settings) == 0 {
		return 1
	}
	names := slices.Sorted(maps.Keys(t.settings))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = t.settings[n]
	}
	b.Queue(statement("set_local_all", ""), names, values)
	return 2
}

// begin begins the transaction in a round trip of its own, for a statement that is sent alone.
func (t *Tx) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	var b pgx.Batch
	t.prologue(&b)
	if err := t.conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("%s: begin: %w", t.name, err)
	}
	return nil
}

// commit sends COMMIT by itself. A transaction of no statement has nothing to commit.
func (t *Tx) commit(ctx context.Context) error {
	if err := t.abort("commit"); err != nil || !t.begun {
		return err
	}
	tag, err := t.conn.Exec(ctx, "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return t.ended(err)
}

// ended judges an error of COMMIT, or of the statements that COMMIT was sent with: unless the server says that it refused one of them,
// what became of the transaction is not known.
func (t *Tx) ended(err error) error {
	if err == nil {
		t.committed = true
		return nil
	}
	var pg *pgconn.PgError
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &pg) && !brokenCode(pg.Code) {
		return fmt.Errorf("%s: commit: %w", t.name, err)
	}
	// A backend that is ended from outside says so (57P01) before or after its COMMIT took effect.
	return &CommitUnknownError{Tx: t.name, Err: err}
}

// rollback ends a transaction that failed with err, and closes a connection that is of no more use.
func (t *Tx) rollback(ctx context.Context, err error) error {
	if err = broken(ctx, t.conn, err); t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, failed := t.conn.Exec(end, "rollback"); failed != nil {
		_ = t.conn.Close(end)
	}
	return err
}

// broken closes a connection after an error that makes it useless and marks the error.
func broken(ctx context.Context, conn *pgx.Conn, err error) error {
	if !conn.IsClosed() && brokenCode(Code(err)) {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}
	if conn.IsClosed() && !errors.Is(err, errBroken) {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return err
}

// inOwnTx runs fn on a connection of its own, for what has no bound in time: migrations and applies (S14). Only waits for locks are
// bounded, by wait (0 = not at all), and the caller's context bounds the whole.
func (s *Store) inOwnTx(ctx context.Context, name string, wait time.Duration, fn func(context.Context, *Tx) error) (err error) {
	start := time.Now() //nolint:forbidigo // duration of a metric
	if s.OnTx != nil {
		defer func() { s.OnTx(name, time.Since(start), err) }() //nolint:forbidigo // duration of a metric
	}
	settings := map[string]string{"lock_timeout": millis(wait), "statement_timeout": "0", "idle_in_transaction_session_timeout": "60000"}
	cfg := s.connConfig(settings)
	cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("%s: connection: %w", name, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if !s.pooler {
		settings = nil
	}
	return s.run(ctx, conn, name, settings, wait, fn)
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

// text gives a statement as it is sent.
func (s *Store) text(name, day string) string {
	text := statement(name, day)
	if s.Rewrite != nil {
		text = s.Rewrite(name, text)
	}
	return text
}

// query runs a named statement that gives rows; day is for statements that name a day's leaf.
func (t *Tx) query(ctx context.Context, name, day string, args ...any) (pgx.Rows, error) {
	if err := t.abort(name); err != nil {
		return nil, err
	}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	rows, err := t.conn.Query(ctx, t.s.text(name, day), args...)
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
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	tag, err := t.conn.Exec(ctx, t.s.text(name, day), args...)
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
	p.batch.Queue(p.t.s.text(name, day), args...)
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
	return p.run(ctx)
}

// sendAndCommit is send with COMMIT in the same round trip. It is the last thing of its transaction.
func (p *pipeline) sendAndCommit(ctx context.Context) error {
	if p.err == nil {
		p.err = p.t.abort("commit")
	}
	if p.err != nil {
		return p.err
	}
	if len(p.reads) == 0 {
		return p.t.commit(ctx)
	}
	p.batch.Queue("commit")
	p.reads = append(p.reads, namedRead{"commit", func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	}})
	return p.t.ended(p.run(ctx))
}

// run sends the batch and reads every answer.
func (p *pipeline) run(ctx context.Context) error {
	var head pgx.Batch
	before := p.t.prologue(&head)
	p.batch.QueuedQueries = append(head.QueuedQueries, p.batch.QueuedQueries...)
	results := p.t.conn.SendBatch(ctx, &p.batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return fmt.Errorf("%s: begin: %w", p.t.name, err)
		}
	}
	for _, r := range p.reads {
		if err := r.read(results); err != nil {
			_ = results.Close()
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return results.Close()
}
