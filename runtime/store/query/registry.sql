-- name: project_insert
-- Whose: S14, first apply of a project. Locks: L2, insert.
INSERT INTO nf_project (project) VALUES ($1) ON CONFLICT (project) DO NOTHING;

-- name: project_lock
-- Whose: S14. Locks: L2, the project.
SELECT generation, digest, commit_id, branch, applied_at, applied_by FROM nf_project WHERE project = $1 FOR UPDATE;

-- name: project_read
-- Whose: plan. Locks: none.
SELECT generation, digest, commit_id, branch, applied_at, applied_by FROM nf_project WHERE project = $1;

-- name: project_apply
-- Whose: S14, last: the generation check. Locks: L2, held. No row: stale.
UPDATE nf_project SET generation = generation + 1, digest = $3, commit_id = $4, branch = $5, applied_at = $6, applied_by = $7
 WHERE project = $1 AND generation = $2 RETURNING generation;

-- name: project_commit
-- Whose: S14 of an unchanged set: the commit alone (P11). Locks: L2, held.
UPDATE nf_project SET digest = $2, commit_id = $3, branch = $4
 WHERE project = $1 AND (digest, commit_id, branch) IS DISTINCT FROM ($2::bytea, $3::text, $4::text);

-- name: commits_read
-- Whose: plan, S14 (P11). Locks: none. The commits of a project, the one in force and the newest of the others.
SELECT commit_id, generation, committed_at, parents, superseded_by IS NOT NULL FROM nf_commit
 WHERE project = $1 ORDER BY superseded_by IS NULL DESC, generation DESC, commit_id LIMIT 5000;

-- name: commit_seen
-- Whose: plan, S14 (P11). Locks: none. One commit, however long ago.
SELECT commit_id, generation, committed_at, parents, superseded_by IS NOT NULL FROM nf_commit WHERE project = $1 AND commit_id = $2;

-- name: commit_supersede
-- Whose: S14, before commit_record. Locks: the project's row is held.
UPDATE nf_commit SET superseded_by = $3 WHERE project = $1 AND commit_id <> $2 AND superseded_by IS NULL;

-- name: commit_record
-- Whose: S14 (P11). Locks: the project's row is held. One that comes again is in force again (--rewind).
INSERT INTO nf_commit (project, commit_id, generation, committed_at, parents, digest) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (project, commit_id) DO UPDATE SET superseded_by = NULL WHERE nf_commit.superseded_by IS NOT NULL;

-- name: registered_owned
-- Whose: plan, S14. Locks: none. All objects of a project with the revision in force.
SELECT o.ns, o.object_id, n.name, o.kind, o.name, o.revision, r.rev_id, r.digest, r.version, r.spec, o.labels, o.description,
       o.project, o.source_file, o.source_line, o.source_commit, o.applied_revision, o.retired_at
  FROM nf_object o
  JOIN nf_ns n ON n.ns = o.ns
  JOIN nf_revision r ON r.ns = o.ns AND r.object_id = o.object_id AND r.revision = o.revision
 WHERE o.project = $1
 ORDER BY o.ns, o.kind, o.name;

-- name: registered_named
-- Whose: plan, S14. Locks: none. Objects of other projects, or of none, that have a wanted name.
SELECT o.ns, o.object_id, n.name, o.kind, o.name, o.revision, r.rev_id, r.digest, r.version, r.spec, o.labels, o.description,
       o.project, o.source_file, o.source_line, o.source_commit, o.applied_revision, o.retired_at
  FROM unnest($1::text[], $2::text[], $3::text[]) AS k(namespace, kind, name)
 CROSS JOIN LATERAL (SELECT x.ns, x.name FROM nf_ns x WHERE x.name = k.namespace LIMIT 1) n
 CROSS JOIN LATERAL (SELECT * FROM nf_object x WHERE x.ns = n.ns AND x.kind = k.kind AND x.name = k.name LIMIT 1) o
 CROSS JOIN LATERAL (SELECT * FROM nf_revision x WHERE x.ns = o.ns AND x.object_id = o.object_id AND x.revision = o.revision LIMIT 1) r
 WHERE o.project IS DISTINCT FROM $4::text;

-- name: registered_versions
-- Whose: plan, S14 (N3). Locks: none. Explicit versions ever applied.
SELECT r.ns, r.object_id, r.revision, r.version, r.digest
  FROM unnest($1::int[], $2::int[]) AS k(ns, object_id)
 CROSS JOIN LATERAL (SELECT * FROM nf_revision x WHERE x.ns = k.ns AND x.object_id = k.object_id AND x.version IS NOT NULL OFFSET 0) r;

-- name: objects_lock
-- Whose: S14. Locks: L2, objects in key order.
SELECT o.ns, o.object_id, o.revision, o.project, o.retired_at
  FROM unnest($1::int[], $2::int[]) AS k(ns, object_id)
 CROSS JOIN LATERAL (SELECT * FROM nf_object x WHERE x.ns = k.ns AND x.object_id = k.object_id FOR UPDATE) o;

-- name: registry_gates
-- Whose: S14, before its gates. Locks: none. What the gates of definitions and semaphores are set to.
SELECT k.ns, k.object_id, f.cap, f.budget, s.permits,
       ARRAY(SELECT n.name || '/' || o.name
               FROM nf_def_sem d
               JOIN nf_ns n ON n.ns = d.sem_ns
               JOIN nf_object o ON o.ns = d.sem_ns AND o.object_id = d.sem_id
              WHERE d.ns = k.ns AND d.def_id = k.object_id
              ORDER BY 1)
  FROM unnest($1::int[], $2::int[]) AS k(ns, object_id)
  LEFT JOIN LATERAL (SELECT x.cap, x.budget FROM nf_def_flow x WHERE x.ns = k.ns AND x.def_id = k.object_id LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT x.permits FROM nf_semaphore x WHERE x.ns = k.ns AND x.sem_id = k.object_id LIMIT 1) s ON true;

-- name: namespaces_insert
-- Whose: S14. Locks: inserts, in name order. Those that are missing; a namespace comes with its first object.
INSERT INTO nf_ns (name, created_at)
SELECT k.name, $2 FROM unnest($1::text[]) AS k(name) WHERE NOT EXISTS (SELECT FROM nf_ns x WHERE x.name = k.name) ORDER BY k.name
ON CONFLICT (name) DO NOTHING;

-- name: namespaces_named
-- Whose: S14. Locks: none.
SELECT ns, name FROM nf_ns WHERE name = ANY ($1::text[]);

-- name: objects_insert
-- Whose: S14. Locks: inserts. Their first revision follows in the same transaction.
INSERT INTO nf_object (ns, kind, name, revision, labels, description, project, source_file, source_line, source_commit, applied_revision,
                       applied_generation, created_at, updated_at)
SELECT k.ns, k.kind, k.name, 1, k.labels::jsonb, k.description, $7, k.source_file, k.source_line, $8, 1, $9, $10, $10
  FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $11::int[])
       AS k(ns, kind, name, labels, description, source_file, source_line)
RETURNING ns, object_id, kind, name;

-- name: revisions_known
-- Whose: S14 (N3). Locks: none. The highest revision, and the one that has the wanted content already.
SELECT k.ns, k.object_id, m.revision, coalesce(d.revision, 0)
  FROM unnest($1::int[], $2::int[], $3::bytea[]) AS k(ns, object_id, digest)
 CROSS JOIN LATERAL (SELECT x.revision FROM nf_revision x WHERE x.ns = k.ns AND x.object_id = k.object_id ORDER BY x.revision DESC LIMIT 1) m
  LEFT JOIN LATERAL (SELECT x.revision FROM nf_revision x
                      WHERE x.ns = k.ns AND x.object_id = k.object_id AND x.digest = k.digest LIMIT 1) d ON true;

-- name: versions_clear
-- Whose: S14 in the private database of nf dev: a version moves to the newest content. Locks: revision rows, under their objects.
UPDATE nf_revision r SET version = NULL
  FROM unnest($1::int[], $2::int[], $3::bigint[]) AS k(ns, object_id, version)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_revision x WHERE x.ns = k.ns AND x.object_id = k.object_id AND x.version = k.version LIMIT 1) x
 WHERE r.ctid = x.t;

-- name: versions_set
-- Whose: S14 in the private database of nf dev, after versions_clear. Locks: revision rows, under their objects.
UPDATE nf_revision r SET version = k.version
  FROM unnest($1::int[], $2::int[], $3::int[], $4::bigint[]) AS k(ns, object_id, revision, version)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_revision x WHERE x.ns = k.ns AND x.object_id = k.object_id AND x.revision = k.revision LIMIT 1) x
 WHERE r.ctid = x.t;

-- name: revisions_insert
-- Whose: S14. Locks: inserts, under their objects. Old content never comes here: it takes its old number.
INSERT INTO nf_revision (ns, object_id, revision, digest, version, spec, project, generation, source_commit, created_by, created_at)
SELECT k.ns, k.object_id, k.revision, k.digest, nullif(k.version, 0), k.spec, $7, $8, $9, $10, $11
  FROM unnest($1::int[], $2::int[], $3::int[], $4::bytea[], $5::bigint[], $6::bytea[]) AS k(ns, object_id, revision, digest, version, spec)
RETURNING ns, object_id, rev_id;

-- name: objects_update
-- Whose: S14. Locks: L2, held. Points at a revision; in force again if it was retired.
UPDATE nf_object o SET revision = k.revision, labels = k.labels::jsonb, description = k.description, project = $8, source_file = k.source_file,
       source_line = k.source_line, source_commit = $9, applied_revision = k.revision, applied_generation = $10, retired_at = NULL, updated_at = $11
  FROM unnest($1::int[], $2::int[], $3::int[], $4::text[], $5::text[], $6::text[], $7::int[])
       AS k(ns, object_id, revision, labels, description, source_file, source_line)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_object x WHERE x.ns = k.ns AND x.object_id = k.object_id LIMIT 1) x
 WHERE o.ctid = x.t;

-- name: objects_retire
-- Whose: S14 (P9). Locks: L2, held.
UPDATE nf_object o SET retired_at = $3, applied_generation = $4, updated_at = $3
  FROM unnest($1::int[], $2::int[]) AS k(ns, object_id)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_object x WHERE x.ns = k.ns AND x.object_id = k.object_id LIMIT 1) x
 WHERE o.ctid = x.t;

-- name: policies_insert
-- Whose: S14. Locks: inserts. What SQL needs of a definition's revision when it leases.
INSERT INTO nf_policy (ns, def_rev, lease_ms, beat_ms, close_ms)
SELECT k.ns, k.def_rev, k.lease_ms, nullif(k.beat_ms, 0), nullif(k.close_ms, 0)
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[]) AS k(ns, def_rev, lease_ms, beat_ms, close_ms);

-- name: def_flow_upsert
-- Whose: S14. Locks: L2, under the gates of definitions that exist. Every definition has a row: verdicts are kept in it.
INSERT INTO nf_def_flow AS f (ns, def_id, cap, budget)
SELECT k.ns, k.def_id, nullif(k.cap, 0), k.budget
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::real[]) AS k(ns, def_id, cap, budget) ORDER BY k.ns, k.def_id
ON CONFLICT (ns, def_id) DO UPDATE SET cap = excluded.cap, budget = excluded.budget;

-- name: def_sem_delete
-- Whose: S14. Locks: L2, under the gates of the definitions.
DELETE FROM nf_def_sem WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::int[]) AS k(ns, def_id)
   CROSS JOIN LATERAL (SELECT d.ctid AS t FROM nf_def_sem d WHERE d.ns = k.ns AND d.def_id = k.def_id OFFSET 0) x));

-- name: def_sem_insert
-- Whose: S14, after def_sem_delete. Locks: L2, under the gates of the definitions. One row less than asked for: a semaphore does not exist.
INSERT INTO nf_def_sem (ns, def_id, sem_ns, sem_id)
SELECT k.ns, k.def_id, o.ns, o.object_id
  FROM unnest($1::int[], $2::int[], $3::text[], $4::text[]) AS k(ns, def_id, sem_namespace, sem_name)
 CROSS JOIN LATERAL (SELECT x.ns FROM nf_ns x WHERE x.name = k.sem_namespace LIMIT 1) n
 CROSS JOIN LATERAL (SELECT x.ns, x.object_id FROM nf_object x WHERE x.ns = n.ns AND x.kind = 'Semaphore' AND x.name = k.sem_name LIMIT 1) o;

-- name: semaphores_upsert
-- Whose: S14. Locks: L2, under the gates of semaphores that exist.
INSERT INTO nf_semaphore (ns, sem_id, permits)
SELECT k.ns, k.sem_id, k.permits FROM unnest($1::int[], $2::int[], $3::bigint[]) AS k(ns, sem_id, permits) ORDER BY k.ns, k.sem_id
ON CONFLICT (ns, sem_id) DO UPDATE SET permits = excluded.permits;

-- name: queues_gate
-- Whose: S14. Locks: L2, under the gates of the definitions. A definition with a cap or semaphores gates all its physical queues.
UPDATE nf_queue q SET gated = k.gated
  FROM unnest($1::int[], $2::int[], $3::boolean[]) AS k(ns, def_id, gated)
 CROSS JOIN LATERAL (SELECT x.ctid AS t FROM nf_queue x WHERE x.ns = k.ns AND x.def_id = k.def_id AND x.def_id > 0
                        AND x.gated IS DISTINCT FROM k.gated OFFSET 0) x
 WHERE q.ctid = x.t;

-- name: generation_insert
-- Whose: S14. Locks: inserts.
INSERT INTO nf_generation (project, generation, how, digest, commit_id, branch, actor, build, reason, added, changed, retired, at)
VALUES ($1, $2, 'apply', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: changes_insert
-- Whose: S14. Locks: inserts.
INSERT INTO nf_change (project, generation, ns, object_id, action, before_revision, after_revision)
SELECT $1, $2, k.ns, k.object_id, k.action, nullif(k.before_revision, 0), nullif(k.after_revision, 0)
  FROM unnest($3::int[], $4::int[], $5::text[], $6::int[], $7::int[]) AS k(ns, object_id, action, before_revision, after_revision);

-- name: audit_insert
-- Whose: S14 and every verb that is logged. Locks: inserts.
INSERT INTO nf_audit (ns, at, actor, verb, object, project, generation, commit_id, reason, before, after)
SELECT k.ns, $6, $7, k.verb, k.object, $8, $9, $10, $11, k.before, k.after
  FROM unnest($1::int[], $2::text[], $3::text[], $4::bytea[], $5::bytea[]) AS k(ns, verb, object, before, after);

-- name: lock_holder
-- Whose: an apply that waited too long, for its message. Locks: none.
SELECT a.application_name, coalesce(a.usename, ''), coalesce(a.client_addr::text, 'local'), coalesce(a.xact_start, a.backend_start)
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND l.classid::bigint = ($1::bigint >> 32) & 4294967295 AND l.objid::bigint = $1::bigint & 4294967295
 LIMIT 1;

-- name: generations
-- Whose: the snapshot's poll. Locks: none.
SELECT project, generation, digest, coalesce(commit_id, ''), coalesce(branch, ''), applied_at, coalesce(applied_by, '')
  FROM nf_project WHERE generation > 0 ORDER BY project;

-- name: snapshot_objects
-- Whose: the snapshot. Locks: none. Everything declared, in one statement: one state. Specs come by revision.
SELECT o.ns, o.object_id, o.kind, o.name, o.revision, r.rev_id, r.digest, coalesce(r.version, 0), coalesce(o.project, ''), coalesce(o.source_file, ''),
       coalesce(o.source_line, 0), coalesce(o.source_commit, ''), o.labels, o.description, o.retired_at
  FROM nf_object o JOIN nf_revision r ON r.ns = o.ns AND r.object_id = o.object_id AND r.revision = o.revision
 ORDER BY o.ns, o.object_id;

-- name: snapshot_namespaces
-- Whose: the snapshot, after its objects. Locks: none.
SELECT ns, name FROM nf_ns ORDER BY ns;

-- name: revisions_by_id
-- Whose: the snapshot, and pinned revisions of open executions. Locks: none.
SELECT r.ns, r.rev_id, o.object_id, o.kind, n.name, o.name, r.revision, coalesce(r.version, 0), r.digest, r.spec
  FROM unnest($1::int[], $2::int[]) AS k(ns, rev_id)
 CROSS JOIN LATERAL (SELECT * FROM nf_revision x WHERE x.ns = k.ns AND x.rev_id = k.rev_id LIMIT 1) r
 CROSS JOIN LATERAL (SELECT x.object_id, x.kind, x.name FROM nf_object x WHERE x.ns = r.ns AND x.object_id = r.object_id LIMIT 1) o
 CROSS JOIN LATERAL (SELECT x.name FROM nf_ns x WHERE x.ns = r.ns LIMIT 1) n;

-- name: revision_by_version
-- Whose: S6 start with a version (N3). Locks: none.
SELECT r.rev_id FROM nf_revision r WHERE r.ns = $1 AND r.object_id = $2 AND r.version = $3;

-- name: revision_by_number
-- Whose: API: one revision of an object. Locks: none.
SELECT r.rev_id FROM nf_revision r WHERE r.ns = $1 AND r.object_id = $2 AND r.revision = $3;

-- name: object_revisions
-- Whose: API: revisions of an object, newest first. Locks: none.
SELECT r.revision, r.rev_id, r.digest, coalesce(r.version, 0), coalesce(r.source_commit, ''), r.created_by, r.created_at
  FROM nf_revision r WHERE r.ns = $1 AND r.object_id = $2 AND ($3 = 0 OR r.revision < $3) ORDER BY r.revision DESC LIMIT $4;

-- name: registered_namespaces
-- Whose: plan. Locks: none. Every namespace, with the objects in force there that are not the project's.
SELECT n.name, (SELECT count(*) FROM nf_object o WHERE o.ns = n.ns AND o.retired_at IS NULL AND o.project IS DISTINCT FROM $1::text)
  FROM nf_ns n WHERE n.ns > 0;

-- name: registered_use
-- Whose: plan: impact and risk. Locks: none. Open executions of a workflow, or those with an open attempt of a definition; leases of a definition, or
-- permits of a semaphore. Each from at most 10,001 rows.
SELECT k.ns, k.object_id,
       (SELECT count(*) FROM (SELECT FROM nf_exec e WHERE e.ns = k.ns AND e.def_id = k.object_id LIMIT 10001) x)
       + (SELECT count(DISTINCT x.exec_id) FROM (
            SELECT a.exec_id FROM nf_queue q CROSS JOIN LATERAL (
              (SELECT r.exec_id FROM nf_ready r WHERE r.ns = q.ns AND r.queue_id = q.queue_id LIMIT 10001) UNION ALL
              (SELECT t.exec_id FROM nf_timer t WHERE t.ns = q.ns AND t.queue_id = q.queue_id AND t.queue_id > 0 LIMIT 10001) UNION ALL
              (SELECT l.exec_id FROM nf_lease l WHERE l.ns = q.ns AND l.queue_id = q.queue_id LIMIT 10001)) a
             WHERE q.ns = k.ns AND q.def_id = k.object_id AND q.def_id > 0 LIMIT 10001) x),
       (SELECT count(*) FROM (SELECT FROM nf_queue q CROSS JOIN LATERAL (SELECT FROM nf_lease l WHERE l.ns = q.ns AND l.queue_id = q.queue_id LIMIT 10001) l
                               WHERE q.ns = k.ns AND q.def_id = k.object_id AND q.def_id > 0 LIMIT 10001) x)
       + (SELECT count(*) FROM (SELECT FROM nf_lease_sem s WHERE s.sem_ns = k.ns AND s.sem_id = k.object_id LIMIT 10001) x)
  FROM unnest($1::int[], $2::int[]) AS k(ns, object_id);
