-- name: fleet
-- Whose: metrics, health, nf status. Locks: none. Figures of the whole fleet; ballast has no place in them (ns > 0).
WITH n AS MATERIALIZED (SELECT nf_now() AS now)
SELECT (SELECT count(*) FROM nf_decide WHERE ns > 0 AND due_at < 'infinity'),
       coalesce((SELECT extract(epoch FROM n.now - m.due_at) FROM
                  (SELECT d.due_at FROM nf_decide d WHERE d.due_at <= n.now AND d.ns > 0 ORDER BY d.due_at, d.fact_id LIMIT 1) m), 0)::float8,
       (SELECT count(*) FROM nf_ready WHERE ns > 0),
       (SELECT count(*) FROM nf_timer WHERE why = ANY ('{1,2,3,4,7}'::smallint[]) AND due_at IS NOT NULL AND ns > 0),
       (SELECT count(*) FROM nf_lease WHERE ns > 0),
       (SELECT count(*) FROM generate_series(1, 20) AS w(why) CROSS JOIN LATERAL
          (SELECT FROM nf_timer t WHERE t.why = w.why AND t.due_at < n.now - interval '1 second' AND t.ns > 0 OFFSET 0) x),
       o.running, o.paused,
       (SELECT count(*) FROM nf_runner WHERE dead_at IS NULL AND alive_until >= n.now)
  FROM n CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE paused_at IS NULL) AS running, count(*) FILTER (WHERE paused_at IS NOT NULL) AS paused
                               FROM nf_exec WHERE ns > 0 OFFSET 0) o;

-- name: fleet_semaphores
-- Whose: metrics, API list. Locks: none. Permits and what is held of each semaphore in force, of one namespace ($1 > 0) or all.
SELECT n.name, o.name, s.permits,
       (SELECT count(*) FROM nf_lease_sem l WHERE l.sem_ns = s.ns AND l.sem_id = s.sem_id)
  FROM nf_semaphore s
  JOIN nf_object o ON o.ns = s.ns AND o.object_id = s.sem_id
  JOIN nf_ns n ON n.ns = s.ns
 WHERE o.retired_at IS NULL AND ($1::int = 0 OR s.ns = $1)
 ORDER BY n.name, o.name;

-- name: status_runners
-- Whose: nf status. Locks: none. Runners that are not known to be dead, then those that ended in the last five minutes.
SELECT runner_no, host, pid, version, build, started_at, dead_at IS NULL AND alive_until >= nf_now(), draining, dead_at IS NOT NULL
  FROM nf_runner WHERE dead_at IS NULL OR dead_at > nf_now() - interval '5 min' ORDER BY dead_at IS NOT NULL, runner_no;

-- name: status_objects
-- Whose: nf status. Locks: none.
SELECT coalesce(project, ''), kind, count(*) FILTER (WHERE retired_at IS NULL), count(*) FILTER (WHERE retired_at IS NOT NULL)
  FROM nf_object GROUP BY 1, 2 ORDER BY 1, 2;

-- name: runner_project_save
-- Whose: reload. Locks: the row. What the runner $1 made of project $2 last; $10 is the folder that stood for it before it had a name.
WITH gone AS (DELETE FROM nf_runner_project WHERE runner_no = $1 AND project = $10 AND project <> $2)
INSERT INTO nf_runner_project AS p (runner_no, project, attempted_digest, attempted_commit, generation, state, reason, findings, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nf_now() - $9::bigint * interval '1 millisecond')
ON CONFLICT (runner_no, project) DO UPDATE SET attempted_digest = excluded.attempted_digest, attempted_commit = excluded.attempted_commit,
  generation = excluded.generation, state = excluded.state, reason = excluded.reason, findings = excluded.findings, at = excluded.at;

-- name: status_runner_projects
-- Whose: nf status. Locks: none. What the runners that are not known to be dead made of their files.
SELECT p.runner_no, p.project, p.attempted_digest, coalesce(p.attempted_commit, ''), p.generation, p.state, p.reason, p.findings, p.at
  FROM nf_runner_project p JOIN nf_runner r USING (runner_no)
 WHERE r.dead_at IS NULL ORDER BY p.runner_no, p.project;
