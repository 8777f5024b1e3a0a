-- name: engine_scopes
-- Whose: S2, S3. Locks: none (L6, under L3). Open scopes by number.
SELECT s.* FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, scope_no) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.scope_no, x.parent_no, x.slot, x.kind, x.base_no, x.width, x.cursor, x.open, x.pending, x.fired
    FROM nf_scope x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.scope_no = k.scope_no LIMIT 1) s;

-- name: engine_all_scopes
-- Whose: S8, what is kept of an execution that did not complete; GET. Locks: none.
SELECT s.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.scope_no, x.parent_no, x.slot, x.kind, x.base_no, x.width, x.cursor, x.open, x.pending, x.fired
    FROM nf_scope x WHERE x.ns = k.ns AND x.exec_id = k.exec_id ORDER BY x.scope_no) s;

-- name: engine_tasks
-- Whose: S2, S3. Locks: none. Newest ended attempt of each referenced task.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.ended_at, x.status, x.absorbed, x.next_due_at IS NULL AS ended, x.codec, x.output
    FROM nf_task_{day} x
   WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no ORDER BY x.attempt DESC LIMIT 1) t;

-- name: engine_inputs
-- Whose: S2, S3, S1 after its commit. Locks: none. Inputs: task 0 is the execution.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.codec, x.body FROM nf_payload_{day} x
   WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.part = 1 ORDER BY x.rerun DESC LIMIT 1) t;

-- name: engine_vars
-- Whose: S2, S3. Locks: none (L6, under L3). All variables of open executions.
SELECT v.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.name, x.value FROM nf_var x WHERE x.ns = k.ns AND x.exec_id = k.exec_id OFFSET 0) v;

-- name: engine_budgets
-- Whose: S2, S3 (X11). Locks: none. The live setting (null: no budget) and the sums over all shards from bucket $3 on.
SELECT k.ns, k.def_id, f.budget, b.total, b.retries FROM unnest($1::int[], $2::int[]) AS k(ns, def_id)
  LEFT JOIN LATERAL (SELECT x.budget FROM nf_def_flow x WHERE x.ns = k.ns AND x.def_id = k.def_id LIMIT 1) f ON true
 CROSS JOIN LATERAL (
  SELECT coalesce(sum(x.total), 0)::bigint AS total, coalesce(sum(x.retries), 0)::bigint AS retries FROM nf_budget x
   WHERE x.ns = k.ns AND x.def_id = k.def_id AND x.bucket >= $3::bigint) b;

-- name: engine_due_marks
-- Whose: S3 step 1. Locks: none. Oldest due marks from a low mark on.
SELECT d.ns, d.exec_id, d.fact_id, d.due_at, d.since, d.tries FROM nf_decide d
 WHERE d.due_at > $1::timestamptz AND d.due_at <= nf_now() ORDER BY d.due_at, d.fact_id LIMIT $2;

-- name: engine_marks
-- Whose: S3 step 4, under L3. Locks: none (L6). Due marks of executions, oldest first.
SELECT m.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT y.ns, y.exec_id, y.fact_id, y.what, y.task_no, y.attempt, y.since, y.tries, y.detail FROM (
    SELECT * FROM nf_decide x WHERE x.ns = k.ns AND x.exec_id = k.exec_id ORDER BY x.fact_id OFFSET 0) y   -- by key, never by time
   WHERE y.due_at <= $3::timestamptz LIMIT 500) m;

-- name: engine_recorded
-- Whose: S3: attempts whose result was recorded and not decided. Locks: none (under L3).
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.kind, x.scope_no, x.slot, x.def_id, x.def_rev, x.rerun, x.deliveries,
         x.scheduled_at, x.visible_at, x.iteration, coalesce(x.fence, 0) AS fence, x.leased_at, x.ended_at, x.worker, x.status, x.cause,
         x.reason, x.control, x.codec, x.output
    FROM nf_task_{day} x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt LIMIT 1) t;
