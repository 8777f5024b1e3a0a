package cli

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/store"
)

func (sh *shell) dbCommand() *cli.Command {
	return &cli.Command{Name: "db", Usage: "the schema of the database", Subcommands: []*cli.Command{
		{
			Name: "migrate", Usage: "bring the schema up to this nf", Flags: []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "do not ask"}},
			Action: sh.action(0, 0, "", sh.dbMigrate),
		},
		{Name: "status", Usage: "show the schema's state", Action: sh.action(0, 0, "", sh.dbStatus)},
	}}
}

func (sh *shell) dbMigrate() error {
	db, err := sh.settings.database(sh.c)
	if err != nil {
		return err
	}
	env, err := sh.settings.needEnv(db)
	if err != nil {
		return err
	}
	s, db, err := sh.openStore(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	before, err := schemaStatus(sh, s)
	if err != nil {
		return err
	}
	pending := len(before.Pending)
	if pending > 0 && !sh.c.Bool("yes") && db.from != fromState && sh.terminal() {
		if err := sh.ask(fmt.Sprintf("Run %s on %s as environment %s?", view.Plural(pending, "migration"), redactURL(db.value), view.Safe(env))); err != nil {
			return err
		}
	}
	if err := s.Migrate(sh.ctx(), Build, env); err != nil {
		return storeError(err)
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{"format_version": view.FormatVersion, "environment": env, "ran": pending})
	}
	if pending == 0 {
		sh.print("The schema is up to date.\n")
		return nil
	}
	sh.print(fmt.Sprintf("Ran %s. Environment: %s.\n", view.Plural(pending, "migration"), view.Safe(env)))
	return nil
}

// schemaStatus reads the schema's state; a database without one has everything pending.
func schemaStatus(sh *shell, s *store.Store) (store.SchemaStatus, error) {
	status, err := s.SchemaStatus(sh.ctx())
	if errors.Is(err, store.ErrNoSchema) {
		return store.SchemaStatus{Pending: store.Migrations()}, nil
	}
	return status, storeError(err)
}

func (sh *shell) dbStatus() error {
	s, _, err := sh.openStore(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	status, err := schemaStatus(sh, s)
	if err != nil {
		return err
	}
	if status.Install.Environment != "" {
		if err := sh.databaseIs(status.Install.Environment); err != nil {
			return err
		}
	}
	fits := ""
	if err := status.Fits(Build); err != nil {
		fits = err.Error()
	}
	if sh.settings.output == "json" {
		return sh.json(dbForm(&status, fits))
	}
	sh.print(view.Schema(&status, Build, fits))
	return nil
}

type migrationForm struct {
	Version   int64  `json:"version"`
	Name      string `json:"name"`
	AppliedAt string `json:"applied_at,omitempty"`
}

func dbForm(st *store.SchemaStatus, misfit string) map[string]any {
	applied, pending := make([]migrationForm, len(st.Applied)), make([]migrationForm, len(st.Pending))
	for i, m := range st.Applied {
		applied[i] = migrationForm{m.Version, m.Name, m.AppliedAt.UTC().Format(timeFormat)}
	}
	for i, m := range st.Pending {
		pending[i] = migrationForm{Version: m.Version, Name: m.Name}
	}
	newer := st.Newer
	if newer == nil {
		newer = []int64{}
	}
	out := map[string]any{
		"format_version": view.FormatVersion, "environment": st.Install.Environment, "build": Build, "min_build": st.Install.MinBuild,
		"applied": applied, "pending": pending, "newer": newer, "days_ahead": st.Days.Ahead, "fits": misfit == "",
	}
	if misfit != "" {
		out["misfit"] = misfit
	}
	return out
}
