package store_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// hotTables are the tables whose plans must never change (B1.4).
var hotTables = []string{"nf_exec", "nf_ready", "nf_lease", "nf_lease_sem", "nf_timer", "nf_decide", "nf_scope", "nf_var", "nf_idem"}

// wholeTable are statements that read a hot table from end to end on purpose: figures for people, seldom asked for.
var wholeTable = map[string]string{
	"fleet": "counts for metrics",
}

// mayDiffer are statements that run seldom and whose plan may change with what is in the tables.
var mayDiffer = map[string]string{
	"fleet":       "counts by whatever index is smallest",
	"retire_idem": "a duty; a custom plan takes the namespace",
}

// The small twin of the plan test: statements keep their index conditions whatever is in the tables. The large one is TestSoakPlans.
func TestPlansStayTheSame(t *testing.T) {
	t.Parallel()
	plansStayTheSame(t, 4_000)
}

func plansStayTheSame(t *testing.T, rows int) {
	t.Helper()
	s := storetest.New(t)
	conn := connect(t, s.URLForTests())
	for name, value := range s.HotSettings() {
		_, err := conn.Exec(t.Context(), "SELECT set_config($1, $2, false)", name, value)
		require.NoError(t, err)
	}
	run(t, conn, "SET statement_timeout = 0")
	names := hotStatements(t, conn)
	require.Greater(t, len(names), 20)

	first := map[string][]string{}
	state := func(what string) {
		for _, name := range names {
			for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
				got := planOf(t, conn, name, mode)
				if first[name] == nil {
					first[name] = got
					if _, ok := wholeTable[name]; !ok {
						require.Empty(t, badScans(got), "%s (%s, %s)", name, what, mode)
					}
					continue
				}
				if _, ok := mayDiffer[name]; !ok && !slices.Equal(first[name], got) {
					t.Errorf("%s: %s with %s:\n  %s\nfirst:\n  %s", name, what, mode, strings.Join(got, "\n  "), strings.Join(first[name], "\n  "))
				}
			}
		}
	}
	state("ballast only")
	fill(t, conn, rows)
	state(fmt.Sprintf("%d rows", rows))
	vacuum(t, conn)
	state(fmt.Sprintf("%d rows, vacuumed", rows))
	for _, table := range hotTables {
		run(t, conn, "DELETE FROM "+table+" WHERE ns > 0")
	}
	state("emptied")
	vacuum(t, conn)
	state("emptied and vacuumed")
}

func run(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

func vacuum(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, table := range hotTables {
		run(t, conn, "VACUUM "+table)
	}
}

// hotStatements prepares every statement that names a hot table, under its own name.
func hotStatements(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	var names []string
	day := time.Now().UTC().Format("20060102")
	hot := regexp.MustCompile(`\b(` + strings.Join(hotTables, "|") + `)\b`)
	for _, name := range store.StatementNames() {
		text := store.StatementText(name, day)
		if !hot.MatchString(regexp.MustCompile(`--[^\n]*`).ReplaceAllString(text, "")) {
			continue
		}
		run(t, conn, fmt.Sprintf("PREPARE %s AS %s", pgx.Identifier{name}.Sanitize(), text))
		names = append(names, name)
	}
	return names
}

// planOf gives every scan of a plan: table, index and conditions.
func planOf(t *testing.T, conn *pgx.Conn, name, mode string) []string {
	t.Helper()
	run(t, conn, "SET plan_cache_mode = "+mode)
	var types []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = $1 AND from_sql", name).Scan(&types))
	args := make([]string, len(types))
	for i, typ := range types {
		args[i] = sample(typ)
	}
	call := pgx.Identifier{name}.Sanitize()
	if len(args) > 0 {
		call += "(" + strings.Join(args, ", ") + ")"
	}
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON, COSTS OFF, VERBOSE) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol).Scan(&text), name)
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	var scans []string
	for _, p := range plans {
		p.Plan.scans(&scans)
	}
	slices.Sort(scans)
	return scans
}

// sample gives a value of a type: lists of two, so that no plan profits from a list of one.
func sample(typ string) string {
	elem, list := strings.CutSuffix(typ, "[]")
	one := map[string]string{
		"smallint": "1", "integer": "1", "bigint": "1", "boolean": "true", "text": "x", "bytea": `\\x00`, "real": "0.5", "double precision": "0.5",
		"uuid": "01900000-0000-7000-8000-000000000001", "timestamp with time zone": "now", "date": "now", "jsonb": "{}",
	}[elem]
	if list {
		return fmt.Sprintf(`'{"%s","%s"}'::%s`, one, one, typ)
	}
	return fmt.Sprintf("'%s'::%s", strings.ReplaceAll(one, `\\`, `\`), typ)
}

type planNode struct {
	NodeType  string     `json:"Node Type"`
	Relation  string     `json:"Relation Name"`
	Index     string     `json:"Index Name"`
	IndexCond string     `json:"Index Cond"`
	Alias     string     `json:"Alias"`
	Plans     []planNode `json:"Plans"`
}

var (
	casts     = regexp.MustCompile(`::[a-z ]+(\[\])?`)
	constants = regexp.MustCompile(`'[^']*'|\$\d+|\b\d+\b|\btrue\b|\bfalse\b`)
	leaf      = regexp.MustCompile(`_\d{8}`)
)

// scans adds what the node and those below it read. Values are left out: a custom plan has them, a generic one parameters.
func (n planNode) scans(into *[]string) {
	if slices.Contains(hotTables, n.Relation) && strings.HasSuffix(n.NodeType, "Scan") {
		cond := constants.ReplaceAllString(casts.ReplaceAllString(n.IndexCond, ""), "?")
		*into = append(*into, leaf.ReplaceAllString(fmt.Sprintf("%s on %s %s using %s: %s", strings.ReplaceAll(n.NodeType, "Index Only", "Index"),
			n.Relation, n.Alias, n.Index, cond), ""))
	}
	for _, p := range n.Plans {
		p.scans(into)
	}
}

// badScans gives the scans that read a hot table from end to end: without an index, by no condition, or by the namespace alone.
func badScans(scans []string) []string {
	var bad []string
	for _, scan := range scans {
		kind, rest, _ := strings.Cut(scan, " on ")
		table, rest, _ := strings.Cut(rest, " ")
		_, cond, _ := strings.Cut(rest, ": ")
		if !slices.Contains(hotTables, table) || kind == "Tid Scan" {
			continue
		}
		if kind != "Index Scan" || cond == "" || !strings.Contains(cond, "AND") && strings.Contains(cond, "ns ") {
			bad = append(bad, scan)
		}
	}
	return bad
}

// fill puts open work into every hot table, in a namespace that the ballast does not use.
func fill(t *testing.T, conn *pgx.Conn, rows int) {
	t.Helper()
	for _, sql := range []string{
		`CREATE TEMP TABLE b AS SELECT i, 1 + i % 3 AS ns, ('01900000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid AS id,
		   now() + i * interval '1 ms' AS later FROM generate_series(1, $1::int) i`,
		`INSERT INTO nf_exec (ns, exec_id, started_at, admitted_at, def_id, rev_id, next_no) SELECT ns, id, now(), now(), 1 + i % 5, 1, 1 FROM b`,
		`INSERT INTO nf_ready (ns, queue_id, lane, seq, kind, exec_id, task_no, attempt, scope_no, slot, rev_id, def_id, def_rev, retries_left,
		   scheduled_at, visible_at, start_by) SELECT ns, 1 + i % 20, 99, i, 1, id, 1, 1, 0, 0, 1, 0, 0, 0, now(), now(), later FROM b`,
		`INSERT INTO nf_lease (ns, exec_id, task_no, attempt, queue_id, fence, claim_id, leased_at, check_at, lease_until, lease_ms, scheduled_at,
		   visible_at, scope_no, slot, rev_id, def_id, def_rev, deliveries, retries_left, lane, kind)
		   SELECT ns, id, 2, 1, 1 + i % 20, i, 0, now(), later, later, 1, now(), now(), 0, 0, 1, 0, 0, 1, 0, 99, 1 FROM b`,
		`INSERT INTO nf_lease_sem (sem_ns, sem_id, ns, exec_id, task_no, fence) SELECT ns, 1 + i % 20, ns, id, 2, i FROM b`,
		`INSERT INTO nf_timer (ns, exec_id, task_no, why, wake_at, scheduled_at, rev_id, queue_id)
		   SELECT ns, id, 3, (ARRAY[1, 2, 10, 16])[1 + i % 4], later, now(), 1, 1 + i % 20 FROM b`,
		`INSERT INTO nf_decide (ns, exec_id, fact_id, what, since, due_at) SELECT ns, id, i, 1, later, later FROM b`,
		`INSERT INTO nf_scope (ns, exec_id, scope_no, slot, kind, base_no, width, cursor, open, pending, iteration)
		   SELECT ns, id, 4, 0, 1, 1, 1, 1, 1, 1, '0' FROM b`,
		`INSERT INTO nf_var (ns, exec_id, name, value) SELECT ns, id, 'v', '0' FROM b`,
		`INSERT INTO nf_idem (ns, kind, key, exec_id, request_hash, created_at) SELECT ns, 1, 'k' || i, id, sha256(i::text::bytea), now() FROM b`,
		`DROP TABLE b`,
	} {
		if strings.Contains(sql, "$1") {
			run(t, conn, sql, rows)
			continue
		}
		run(t, conn, sql)
	}
}
