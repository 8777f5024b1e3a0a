//go:build unix

package queuetest

import (
	"time"

	"github.com/stretchr/testify/require"
)

// WatchCaps makes the database itself hold every commit to the caps and permits, and keep the history of grants and ends in the order of their
// commits.
//
// Why it cannot miss a moment at which a limit is passed: what is in flight at a moment is the set of lease rows that are committed then, and that set changes
// only when a transaction that inserted or deleted lease rows commits. A deferred constraint trigger runs for each of these inside the commit, takes an
// advisory lock that nobody gives back before its commit is visible, and then counts in a fresh snapshot: so commits that change leases
// pass through one by one, and each counts exactly what is committed once it is. Between two such commits nothing changes. The lock
// is the last one that a transaction takes, so it makes no deadlock; it delays the end of transactions but orders nothing before it, so it hides no race of claims.
func (w *World) WatchCaps() {
	w.T.Helper()
	w.Exec(`
CREATE TABLE test_history (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL, ns int, def_id int, queue_id int, exec_id uuid,
  task_no int, fence bigint, held bigint, cap bigint);
CREATE TABLE test_over (no bigint, what text, id text, held bigint, allowed bigint);
CREATE FUNCTION test_watch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  r nf_lease; c bigint; n bigint; k bigint; s record;
BEGIN
  PERFORM pg_advisory_xact_lock(-42);
  IF TG_OP = 'INSERT' THEN r := NEW; ELSE r := OLD; END IF;
  SELECT f.cap INTO c FROM nf_def_flow f WHERE f.ns = r.ns AND f.def_id = r.def_id;
  SELECT count(*) INTO n FROM nf_queue q CROSS JOIN LATERAL (SELECT 1 FROM nf_lease l WHERE l.ns = q.ns AND l.queue_id = q.queue_id) x
   WHERE q.ns = r.ns AND q.def_id = r.def_id;
  INSERT INTO test_history (what, ns, def_id, queue_id, exec_id, task_no, fence, held, cap)
  VALUES (TG_OP, r.ns, r.def_id, r.queue_id, r.exec_id, r.task_no, r.fence, n, c) RETURNING no INTO k;
  IF TG_OP = 'INSERT' AND n > c THEN
    INSERT INTO test_over VALUES (k, 'definition', r.def_id::text, n, c);
  END IF;
  IF TG_OP = 'INSERT' AND r.sems > 0 THEN
    FOR s IN SELECT m.sem_id, m.permits, (SELECT count(*) FROM nf_lease_sem p WHERE p.sem_ns = m.ns AND p.sem_id = m.sem_id) AS held
               FROM nf_semaphore m LOOP
      IF s.held > s.permits THEN
        INSERT INTO test_over VALUES (k, 'semaphore', s.sem_id::text, s.held, s.permits);
      END IF;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER test_watch AFTER INSERT OR DELETE ON nf_lease DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test_watch();`)
}

// Grants gives the number of leases granted so far.
func (w *World) Grants() int {
	return w.Count(`SELECT count(*) FROM test_history WHERE what = 'INSERT'`)
}

// Over gives the number of commits after which a limit was passed, as the trigger counted it and as the history says.
func (w *World) Over() (counted, summed int) {
	counted = w.Count(`SELECT count(*) FROM test_over`)
	summed = w.Count(`SELECT count(*) FROM (
		SELECT sum(CASE what WHEN 'INSERT' THEN 1 ELSE -1 END) OVER (PARTITION BY ns, def_id ORDER BY no) AS held, cap FROM test_history) h WHERE held > cap`)
	return counted, summed
}

// NeverOver fails the test if a limit was passed at any commit.
func (w *World) NeverOver() {
	w.T.Helper()
	counted, summed := w.Over()
	require.Zero(w.T, counted, "commits after which a limit was passed")
	require.Zero(w.T, summed, "moments in the history at which a cap was passed")
}

// GiveUp does what the engine does with attempts that were delivered five times: their leases end. Here they begin anew, so that the world never runs dry.
func (w *World) GiveUp() {
	w.T.Helper()
	w.Exec(`WITH d AS (DELETE FROM nf_lease WHERE ns > 0 AND deliveries >= 5 AND lease_until <= nf_now() RETURNING *),
		s AS (DELETE FROM nf_lease_sem p USING d WHERE p.ns = d.ns AND p.exec_id = d.exec_id AND p.task_no = d.task_no)
		INSERT INTO nf_ready (ns, queue_id, lane, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, retries_left, scheduled_at, visible_at)
		SELECT ns, queue_id, lane, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, retries_left, scheduled_at, visible_at FROM d`)
}

// GiveUpUntil gives up ten times a second until stop is closed.
func (w *World) GiveUpUntil(stop <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			w.GiveUp()
		}
	}
}
