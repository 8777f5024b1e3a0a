package cli

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/store"
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
	s, db, err := sh.openStore(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		if err := sh.statusOnce(s, db); err != nil || !sh.c.Bool("watch") {
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

func (sh *shell) statusOnce(s *store.Store, db setting) error {
	status, err := s.Status(sh.ctx())
	if err != nil {
		return storeError(err)
	}
	if err := sh.databaseIs(status.Install.Environment); err != nil {
		return err
	}
	if sh.settings.output == "json" {
		return sh.json(view.StatusForm(&status))
	}
	sh.print(view.Status(&status, redactURL(db.value)))
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
