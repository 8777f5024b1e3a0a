package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
)

// watchEvery is how often nf status --watch looks.
const watchEvery = 2 * time.Second

func (sh *shell) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show what is in force and who runs it", Flags: []cli.Flag{&cli.BoolFlag{Name: "watch", Usage: "look again every 2 s"}},
		Action: sh.action(0, 0, "", sh.status),
	}
}

func (sh *shell) status() error {
	look, done, err := sh.statusSource()
	if err != nil {
		return err
	}
	defer done()
	for {
		if err := sh.statusOnce(look); err != nil || !sh.c.Bool("watch") {
			return err
		}
		if err := napFor(sh.ctx(), watchEvery); err != nil {
			return err
		}
		if sh.settings.output == "text" {
			sh.print("\n")
		}
	}
}

// statusAnswer is a status, with what a runner says of its own files as it came.
type statusAnswer struct {
	api.Status
	Reload json.RawMessage `json:"reload,omitempty"`
	origin string
}

// statusSource says where the status is read: --url → the API, else a database, else the API (contract 5.2).
func (sh *shell) statusSource() (look func() (statusAnswer, error), done func(), err error) {
	if sh.viaAPI() {
		c, err := sh.connect()
		if err != nil {
			return nil, nil, err
		}
		return func() (statusAnswer, error) {
			st := statusAnswer{origin: "api " + c.base}
			if err := c.get(sh.ctx(), "/v1/status", nil, &st); err != nil {
				return st, sh.apiFailure(c, err)
			}
			return st, nil
		}, func() {}, nil
	}
	s, db, err := sh.openStore(sh.ctx())
	if err != nil {
		return nil, nil, err
	}
	return func() (statusAnswer, error) {
		st, err := s.Status(sh.ctx())
		if err != nil {
			return statusAnswer{}, storeError(err)
		}
		return statusAnswer{Status: api.StatusOf(&st), origin: "database " + redactURL(db.value)}, sh.databaseIs(st.Install.Environment)
	}, s.Close, nil
}

// viaAPI says whether a command that could use either goes through a runner's API.
func (sh *shell) viaAPI() bool {
	switch {
	case sh.c.IsSet("url"):
		return true
	case sh.c.IsSet("database-url"), sh.env["NF_DATABASE_URL"] != "", sh.env["NF_DATABASE_URL_FILE"] != "":
		return false
	}
	return sh.env["NF_URL"] != ""
}

func (sh *shell) statusOnce(look func() (statusAnswer, error)) error {
	st, err := look()
	if err != nil {
		return err
	}
	if sh.settings.output == "json" {
		return sh.json(st)
	}
	sh.print(view.Status(&st.Status, st.origin))
	return nil
}

// napFor waits, at most until ctx ends.
func napFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
