-- name: schema_exists
-- Whose: migrations, nf db status. Locks: none.
SELECT to_regclass('nf_migration') IS NOT NULL;

-- name: migrations
-- Whose: migrations, nf db status. Locks: none.
SELECT version, name, checksum, build, applied_at FROM nf_migration ORDER BY version;

-- name: migration_insert
-- Whose: migrations. Locks: L7.
INSERT INTO nf_migration (version, name, checksum, build) VALUES ($1, $2, $3, $4);

-- name: install
-- Whose: S4, S16, every command. Locks: none.
SELECT environment, install_id, schema_version, min_build, created_at FROM nf_install WHERE one;

-- name: install_upsert
-- Whose: migrations. Locks: L2. The id and the environment are given once; the version only rises.
INSERT INTO nf_install AS i (environment, install_id, schema_version, min_build) VALUES ($1, gen_random_uuid(), $2, 0)
ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version WHERE i.schema_version < excluded.schema_version;

-- name: install_key_first
-- Whose: migrations. Locks: L7. Only where there is none.
INSERT INTO nf_install_key (key_no, key) SELECT 1, $1::bytea WHERE NOT EXISTS (SELECT FROM nf_install_key);

-- name: install_keys
-- Whose: API at start. Locks: none. The first signs, all verify.
SELECT key_no, key FROM nf_install_key ORDER BY key_no DESC;

-- name: ballast
-- Whose: migrations (B1.4). Locks: DDL on hot tables, which blocks neither reads nor writes of them.
SELECT nf_ballast();

-- name: ballast_gone
-- Whose: migrations. Locks: none. pg_upgrade and a restored dump bring no planner's numbers.
SELECT NOT EXISTS (SELECT FROM pg_stats s WHERE s.schemaname = current_schema() AND s.tablename = 'nf_ready');

-- name: make_days
-- Whose: migrations, duty days (B7). Locks: SHARE UPDATE EXCLUSIVE on the parents: neither readers nor writers wait.
SELECT coalesce(sum(nf_make_day(d.day)), 0)::bigint
  FROM (SELECT (nf_now() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(-1, $1::int) AS n) d;

-- name: day_of_id_make
-- Whose: any, after 23514 (B7). Locks: as make_days. Only days near today.
SELECT nf_make_day(nf_day($1::uuid))
 WHERE nf_day($1::uuid) BETWEEN (nf_now() AT TIME ZONE 'UTC')::date - 1 AND (nf_now() AT TIME ZONE 'UTC')::date + $2::int;

-- name: days
-- Whose: nf db status, health. Locks: none. First and last day of nf_task, whole days after today.
SELECT min(d.day)::timestamp AT TIME ZONE 'UTC', max(d.day)::timestamp AT TIME ZONE 'UTC',
       coalesce(max(d.day) - (nf_now() AT TIME ZONE 'UTC')::date, 0)::int
  FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'nf_task'::regclass) d;
