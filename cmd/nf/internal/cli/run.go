package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"nf/runtime/secret"
	"nf/runtime/store"
	"nf/runtime/telemetry"
	workers "nf/runtime/worker"
	"nf/systemtasks/outbound"
)

// defaultListen is where a runner's API listens unless it is told otherwise.
const defaultListen = "127.0.0.1:7420"

func (sh *shell) runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run workflows: the runner process with its API",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "address of the API (" + defaultListen + ")"},
			&cli.IntFlag{Name: "executors", Usage: "calls at once of one target", DefaultText: strconv.Itoa(workers.DefaultExecutors)},
			&cli.BoolFlag{Name: "once", Usage: "end when nothing is ready, leased or due"},
			&cli.StringSliceFlag{Name: "project-dir", Aliases: []string{"C"}, Usage: "folder of a project; repeatable"},
			&cli.StringFlag{Name: "source", Usage: "auto, git (HEAD's commit) or dir (the files)"},
			&cli.DurationFlag{Name: "poll", Usage: "look at the files this often, whatever was seen of them", DefaultText: "30s"},
			debounceFlag(),
			&cli.BoolFlag{Name: "watch", Usage: "watch the files (the default)"},
			&cli.BoolFlag{Name: "no-watch", Usage: "poll only"},
			&cli.StringFlag{Name: "apply", Usage: "auto, or manual: show what is pending, apply nothing"},
		},
		Action: sh.lenientAction(true, 0, -1, "", sh.runRunner),
	}
}

func (sh *shell) runRunner() error {
	if name := sh.c.Args().First(); name != "" {
		return usage("nf run starts a runner and takes no argument").hinted("to start the workflow: nf start %s", name)
	}
	opt, err := sh.runnerOptions()
	if err != nil {
		return err
	}
	db, err := sh.settings.database(sh.c)
	if err != nil {
		return err
	}
	if opt.env, err = sh.settings.needEnv(db); err != nil {
		return err
	}
	opt.database, opt.private = db.value, db.from == fromState
	if opt.files, err = sh.filesOptions(opt.private); err != nil {
		return err
	}
	opt.files.folders = sh.projectFolders()
	if c, ok := opt.secrets.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	migrate, err := sh.env.boolean("NF_DB_MIGRATE", true)
	if err != nil {
		return err
	}
	address := sh.settings.pick(sh.c, "listen", "NF_LISTEN", defaultListen).value
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usage("--listen %q is not host:port", address)
	}
	d, err := listen(sh.ctx(), address)
	if err != nil {
		return fail("%w", err).hinted("another address: --listen 127.0.0.1:0 takes a free port")
	}
	d.serve()
	sh.tellDatabase(db)
	s, err := sh.awaitDatabase(d, opt)
	if err != nil || s == nil {
		d.close(sh.ctx())
		return storeError(err)
	}
	defer s.Close()
	if ready, err := sh.awaitSchema(s, d, opt, migrate); err != nil || !ready {
		d.close(sh.ctx())
		return err
	}
	r, err := newRunner(sh.ctx(), s, d, opt)
	if err != nil {
		d.close(sh.ctx())
		return storeError(err)
	}
	quiet := r.untilQuiet
	if !sh.c.Bool("once") {
		quiet = nil
	}
	return storeError(r.run(sh.ctx(), func(ctx context.Context) error {
		opt.log.Info("runner is up", "url", d.url(), telemetry.KeyEnvironment, opt.env, telemetry.KeyRunner, r.number.No(), "version", Version)
		if quiet == nil {
			return nil
		}
		return onceVerdict(ctx, r.files.Look(ctx))
	}, quiet))
}

// runnerOptions reads the settings of a runner.
func (sh *shell) runnerOptions() (opt runnerOptions, err error) {
	if opt.log, err = sh.logger(); err != nil {
		return opt, err
	}
	if opt.executors, err = sh.env.integer("NF_EXECUTORS", workers.DefaultExecutors, 1); err != nil {
		return opt, err
	}
	if sh.c.IsSet("executors") {
		if opt.executors = sh.c.Int("executors"); opt.executors < 1 {
			return opt, usage("--executors %d is below 1", opt.executors)
		}
	}
	if opt.maxConns, err = sh.env.integer("NF_DB_MAX_CONNECTIONS", store.DefaultConns, store.MinConns); err != nil {
		return opt, err
	}
	if opt.allowed, err = outbound.ParseAllowedHosts(sh.env["NF_HTTP_ALLOWED_HOSTS"]); err != nil {
		return opt, usage("NF_HTTP_ALLOWED_HOSTS: %v", err)
	}
	opt.secrets, err = secret.Open(secret.Settings{Provider: sh.env["NF_SECRETS_PROVIDER"], Dir: sh.env["NF_SECRETS_DIR"], Environ: sh.environ})
	if err != nil {
		return opt, usage("%v", err)
	}
	if opt.id = sh.env["NF_RUNNER_ID"]; opt.id == "" {
		opt.id = runnerID()
	}
	return opt, nil
}

// runnerID is the host's name and a random suffix.
func runnerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "runner"
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // never fails
	return host + "-" + hex.EncodeToString(suffix[:])
}

// lookAgain is how often a runner that is not ready looks whether the schema fits now.
const lookAgain = 2 * time.Second

// awaitDatabase opens the database, and while it cannot be reached waits, up but not ready: a runner that starts beside its database, or in the
// middle of a failover, needs no supervisor. With --once there is nobody to wait for. What waiting does not mend (an address that is none, a wrong
// password) ends the process. nil without an error: it was told to stop before.
func (sh *shell) awaitDatabase(d *door, opt runnerOptions) (*store.Store, error) {
	told := ""
	for {
		s, err := store.Open(sh.ctx(), store.Config{URL: opt.database, MaxConns: opt.maxConns, AppName: "nf run " + opt.id})
		switch {
		case err == nil:
			if told != "" {
				opt.log.Info("the database answers")
			}
			return s, nil
		case sh.ctx().Err() != nil:
			return nil, stopped(sh.ctx())
		case !store.Unreachable(err) || sh.c.Bool("once"):
			return nil, err
		}
		if told != err.Error() {
			told = err.Error()
			d.wait("the database cannot be reached: " + told)
			opt.log.Warn("the database cannot be reached; looking again until it can", "every", lookAgain.String(), telemetry.KeyError, told)
		}
		if napFor(sh.ctx(), lookAgain) != nil {
			return nil, stopped(sh.ctx())
		}
	}
}

// awaitSchema migrates if it may, and waits, up but not ready, while this build does not fit the schema (P4). A database of another environment ends
// the process (P13). False: it was told to stop before.
func (sh *shell) awaitSchema(s *store.Store, d *door, opt runnerOptions, migrate bool) (bool, error) {
	told := ""
	for {
		err := fits(sh.ctx(), s, opt.env, migrate)
		if err == nil {
			return true, nil
		}
		if _, other := errors.AsType[*store.EnvironmentError](err); other {
			return false, storeError(err)
		}
		if sh.ctx().Err() != nil {
			return false, stopped(sh.ctx())
		}
		if sh.c.Bool("once") {
			return false, storeError(err)
		}
		if told != err.Error() {
			told = err.Error()
			d.wait(told)
			opt.log.Error("not ready", telemetry.KeyError, told)
		}
		if napFor(sh.ctx(), lookAgain) != nil {
			return false, stopped(sh.ctx())
		}
	}
}

// stopped is nil where the process was told to stop, and the time-out's error where the time was up.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return nil
}

func fits(ctx context.Context, s *store.Store, env string, migrate bool) error {
	if migrate {
		if err := s.Migrate(ctx, Build, env); err != nil {
			return err
		}
	}
	status, err := s.SchemaStatus(ctx)
	if err != nil {
		return err
	}
	if err := status.Fits(Build); err != nil {
		return err
	}
	if status.Install.Environment != env {
		return &store.EnvironmentError{Stored: status.Install.Environment, Asked: env}
	}
	return nil
}

// projectFolders gives the folders of the projects that this runner hosts; none is fine.
func (sh *shell) projectFolders() []string {
	dirs := sh.c.StringSlice("project-dir")
	if len(dirs) == 0 {
		if v := sh.env["NF_PROJECT_DIR"]; v != "" {
			dirs = []string{v}
		}
	}
	if len(dirs) == 0 {
		if sh.settings.projectDir == "" {
			return nil
		}
		return []string{sh.settings.projectDir}
	}
	for i, dir := range dirs {
		if abs, err := filepath.Abs(dir); err == nil {
			dirs[i] = abs
		}
		if found := findProject(dirs[i]); found != "" && isFolder(dirs[i]) { // a missing folder is said to be missing
			dirs[i] = found
		}
	}
	return dirs
}
