-- name: read_seq
-- Whose: S18, waiting GET. Locks: none.
SELECT e.seq FROM nf_exec e WHERE e.ns = $1 AND e.exec_id = $2 LIMIT 1;

-- name: read_brief_open
-- Whose: S6, answers for known keys. Locks: none.
SELECT e.rev_id, e.seq, coalesce((SELECT r.revision FROM nf_revision r WHERE r.ns = e.ns AND r.rev_id = e.rev_id LIMIT 1), 0) AS revision
  FROM nf_exec e WHERE e.ns = $1 AND e.exec_id = $2 LIMIT 1;

-- name: read_brief_closed
-- Whose: S6, answers for known keys. Locks: none.
SELECT e.rev_id, e.seq, coalesce((SELECT r.revision FROM nf_revision r WHERE r.ns = e.ns AND r.rev_id = e.rev_id LIMIT 1), 0) AS revision, e.status
  FROM nf_exec_closed_{day} e WHERE e.ns = $1 AND e.exec_id = $2 LIMIT 1;

-- name: read_exec_open
-- Whose: S18. Locks: none. The header of an open execution with its deadline.
SELECT e.ns, e.exec_id, e.seq, e.started_at, e.admitted_at, e.def_id, e.rev_id, e.next_no, e.loose, e.reruns, e.priority, e.depth,
       e.end_status, e.end_cause, e.end_reason, e.end_no,
       (SELECT t.wake_at FROM nf_timer t WHERE t.ns = e.ns AND t.exec_id = e.exec_id AND t.task_no = 0 LIMIT 1) AS deadline
  FROM nf_exec e WHERE e.ns = $1 AND e.exec_id = $2 LIMIT 1;

-- name: read_exec_closed
-- Whose: S18. Locks: none.
SELECT e.ns, e.exec_id, e.seq, e.started_at, e.admitted_at, e.ended_at, e.def_id, e.rev_id, e.reruns, e.status, e.priority, e.depth, e.cause,
       e.reason, e.failed_no, e.failed_ref, e.output_no
  FROM nf_exec_closed_{day} e WHERE e.ns = $1 AND e.exec_id = $2 LIMIT 1;

-- name: read_payload
-- Whose: S18. Locks: none. Newest of its kind: inputs by rerun.
SELECT p.codec, p.body FROM nf_payload_{day} p WHERE p.ns = $1 AND p.exec_id = $2 AND p.task_no = $3 AND p.part = $4 ORDER BY p.rerun DESC LIMIT 1;

-- name: read_output_of
-- Whose: S18: the output of the task that is the execution's. Locks: none.
SELECT t.codec, t.output FROM nf_task_{day} t WHERE t.ns = $1 AND t.exec_id = $2 AND t.task_no = $3 ORDER BY t.attempt DESC LIMIT 1;

-- name: read_vars
-- Whose: S18. Locks: none.
SELECT v.name, v.value FROM nf_var v WHERE v.ns = $1 AND v.exec_id = $2;

-- name: read_scopes
-- Whose: S18: open JOINs. Locks: none.
SELECT x.ns, x.exec_id, x.scope_no, x.parent_no, x.slot, x.kind, x.base_no, x.width, x.cursor, x.open, x.pending, x.fired
  FROM nf_scope x WHERE x.ns = $1 AND x.exec_id = $2 ORDER BY x.scope_no;

-- name: read_open_timers
-- Whose: S18. Locks: none.
SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
       x.deliveries, x.retries_left, x.scheduled_at, x.wake_at, x.start_by, x.att_by, x.total_by, x.iteration, x.why
  FROM nf_timer x WHERE x.ns = $1 AND x.exec_id = $2 AND x.task_no > $3 ORDER BY x.task_no LIMIT $4;

-- name: read_open_ready
-- Whose: S18, with the last refusal of the definition's gates. Locks: none.
SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
       x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, x.start_by, x.att_by, x.total_by, x.iteration, f.verdict, f.verdict_at
  FROM nf_ready x LEFT JOIN LATERAL (SELECT d.verdict, d.verdict_at FROM nf_def_flow d WHERE d.ns = x.ns AND d.def_id = x.def_id LIMIT 1) f ON true
 WHERE x.ns = $1 AND x.exec_id = $2 AND x.task_no > $3 ORDER BY x.task_no LIMIT $4;

-- name: read_open_leases
-- Whose: S18, with the beat of the runner that executes it. Locks: none.
SELECT x.ns, x.exec_id, x.task_no, x.attempt, x.queue_id, x.lane, x.kind, x.scope_no, x.slot, x.rev_id, x.def_id, x.def_rev, x.rerun,
       x.deliveries, x.retries_left, x.scheduled_at, x.visible_at, NULL::timestamptz AS start_by, x.att_by, x.total_by, x.iteration,
       x.fence, x.holder, x.claim_id, x.leased_at,
       coalesce(x.lease_until, (SELECT r.alive_until FROM nf_runner r WHERE r.runner_no = x.holder LIMIT 1)) AS lease_until,
       x.beat_by, x.close_by, x.lease_ms, x.sems, x.worker
  FROM nf_lease x WHERE x.ns = $1 AND x.exec_id = $2 AND x.task_no > $3 ORDER BY x.task_no LIMIT $4;

-- name: read_tasks
-- Whose: S18, ended attempts by (task number, attempt). Locks: none. Outputs and inputs only if asked for.
SELECT x.task_no, x.attempt, x.seq, x.scheduled_at, x.visible_at, x.leased_at, x.ended_at, x.scope_no, x.slot, x.def_id, x.def_rev, x.queue_id,
       x.deliveries, x.kind, x.status, x.rerun, x.absorbed, x.exhausted, x.iteration, x.worker, x.cause, x.reason, x.control, x.next_due_at,
       x.delay_policy_ms, x.delay_min_ms, x.delay_source, x.width, x.codec, CASE WHEN $6::boolean THEN x.output END AS output
  FROM nf_task_{day} x WHERE x.ns = $1 AND x.exec_id = $2 AND (x.task_no, x.attempt) > ($3::int, $4::int)
 ORDER BY x.task_no, x.attempt LIMIT $5;

-- name: read_inputs
-- Whose: S18, inputs of a range of tasks, newest first. Locks: none.
SELECT DISTINCT ON (p.task_no) p.task_no, p.codec, p.body FROM nf_payload_{day} p
 WHERE p.ns = $1 AND p.exec_id = $2 AND p.task_no >= $3 AND p.task_no <= $4 AND p.part = 1 ORDER BY p.task_no, p.rerun DESC;

-- name: read_list_open
-- Whose: S18, list newest first. Locks: none.
SELECT e.exec_id, e.seq, e.started_at, NULL::timestamptz AS ended_at, e.def_id, e.rev_id, NULL::smallint AS status, NULL::text AS cause,
       NULL::text AS reason, NULL::text AS failed_ref
  FROM nf_exec e WHERE e.ns = $1 AND e.exec_id < $2 AND e.exec_id >= $3 AND e.started_at > $4::timestamptz AND e.started_at < $5::timestamptz
 ORDER BY e.exec_id DESC LIMIT $6;

-- name: read_list_open_of
-- Whose: S18, list of one workflow. Locks: none.
SELECT e.exec_id, e.seq, e.started_at, NULL::timestamptz AS ended_at, e.def_id, e.rev_id, NULL::smallint AS status, NULL::text AS cause,
       NULL::text AS reason, NULL::text AS failed_ref
  FROM nf_exec e WHERE e.ns = $1 AND e.def_id = $7 AND e.exec_id < $2 AND e.exec_id >= $3 AND e.started_at > $4::timestamptz
   AND e.started_at < $5::timestamptz ORDER BY e.exec_id DESC LIMIT $6;

-- name: read_list_closed
-- Whose: S18, list newest first. Locks: none. Leaves come in order, so a page reads the newest only.
SELECT e.exec_id, e.seq, e.started_at, e.ended_at, e.def_id, e.rev_id, e.status, e.cause, e.reason, e.failed_ref
  FROM nf_exec_closed e WHERE e.ns = $1 AND e.exec_id < $2 AND e.exec_id >= $3 AND e.started_at > $4::timestamptz
   AND e.started_at < $5::timestamptz AND e.status = ANY ($7::smallint[]) ORDER BY e.exec_id DESC LIMIT $6;

-- name: read_list_closed_of
-- Whose: S18, list of one workflow. Locks: none.
SELECT e.exec_id, e.seq, e.started_at, e.ended_at, e.def_id, e.rev_id, e.status, e.cause, e.reason, e.failed_ref
  FROM nf_exec_closed e WHERE e.ns = $1 AND e.def_id = $8 AND e.exec_id < $2 AND e.exec_id >= $3 AND e.started_at > $4::timestamptz
   AND e.started_at < $5::timestamptz AND e.status = ANY ($7::smallint[]) ORDER BY e.exec_id DESC LIMIT $6;

-- name: read_logs
-- Whose: S18, lines of an attempt, oldest first. Locks: none.
SELECT l.log_id, l.at, l.level, l.worker, l.message FROM nf_task_log_{day} l
 WHERE l.ns = $1 AND l.exec_id = $2 AND l.task_no = $3 AND l.attempt = $4 AND l.log_id > $5 ORDER BY l.log_id LIMIT $6;

-- name: read_lease_held
-- Whose: logs of a task: is this fence in force? Locks: none.
SELECT l.fence FROM nf_lease l WHERE l.ns = $1 AND l.exec_id = $2 AND l.task_no = $3 AND l.attempt = $4 AND l.fence = $5 LIMIT 1;

-- name: read_logs_in
-- Whose: logs of a task. Locks: L7.
INSERT INTO nf_task_log (ns, exec_id, task_no, attempt, at, level, worker, message)
SELECT $1::int, $2::uuid, $3::int, $4::int, k.at, k.level, $5::text, k.message
  FROM unnest($6::timestamptz[], $7::smallint[], $8::text[]) AS k(at, level, message);

-- name: read_logs_cut
-- Whose: logs of a task: the oldest lines beyond 1,000 go. Locks: rows that only this worker writes.
DELETE FROM nf_task_log_{day} l WHERE l.ns = $1 AND l.exec_id = $2 AND l.task_no = $3 AND l.attempt = $4 AND l.log_id <= (
  SELECT x.log_id FROM nf_task_log_{day} x WHERE x.ns = $1 AND x.exec_id = $2 AND x.task_no = $3 AND x.attempt = $4
   ORDER BY x.log_id DESC OFFSET 1000 LIMIT 1);

-- name: engine_next_mark
-- Whose: S3: when the next mark is due. Locks: none.
SELECT d.due_at FROM nf_decide d WHERE d.due_at > (SELECT nf_now()) ORDER BY d.due_at LIMIT 1;

-- name: engine_recent_deaths
-- Whose: S3: did a runner die in the last minute? Locks: none.
SELECT EXISTS (SELECT FROM nf_runner r WHERE r.dead_at > nf_now() - interval '60 s');
