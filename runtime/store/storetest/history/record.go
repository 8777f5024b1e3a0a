package history

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Triggers run inside the transactions that they watch, so nothing can be missed, or seen that was rolled back.
//
// Grants of one definition are made one transaction after another, under its gate. A statement inside the trigger sees every committed
// lease and its own, so the number in flight at each grant is exact; leases whose end is not committed count, as they must.
const watchSQL = `
CREATE TABLE watch_grant (
  n bigserial PRIMARY KEY, exec_id uuid NOT NULL, task_no int NOT NULL, attempt int NOT NULL, fence bigint NOT NULL, deliveries int NOT NULL,
  def_id int NOT NULL, kind smallint NOT NULL, in_flight bigint NOT NULL, over text NOT NULL, at timestamptz NOT NULL
);
CREATE TABLE watch_rewrite (exec_id uuid NOT NULL, task_no int NOT NULL, attempt int NOT NULL, before smallint NOT NULL, after smallint NOT NULL);
CREATE FUNCTION watch_grant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO watch_grant (exec_id, task_no, attempt, fence, deliveries, def_id, kind, in_flight, over, at)
  SELECT g.exec_id, g.task_no, g.attempt, g.fence, g.deliveries, g.def_id, g.kind,
         CASE WHEN f.cap IS NULL THEN 0 ELSE (SELECT count(*) FROM nf_lease l WHERE l.ns = g.ns AND l.def_id = g.def_id) END,
         coalesce((SELECT string_agg(format('%s permits of semaphore %s held, there are %s', h.held, s.sem_id, s.permits), '; ')
                     FROM nf_lease_sem p JOIN nf_semaphore s ON s.ns = p.sem_ns AND s.sem_id = p.sem_id
                    CROSS JOIN LATERAL (SELECT count(*) AS held FROM nf_lease_sem x WHERE x.sem_ns = p.sem_ns AND x.sem_id = p.sem_id) h
                    WHERE p.ns = g.ns AND p.exec_id = g.exec_id AND p.task_no = g.task_no AND h.held > s.permits), ''),
         g.leased_at
    FROM granted g LEFT JOIN nf_def_flow f ON f.ns = g.ns AND f.def_id = g.def_id
   WHERE g.ns > 0;
  RETURN NULL;
END $$;
CREATE TRIGGER watch_grant AFTER INSERT ON nf_lease REFERENCING NEW TABLE AS granted FOR EACH STATEMENT EXECUTE FUNCTION watch_grant();
CREATE FUNCTION watch_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO watch_rewrite VALUES (OLD.exec_id, OLD.task_no, OLD.attempt, OLD.status, NEW.status);
  RETURN NULL;
END $$;
CREATE TRIGGER watch_rewrite AFTER UPDATE ON nf_task FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION watch_rewrite();`

const (
	grantsSQL = `SELECT exec_id::text, task_no, attempt, fence, deliveries, def_id, kind, in_flight, over, at FROM watch_grant ORDER BY n`
	rowsSQL   = `SELECT exec_id::text, task_no, attempt, seq, coalesce(fence, 0), kind, status, absorbed, def_id, deliveries, coalesce(cause, ''), scheduled_at,
       visible_at, leased_at, ended_at, next_due_at, coalesce(delay_policy_ms, 0), coalesce(delay_min_ms, 0) FROM nf_task WHERE ns > 0`
	executionsSQL = `SELECT x.id::text, x.open, x.status, x.seq,
       coalesce((SELECT array_agg(v.seq) FROM nf_exec_event v WHERE v.ns = x.ns AND v.exec_id = x.id), '{}')
  FROM (SELECT ns, exec_id AS id, true AS open, 0::smallint AS status, seq FROM nf_exec WHERE ns > 0
        UNION ALL SELECT ns, exec_id, false, status, seq FROM nf_exec_closed WHERE ns > 0) x`
	figuresSQL = `SELECT (SELECT count(*) FROM watch_rewrite), (SELECT count(*) FROM nf_audit),
       (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())`
	openSQL = `SELECT count(*) FROM nf_exec WHERE ns > 0`
)

// Watch begins recording in a migrated database that nothing uses yet.
func Watch(ctx context.Context, url string) error {
	return with(ctx, url, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, watchSQL)
		return err
	})
}

// Open counts the executions that have not ended.
func Open(ctx context.Context, url string) (n int64, err error) {
	err = with(ctx, url, func(c *pgx.Conn) error { return c.QueryRow(ctx, openSQL).Scan(&n) })
	return n, err
}

// Read fills in what the database knows: grants, rows, executions, rewrites, audit rows, deadlocks.
func (h *History) Read(ctx context.Context, url string) error {
	return with(ctx, url, func(c *pgx.Conn) error {
		if err := h.readGrants(ctx, c); err != nil {
			return err
		}
		if err := h.readRows(ctx, c); err != nil {
			return err
		}
		if err := h.readExecutions(ctx, c); err != nil {
			return err
		}
		return c.QueryRow(ctx, figuresSQL).Scan(&h.Rewritten, &h.Audited, &h.Deadlocks)
	})
}

func (h *History) readGrants(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, grantsSQL)
	if err != nil {
		return err
	}
	var g Grant
	_, err = pgx.ForEachRow(rows, []any{&g.Execution, &g.TaskNo, &g.Attempt, &g.Fence, &g.Deliveries, &g.DefID, &g.Kind, &g.InFlight, &g.Over, &g.At},
		func() error { h.Grants = append(h.Grants, g); return nil })
	return err
}

func (h *History) readRows(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, rowsSQL)
	if err != nil {
		return err
	}
	var r Row
	var visible, leased, next *time.Time
	_, err = pgx.ForEachRow(rows, []any{
		&r.Execution, &r.TaskNo, &r.Attempt, &r.Seq, &r.Fence, &r.Kind, &r.Status, &r.Absorbed, &r.DefID, &r.Deliveries, &r.Cause,
		&r.ScheduledAt, &visible, &leased, &r.EndedAt, &next, &r.PolicyMs, &r.MinimumMs,
	}, func() error {
		r.VisibleAt, r.LeasedAt, r.NextAt = instant(visible), instant(leased), instant(next)
		h.Rows = append(h.Rows, r)
		return nil
	})
	return err
}

func (h *History) readExecutions(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, executionsSQL)
	if err != nil {
		return err
	}
	for rows.Next() {
		var x Execution
		if err := rows.Scan(&x.ID, &x.Open, &x.Status, &x.Seq, &x.Events); err != nil {
			rows.Close()
			return err
		}
		h.Executions = append(h.Executions, x)
	}
	return rows.Err()
}

func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func with(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := do(c); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}
