package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"nf/runtime/api"
	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/reload"
	"nf/runtime/secret"
	"nf/runtime/store"
	"nf/runtime/sweep"
	"nf/runtime/telemetry"
	workers "nf/runtime/worker"
	"nf/systemtasks"
	"nf/systemtasks/grpctask"
	"nf/systemtasks/httptask"
	"nf/systemtasks/outbound"
)

// callsFor is how long calls under way may go on at shutdown, answerFor how long requests may.
const (
	callsFor  = workers.DefaultDrain
	answerFor = 5 * time.Second
)

// runnerOptions say what one runner process is made of.
type runnerOptions struct {
	database  string
	maxConns  int
	executors int
	id        string
	private   bool // the database is that of nf dev: URIs may reach loopback
	allowed   outbound.AllowedHosts
	secrets   secret.Provider
	env       string // environment
	files     filesOptions
	log       *slog.Logger
}

// runner is a whole runner process. This file is the only place that puts the packages together.
//
// Loops stop in the order of who needs whom: nobody new is let in, calls under way drain, what is left is given back, answers go out, the engine
// flushes, and the beat, which holds all leases of the process, ends last.
type runner struct {
	opt      runnerOptions
	store    *store.Store
	clock    clock.Clock
	guard    *clock.Guard
	metrics  *telemetry.Metrics
	notifier *store.Notifier
	registry *registry.Registry
	queue    *queue.Queue
	number   *queue.Runner
	pool     *workers.Pool
	engine   *engine.Engine
	sweeper  *sweep.Sweeper
	files    *reload.Group
	api      *api.Server
	door     *door
	closers  []io.Closer

	unresolved atomic.Pointer[[]string] // secrets
}

// newRunner puts a runner together on an open store whose schema fits. It registers the process and starts nothing.
func newRunner(ctx context.Context, s *store.Store, d *door, opt runnerOptions) (*runner, error) {
	r := &runner{opt: opt, store: s, clock: clock.System{}, metrics: telemetry.New(Version, Commit), door: d}
	r.guard = clock.NewGuard(r.clock)
	r.store.OnTx = r.observe
	var err error
	if r.registry, err = registry.Open(ctx, s); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	r.notifier = store.NewNotifier(s, r.clock)
	r.notifier.Subscribe(func(n store.Notice) {
		if n.Kind == store.NoticeRegistry || n.Kind == store.NoticeResync {
			r.registry.Wake()
		}
	})
	r.queue = queue.New(queue.Options{
		Store: s, Registry: r.registry, Clock: r.clock, Guard: r.guard, Notifier: r.notifier, Metrics: r.metrics, Log: opt.log,
	})
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r.number, err = queue.RegisterRunner(ctx, s, r.clock, r.guard, opt.log, store.RunnerStart{
		Host: host, PID: int32(os.Getpid()), Build: Build, Version: Version, //nolint:gosec // process ids are small
	})
	if err != nil {
		return nil, fmt.Errorf("registering the runner: %w", err)
	}
	if err := r.work(); err != nil {
		return nil, err
	}
	if r.files, err = r.reloader(); err != nil {
		return nil, err
	}
	r.notifier.Subscribe(func(n store.Notice) {
		if n.Kind == store.NoticeRegistry || n.Kind == store.NoticeResync {
			r.files.Wake(reload.Notice)
		}
	})
	return r, r.serve(ctx)
}

// work makes what executes and decides.
func (r *runner) work() error {
	catalog, err := r.catalog()
	if err != nil {
		return err
	}
	r.pool = workers.New(workers.Options{
		Store: r.store, Registry: r.registry, Queue: r.queue, Runner: r.number, Notifier: r.notifier, Catalog: catalog,
		Secrets: newSecrets(r.opt.secrets, r.registry).resolve, Executors: r.opt.executors, Drain: callsFor, Clock: r.clock, Metrics: r.metrics, Log: r.opt.log,
	})
	r.engine, err = engine.New(engine.Options{
		Store: r.store, Registry: r.registry, Clock: r.clock, Runner: r.number.No(), Listener: r.queue, Metrics: r.metrics, Log: r.opt.log,
		Eager: []engine.Eager{r.pool, workers.Polls{Queue: r.queue}},
	})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	r.sweeper = sweep.New(sweep.Options{
		Store: r.store, Registry: r.registry, Engine: r.engine, Queue: r.queue, Runner: r.number, Clock: r.clock, Guard: r.guard,
		Mine: r.pool.Mine, Metrics: r.metrics, Log: r.opt.log,
	})
	return nil
}

// catalog makes the system tasks.
func (r *runner) catalog() (systemtasks.Catalog, error) {
	client, err := outbound.New(outbound.Options{Now: r.clock.Now, AllowedHosts: r.opt.allowed, AllowLoopback: r.opt.private})
	if err != nil {
		return systemtasks.Catalog{}, fmt.Errorf("outbound client: %w", err)
	}
	r.closers = append(r.closers, closing(client.Close))
	web, err := httptask.New(httptask.Options{Client: client})
	if err != nil {
		return systemtasks.Catalog{}, fmt.Errorf("HTTP task: %w", err)
	}
	rpc, err := grpctask.New(grpctask.Options{Client: client})
	if err != nil {
		return systemtasks.Catalog{}, fmt.Errorf("GRPC task: %w", err)
	}
	r.closers = append(r.closers, rpc)
	return systemtasks.NewCatalog(web, rpc)
}

// serve makes the API.
func (r *runner) serve(ctx context.Context) error {
	keys, err := r.store.InstallKeys(ctx)
	if err != nil {
		return fmt.Errorf("installation keys: %w", err)
	}
	r.api = api.New(api.Deps{
		Store: r.store, Registry: r.registry, Engine: r.engine, Queue: r.queue, Keys: auth.New(r.store, r.clock), Signer: queue.NewSigner(keys),
		Metrics: r.metrics, Clock: r.clock, Log: r.opt.log, Version: Version, Build: Build, Environment: r.opt.env, Runner: r.opt.id, Degraded: r.reasons,
		Reload: r.files, Unresolved: r.unresolvedSecrets,
	})
	return nil
}

// closing makes a function a Closer.
type closing func()

// Close implements io.Closer.
func (c closing) Close() error { c(); return nil }

// observe counts transactions.
func (r *runner) observe(tx string, took time.Duration, err error) {
	r.metrics.Transactions.WithLabelValues(tx).Observe(took.Seconds())
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case store.Code(err) != "":
		r.metrics.DatabaseErrors.WithLabelValues(store.Code(err)[:2]).Inc()
	case store.Away(err):
		r.metrics.DatabaseErrors.WithLabelValues("away").Inc()
	}
}

// reasons implements api.Deps.Degraded.
func (r *runner) reasons() []string {
	var all []string
	for _, f := range r.files.Status() {
		if f.State != reload.OK && f.Result != "" {
			all = append(all, fmt.Sprintf("the files of %s are not in force (%s): %s", cmp.Or(f.Project, f.Folder), f.State, f.Reason))
		}
	}
	if names := r.unresolvedSecrets(); len(names) > 0 {
		all = append(all, "secrets do not resolve: "+strings.Join(names, ", "))
	}
	silent := 0.0
	if why := r.notifier.Degraded(); why != "" {
		all, silent = append(all, "notifications do not arrive, polling only: "+why), 1
	}
	r.metrics.NotifyDegraded.WithLabelValues(r.opt.id).Set(silent)
	if err := r.registry.Err(); err != nil {
		all = append(all, "the last look at what is declared did not succeed: "+err.Error())
	}
	return all
}

// loops are the goroutines of one layer, which stop together.
type loops struct {
	stop func()
	done sync.WaitGroup
}

// start runs loops until their layer is stopped; one that ends before is a failure of the process.
func (r *runner) start(base context.Context, failed chan<- error, named map[string]func(context.Context) error) *loops {
	ctx, cancel := context.WithCancel(base)
	l := &loops{stop: cancel}
	for name, run := range named {
		l.done.Go(func() {
			err := run(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = errors.New("it ended by itself")
			}
			select {
			case failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		})
	}
	return l
}

func (l *loops) end() {
	l.stop()
	l.done.Wait()
}

// run works until ctx ends or until quiet says that there is nothing left to do, then stops in order. quiet may be nil. started is called once everything runs.
func (r *runner) run(ctx context.Context, started func(context.Context) error, quiet func(context.Context) error) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	failed := make(chan error, 1)
	beat := r.start(base, failed, map[string]func(context.Context) error{"runner": r.number.Run})
	decide := r.start(base, failed, map[string]func(context.Context) error{"engine": r.engine.Run})
	support := r.start(base, failed, map[string]func(context.Context) error{
		"registry": r.registry.Run, "secrets": r.watchSecrets, "notifier": r.notifier.Run, "queue": r.queue.Run,
	})
	work := r.start(base, failed, map[string]func(context.Context) error{
		"pool": func(ctx context.Context) error { return r.pool.Run(ctx, r.engine) }, "sweep": r.sweeper.Run,
	})
	r.door.open(r.api)

	err := started(ctx)
	if err == nil {
		files := r.start(base, failed, r.fileLoops(quiet))
		err = r.wait(ctx, failed, quiet)
		files.end()
	}

	r.opt.log.Info("stopping: running calls are finished or given back", telemetry.KeyRunner, r.number.No())
	r.number.Drain()
	r.queue.Stop()
	r.api.Close()
	work.end()
	r.door.close(base)
	support.end()
	decide.end()
	beat.end()
	r.signOff(base)
	for _, c := range r.closers {
		if closed := c.Close(); closed != nil {
			r.opt.log.Debug("closing", telemetry.KeyError, closed)
		}
	}
	return err
}

// signOffFor is how long a database that is away may keep a process from ending; its lease runs out by itself then.
const signOffFor = 2 * time.Second

func (r *runner) signOff(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, signOffFor)
	defer cancel()
	if err := r.number.SignOff(ctx); err != nil {
		r.opt.log.Warn("the runner could not sign off: it counts as alive until its lease runs out", telemetry.KeyRunner, r.number.No(), telemetry.KeyError, err)
	}
}

// fileLoops are what keeps the files in force; with --once they were looked at once.
func (r *runner) fileLoops(quiet func(context.Context) error) map[string]func(context.Context) error {
	if quiet != nil {
		return nil
	}
	return map[string]func(context.Context) error{"files": r.files.Run, "signals": r.hangUps}
}

// hangUps looks at the files at each SIGHUP.
func (r *runner) hangUps(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			r.files.Wake(reload.Asked)
		}
	}
}

// wait ends when the process is told to stop, a loop fails, or there is nothing left to do.
func (r *runner) wait(ctx context.Context, failed <-chan error, quiet func(context.Context) error) error {
	idle := make(chan error, 1)
	if quiet != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { idle <- quiet(ctx) }()
	}
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		return nil
	case err := <-failed:
		return err
	case err := <-r.door.failed:
		return err
	case err := <-idle:
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		return err
	}
}

// quietFor is how long nothing may be ready, leased or due before nf run --once ends: longer than a due time can go unseen.
const quietFor = 1500 * time.Millisecond

// untilQuiet ends when nothing is ready, leased or due.
func (r *runner) untilQuiet(ctx context.Context) error {
	since := time.Time{}
	for {
		f, err := r.store.Fleet(ctx)
		now := r.clock.Now()
		switch {
		case err != nil && ctx.Err() == nil:
			r.opt.log.Warn("looking for work", telemetry.KeyError, err)
			since = time.Time{}
		case f.Marks+f.Ready+f.Leased+f.TimersOverdue > 0:
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= quietFor:
			return nil
		}
		if err := napFor(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// door is the listener of the process. It is open before the database is, so that health checks are answered from the first moment (P4, P12).
type door struct {
	listener net.Listener
	server   *http.Server
	handler  atomic.Pointer[http.Handler]
	reason   atomic.Pointer[string]
	failed   chan error
}

// listen opens the door of an address; requests are answered "not ready".
func listen(ctx context.Context, address string) (*door, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, failed: make(chan error, 1)}
	d.wait("starting")
	d.server = &http.Server{ // the limits of contract 4.1, from the first request on
		Handler: d, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return d, nil
}

// url is the address for clients on this machine.
func (d *door) url() string {
	addr, _ := d.listener.Addr().(*net.TCPAddr)
	if addr == nil {
		return ""
	}
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// serve answers requests until the door is closed.
func (d *door) serve() {
	go func() {
		if err := d.server.Serve(d.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			d.failed <- fmt.Errorf("API: %w", err)
		}
	}()
}

// wait has requests answered with the reason why the runner is not ready.
func (d *door) wait(reason string) { d.reason.Store(&reason) }

// open lets requests through to the API.
func (d *door) open(a *api.Server) {
	var h http.Handler = a
	d.handler.Store(&h)
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if h := d.handler.Load(); h != nil {
		(*h).ServeHTTP(w, q)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.URL.Path == "/v1/health/live" {
		_, _ = io.WriteString(w, `{"status":"ok"}`+"\n")
		return
	}
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	reason := *d.reason.Load()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": "unready", "error": "UNAVAILABLE", "message": "the runner is not ready: " + reason, "reasons": []string{reason},
	})
}

// close waits for answers that are under way, at most answerFor.
func (d *door) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		_ = d.server.Close()
	}
}
