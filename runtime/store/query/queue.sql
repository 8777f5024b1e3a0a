-- name: queue_by_key
-- Whose: S16, API. Locks: none. A physical queue by its name.
SELECT q.ns, q.queue_id, q.main_id, q.name, q.domain, q.system, q.def_id, q.target_ns, q.target_id, q.shard, q.gated
  FROM nf_queue q
 WHERE q.ns = $1::int AND q.name = $2::text AND q.domain = $3::text AND q.target_ns = $4::int AND q.target_id = $5::int AND q.shard = $6::smallint;

-- name: queue_by_id
-- Whose: S1, sweeps. Locks: none.
SELECT q.ns, q.queue_id, q.main_id, q.name, q.domain, q.system, q.def_id, q.target_ns, q.target_id, q.shard, q.gated
  FROM nf_queue q
 WHERE q.ns = $1::int AND q.queue_id = $2::int;

-- name: queue_insert
-- Whose: S16, under the definition's gate. Locks: inserts. $8 is main_id, 0: the row is the main one itself.
WITH n AS MATERIALIZED (SELECT nextval(pg_get_serial_sequence('nf_queue', 'queue_id'))::int AS id)
INSERT INTO nf_queue (ns, queue_id, main_id, name, domain, system, def_id, target_ns, target_id, shard, gated)
SELECT $1::int, n.id, CASE WHEN $8::int = 0 THEN n.id ELSE $8::int END, $2::text, $3::text, $7::boolean, $9::int, $4::int, $5::int, $6::smallint,
       EXISTS (SELECT FROM nf_def_flow f WHERE f.ns = $1::int AND f.def_id = $9::int AND (f.cap IS NOT NULL OR f.rate IS NOT NULL))
       OR EXISTS (SELECT FROM nf_def_sem s WHERE s.ns = $1::int AND s.def_id = $9::int)
  FROM n
ON CONFLICT (ns, name, domain, target_ns, target_id, shard) DO NOTHING;

-- name: queue_system_list
-- Whose: runners. Locks: none. The queues that runners serve, a page after ($1, $2).
SELECT q.ns, q.queue_id, q.main_id, q.name, q.domain, q.system, q.def_id, q.target_ns, q.target_id, q.shard, q.gated
  FROM nf_queue q
 WHERE (q.ns, q.queue_id) > ($1::int, $2::int) AND q.system
 ORDER BY q.ns, q.queue_id LIMIT 1000;

-- name: queue_discover
-- Whose: S1. Locks: none. Which of the given queues hold anything.
SELECT k.ns, k.queue_id FROM unnest($1::int[], $2::int[]) AS k(ns, queue_id)
 CROSS JOIN LATERAL (SELECT 1 AS one FROM nf_ready r WHERE r.ns = k.ns AND r.queue_id = k.queue_id LIMIT 1) x;

-- name: claim_plain
-- Whose: S1a, queue without a gate. Locks: L5 (skip), inserts. A gate that has just been added turns the claim away; a dead runner leases nothing.
-- A lease never begins before its row was scheduled or visible, though that may have been committed after the clock was read (B1.9).
-- $1 ns, $2 queue, $3 want, $4 holder, $5 claim, $6 lease asked for (ms), $7 worker.
WITH q AS MATERIALIZED (
  SELECT nf_now() AS now FROM nf_queue q CROSS JOIN LATERAL (SELECT x.suspended_at FROM nf_ns x WHERE x.ns = q.ns LIMIT 1) n
   WHERE q.ns = $1::int AND q.queue_id = $2::int AND NOT q.gated AND n.suspended_at IS NULL
     AND ($4::int = 0 OR EXISTS (SELECT FROM nf_runner r WHERE r.runner_no = $4::int AND r.dead_at IS NULL))),
c AS MATERIALIZED (
  SELECT x.t FROM q CROSS JOIN LATERAL (
    SELECT a.ctid AS t FROM nf_ready a
     WHERE a.ns = $1::int AND a.queue_id = $2::int AND (a.expire_at IS NULL OR a.expire_at > q.now)
     ORDER BY a.lane, a.sub, a.seq LIMIT $3::int FOR UPDATE SKIP LOCKED) x),
d AS (DELETE FROM nf_ready WHERE ctid = ANY (ARRAY(SELECT t FROM c)) RETURNING *)
INSERT INTO nf_lease (ns, exec_id, task_no, attempt, queue_id, holder, claim_id, leased_at, check_at, lease_until, beat_by, close_by, att_by, total_by,
                      ttl_by, lease_ms, scheduled_at, visible_at, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries, retries_left, lane,
                      kind, iteration, worker, ref, flow_key, checkpoint)
SELECT d.ns, d.exec_id, d.task_no, d.attempt, d.queue_id, $4::int, $5::bigint, m.at,
       LEAST(v.lease_until, v.beat_by, v.close_by, d.att_by, d.total_by), v.lease_until, v.beat_by, v.close_by, d.att_by, d.total_by,
       d.ttl_by, m.lease_ms, d.scheduled_at, d.visible_at, d.scope_no, d.slot, d.rev_id, d.def_id, d.def_rev, d.rerun, d.deliveries + 1,
       d.retries_left, d.lane, d.kind, d.iteration, $7::text, d.ref, d.flow_key, d.checkpoint
  FROM q CROSS JOIN d
  LEFT JOIN LATERAL (SELECT x.lease_ms, x.beat_ms, x.close_ms FROM nf_policy x WHERE x.ns = d.ns AND x.def_rev = d.def_rev LIMIT 1) p ON true
 CROSS JOIN LATERAL (SELECT LEAST($6::bigint, coalesce(p.lease_ms, 3600000)) AS lease_ms, greatest(q.now, d.scheduled_at, d.visible_at) AS at) m
 CROSS JOIN LATERAL (SELECT CASE WHEN $4::int = 0 THEN m.at + m.lease_ms * interval '1 ms' END AS lease_until,
                            CASE WHEN $4::int = 0 THEN m.at + p.beat_ms * interval '1 ms' END AS beat_by,
                            m.at + p.close_ms * interval '1 ms' AS close_by) v
RETURNING ns, exec_id, task_no, attempt, queue_id, holder, fence, claim_id, leased_at, lease_until, beat_by, close_by, att_by, total_by, deadline_at,
          lease_ms, scheduled_at, visible_at, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries, retries_left, lane, kind, sems, iteration,
          worker;

-- name: claim_lookup
-- Whose: S1, repeated requestId and lost COMMIT. Locks: none. Leases of a queue by claim, of fences above $3, leased after $5.
SELECT l.ns, l.exec_id, l.task_no, l.attempt, l.queue_id, l.holder, l.fence, l.claim_id, l.leased_at, l.lease_until, l.beat_by, l.close_by, l.att_by,
       l.total_by, l.deadline_at, l.lease_ms, l.scheduled_at, l.visible_at, l.scope_no, l.slot, l.rev_id, l.def_id, l.def_rev, l.rerun, l.deliveries,
       l.retries_left, l.lane, l.kind, l.sems, l.iteration, l.worker
  FROM nf_lease l
 WHERE l.ns = $1::int AND l.queue_id = $2::int AND l.fence > $3::bigint AND l.claim_id = $4::bigint AND l.leased_at > nf_now() - $5::bigint * interval '1 ms'
 ORDER BY l.fence LIMIT 100;

-- name: claim_gated
-- Whose: S1b step 7, under the gates. Locks: L5 (skip), inserts. Candidates by key, permits in the same statement.
-- $1 ns, $2 queue, $3 lanes, $4 subs, $5 seqs, $6 allowance, $7 now, $8 holder, $9 claim, $10 lease asked for (ms), $11 worker, $12 $13 semaphores.
WITH c AS MATERIALIZED (
  SELECT x.t FROM unnest($3::smallint[], $4::smallint[], $5::bigint[]) AS k(lane, sub, seq) CROSS JOIN LATERAL (
    SELECT a.ctid AS t FROM nf_ready a WHERE a.ns = $1::int AND a.queue_id = $2::int AND a.lane = k.lane AND a.sub = k.sub AND a.seq = k.seq
       AND (a.expire_at IS NULL OR a.expire_at > $7::timestamptz)
       AND ($8::int = 0 OR EXISTS (SELECT FROM nf_runner r WHERE r.runner_no = $8::int AND r.dead_at IS NULL)) LIMIT 1 FOR UPDATE SKIP LOCKED) x
   LIMIT $6::int),
d AS (DELETE FROM nf_ready WHERE ctid = ANY (ARRAY(SELECT t FROM c)) RETURNING *),
l AS (
  INSERT INTO nf_lease (ns, exec_id, task_no, attempt, queue_id, holder, claim_id, leased_at, check_at, lease_until, beat_by, close_by, att_by,
                        total_by, ttl_by, lease_ms, scheduled_at, visible_at, scope_no, slot, rev_id, def_id, def_rev, rerun, deliveries,
                        retries_left, lane, kind, sems, iteration, worker, ref, flow_key, checkpoint)
  SELECT d.ns, d.exec_id, d.task_no, d.attempt, d.queue_id, $8::int, $9::bigint, m.at,
         LEAST(v.lease_until, v.beat_by, v.close_by, d.att_by, d.total_by), v.lease_until, v.beat_by, v.close_by, d.att_by, d.total_by,
         d.ttl_by, m.lease_ms, d.scheduled_at, d.visible_at, d.scope_no, d.slot, d.rev_id, d.def_id, d.def_rev, d.rerun, d.deliveries + 1,
         d.retries_left, d.lane, d.kind, cardinality($12::int[])::smallint, d.iteration, $11::text, d.ref, d.flow_key, d.checkpoint
    FROM d
    LEFT JOIN LATERAL (SELECT x.lease_ms, x.beat_ms, x.close_ms FROM nf_policy x WHERE x.ns = d.ns AND x.def_rev = d.def_rev LIMIT 1) p ON true
   CROSS JOIN LATERAL (SELECT LEAST($10::bigint, coalesce(p.lease_ms, 3600000)) AS lease_ms,
                              greatest($7::timestamptz, d.scheduled_at, d.visible_at) AS at) m
   CROSS JOIN LATERAL (SELECT CASE WHEN $8::int = 0 THEN m.at + m.lease_ms * interval '1 ms' END AS lease_until,
                              CASE WHEN $8::int = 0 THEN m.at + p.beat_ms * interval '1 ms' END AS beat_by,
                              m.at + p.close_ms * interval '1 ms' AS close_by) v
  RETURNING *),
s AS (
  INSERT INTO nf_lease_sem (sem_ns, sem_id, ns, exec_id, task_no, fence)
  SELECT z.sem_ns, z.sem_id, l.ns, l.exec_id, l.task_no, l.fence FROM l CROSS JOIN unnest($12::int[], $13::int[]) AS z(sem_ns, sem_id))
SELECT l.ns, l.exec_id, l.task_no, l.attempt, l.queue_id, l.holder, l.fence, l.claim_id, l.leased_at, l.lease_until, l.beat_by, l.close_by, l.att_by,
       l.total_by, l.deadline_at, l.lease_ms, l.scheduled_at, l.visible_at, l.scope_no, l.slot, l.rev_id, l.def_id, l.def_rev, l.rerun, l.deliveries,
       l.retries_left, l.lane, l.kind, l.sems, l.iteration, l.worker
  FROM l;

-- name: gate_settings
-- Whose: S1b steps 1 and 3. Locks: none. What gates a queue, and the clock.
SELECT nf_now() AS now, q.def_id, q.gated, n.suspended_at IS NOT NULL AS suspended, f.cap, o.updated_at, f.verdict, f.verdict_at
  FROM nf_queue q
 CROSS JOIN LATERAL (SELECT x.suspended_at FROM nf_ns x WHERE x.ns = q.ns LIMIT 1) n
  LEFT JOIN LATERAL (SELECT x.cap, x.verdict, x.verdict_at FROM nf_def_flow x WHERE x.ns = q.ns AND x.def_id = q.def_id LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT x.updated_at FROM nf_object x WHERE x.ns = q.ns AND x.object_id = q.def_id LIMIT 1) o ON true
 WHERE q.ns = $1::int AND q.queue_id = $2::int;

-- name: gate_semaphore_set
-- Whose: S1b step 1. Locks: none. The semaphores of a definition.
SELECT s.sem_ns, s.sem_id FROM nf_def_sem s
 CROSS JOIN LATERAL (SELECT 1 AS one FROM nf_semaphore x WHERE x.ns = s.sem_ns AND x.sem_id = s.sem_id LIMIT 1) m
 WHERE s.ns = $1::int AND s.def_id = $2::int
 ORDER BY s.sem_ns, s.sem_id;

-- name: gate_count
-- Whose: S1b step 3, under the definition's gate. Locks: none. Leases of a definition over its queues, from the low fence $3, at most $4 a queue.
-- Expired ones count: a place is free when its lease is gone (A5).
SELECT count(*), coalesce(min(x.fence), 0) FROM (
  SELECT y.fence FROM nf_queue q CROSS JOIN LATERAL (
    SELECT l.fence FROM nf_lease l WHERE l.ns = q.ns AND l.queue_id = q.queue_id AND l.fence >= $3::bigint ORDER BY l.fence LIMIT $4::bigint) y
   WHERE q.ns = $1::int AND q.def_id = $2::int AND q.def_id > 0) x;

-- name: gate_semaphores
-- Whose: S1b step 3, under the gates. Locks: none. The semaphores of a definition with what is held (at most permits rows are counted, from the
-- low fences in $3–$5), and where the waiter's ready row is.
SELECT s.sem_ns, s.sem_id, n.name, o.name, m.permits, h.held, h.low, coalesce(m.waiter_ns, 0), m.waiter_id, coalesce(m.waiter_no, 0), m.skips,
       m.reserved_until, coalesce(w.ns, 0), coalesce(w.queue_id, 0), coalesce(w.lane, 0::smallint), coalesce(w.sub, 0::smallint), coalesce(w.seq, 0)
  FROM nf_def_sem s
  LEFT JOIN LATERAL (SELECT k.low FROM unnest($3::int[], $4::int[], $5::bigint[]) AS k(sem_ns, sem_id, low)
                      WHERE k.sem_ns = s.sem_ns AND k.sem_id = s.sem_id LIMIT 1) f ON true
 CROSS JOIN LATERAL (SELECT * FROM nf_semaphore x WHERE x.ns = s.sem_ns AND x.sem_id = s.sem_id LIMIT 1) m
 CROSS JOIN LATERAL (SELECT x.name FROM nf_ns x WHERE x.ns = s.sem_ns LIMIT 1) n
 CROSS JOIN LATERAL (SELECT x.name FROM nf_object x WHERE x.ns = s.sem_ns AND x.object_id = s.sem_id LIMIT 1) o
 CROSS JOIN LATERAL (SELECT count(*) AS held, coalesce(min(x.fence), 0) AS low FROM (
     SELECT p.fence FROM nf_lease_sem p WHERE p.sem_ns = s.sem_ns AND p.sem_id = s.sem_id AND p.fence >= coalesce(f.low, 0)
      ORDER BY p.fence LIMIT m.permits) x) h
  LEFT JOIN LATERAL (SELECT r.ns, r.queue_id, r.lane, r.sub, r.seq FROM nf_ready r
                      WHERE r.ns = m.waiter_ns AND r.exec_id = m.waiter_id AND r.task_no = m.waiter_no LIMIT 1) w ON true
 WHERE s.ns = $1::int AND s.def_id = $2::int
 ORDER BY s.sem_ns, s.sem_id;

-- name: gate_next_fence
-- Whose: S1b, under the gate. Locks: none. Below this no lease of the gate can appear any more when none is there now.
SELECT last_value + 1 FROM nf_fence;

-- name: gate_heads
-- Whose: S1b step 7, under the gate. Locks: none. The first rows of a queue that have not expired.
SELECT r.lane, r.sub, r.seq, r.exec_id, r.task_no FROM nf_ready r
 WHERE r.ns = $1::int AND r.queue_id = $2::int AND (r.expire_at IS NULL OR r.expire_at > (SELECT nf_now()))
 ORDER BY r.lane, r.sub, r.seq LIMIT $3::int;

-- name: gate_expired
-- Whose: S1b step 4, under the gate. Locks: none. Leases of a definition's queues that look lost, oldest first.
SELECT y.ns, y.exec_id, y.task_no, y.attempt, y.fence, y.queue_id, y.def_rev, y.deliveries, y.holder, y.lease_until, y.beat_by, y.close_by, y.att_by, y.total_by
  FROM nf_queue q CROSS JOIN LATERAL (
    SELECT l.* FROM nf_lease l WHERE l.ns = q.ns AND l.queue_id = q.queue_id AND l.fence >= $3::bigint ORDER BY l.fence LIMIT $4::bigint) y
 WHERE q.ns = $1::int AND q.def_id = $2::int AND q.def_id > 0
   AND LEAST(y.lease_until, y.beat_by) <= $5::timestamptz
 LIMIT 100;

-- name: gate_expired_permits
-- Whose: S1b step 4, under the gates. Locks: none. Holders of a semaphore that look lost.
SELECT y.ns, y.exec_id, y.task_no, y.attempt, y.fence, y.queue_id, y.def_rev, y.deliveries, y.holder, y.lease_until, y.beat_by, y.close_by, y.att_by, y.total_by
  FROM (SELECT p.ns, p.exec_id, p.task_no, p.fence FROM nf_lease_sem p
         WHERE p.sem_ns = $1::int AND p.sem_id = $2::int AND p.fence >= $3::bigint ORDER BY p.fence LIMIT $4::bigint) p
 CROSS JOIN LATERAL (SELECT l.* FROM nf_lease l WHERE l.ns = p.ns AND l.exec_id = p.exec_id AND l.task_no = p.task_no AND l.fence = p.fence LIMIT 1) y
 WHERE LEAST(y.lease_until, y.beat_by) <= $5::timestamptz
 LIMIT 100;

-- name: gate_place
-- Whose: S1b step 8. Locks: L2, a row that only the holder of the semaphore's gate touches. The waiter of a semaphore.
UPDATE nf_semaphore SET waiter_ns = $3::int, waiter_id = $4::uuid, waiter_no = $5::int, skips = $6::int, reserved_until = $7::timestamptz
 WHERE ns = $1::int AND sem_id = $2::int;

-- name: gate_verdict
-- Whose: S1b step 8. Locks: L2, a row that only the holder of the definition's gate touches. The last refusal, null when nothing was refused.
UPDATE nf_def_flow SET verdict = $3::bytea, verdict_at = $4::timestamptz WHERE ns = $1::int AND def_id = $2::int;

-- name: lease_inputs
-- Whose: S1, after the commit. Locks: none. Inputs of leased tasks by key in the leaf of a day.
SELECT k.n, x.codec, x.body
  FROM unnest($1::int[], $2::int[], $3::uuid[], $4::int[], $5::int[]) AS k(n, ns, exec_id, task_no, rerun) CROSS JOIN LATERAL (
    SELECT p.codec, p.body FROM nf_payload_{day} p
     WHERE p.ns = k.ns AND p.exec_id = k.exec_id AND p.task_no = k.task_no AND p.part = 1 AND p.rerun <= k.rerun
     ORDER BY p.rerun DESC LIMIT 1) x;

-- name: lease_beat
-- Whose: S4, workers' beats. Locks: L4 (skip). check_at never moves later here, so the update is HOT; the sweep moves it when it comes by.
WITH k AS MATERIALIZED (
  SELECT x.t, k.n, k.lease_ms, k.beat_ms
    FROM unnest($1::int[], $2::int[], $3::uuid[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[]) AS k(n, ns, exec_id, task_no, fence, lease_ms, beat_ms)
   CROSS JOIN LATERAL (SELECT l.ctid AS t FROM nf_lease l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.fence = k.fence
                          AND l.holder = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) x),
n AS MATERIALIZED (SELECT nf_now() AS now)
UPDATE nf_lease l SET lease_ms = k.lease_ms, lease_until = n.now + k.lease_ms * interval '1 ms', beat_by = n.now + k.beat_ms * interval '1 ms',
       check_at = LEAST(l.check_at, n.now + k.lease_ms * interval '1 ms', n.now + k.beat_ms * interval '1 ms')
  FROM k CROSS JOIN n WHERE l.ctid = k.t RETURNING k.n, l.lease_until;

-- name: lease_state
-- Whose: S4, S7 and runners, unlocked. Locks: none. The leases that are there, by key and fence.
SELECT k.n, nf_now(), x.attempt, x.queue_id, x.holder, x.def_rev, x.lease_ms, x.lease_until, x.beat_by, x.deadline_at, coalesce(e.ending, true)
  FROM unnest($1::int[], $2::int[], $3::uuid[], $4::int[], $5::bigint[]) AS k(n, ns, exec_id, task_no, fence) CROSS JOIN LATERAL (
    SELECT * FROM nf_lease l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.fence = k.fence LIMIT 1) x
  LEFT JOIN LATERAL (SELECT y.end_status IS NOT NULL AS ending FROM nf_exec y WHERE y.ns = k.ns AND y.exec_id = k.exec_id LIMIT 1) e ON true;

-- name: runner_insert
-- Whose: S16. Locks: inserts. The number is the runner's name, new at every start.
INSERT INTO nf_runner (instance, host, pid, build, version, started_at, alive_until)
VALUES ($1::uuid, $2::text, $3::int, $4::bigint, $5::text, nf_now(), nf_now() + $6::bigint * interval '1 ms')
ON CONFLICT (instance) DO NOTHING
RETURNING runner_no, nf_now();

-- name: runner_by_instance
-- Whose: S16, a start whose reply was lost. Locks: none.
SELECT runner_no, nf_now() FROM nf_runner WHERE instance = $1::uuid AND dead_at IS NULL;

-- name: runner_beat
-- Whose: S4. Locks: the runner's own row. The lease of everything that a runner executes itself.
WITH u AS (
  UPDATE nf_runner SET alive_until = greatest(alive_until, nf_now() + $2::bigint * interval '1 ms'), draining = $3::boolean
   WHERE runner_no = $1::int AND dead_at IS NULL RETURNING alive_until)
SELECT nf_now(), (SELECT u.alive_until FROM u), i.min_build FROM nf_install i WHERE i.one;

-- name: runner_sign_off
-- Whose: S16, a clean end. Locks: the runner's own row. Dead from now on, as if it had not beaten: nothing is claimed under its number, and
-- what is leased to it is anybody's to take back (S5c).
UPDATE nf_runner SET dead_at = nf_now(), alive_until = least(alive_until, nf_now()), draining = true WHERE runner_no = $1::int AND dead_at IS NULL;

-- name: poller_upsert
-- Whose: S16, one statement a process every 10 s, in key order. Locks: the rows.
INSERT INTO nf_poller AS p (ns, queue_id, worker, polled_at, polls, leased, throttled)
SELECT k.ns, k.queue_id, k.worker, n.now, k.polls, k.leased, k.throttled
  FROM (SELECT nf_now() AS now) n
 CROSS JOIN unnest($1::int[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS k(ns, queue_id, worker, polls, leased, throttled)
 ORDER BY k.ns, k.queue_id, k.worker
ON CONFLICT (ns, queue_id, worker) DO UPDATE
   SET polled_at = greatest(p.polled_at, excluded.polled_at), polls = p.polls + excluded.polls, leased = p.leased + excluded.leased,
       throttled = p.throttled + excluded.throttled;

-- name: duty_take
-- Whose: B9. Locks: the duty's row. One runner at a time has a chore.
INSERT INTO nf_duty AS d (name, runner_no, term, until) VALUES ($1::text, $2::int, 1, nf_now() + $3::bigint * interval '1 ms')
ON CONFLICT (name) DO UPDATE SET runner_no = excluded.runner_no, until = excluded.until,
  term = d.term + CASE WHEN d.runner_no = excluded.runner_no AND d.until > nf_now() THEN 0 ELSE 1 END
  WHERE d.runner_no = excluded.runner_no OR d.until <= nf_now()
RETURNING term;

-- name: notify
-- Whose: B6, in a statement of its own after the commit. Locks: none (the server's notify lock at commit).
SELECT pg_notify($1::text, p) FROM unnest($2::text[]) AS p;
