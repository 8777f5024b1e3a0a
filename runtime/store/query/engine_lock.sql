-- name: engine_lock_execs
-- Whose: S2, S3 step of the lock. Locks: L3, skip. Executions in key order.
SELECT e.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.seq, x.started_at, x.admitted_at, x.def_id, x.rev_id, x.next_no, x.loose, x.reruns, x.priority, x.depth,
         x.end_status, x.end_cause, x.end_reason, x.end_no
    FROM nf_exec x WHERE x.ns = k.ns AND x.exec_id = k.exec_id FOR NO KEY UPDATE SKIP LOCKED) e;

-- name: engine_wait_execs
-- Whose: S2 alone, S8, S9. Locks: L3, waits.
SELECT e.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.seq, x.started_at, x.admitted_at, x.def_id, x.rev_id, x.next_no, x.loose, x.reruns, x.priority, x.depth,
         x.end_status, x.end_cause, x.end_reason, x.end_no
    FROM nf_exec x WHERE x.ns = k.ns AND x.exec_id = k.exec_id FOR NO KEY UPDATE) e;

-- name: engine_lock_timers
-- Whose: S2. Locks: L4, skip. Parked attempts in key order.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.wake_at, x.start_by, x.att_by, x.total_by, x.iteration, x.why
    FROM nf_timer x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt
     FOR UPDATE SKIP LOCKED) t;

-- name: engine_wait_timers
-- Whose: S2 alone. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.wake_at, x.start_by, x.att_by, x.total_by, x.iteration, x.why
    FROM nf_timer x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt FOR UPDATE) t;

-- name: engine_lock_ready
-- Whose: S2. Locks: L4, skip. Ready attempts in key order.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, x.start_by, x.att_by, x.total_by, x.iteration
    FROM nf_ready x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt
     FOR UPDATE SKIP LOCKED) t;

-- name: engine_wait_ready
-- Whose: S2 alone. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, x.start_by, x.att_by, x.total_by, x.iteration
    FROM nf_ready x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt FOR UPDATE) t;

-- name: engine_lock_leases
-- Whose: S2. Locks: L4, skip. Leases by key, attempt and fence, in key order.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::bigint[]) AS k(ns, exec_id, task_no, attempt, fence)
 CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, NULL::timestamptz AS start_by, x.att_by, x.total_by, x.iteration,
         x.fence, x.holder, x.claim_id, x.leased_at, x.lease_until, x.beat_by, x.close_by, x.lease_ms, x.sems, x.worker
    FROM nf_lease x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt AND x.fence = k.fence
     FOR UPDATE SKIP LOCKED) t;

-- name: engine_wait_leases
-- Whose: S2 alone. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[], $5::bigint[]) AS k(ns, exec_id, task_no, attempt, fence)
 CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, NULL::timestamptz AS start_by, x.att_by, x.total_by, x.iteration,
         x.fence, x.holder, x.claim_id, x.leased_at, x.lease_until, x.beat_by, x.close_by, x.lease_ms, x.sems, x.worker
    FROM nf_lease x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt AND x.fence = k.fence
     FOR UPDATE) t;

-- name: engine_peek_execs
-- Whose: S2, executions that were not had: locked elsewhere, or gone? Locks: none.
SELECT k.ns, k.exec_id FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT FROM nf_exec x WHERE x.ns = k.ns AND x.exec_id = k.exec_id LIMIT 1) e;

-- name: engine_peek_attempts
-- Whose: S2, attempts that were not had: where is the task's open attempt now? Locks: none. place: 1 ready, 2 lease, 3 timer.
SELECT k.ns, k.exec_id, k.task_no, e.place, e.attempt, e.fence
  FROM unnest($1::int[], $2::uuid[], $3::int[]) AS k(ns, exec_id, task_no) CROSS JOIN LATERAL (
  (SELECT 2::smallint AS place, x.attempt, x.fence FROM nf_lease x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no LIMIT 1)
  UNION ALL
  (SELECT 1::smallint, x.attempt, 0::bigint FROM nf_ready x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no LIMIT 1)
  UNION ALL
  (SELECT 3::smallint, x.attempt, 0::bigint FROM nf_timer x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no LIMIT 1)) e;

-- name: engine_answers
-- Whose: S2, what became of attempts whose fence is gone (N7). Locks: none.
SELECT k.ns, k.exec_id, k.task_no, k.attempt, t.fence, t.status, t.cause
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::int[]) AS k(ns, exec_id, task_no, attempt) CROSS JOIN LATERAL (
  SELECT coalesce(x.fence, 0) AS fence, x.status, x.cause FROM nf_task_{day} x
   WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.attempt = k.attempt LIMIT 1) t;

-- name: engine_closed
-- Whose: S0, S8: is the execution closed, and how? Locks: none.
SELECT k.ns, k.exec_id, t.status, t.seq FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.status, x.seq FROM nf_exec_closed_{day} x WHERE x.ns = k.ns AND x.exec_id = k.exec_id LIMIT 1) t;

-- name: engine_find_leases
-- Whose: S0, eager leases of a transaction whose COMMIT was not answered. Locks: none.
SELECT k.ns, k.exec_id, k.task_no, x.attempt, x.fence, x.leased_at, x.lease_until, x.beat_by, x.close_by, x.lease_ms
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[]) AS k(ns, exec_id, task_no, claim_id) CROSS JOIN LATERAL (
  SELECT l.attempt, l.fence, l.leased_at, l.lease_until, l.beat_by, l.close_by, l.lease_ms FROM nf_lease l
   WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.claim_id = k.claim_id LIMIT 1) x;

-- name: engine_end_lock
-- Whose: S8, and S2, S3 that end by force. Locks: ending lock, exclusive; waits for movers only, who wait for nothing.
SELECT pg_advisory_xact_lock(nf_end_key($1::int, $2::uuid));

-- name: engine_open_timers
-- Whose: S8, first of three. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.wake_at, x.start_by, x.att_by, x.total_by, x.iteration, x.why
    FROM nf_timer x WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no > 0 ORDER BY x.task_no LIMIT $3 FOR UPDATE) t;

-- name: engine_open_ready
-- Whose: S8, second of three. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, x.start_by, x.att_by, x.total_by, x.iteration
    FROM nf_ready x WHERE x.ns = k.ns AND x.exec_id = k.exec_id ORDER BY x.task_no LIMIT $3 FOR UPDATE) t;

-- name: engine_open_leases
-- Whose: S8, third of three: what is claimed meanwhile has come from ready. Locks: L4, waits.
SELECT t.* FROM unnest($1::int[], $2::uuid[]) AS k(ns, exec_id) CROSS JOIN LATERAL (
  SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
         x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, NULL::timestamptz AS start_by, x.att_by, x.total_by, x.iteration,
         x.fence, x.holder, x.claim_id, x.leased_at, x.lease_until, x.beat_by, x.close_by, x.lease_ms, x.sems, x.worker
    FROM nf_lease x WHERE x.ns = k.ns AND x.exec_id = k.exec_id ORDER BY x.task_no LIMIT $3 FOR UPDATE) t;
