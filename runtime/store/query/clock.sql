-- name: now
-- Whose: any. Locks: none. The database clock (A0.1).
SELECT nf_now()
