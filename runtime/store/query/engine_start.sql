-- name: engine_idem_in
-- Whose: S6. Locks: L0, in key order: a key under way elsewhere is waited for. Gives the keys that are new.
INSERT INTO nf_idem (ns, kind, key, exec_id, request_hash, created_at)
SELECT k.ns, 1, k.key, k.exec_id, k.request_hash, nf_now()
  FROM unnest($1::int[], $2::text[], $3::uuid[], $4::bytea[]) AS k(ns, key, exec_id, request_hash) ORDER BY k.ns, k.key
    ON CONFLICT (ns, kind, key) DO NOTHING
RETURNING ns, key, exec_id;

-- name: engine_idem_get
-- Whose: S6, keys that exist; S0. Locks: none.
SELECT k.ns, k.key, x.exec_id, x.request_hash FROM unnest($1::int[], $2::text[]) AS k(ns, key) CROSS JOIN LATERAL (
  SELECT i.exec_id, i.request_hash FROM nf_idem i WHERE i.ns = k.ns AND i.kind = 1 AND i.key = k.key LIMIT 1) x;

-- name: engine_idem_out
-- Whose: S6: the key of a start that was refused after all. Locks: own rows.
DELETE FROM nf_idem WHERE ctid = ANY (ARRAY(
  SELECT x.t FROM unnest($1::int[], $2::text[]) AS k(ns, key) CROSS JOIN LATERAL (
    SELECT i.ctid AS t FROM nf_idem i WHERE i.ns = k.ns AND i.kind = 1 AND i.key = k.key LIMIT 1) x));
