package cli

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/pgdev"
	"nf/runtime/registry"
	"nf/runtime/store"
)

// devKey is the file of .nf/dev that keeps the API key, devKeyName the key's name.
const (
	devKey     = "key"
	devKeyName = "nf-dev"
)

func (sh *shell) devCommand() *cli.Command {
	return &cli.Command{
		Name: "dev", Usage: "run the files of this folder on a private Postgres", ArgsUsage: "[DIR]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "address of the API (" + defaultListen + ")"},
			&cli.BoolFlag{Name: "reset", Usage: "begin with an empty database"},
			&cli.BoolFlag{Name: "no-run", Usage: "the database only; needs no nf.yaml"},
			debounceFlag(),
		},
		Action: sh.action(0, 1, "at most one folder", sh.dev),
	}
}

func (sh *shell) dev() error {
	if env := sh.settings.envName.value; env != "" && env != devEnvironment {
		return refused("nf dev is environment %s, not %s (%s)", devEnvironment, env, sh.settings.envName.name).hinted("for another environment: nf run --env %s", env)
	}
	if sh.c.IsSet("database-url") {
		return usage("nf dev runs a private database of its own").hinted("for another one: nf run --database-url URL --env NAME")
	}
	address, err := sh.devAddress()
	if err != nil {
		return err
	}
	dir, err := sh.devFolder()
	if err != nil {
		return err
	}
	opt, err := sh.runnerOptions()
	if err != nil {
		return err
	}
	if opt.files, err = sh.filesOptions(true); err != nil {
		return err
	}
	if c, ok := opt.secrets.(interface{ Close() error }); ok {
		defer func() { _ = c.Close() }()
	}
	folder, err := pgdev.OpenFolder(sh.ctx(), dir)
	if _, used := errors.AsType[*pgdev.InUseError](err); used {
		return &exitError{code: exitStale, message: err.Error(), hint: "its URL and key are found by themselves: run nf start, nf get, nf apply here", cause: err}
	}
	if err != nil {
		return fail("%w", err)
	}
	defer func() { _ = folder.Close() }()
	server, err := sh.devServer(folder)
	if err != nil {
		return err
	}
	defer sh.stopServer(server)
	s, err := store.Open(sh.ctx(), store.Config{URL: server.URL(), MaxConns: opt.maxConns, AppName: "nf dev"})
	if err != nil {
		return storeError(err)
	}
	defer s.Close()
	if err := s.Migrate(sh.ctx(), Build, devEnvironment); err != nil {
		return storeError(err)
	}
	opt.database, opt.private, opt.env = server.URL(), true, devEnvironment
	opt.files.folders = []string{dir}
	d := &devProcess{shell: sh, dir: dir, folder: folder, server: server, store: s, opt: opt}
	if sh.c.Bool("no-run") {
		return d.databaseOnly()
	}
	return d.run(address)
}

// devFolder gives the project's folder. Without an nf.yaml there is nothing to run; --no-run takes the folder as it is.
func (sh *shell) devFolder() (string, error) {
	start := sh.settings.workDir
	if arg := sh.c.Args().First(); arg != "" {
		if start = arg; !filepath.IsAbs(arg) {
			start = filepath.Join(sh.settings.workDir, arg)
		}
		if !isFolder(start) {
			return "", usage("%s is not a folder", arg)
		}
	}
	if dir := findProject(start); dir != "" {
		return dir, nil
	}
	if sh.c.Bool("no-run") {
		return filepath.Abs(start) // a database needs no files
	}
	p, err := readProject(sh.ctx(), start, fromFiles)
	if err != nil {
		return "", err
	}
	if err := sh.tellFindings(checkedOf(&p, p.findings)); err != nil {
		return "", err
	}
	sh.helpEmptyFolder(checkedOf(&p, p.findings))
	return "", quiet(codeOfFindings(p.findings))
}

// devAddress gives the address of the API, which is loopback: its key lies in a file of this folder.
func (sh *shell) devAddress() (string, error) {
	address := sh.settings.pick(sh.c, "listen", "NF_LISTEN", defaultListen)
	host, _, err := net.SplitHostPort(address.value)
	if err != nil {
		return "", usage("--listen %q is not host:port", address.value)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return "", usage("nf dev listens on a loopback address only, not %q", address.value).hinted("to serve other machines: nf run --listen %s", address.value)
	}
	return address.value, nil
}

func (sh *shell) devServer(folder *pgdev.Folder) (*pgdev.Server, error) {
	binaries, err := pgdev.FindAll(sh.ctx(), sh.env["NF_PG_BIN"])
	if err != nil {
		return nil, fail("%w", err)
	}
	o := pgdev.Options{Binaries: binaries}
	if sh.c.Bool("reset") {
		if err := folder.Reset(sh.ctx(), o); err != nil {
			return nil, fail("reset: %w", err)
		}
	}
	server, err := folder.Start(sh.ctx(), o)
	if err != nil {
		return nil, fail("private Postgres: %w", err)
	}
	return server, nil
}

func (sh *shell) stopServer(server *pgdev.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sh.ctx()), 30*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		sh.say("warning: stopping the private Postgres: %v", err)
	}
}

// devProcess is a running nf dev.
type devProcess struct {
	*shell
	dir    string
	folder *pgdev.Folder
	server *pgdev.Server
	store  *store.Store
	opt    runnerOptions
}

// databaseOnly keeps the database for commands beside it: nf plan, apply and run find it by themselves.
func (d *devProcess) databaseOnly() error {
	if err := d.folder.WriteState(pgdev.State{DatabaseURL: d.server.URL(), DataDir: d.server.Dir()}); err != nil {
		return fail("state of nf dev: %w", err)
	}
	d.say("%s", view.DevDatabase(d.server.URL()))
	select {
	case <-d.ctx().Done():
		return stopped(d.ctx())
	case <-d.server.Done():
		return fail("the private Postgres has ended; its log is in %s", d.server.Dir())
	}
}

// run serves the API and runs what is in force.
func (d *devProcess) run(address string) error {
	ctx, cancel := context.WithCancelCause(d.ctx())
	defer cancel(nil)
	front, err := listen(ctx, address)
	if err != nil {
		return fail("%w", err).hinted("another nf may run there; --listen 127.0.0.1:0 takes a free port")
	}
	front.serve()
	r, err := newRunner(ctx, d.store, front, d.opt)
	if err != nil {
		front.close(ctx)
		return storeError(err)
	}
	key, err := d.key(ctx, auth.New(d.store, clock.System{}))
	if err != nil {
		front.close(ctx)
		return err
	}
	gone := errors.New("the private Postgres has ended; its log is in " + d.server.Dir())
	go func() {
		select {
		case <-d.server.Done():
			cancel(gone)
		case <-ctx.Done():
		}
	}()
	err = r.run(ctx, func(ctx context.Context) error {
		r.files.Look(ctx) // tells what came of it; nf dev stays up whatever that is
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		state := pgdev.State{DatabaseURL: d.server.URL(), DataDir: d.server.Dir(), URL: front.url(), APIKey: key}
		if err := d.folder.WriteState(state); err != nil {
			return fail("state of nf dev: %w", err)
		}
		d.say("%s", view.DevReady(front.url(), exampleWorkflow(r.registry.Snapshot())))
		return nil
	}, nil)
	if errors.Is(context.Cause(ctx), gone) {
		return fail("%w", gone)
	}
	return storeError(err)
}

// exampleWorkflow names a workflow that could be started, "" if there is none.
func exampleWorkflow(snap *registry.Snapshot) string {
	for _, o := range snap.Objects("Workflow", 0) {
		if o.Retired() {
			continue
		}
		if o.Address.Namespace != "default" {
			return o.Address.Namespace + "/" + o.Address.Name
		}
		return o.Address.Name
	}
	return ""
}

// key gives the API key of nf dev: that of the last time, if the database still knows it, else a new one.
func (d *devProcess) key(ctx context.Context, keys *auth.Keys) (string, error) {
	operator := auth.Operator("nf dev")
	create := func() (string, error) {
		if _, err := keys.Revoke(ctx, operator, devKeyName); err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		return keys.Create(ctx, operator, devKeyName, []auth.Scope{auth.Admin}, nil, nil)
	}
	key, err := d.folder.Secret(devKey, create)
	if err != nil {
		return "", fail("key of nf dev: %w", err)
	}
	_, err = keys.Check(ctx, key, "nf dev")
	if errors.Is(err, auth.ErrUnauthenticated) {
		if err := os.Remove(filepath.Join(d.folder.Path(), devKey)); err != nil {
			return "", fail("key of nf dev: %w", err)
		}
		key, err = d.folder.Secret(devKey, create)
		if err != nil {
			return "", fail("key of nf dev: %w", err)
		}
		return key, nil
	}
	return key, storeError(err)
}
