-- name: engine_drop_leases
-- Whose: S2, S8. Locks: rows already locked.
DELETE FROM nf_lease WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[]) AS k(ns, exec_id, task_no, fence) CROSS JOIN LATERAL (
    SELECT l.ctid AS t FROM nf_lease l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.fence = k.fence LIMIT 1) x));

-- name: engine_drop_permits
-- Whose: S2, S8. Locks: L4, rows that go with a lease of this transaction.
DELETE FROM nf_lease_sem WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
    SELECT s.ctid AS t FROM nf_lease_sem s WHERE s.ns = k.ns AND s.exec_id = k.exec_id AND s.task_no = k.task_no OFFSET 0) x));

-- name: engine_drop_timers
-- Whose: S2, S8; task 0 is the execution's own deadline. Locks: rows already locked, or under L3 (task 0).
DELETE FROM nf_timer WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
    SELECT l.ctid AS t FROM nf_timer l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no LIMIT 1) x));

-- name: engine_drop_ready
-- Whose: S2, S8. Locks: rows already locked.
DELETE FROM nf_ready WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
    SELECT l.ctid AS t FROM nf_ready l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no LIMIT 1) x));

-- name: engine_disarm_leases
-- Whose: S2, ALERT_ONLY: takes deadlines off. Locks: rows already locked. what: 1 startToClose, 2 task timeout, 3 total.
UPDATE nf_lease l SET
       close_by = CASE WHEN k.what = 1 THEN NULL ELSE l.close_by END,
       att_by = CASE WHEN k.what = 2 THEN NULL ELSE l.att_by END,
       total_by = CASE WHEN k.what = 3 THEN NULL ELSE l.total_by END,
       check_at = LEAST(l.lease_until, l.beat_by, CASE WHEN k.what <> 1 THEN l.close_by END, CASE WHEN k.what <> 2 THEN l.att_by END,
                        CASE WHEN k.what <> 3 THEN l.total_by END)
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[], $5::smallint[]) AS k(ns, exec_id, task_no, fence, what)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_lease x
                      WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.fence = k.fence LIMIT 1) x
 WHERE l.ctid = x.t;

-- name: engine_disarm_ready
-- Whose: S5a through S2, ALERT_ONLY. Locks: rows already locked. what: 2 task timeout, 3 total, 4 scheduleToStart.
UPDATE nf_ready l SET
       start_by = CASE WHEN k.what = 4 THEN NULL ELSE l.start_by END,
       att_by = CASE WHEN k.what = 2 THEN NULL ELSE l.att_by END,
       total_by = CASE WHEN k.what = 3 THEN NULL ELSE l.total_by END
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::smallint[]) AS k(ns, exec_id, task_no, what)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_ready x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no LIMIT 1) x
 WHERE l.ctid = x.t;

-- name: engine_disarm_timers
-- Whose: S5e through S2, ALERT_ONLY. Locks: rows already locked. what: 2 task timeout, 3 total.
UPDATE nf_timer l SET
       att_by = CASE WHEN k.what = 2 THEN NULL ELSE l.att_by END,
       total_by = CASE WHEN k.what = 3 THEN NULL ELSE l.total_by END
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::smallint[]) AS k(ns, exec_id, task_no, what)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_timer x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no LIMIT 1) x
 WHERE l.ctid = x.t;

-- name: engine_tasks_in
-- Whose: S2, S3, S6, S8. Locks: L7. Ended attempts, appended.
INSERT INTO nf_task (ns, exec_id, task_no, attempt, seq, fence, scheduled_at, visible_at, leased_at, ended_at, scope_no, slot, def_id, def_rev,
       queue_id, deliveries, kind, status, rerun, codec, absorbed, exhausted, iteration, worker, cause, reason, control, next_due_at,
       delay_policy_ms, delay_min_ms, delay_source, width, output)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::timestamptz[], $8::timestamptz[],
       $9::timestamptz[], $10::timestamptz[], $11::int[], $12::int[], $13::int[], $14::int[], $15::int[], $16::int[], $17::smallint[],
       $18::smallint[], $19::int[], $20::smallint[], $21::boolean[], $22::boolean[], $23::text[], $24::text[], $25::text[], $26::text[],
       $27::text[], $28::timestamptz[], $29::bigint[], $30::bigint[], $31::text[], $32::int[], $33::bytea[]);

-- name: engine_task_decided
-- Whose: S3: the decision on a result that was recorded before. Locks: under L3.
UPDATE nf_task_{day} t SET status = k.status, cause = k.cause, reason = k.reason, control = k.control, absorbed = k.absorbed,
       exhausted = k.exhausted, next_due_at = k.next_due_at, delay_policy_ms = k.delay_policy_ms, delay_min_ms = k.delay_min_ms,
       delay_source = k.delay_source
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::boolean[], $10::boolean[],
              $11::timestamptz[], $12::bigint[], $13::bigint[], $14::text[])
       AS k(ns, exec_id, task_no, attempt, status, cause, reason, control, absorbed, exhausted, next_due_at, delay_policy_ms, delay_min_ms,
            delay_source)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_task_{day} x
                      WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt LIMIT 1) x
 WHERE t.ctid = x.t;

-- name: engine_payloads_in
-- Whose: S2, S3, S6, S8. Locks: L7.
INSERT INTO nf_payload (ns, exec_id, task_no, part, rerun, codec, body)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::int[], $4::smallint[], $5::int[], $6::smallint[], $7::bytea[]);

-- name: engine_ready_in
-- Whose: S2, S3, S6. Locks: L7. Next work that nobody here takes at once.
INSERT INTO nf_ready (ns, exec_id, task_no, attempt, queue_id, lane, kind, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
       retries_left, scheduled_at, visible_at, start_by, att_by, total_by, iteration)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::smallint[], $8::int[], $9::int[], $10::int[],
       $11::int[], $12::int[], $13::int[], $14::int[], $15::int[], $16::timestamptz[], $17::timestamptz[], $18::timestamptz[],
       $19::timestamptz[], $20::timestamptz[], $21::text[]);

-- name: engine_eager_in
-- Whose: S2, S3, S6, next work that this process takes at once; what may not be leased after all (a gate was added, the runner was
-- declared dead, the namespace is suspended) becomes ready. Locks: L7. Gives the leases.
WITH k AS MATERIALIZED (
  SELECT nf_now() AS now, k.*, q.queue_id IS NOT NULL
         AND (k.holder = 0 OR EXISTS (SELECT FROM nf_runner r WHERE r.runner_no = k.holder AND r.dead_at IS NULL)) AS take
    FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::smallint[], $8::int[], $9::int[], $10::int[],
                $11::int[], $12::int[], $13::int[], $14::int[], $15::int[], $16::timestamptz[], $17::timestamptz[], $18::timestamptz[],
                $19::timestamptz[], $20::timestamptz[], $21::text[], $22::int[], $23::bigint[], $24::bigint[], $25::text[])
         AS k(ns, exec_id, task_no, attempt, queue_id, lane, kind, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries, retries_left,
              scheduled_at, visible_at, start_by, att_by, total_by, iteration, holder, claim_id, lease_ms, worker)
    LEFT JOIN LATERAL (SELECT x.queue_id FROM nf_queue x JOIN nf_ns n ON n.ns = x.ns
                        WHERE x.ns = k.ns AND x.queue_id = k.queue_id AND NOT x.gated AND n.suspended_at IS NULL LIMIT 1) q ON true),
l AS (
  INSERT INTO nf_lease (ns, exec_id, task_no, attempt, queue_id, lane, kind, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
         retries_left, scheduled_at, visible_at, att_by, total_by, iteration, holder, claim_id, leased_at, check_at, lease_until, beat_by,
         close_by, lease_ms, worker)
  SELECT k.ns, k.exec_id, k.task_no, k.attempt, k.queue_id, k.lane, k.kind, k.scope_no, k.slot, k.rev_id, k.def_id, k.def_rev, k.rerun,
         k.deliveries + 1, k.retries_left, k.scheduled_at, k.visible_at, k.att_by, k.total_by, k.iteration, k.holder, k.claim_id, k.now,
         LEAST(v.lease_until, v.beat_by, v.close_by, k.att_by, k.total_by), v.lease_until, v.beat_by, v.close_by, m.lease_ms, k.worker
    FROM k
    LEFT JOIN LATERAL (SELECT x.lease_ms, x.beat_ms, x.close_ms FROM nf_policy x WHERE x.ns = k.ns AND x.def_rev = k.def_rev LIMIT 1) p ON true
    CROSS JOIN LATERAL (SELECT LEAST(k.lease_ms, coalesce(p.lease_ms, 3600000)) AS lease_ms) m
    CROSS JOIN LATERAL (SELECT CASE WHEN k.holder = 0 THEN k.now + m.lease_ms * interval '1 ms' END AS lease_until,
                               CASE WHEN k.holder = 0 THEN k.now + p.beat_ms * interval '1 ms' END AS beat_by,
                               k.now + p.close_ms * interval '1 ms' AS close_by) v
   WHERE k.take
  RETURNING ns, exec_id, task_no, attempt, fence, leased_at, lease_until, beat_by, close_by, lease_ms),
r AS (
  INSERT INTO nf_ready (ns, exec_id, task_no, attempt, queue_id, lane, kind, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
         retries_left, scheduled_at, visible_at, start_by, att_by, total_by, iteration)
  SELECT k.ns, k.exec_id, k.task_no, k.attempt, k.queue_id, k.lane, k.kind, k.scope_no, k.slot, k.rev_id, k.def_id, k.def_rev, k.rerun,
         k.deliveries, k.retries_left, k.scheduled_at, k.visible_at, k.start_by, k.att_by, k.total_by, k.iteration
    FROM k WHERE NOT k.take)
SELECT * FROM l;

-- name: engine_timers_in
-- Whose: S2, S3, S6. Locks: L7. Attempts that wait, and the deadline of an execution (task 0, why 20).
INSERT INTO nf_timer (ns, exec_id, task_no, attempt, why, kind, wake_at, att_by, total_by, start_by, scheduled_at, queue_id, scope_no, slot,
       rev_id, def_id, def_rev, rerun, deliveries, retries_left, lane, iteration)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::smallint[], $6::smallint[], $7::timestamptz[], $8::timestamptz[],
       $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::int[], $13::int[], $14::int[], $15::int[], $16::int[], $17::int[],
       $18::int[], $19::int[], $20::int[], $21::smallint[], $22::text[]);

-- name: engine_scopes_in
-- Whose: S2, S3, S6. Locks: L6.
INSERT INTO nf_scope (ns, exec_id, scope_no, parent_no, slot, kind, base_no, width, cursor, open, pending, fired, iteration)
SELECT k.*, '0' FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::smallint[], $7::int[], $8::int[], $9::int[], $10::int[],
       $11::int[], $12::boolean[]) AS k
    ON CONFLICT (ns, exec_id, scope_no) DO UPDATE SET cursor = excluded.cursor, open = excluded.open, pending = excluded.pending,
       fired = excluded.fired;

-- name: engine_scopes_out
-- Whose: S2, S3. Locks: L6.
DELETE FROM nf_scope WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, scope_no) CROSS JOIN LATERAL (
    SELECT s.ctid AS t FROM nf_scope s WHERE s.ns = k.ns AND s.exec_id = k.exec_id AND s.scope_no = k.scope_no LIMIT 1) x));

-- name: engine_vars_in
-- Whose: S2, S3, S6. Locks: L6.
INSERT INTO nf_var (ns, exec_id, name, value)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::text[], $4::bytea[])
    ON CONFLICT (ns, exec_id, name) DO UPDATE SET value = excluded.value;

-- name: engine_events_in
-- Whose: S2, S3, S8. Locks: L7.
INSERT INTO nf_exec_event (ns, exec_id, seq, at, what, task_no, attempt, actor, detail)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::text[], $6::int[], $7::int[], $8::text[], $9::bytea[]);

-- name: engine_marks_in
-- Whose: S2, S3, S6, S8. Locks: L6. Facts that no evaluation has seen.
INSERT INTO nf_decide (ns, exec_id, what, task_no, attempt, since, due_at, tries, detail)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::smallint[], $4::int[], $5::int[], $6::timestamptz[], $7::timestamptz[], $8::int[], $9::text[]);

-- name: engine_marks_out
-- Whose: S3. Locks: L6. The marks that were read, no others.
DELETE FROM nf_decide WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::bigint[]) AS k(ns, exec_id, fact_id) CROSS JOIN LATERAL (
    SELECT d.ctid AS t FROM nf_decide d WHERE d.ns = k.ns AND d.exec_id = k.exec_id AND d.fact_id = k.fact_id LIMIT 1) x));

-- name: engine_marks_tried
-- Whose: S3, under L3: tries + 1, and when to try again. Locks: L6.
UPDATE nf_decide d SET tries = d.tries + 1, due_at = greatest(d.since, k.due_at)
  FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[]) AS k(ns, exec_id, fact_id, due_at)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_decide x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.fact_id = k.fact_id LIMIT 1) x
 WHERE d.ctid = x.t;

-- name: engine_marks_due
-- Whose: S3, under L3: when to try again. Locks: L6.
UPDATE nf_decide d SET due_at = greatest(d.since, k.due_at)
  FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[]) AS k(ns, exec_id, fact_id, due_at)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_decide x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.fact_id = k.fact_id LIMIT 1) x
 WHERE d.ctid = x.t;

-- name: engine_execs_in
-- Whose: S6. Locks: L7. Headers as the first evaluation left them.
INSERT INTO nf_exec (ns, exec_id, seq, started_at, admitted_at, def_id, rev_id, next_no, loose, priority, depth)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::int[], $7::int[], $8::int[], $9::int[],
       $10::smallint[], $11::smallint[]);

-- name: engine_execs_set
-- Whose: S2, S3. Locks: rows already locked. HOT: no index holds these columns.
UPDATE nf_exec e SET seq = k.seq, next_no = k.next_no, loose = k.loose
  FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::int[], $5::int[]) AS k(ns, exec_id, seq, next_no, loose)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_exec x WHERE x.ns = k.ns AND x.exec_id = k.exec_id LIMIT 1) x
 WHERE e.ctid = x.t;

-- name: engine_execs_ending
-- Whose: S8, an end that takes more than one transaction. Locks: rows already locked.
UPDATE nf_exec e SET seq = k.seq, next_no = k.next_no, loose = k.loose, end_status = k.end_status, end_cause = k.end_cause,
       end_reason = k.end_reason, end_no = k.end_no
  FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::int[], $5::int[], $6::smallint[], $7::text[], $8::text[], $9::int[])
       AS k(ns, exec_id, seq, next_no, loose, end_status, end_cause, end_reason, end_no)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_exec x WHERE x.ns = k.ns AND x.exec_id = k.exec_id LIMIT 1) x
 WHERE e.ctid = x.t;

-- name: engine_execs_out
-- Whose: S2, S3, S8: the header of an execution that has ended. Locks: rows already locked.
DELETE FROM nf_exec WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
    SELECT e.ctid AS t FROM nf_exec e WHERE e.ns = k.ns AND e.exec_id = k.exec_id LIMIT 1) x));

-- name: engine_closed_in
-- Whose: S2, S3, S8. Locks: L7.
INSERT INTO nf_exec_closed (ns, exec_id, seq, started_at, admitted_at, ended_at, def_id, rev_id, next_no, reruns, status, priority, depth,
       cause, reason, failed_no, failed_ref, output_no, frames)
SELECT * FROM unnest($1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::int[], $8::int[],
       $9::int[], $10::int[], $11::smallint[], $12::smallint[], $13::smallint[], $14::text[], $15::text[], $16::int[], $17::text[],
       $18::int[], $19::bytea[]);

-- name: engine_exec_scopes_out
-- Whose: S2, S3, S8: what an ended execution leaves. Locks: L6.
DELETE FROM nf_scope WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
    SELECT s.ctid AS t FROM nf_scope s WHERE s.ns = k.ns AND s.exec_id = k.exec_id OFFSET 0) x));

-- name: engine_exec_vars_out
-- Whose: S2, S3, S8. Locks: L6.
DELETE FROM nf_var WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
    SELECT s.ctid AS t FROM nf_var s WHERE s.ns = k.ns AND s.exec_id = k.exec_id OFFSET 0) x));

-- name: engine_exec_marks_out
-- Whose: S2, S3, S8. Locks: L6.
DELETE FROM nf_decide WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
    SELECT s.ctid AS t FROM nf_decide s WHERE s.ns = k.ns AND s.exec_id = k.exec_id OFFSET 0) x));

-- name: engine_budget_in
-- Whose: S2, S3, S6, last statement. Locks: L8, rows of this connection's own shard.
INSERT INTO nf_budget AS b (ns, def_id, bucket, shard, total, retries)
SELECT * FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    ON CONFLICT (ns, def_id, bucket, shard) DO UPDATE SET total = b.total + excluded.total, retries = b.retries + excluded.retries;

-- name: engine_audit_in
-- Whose: S8, S9: a verb on an execution. Locks: L7.
INSERT INTO nf_audit (ns, at, actor, verb, object, reason) VALUES ($1, $2, $3, $4, $5, $6);
