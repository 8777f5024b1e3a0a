package cli

import (
	"context"
	"errors"

	"nf/runtime/store"
)

// commandConns is what a command that is no runner may open; connections are made when they are needed.
const commandConns = store.MinConns

// openStore connects to the database of the settings and says which one it is.
func (sh *shell) openStore(ctx context.Context) (*store.Store, setting, error) {
	db, err := sh.settings.database(sh.c)
	if err != nil {
		return nil, db, err
	}
	sh.tellDatabase(db)
	s, err := store.Open(ctx, store.Config{URL: db.value, MaxConns: commandConns, AppName: "nf " + sh.c.Command.Name})
	if err != nil {
		return nil, db, storeError(err)
	}
	return s, db, nil
}

// tellDatabase names the database that is used, for people.
func (sh *shell) tellDatabase(db setting) {
	if sh.settings.output == "text" {
		sh.say("database %s (%s)", redactURL(db.value), db.name)
	}
}

// openToWrite connects, and makes sure that the schema fits this nf (P4) and that the environment is the one that is meant (P13).
func (sh *shell) openToWrite(ctx context.Context) (s *store.Store, db setting, env string, err error) {
	if db, err = sh.settings.database(sh.c); err != nil {
		return nil, db, "", err
	}
	if env, err = sh.settings.needEnv(db); err != nil {
		return nil, db, "", err
	}
	if s, db, err = sh.openStore(ctx); err != nil {
		return nil, db, "", err
	}
	status, err := s.SchemaStatus(ctx)
	if err == nil {
		err = status.Fits(Build)
	}
	if err == nil && status.Install.Environment != env {
		err = &store.EnvironmentError{Stored: status.Install.Environment, Asked: env}
	}
	if err != nil {
		s.Close()
		return nil, db, "", storeError(err)
	}
	return s, db, env, nil
}

// databaseIs holds a reading command's --env, if there is one, to the database.
func (sh *shell) databaseIs(stored string) error {
	if asked := sh.settings.envName.value; asked != "" && asked != stored {
		return storeError(&store.EnvironmentError{Stored: stored, Asked: asked})
	}
	return nil
}

// storeError gives the exit of a database's error.
func storeError(err error) error {
	var (
		environment *store.EnvironmentError
		busy        *store.BusyError
		exit        *exitError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return err
	case errors.As(err, &environment):
		return refused("NF6108: %v", environment).hinted("give --env %s if this is the database you mean", environment.Stored)
	case errors.As(err, &busy), errors.Is(err, store.ErrBusy):
		return &exitError{code: exitStale, message: err.Error(), hint: "try again when it has ended", cause: err}
	case errors.Is(err, store.ErrStale):
		return &exitError{code: exitStale, message: "NF6106: " + err.Error(), hint: "something else was applied meanwhile: look at nf plan and apply again", cause: err}
	}
	return fail("%w", err)
}
