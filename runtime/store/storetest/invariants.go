//go:build unix

package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// invariant is a query that gives the rows which break a rule (the physical design, end of B4); there are none in a sound database.
type invariant struct {
	name  string
	query string
}

// invariants hold between any two transactions. Namespaces 0 and below hold ballast only.
var invariants = []invariant{
	{"an attempt, scope, variable or mark without a header", `
		SELECT x.what, x.ns, x.exec_id::text, x.task_no FROM (
		  SELECT 'ready' AS what, ns, exec_id, task_no FROM nf_ready UNION ALL SELECT 'lease', ns, exec_id, task_no FROM nf_lease
		  UNION ALL SELECT 'timer', ns, exec_id, task_no FROM nf_timer UNION ALL SELECT 'scope', ns, exec_id, scope_no FROM nf_scope
		  UNION ALL SELECT 'variable', ns, exec_id, 0 FROM nf_var UNION ALL SELECT 'mark', ns, exec_id, task_no FROM nf_decide) x
		 WHERE x.ns > 0 AND NOT EXISTS (SELECT FROM nf_exec e WHERE e.ns = x.ns AND e.exec_id = x.exec_id)`},
	{"an open attempt in two tables", `
		SELECT ns, exec_id::text, task_no, count(*) FROM (
		  SELECT ns, exec_id, task_no FROM nf_ready UNION ALL SELECT ns, exec_id, task_no FROM nf_lease
		  UNION ALL SELECT ns, exec_id, task_no FROM nf_timer) x WHERE ns > 0 GROUP BY 1, 2, 3 HAVING count(*) > 1`},
	{"permits differ from those of the leases", `
		SELECT l.ns, l.exec_id::text, l.task_no, l.sems, count(s.fence) FROM nf_lease l
		  LEFT JOIN nf_lease_sem s ON s.ns = l.ns AND s.exec_id = l.exec_id AND s.task_no = l.task_no AND s.fence = l.fence
		 WHERE l.ns > 0 GROUP BY 1, 2, 3, 4 HAVING count(s.fence) <> l.sems`},
	{"a permit without its lease", `
		SELECT s.sem_ns, s.sem_id, s.fence FROM nf_lease_sem s WHERE s.ns > 0 AND NOT EXISTS (
		  SELECT FROM nf_lease l WHERE l.ns = s.ns AND l.exec_id = s.exec_id AND l.task_no = s.task_no AND l.fence = s.fence)`},
	{"loose is not the number of scopes whose join has fired", `
		SELECT e.ns, e.exec_id::text, e.loose, count(s.scope_no) FROM nf_exec e
		  LEFT JOIN nf_scope s ON s.ns = e.ns AND s.exec_id = e.exec_id AND s.fired WHERE e.ns > 0 AND e.end_status IS NULL
		 GROUP BY 1, 2, 3 HAVING count(s.scope_no) <> e.loose`},
	{"a running execution with nothing open, no timer and no mark", `
		SELECT e.ns, e.exec_id::text, e.seq FROM nf_exec e WHERE e.ns > 0 AND e.admitted_at IS NOT NULL
		   AND NOT EXISTS (SELECT FROM nf_ready x WHERE x.ns = e.ns AND x.exec_id = e.exec_id)
		   AND NOT EXISTS (SELECT FROM nf_lease x WHERE x.ns = e.ns AND x.exec_id = e.exec_id)
		   AND NOT EXISTS (SELECT FROM nf_timer x WHERE x.ns = e.ns AND x.exec_id = e.exec_id AND x.task_no > 0)
		   AND NOT EXISTS (SELECT FROM nf_decide x WHERE x.ns = e.ns AND x.exec_id = e.exec_id)`},
	{"events of an execution are not 2 … seq without gap", `
		SELECT x.ns, x.exec_id::text, x.last, count(h.seq), min(h.seq), max(h.seq) FROM (
		  SELECT ns, exec_id, seq AS last FROM nf_exec WHERE ns > 0 UNION ALL SELECT ns, exec_id, seq - 1 FROM nf_exec_closed) x
		  LEFT JOIN LATERAL (
		    SELECT t.seq FROM nf_task t WHERE t.ns = x.ns AND t.exec_id = x.exec_id
		    UNION ALL SELECT v.seq FROM nf_exec_event v WHERE v.ns = x.ns AND v.exec_id = x.exec_id) h ON true
		 GROUP BY 1, 2, 3 HAVING count(h.seq) <> x.last - 1 OR count(DISTINCT h.seq) <> x.last - 1
		     OR coalesce(min(h.seq), 2) <> 2 OR coalesce(max(h.seq), 1) <> x.last`},
	{"an execution is open and closed", `
		SELECT e.ns, e.exec_id::text FROM nf_exec e JOIN nf_exec_closed c ON c.ns = e.ns AND c.exec_id = e.exec_id WHERE e.ns > 0`},
	{"a history without an execution", `
		SELECT DISTINCT x.what, x.ns, x.exec_id::text FROM (
		  SELECT 'task' AS what, ns, exec_id FROM nf_task UNION ALL SELECT 'payload', ns, exec_id FROM nf_payload
		  UNION ALL SELECT 'event', ns, exec_id FROM nf_exec_event) x
		 WHERE NOT EXISTS (SELECT FROM nf_exec e WHERE e.ns = x.ns AND e.exec_id = x.exec_id)
		   AND NOT EXISTS (SELECT FROM nf_exec_closed e WHERE e.ns = x.ns AND e.exec_id = x.exec_id)`},
	{"an idempotency key without its execution", `
		SELECT i.ns, i.key, i.exec_id::text FROM nf_idem i WHERE i.ns > 0
		   AND NOT EXISTS (SELECT FROM nf_exec e WHERE e.ns = i.ns AND e.exec_id = i.exec_id)
		   AND NOT EXISTS (SELECT FROM nf_exec_closed e WHERE e.ns = i.ns AND e.exec_id = i.exec_id)`},
	{"an open attempt that does not follow the last ended one, or follows a final one", `
		SELECT x.ns, x.exec_id::text, x.task_no, x.attempt, t.attempt, t.status FROM (
		  SELECT ns, exec_id, task_no, attempt FROM nf_ready UNION ALL SELECT ns, exec_id, task_no, attempt FROM nf_lease
		  UNION ALL SELECT ns, exec_id, task_no, attempt FROM nf_timer WHERE task_no > 0) x
		  LEFT JOIN LATERAL (SELECT h.attempt, h.status, h.next_due_at FROM nf_task h WHERE h.ns = x.ns AND h.exec_id = x.exec_id
		    AND h.task_no = x.task_no ORDER BY h.attempt DESC LIMIT 1) t ON true
		 WHERE x.ns > 0 AND (x.attempt <> coalesce(t.attempt, 0) + 1 OR t.attempt IS NOT NULL AND t.next_due_at IS NULL)`},
	{"a retry that was promised and is not there", `
		SELECT t.ns, t.exec_id::text, t.task_no, t.attempt FROM nf_task t WHERE t.next_due_at IS NOT NULL
		   AND NOT EXISTS (SELECT FROM nf_task n WHERE n.ns = t.ns AND n.exec_id = t.exec_id AND n.task_no = t.task_no AND n.attempt = t.attempt + 1)
		   AND NOT EXISTS (SELECT FROM nf_ready n WHERE n.ns = t.ns AND n.exec_id = t.exec_id AND n.task_no = t.task_no)
		   AND NOT EXISTS (SELECT FROM nf_lease n WHERE n.ns = t.ns AND n.exec_id = t.exec_id AND n.task_no = t.task_no)
		   AND NOT EXISTS (SELECT FROM nf_timer n WHERE n.ns = t.ns AND n.exec_id = t.exec_id AND n.task_no = t.task_no)`},
	{"more than five deliveries of an attempt", `
		SELECT ns, exec_id::text, task_no, attempt, deliveries FROM nf_task WHERE deliveries > 5
		UNION ALL SELECT ns, exec_id::text, task_no, attempt, deliveries FROM nf_lease WHERE ns > 0 AND deliveries > 5`},
	{"an end that is no terminal status, or a time that runs backwards", `
		SELECT ns, exec_id::text, started_at::text, ended_at::text FROM nf_exec_closed WHERE ended_at < started_at
		UNION ALL SELECT ns, exec_id::text,
		                 format('task %s.%s kind %s status %s %s: scheduled %s visible %s leased %s', task_no, attempt, kind, status, cause, scheduled_at, visible_at, leased_at),
		                 ended_at::text FROM nf_task
		           WHERE ended_at < scheduled_at OR leased_at < scheduled_at OR ended_at < leased_at`},
}

// Broken gives what breaks the invariants in the database at url, one line a rule; none in a sound database.
func Broken(ctx context.Context, url string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var broken []string
	for _, inv := range invariants {
		var text string
		err := conn.QueryRow(ctx, `SELECT coalesce(string_agg(x::text, '; '), '') FROM (SELECT * FROM (`+inv.query+`) y LIMIT 5) x`).Scan(&text)
		if err != nil {
			return nil, err
		}
		if text != "" {
			broken = append(broken, inv.name+": "+text)
		}
	}
	return broken, nil
}

// CheckInvariants fails the test if the database at url breaks an invariant.
func CheckInvariants(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	broken, err := Broken(ctx, url)
	if err != nil {
		t.Fatalf("invariants: %v", err)
	}
	for _, b := range broken {
		t.Errorf("invariant broken: %s", b)
	}
}

// Deadlocks gives how many deadlocks the database at url has seen: none is the goal (X19).
func Deadlocks(t testing.TB, url string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("deadlocks: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var n int64
	if err := conn.QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
		t.Fatalf("deadlocks: %v", err)
	}
	return n
}
