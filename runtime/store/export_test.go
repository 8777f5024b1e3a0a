package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// RegistryText gives all that applies write, but the log, as text.
func (s *Store) RegistryText(ctx context.Context) (string, error) {
	var all []string
	for _, table := range []string{
		"nf_ns", "nf_project", "nf_generation", "nf_object", "nf_revision", "nf_change", "nf_policy", "nf_def_flow", "nf_def_sem", "nf_semaphore", "nf_queue",
	} {
		rows, err := s.pools[API].Query(ctx, "SELECT '"+table+": '||t::text FROM "+table+" t ORDER BY 1")
		if err != nil {
			return "", err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return "", err
		}
		all = append(all, lines...)
	}
	return strings.Join(all, "\n"), nil
}

// StatementNames gives the names of all statements.
func StatementNames() []string { return slices.Sorted(maps.Keys(statements())) }

// StatementText gives a statement as it is sent for a day.
func StatementText(name, day string) string { return statement(name, day) }

// HotSettings gives the session settings of the hot lane.
func (s *Store) HotSettings() map[string]string { return laneSettings(Hot, s.version) }

// URLForTests gives the address of the store's database.
func (s *Store) URLForTests() string { return s.base.ConnString() }
