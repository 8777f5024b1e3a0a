-- name: key_by_id
-- Whose: runtime/auth, every request of a key that is not remembered. Locks: none.
SELECT secret_hash, name, scopes, namespaces, expires_at, revoked_at, old_hash, old_until, nf_now()
  FROM nf_key WHERE key_id = $1

-- name: key_create
-- Whose: runtime/auth. Locks: inserts. A live key of this name: 23505 on nf_key_name.
INSERT INTO nf_key (key_id, secret_hash, name, scopes, namespaces, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, nf_now())

-- name: key_list
-- Whose: runtime/auth. Locks: none.
SELECT k.key_id, k.name, k.scopes, k.namespaces IS NULL,
       coalesce((SELECT array_agg(n.name ORDER BY n.name) FROM nf_ns n WHERE n.ns = ANY (k.namespaces)), '{}'),
       k.created_by, k.created_at, k.expires_at, k.revoked_at, k.used_at
  FROM nf_key k ORDER BY k.created_at, k.key_id

-- name: key_revoke
-- Whose: runtime/auth. Locks: the key's row.
UPDATE nf_key SET revoked_at = nf_now() WHERE (key_id = $1 OR name = $1) AND revoked_at IS NULL RETURNING key_id, name

-- name: key_used
-- Whose: runtime/auth, at most once a minute a key. Locks: the key's row.
UPDATE nf_key SET used_at = nf_now() WHERE key_id = $1 AND (used_at IS NULL OR used_at < nf_now() - interval '1 minute')

-- name: key_audit
-- Whose: runtime/auth. Locks: inserts.
INSERT INTO nf_audit (ns, at, actor, verb, object, reason) VALUES (0, nf_now(), $1, $2, $3, $4)

-- name: key_namespaces
-- Whose: runtime/auth. Locks: none. Numbers of namespaces by name; one that is missing is made first (key_namespace_make).
SELECT name, ns FROM nf_ns WHERE name = ANY ($1::text[]) AND ns > 0

-- name: key_namespace_make
-- Whose: runtime/auth: a key may be made before the first apply names its namespace. Locks: inserts.
INSERT INTO nf_ns (name, created_at) SELECT $1, nf_now() WHERE NOT EXISTS (SELECT FROM nf_ns WHERE name = $1)
ON CONFLICT (name) DO NOTHING
