-- name: sweep_look
-- Whose: S5. Locks: none. The clock, and whether anything is due above the low marks: $1 ready, $2 leases, $3 $4 timers by class.
SELECT n.now,
       EXISTS (SELECT FROM nf_ready r WHERE r.expire_at > $1::timestamptz AND r.expire_at <= n.now) AS ready,
       EXISTS (SELECT FROM nf_lease l WHERE l.check_at > $2::timestamptz AND l.check_at <= n.now) AS leases,
       EXISTS (SELECT FROM nf_runner r WHERE r.cleared_at IS NULL AND (r.dead_at IS NOT NULL OR r.alive_until < n.now)) AS runners,
       ARRAY(SELECT k.why FROM unnest($3::smallint[], $4::timestamptz[]) AS k(why, low)
              CROSS JOIN LATERAL (SELECT 1 AS one FROM nf_timer t WHERE t.why = k.why AND t.due_at > k.low AND t.due_at <= n.now LIMIT 1) x) AS timers
  FROM (SELECT nf_now() AS now OFFSET 0) n;

-- name: sweep_ready
-- Whose: S5a. Locks: none. Expired ready rows, a page after ($2, $3, $4, $5), above the low mark $1, due by $6.
SELECT r.ns, r.exec_id, r.task_no, r.attempt, r.queue_id, r.def_id, r.def_rev, r.visible_at, r.start_by, r.att_by, r.total_by, r.expire_at
  FROM nf_ready r
 WHERE r.expire_at > $1::timestamptz AND r.expire_at <= $6::timestamptz
   AND (r.expire_at, r.ns, r.exec_id, r.task_no) > ($2::timestamptz, $3::int, $4::uuid, $5::int)
 ORDER BY r.expire_at, r.ns, r.exec_id, r.task_no LIMIT $7::int;

-- name: sweep_leases
-- Whose: S5b. Locks: none. Leases to look at, a page after ($2, $3, $4, $5), above the low mark $1, due by $6.
SELECT l.ns, l.exec_id, l.task_no, l.attempt, l.fence, l.queue_id, l.def_rev, l.deliveries, l.holder, l.lease_until, l.beat_by, l.close_by, l.att_by,
       l.total_by, l.check_at
  FROM nf_lease l
 WHERE l.check_at > $1::timestamptz AND l.check_at <= $6::timestamptz
   AND (l.check_at, l.ns, l.exec_id, l.task_no) > ($2::timestamptz, $3::int, $4::uuid, $5::int)
 ORDER BY l.check_at, l.ns, l.exec_id, l.task_no LIMIT $7::int;

-- name: sweep_timers
-- Whose: S5e. Locks: none. Timers of one class that the decider must hear of, a page after ($3, $4, $5, $6). Of the classes that become ready
-- ($8) only those with a deadline that is due.
SELECT t.ns, t.exec_id, t.task_no, t.attempt, t.why, t.def_id, t.def_rev, t.wake_at, t.att_by, t.total_by, t.due_at
  FROM nf_timer t
 WHERE t.why = $1::smallint AND t.due_at > $2::timestamptz AND t.due_at <= $7::timestamptz
   AND (t.due_at, t.ns, t.exec_id, t.task_no) > ($3::timestamptz, $4::int, $5::uuid, $6::int)
   AND (NOT $8::boolean OR t.att_by <= $7::timestamptz OR t.total_by <= $7::timestamptz OR t.ttl_by <= $7::timestamptz)
 ORDER BY t.due_at, t.ns, t.exec_id, t.task_no LIMIT $9::int;

-- name: timers_move
-- Whose: S5d, one class. Locks: ending locks (shared, try), L5 (skip), inserts. Back-off and start delay that are over: to the queue.
-- The statement gives the queues that got something, with how many; $5 bounds the executions, each an entry of the lock table.
WITH x AS MATERIALIZED (
  SELECT t.ctid AS t, t.ns, t.exec_id FROM nf_timer t
   WHERE t.why = $1::smallint AND t.due_at > $2::timestamptz AND t.due_at <= $3::timestamptz AND t.wake_at <= $3::timestamptz
     AND (t.att_by IS NULL OR t.att_by > $3::timestamptz) AND (t.total_by IS NULL OR t.total_by > $3::timestamptz)
     AND (t.ttl_by IS NULL OR t.ttl_by > $3::timestamptz)
   ORDER BY t.due_at LIMIT $4::int FOR UPDATE SKIP LOCKED),
e AS MATERIALIZED (SELECT x.t FROM x WHERE pg_try_advisory_xact_lock_shared(nf_end_key(x.ns, x.exec_id))),
d AS (DELETE FROM nf_timer WHERE ctid = ANY (ARRAY(SELECT t FROM e)) RETURNING *),
i AS (
  INSERT INTO nf_ready (ns, queue_id, lane, sub, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
                        retries_left, scheduled_at, visible_at, start_by, att_by, total_by, ttl_by, iteration, ref, flow_key, checkpoint)
  SELECT d.ns, d.queue_id, d.lane, 1, d.kind, d.exec_id, d.task_no, d.attempt, d.scope_no, d.slot, d.rev_id, d.def_id, d.def_rev, d.rerun,
         d.deliveries, d.retries_left, d.scheduled_at, d.wake_at, d.start_by, d.att_by, d.total_by, d.ttl_by, d.iteration, d.ref, d.flow_key,
         d.checkpoint
    FROM d ORDER BY d.wake_at
  RETURNING ns, queue_id)
SELECT i.ns, i.queue_id, count(*), (SELECT count(*) FROM x) FROM i GROUP BY i.ns, i.queue_id;

-- name: timers_due
-- Whose: S5d, after a refused batch. Locks: none. Keys of due timers of a class, in order.
SELECT t.ns, t.exec_id, t.task_no FROM nf_timer t
 WHERE t.why = $1::smallint AND t.due_at > $2::timestamptz AND t.due_at <= $3::timestamptz AND t.wake_at <= $3::timestamptz
 ORDER BY t.due_at LIMIT $4::int;

-- name: timer_move_one
-- Whose: S5d, one timer by key. Locks: ending lock (shared, try), L5 (skip), insert.
WITH x AS MATERIALIZED (
  SELECT t.ctid AS t, t.ns, t.exec_id FROM nf_timer t
   WHERE t.ns = $1::int AND t.exec_id = $2::uuid AND t.task_no = $3::int AND t.why IN (1, 2, 3, 4, 7) AND t.wake_at <= $4::timestamptz
   LIMIT 1 FOR UPDATE SKIP LOCKED),
e AS MATERIALIZED (SELECT x.t FROM x WHERE pg_try_advisory_xact_lock_shared(nf_end_key(x.ns, x.exec_id))),
d AS (DELETE FROM nf_timer WHERE ctid = ANY (ARRAY(SELECT t FROM e)) RETURNING *)
INSERT INTO nf_ready (ns, queue_id, lane, sub, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
                      retries_left, scheduled_at, visible_at, start_by, att_by, total_by, ttl_by, iteration, ref, flow_key, checkpoint)
SELECT d.ns, d.queue_id, d.lane, 1, d.kind, d.exec_id, d.task_no, d.attempt, d.scope_no, d.slot, d.rev_id, d.def_id, d.def_rev, d.rerun,
       d.deliveries, d.retries_left, d.scheduled_at, d.wake_at, d.start_by, d.att_by, d.total_by, d.ttl_by, d.iteration, d.ref, d.flow_key,
       d.checkpoint
  FROM d
RETURNING ns, queue_id;

-- name: timer_park
-- Whose: S5d, a row that the server refuses. Locks: the row (skip). It is looked at again later and stops nothing meanwhile.
UPDATE nf_timer SET wake_at = nf_now() + $4::bigint * interval '1 ms'
 WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM nf_timer t WHERE t.ns = $1::int AND t.exec_id = $2::uuid AND t.task_no = $3::int LIMIT 1 FOR UPDATE SKIP LOCKED));

-- name: end_lock_try
-- Whose: movers (S1b step 4, S5b, S5c, S7). Locks: ending locks, shared, try: what is being ended by force is left.
SELECT k.n FROM unnest($1::int[], $2::int[], $3::uuid[]) AS k(n, ns, exec_id)
 WHERE pg_try_advisory_xact_lock_shared(nf_end_key(k.ns, k.exec_id));

-- name: lease_lock
-- Whose: movers. Locks: L4 (skip). Leases by key and fence, as they are now.
SELECT l.* FROM unnest($1::int[], $2::int[], $3::uuid[], $4::int[], $5::bigint[]) AS k(n, ns, exec_id, task_no, fence) CROSS JOIN LATERAL (
  SELECT k.n, x.deliveries, x.holder, x.lease_until, x.beat_by, x.close_by, x.att_by, x.total_by, x.sems FROM nf_lease x
   WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.fence = k.fence LIMIT 1 FOR UPDATE SKIP LOCKED) l;

-- name: lease_move
-- Whose: S5b, S5c, S7, S1b step 4, after lease_lock. Locks: L4 held, inserts. Leases back to the head of their lane, permits freed.
-- $5 start_by, $6 how many deliveries are taken back (a release is none).
WITH k AS MATERIALIZED (
  SELECT x.*, k.start_by AS again_by
    FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[], $5::timestamptz[]) AS k(ns, exec_id, task_no, fence, start_by)
   CROSS JOIN LATERAL (SELECT l.ctid AS t, l.* FROM nf_lease l
     WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.fence = k.fence LIMIT 1) x),
d AS (DELETE FROM nf_lease WHERE ctid = ANY (ARRAY(SELECT t FROM k))),
s AS (DELETE FROM nf_lease_sem WHERE ctid = ANY (ARRAY(
        SELECT x.t FROM k CROSS JOIN LATERAL (SELECT s.ctid AS t FROM nf_lease_sem s
          WHERE s.ns = k.ns AND s.exec_id = k.exec_id AND s.task_no = k.task_no OFFSET 0) x WHERE k.sems > 0)))
INSERT INTO nf_ready (ns, queue_id, lane, sub, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
                      retries_left, scheduled_at, visible_at, start_by, att_by, total_by, ttl_by, iteration, ref, flow_key, checkpoint)
SELECT k.ns, k.queue_id, k.lane, 0, k.kind, k.exec_id, k.task_no, k.attempt, k.scope_no, k.slot, k.rev_id, k.def_id, k.def_rev, k.rerun,
       k.deliveries - $6::int, k.retries_left, k.scheduled_at, k.visible_at, k.again_by, k.att_by, k.total_by, k.ttl_by, k.iteration, k.ref,
       k.flow_key, k.checkpoint
  FROM k
RETURNING ns, queue_id;

-- name: lease_recheck
-- Whose: S5b, after lease_lock. Locks: L4 held. A lease that was beaten is looked at again at its deadline.
UPDATE nf_lease l SET check_at = l.deadline_at
  FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[]) AS k(ns, exec_id, task_no, fence)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_lease x
   WHERE x.ns = k.ns AND x.exec_id = k.exec_id AND x.task_no = k.task_no AND x.fence = k.fence LIMIT 1) x
 WHERE l.ctid = x.t;

-- name: lease_expire
-- Whose: answers that could not be written, atMostOnce (contract 3.7). Locks: L4 (skip). The lease is lost now; the sweep finds it.
WITH k AS MATERIALIZED (
  SELECT x.t FROM unnest($1::int[], $2::uuid[], $3::int[], $4::bigint[]) AS k(ns, exec_id, task_no, fence)
   CROSS JOIN LATERAL (SELECT l.ctid AS t FROM nf_lease l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.fence = k.fence
                          AND l.holder = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) x),
n AS MATERIALIZED (SELECT nf_now() AS now)
UPDATE nf_lease l SET lease_until = LEAST(l.lease_until, n.now), check_at = LEAST(l.check_at, n.now) FROM k CROSS JOIN n WHERE l.ctid = k.t;

-- name: runner_dead
-- Whose: S5c. Locks: the rows (skip). Runners that have not beaten are dead, once and for ever.
UPDATE nf_runner SET dead_at = nf_now()
 WHERE runner_no = ANY (ARRAY(SELECT r.runner_no FROM nf_runner r WHERE r.dead_at IS NULL AND r.alive_until < nf_now() FOR UPDATE SKIP LOCKED))
   AND dead_at IS NULL AND alive_until < nf_now()
RETURNING runner_no;

-- name: runner_uncleared
-- Whose: S5c. Locks: none. Dead runners whose leases are not known to be gone.
SELECT r.runner_no, r.dead_at, nf_now() FROM nf_runner r WHERE r.dead_at IS NOT NULL AND r.cleared_at IS NULL ORDER BY r.runner_no;

-- name: runner_clear
-- Whose: S5c. Locks: the row.
UPDATE nf_runner SET cleared_at = nf_now() WHERE runner_no = $1::int AND dead_at IS NOT NULL AND cleared_at IS NULL;

-- name: runner_leases
-- Whose: S5c, one walk by key. Locks: none. Leases of the given runners ($4), or, with $5, of every runner that is dead or missing.
SELECT l.ns, l.exec_id, l.task_no, l.attempt, l.fence, l.queue_id, l.def_rev, l.deliveries, l.holder, l.lease_until, l.beat_by, l.close_by, l.att_by,
       l.total_by
  FROM nf_lease l
 WHERE l.ns > 0 AND (l.ns, l.exec_id, l.task_no) > ($1::int, $2::uuid, $3::int) AND l.holder > 0
   AND (l.holder = ANY ($4::int[])
        OR ($5::boolean AND NOT EXISTS (SELECT FROM nf_runner r WHERE r.runner_no = l.holder AND r.dead_at IS NULL)))
 ORDER BY l.ns, l.exec_id, l.task_no LIMIT 500;

-- name: runner_own_leases
-- Whose: S5c. Locks: none. Leases under one number that are older than $5 ms: what is not in its memory is given back.
SELECT l.ns, l.exec_id, l.task_no, l.attempt, l.fence, l.queue_id, l.def_rev
  FROM nf_lease l
 WHERE l.ns > 0 AND (l.ns, l.exec_id, l.task_no) > ($1::int, $2::uuid, $3::int) AND l.holder = $4::int
   AND l.leased_at < nf_now() - $5::bigint * interval '1 ms'
 ORDER BY l.ns, l.exec_id, l.task_no LIMIT 500;

-- name: queue_polled
-- Whose: S5a, the reason of a scheduleToStart deadline. Locks: none. The last refusal of the queue's definition, and whether anyone polled it.
SELECT q.name, f.verdict, f.verdict_at,
       CASE WHEN q.system THEN EXISTS (SELECT FROM nf_runner r WHERE r.dead_at IS NULL AND r.alive_until > nf_now())
            ELSE EXISTS (SELECT FROM nf_poller p WHERE p.ns = q.ns AND p.queue_id = q.queue_id AND p.polled_at > nf_now() - interval '60 s') END
  FROM nf_queue q
  LEFT JOIN LATERAL (SELECT x.verdict, x.verdict_at FROM nf_def_flow x WHERE x.ns = q.ns AND x.def_id = q.def_id LIMIT 1) f ON true
 WHERE q.ns = $1::int AND q.queue_id = $2::int;

-- name: retire_pollers
-- Whose: S17. Locks: the rows. Workers that have not polled for a day.
DELETE FROM nf_poller WHERE ctid = ANY (ARRAY(
  SELECT p.ctid FROM nf_poller p WHERE p.polled_at < nf_now() - interval '24 h' ORDER BY p.polled_at LIMIT 1000 FOR UPDATE SKIP LOCKED));

-- name: retire_budget
-- Whose: S17. Locks: the rows (skip). Buckets behind every window.
DELETE FROM nf_budget WHERE ctid = ANY (ARRAY(
  SELECT b.ctid FROM nf_budget b WHERE b.bucket < floor(extract(epoch FROM nf_now()) / 10)::bigint - 62 LIMIT 1000 FOR UPDATE SKIP LOCKED));

-- name: retire_runners
-- Whose: S17. Locks: the rows (skip). Numbers under which nothing has been leased for an hour.
DELETE FROM nf_runner WHERE ctid = ANY (ARRAY(
  SELECT r.ctid FROM nf_runner r WHERE r.cleared_at < nf_now() - interval '1 h' LIMIT 1000 FOR UPDATE SKIP LOCKED));

-- name: retire_idem
-- Whose: S17. Locks: the rows (skip). Keys older than 7 days whose execution's day is gone: its id lies below the oldest day kept.
DELETE FROM nf_idem WHERE ctid = ANY (ARRAY(
  SELECT i.ctid FROM nf_idem i WHERE i.exec_id < nf_day_floor($1::date) AND i.ns > 0 AND i.created_at < nf_now() - interval '7 days'
   ORDER BY i.exec_id LIMIT 1000 FOR UPDATE SKIP LOCKED));
