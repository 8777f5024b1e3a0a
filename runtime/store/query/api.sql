-- name: api_task_queues
-- Whose: API, scope of reports. Locks: none. The queue of each attempt, open or ended; what is missing is not told apart.
SELECT k.n, coalesce(q.name, ''), coalesce(q.domain, ''), coalesce(q.system, true)
  FROM unnest($1::int[], $2::int[], $3::uuid[], $4::int[], $5::int[]) AS k(n, ns, exec_id, task_no, attempt)
 CROSS JOIN LATERAL (
   SELECT a.queue_id FROM (
     (SELECT l.queue_id FROM nf_lease l WHERE l.ns = k.ns AND l.exec_id = k.exec_id AND l.task_no = k.task_no AND l.attempt = k.attempt LIMIT 1)
     UNION ALL
     (SELECT t.queue_id FROM nf_task_{day} t WHERE t.ns = k.ns AND t.exec_id = k.exec_id AND t.task_no = k.task_no AND t.attempt = k.attempt LIMIT 1)
     UNION ALL
     (SELECT r.queue_id FROM nf_ready r WHERE r.ns = k.ns AND r.exec_id = k.exec_id AND r.task_no = k.task_no AND r.attempt = k.attempt LIMIT 1)
     UNION ALL
     (SELECT w.queue_id FROM nf_timer w WHERE w.ns = k.ns AND w.exec_id = k.exec_id AND w.task_no = k.task_no AND w.attempt = k.attempt LIMIT 1)) a LIMIT 1) a
 CROSS JOIN LATERAL (SELECT x.name, x.domain, x.system FROM nf_queue x WHERE x.ns = k.ns AND x.queue_id = a.queue_id LIMIT 1) q

-- name: api_queues
-- Whose: API GET queues. Locks: none. One row a queue as people see it: its physical queues added up, each count at most 10,001.
SELECT q.name, q.domain, bool_and(q.system), max(q.def_id), sum(r.n)::bigint, sum(d.n)::bigint, sum(l.n)::bigint,
       coalesce(max(extract(epoch FROM nf_now() - o.visible_at)), 0)::float8, sum(p.n)::bigint
  FROM nf_queue q
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_ready x WHERE x.ns = q.ns AND x.queue_id = q.queue_id LIMIT 10001) x) r
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_timer x WHERE x.ns = q.ns AND x.queue_id = q.queue_id AND x.queue_id > 0 LIMIT 10001) x) d
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_lease x WHERE x.ns = q.ns AND x.queue_id = q.queue_id LIMIT 10001) x) l
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM nf_poller x WHERE x.ns = q.ns AND x.queue_id = q.queue_id AND x.polled_at > nf_now() - interval '1 minute') p
  LEFT JOIN LATERAL (SELECT min(y.visible_at) AS visible_at FROM (
       SELECT x.visible_at FROM nf_ready x WHERE x.ns = q.ns AND x.queue_id = q.queue_id ORDER BY x.lane, x.sub, x.seq LIMIT 1) y) o ON true
 WHERE q.ns = $1 GROUP BY q.name, q.domain ORDER BY q.name, q.domain

-- name: api_depth
-- Whose: API GET depth. Locks: none. $4: count all of them, else at most 10,001 a physical queue.
SELECT coalesce(sum(r.n), 0)::bigint, coalesce(sum(d.n), 0)::bigint, coalesce(sum(l.n), 0)::bigint,
       coalesce(max(extract(epoch FROM nf_now() - o.visible_at)), 0)::float8, count(*)::bigint
  FROM nf_queue q
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_ready x WHERE x.ns = q.ns AND x.queue_id = q.queue_id LIMIT $4) x) r
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_timer x WHERE x.ns = q.ns AND x.queue_id = q.queue_id AND x.queue_id > 0 LIMIT $4) x) d
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM nf_lease x WHERE x.ns = q.ns AND x.queue_id = q.queue_id LIMIT $4) x) l
  LEFT JOIN LATERAL (SELECT min(y.visible_at) AS visible_at FROM (
       SELECT x.visible_at FROM nf_ready x WHERE x.ns = q.ns AND x.queue_id = q.queue_id ORDER BY x.lane, x.sub, x.seq LIMIT 1) y) o ON true
 WHERE q.ns = $1 AND ((q.name = $2 AND q.domain = '') OR (q.def_id = $3 AND $3 > 0))

-- name: api_workers
-- Whose: API GET queues/workers. Locks: none.
SELECT p.worker, q.name, q.domain, p.polled_at,
       (SELECT count(*) FROM nf_lease l WHERE l.ns = p.ns AND l.queue_id = p.queue_id AND l.worker = p.worker)
  FROM nf_poller p
 CROSS JOIN LATERAL (SELECT x.name, x.domain FROM nf_queue x WHERE x.ns = p.ns AND x.queue_id = p.queue_id LIMIT 1) q
 WHERE p.ns = $1 AND p.polled_at > nf_now() - interval '24 hours' ORDER BY p.worker, q.name, q.domain

-- name: api_semaphores
-- Whose: API GET semaphores, fleet gauges ($1 = 0: all). Locks: none.
SELECT n.name, o.name, s.permits, h.n
  FROM nf_semaphore s
  JOIN nf_object o ON o.ns = s.ns AND o.object_id = s.sem_id
  JOIN nf_ns n ON n.ns = s.ns
 CROSS JOIN LATERAL (SELECT count(*) AS n FROM nf_lease_sem l WHERE l.sem_ns = s.ns AND l.sem_id = s.sem_id) h
 WHERE (s.ns = $1 OR $1 = 0) AND o.retired_at IS NULL ORDER BY n.name, o.name
