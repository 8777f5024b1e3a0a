-- name: now
-- Whose: any. Locks: none. The database clock (A0.1).
SELECT nf_now();

-- name: set_local
-- Whose: any. Locks: none. A setting for the rest of the transaction.
SELECT set_config($1::text, $2::text, true);

-- name: set_local_all
-- Whose: any, behind a pooler: the settings of the lane, first in each transaction. Locks: none.
SELECT set_config(k.name, k.value, true) FROM unnest($1::text[], $2::text[]) AS k(name, value);

-- name: lock_gate
-- Whose: S1b, S2, S6, S12–S16. Locks: L1, waits.
SELECT pg_advisory_xact_lock($1::bigint);


-- name: one_state
-- Whose: reads of several statements that must agree. Locks: none. First statement of its transaction.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
