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

// SSLModeOf gives how a URL is understood: whether TLS is tried first, and whether plain text is a fallback.
func SSLModeOf(url string) (tls, plain bool, err error) {
	cfg, err := parseURL(url)
	if err != nil {
		return false, false, err
	}
	plain = cfg.TLSConfig == nil
	for _, f := range cfg.Fallbacks {
		plain = plain || f.TLSConfig == nil
	}
	return cfg.TLSConfig != nil, plain, nil
}

// VersionNumber reads what a server says of its version.
func VersionNumber(text string) int { return versionNumber(text) }

// PoolSizes gives the split of connections: hot, api, ctl.
func PoolSizes(total int) [3]int32 { return poolSizes(total) }

// QueryText runs a text in a transaction of a lane and gives its one value.
func (s *Store) QueryText(ctx context.Context, lane Lane, sql string) (text string, err error) {
	err = s.InTx(ctx, lane, "test", func(ctx context.Context, t *Tx) error {
		if err := t.begin(ctx); err != nil {
			return err
		}
		return t.conn.QueryRow(ctx, sql).Scan(&text)
	})
	return text, err
}
