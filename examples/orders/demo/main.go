// Command demo runs the orders example end to end on a private Postgres: `make demo`. It kills the runner in the middle, starts it again,
// checks what came of it, and leaves nothing behind. It drives bin/nf as a person would: each command is shown before it runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// within bounds the whole demo: nothing in it may hang for ever.
const within = 4 * time.Minute

// The addresses are those of targets.yaml.
const (
	shopAddress    = "127.0.0.1:7431"
	pricingAddress = "127.0.0.1:7432"
)

// demo is one run.
type demo struct {
	ctx      context.Context //nolint:containedctx // ends with a signal or when the time is over
	started  time.Time
	root     string // of the repository
	work     string // a folder for this run, removed at its end
	project  string // a copy of examples/orders: nf keeps its data beside the files
	nf       string
	url      string
	key      string // of a person who starts and reads
	steps    []step
	services *process
	postgres *process
	runner   *process
	worker   *process
	dataDir  string
	killed   time.Time // when the runner was
}

// step is a part of the demo and how long it took.
type step struct {
	name string
	took time.Duration
}

func run(parent context.Context) (err error) {
	ctx, cancel := context.WithTimeout(parent, within)
	defer cancel()
	d := &demo{ctx: ctx, started: time.Now()}
	if err := d.prepare(); err != nil {
		return err
	}
	defer func() {
		ended := d.cleanUp()
		if parent.Err() != nil {
			err = errors.New("interrupted; everything was cleaned up")
		}
		if err = errors.Join(err, ended); err == nil {
			d.summary()
		}
	}()
	orders := []order{
		{"A-1001", "tea", 3, "express"},
		{"A-1002", "coffee", 1, "standard"},
		{"A-1003", "tea", 2, "express"},
		{"A-1004", "cocoa", 5, "standard"},
	}
	for _, part := range []struct {
		title string
		run   func() error
	}{
		{"the example's own services: a shop over HTTP, prices over gRPC", d.startServices},
		{"a private Postgres", d.startPostgres},
		{"check the files", func() error { return d.show("validate") }},
		{"what an apply would do", func() error { return d.show("plan") }},
		{"apply", func() error { return d.show("apply", "--yes") }},
		{"keys: one for people, one that may only work off the queue of packing", d.makeKeys},
		{"a runner and a worker", d.startRunnerAndWorker},
		{"one order, watched: the warehouse answers 503 with Retry-After, nf backs off", func() error { return d.watchOne(&orders[0]) }},
		{"three orders at once; the runner is killed with -9 in the middle and started again", func() error { return d.killInTheMiddle(orders[1:]) }},
		{"the three executions as trees", func() error { return d.showTrees(orders[1:]) }},
		{"what the worker says", d.showLogs},
		{"is everything as it should be?", func() error { return d.check(orders) }},
	} {
		if err := d.part(part.title, part.run); err != nil {
			return fmt.Errorf("%s: %w", part.title, err)
		}
	}
	return nil
}

// part runs one part under a title.
func (d *demo) part(title string, run func() error) error {
	fmt.Printf("\n=== %5.1fs  %s\n\n", time.Since(d.started).Seconds(), title)
	begun := time.Now()
	err := run()
	d.steps = append(d.steps, step{title, time.Since(begun)})
	return err
}

// prepare finds bin/nf and copies the example into a folder of its own.
func (d *demo) prepare() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for !isFile(filepath.Join(root, "examples", "orders", "nf.yaml")) {
		if filepath.Dir(root) == root {
			return errors.New("this is not a checkout of nf; run make demo in one")
		}
		root = filepath.Dir(root)
	}
	d.root, d.nf = root, filepath.Join(root, "bin", "nf")
	if !isFile(d.nf) {
		return errors.New("bin/nf is not built; run make demo")
	}
	for _, address := range []string{shopAddress, pricingAddress} {
		if err := isFree(d.ctx, address); err != nil {
			return err
		}
	}
	if d.work, err = os.MkdirTemp("", "nf-demo-"); err != nil {
		return err
	}
	d.project = filepath.Join(d.work, "orders")
	// Started by root, Postgres runs as another user, who must be able to pass through the folder. nf closes what is inside.
	err = os.Chmod(d.work, 0o711) //nolint:gosec // as said
	if err == nil {
		err = os.CopyFS(d.project, os.DirFS(filepath.Join(root, "examples", "orders")))
	}
	if err == nil {
		err = os.Chmod(filepath.Join(d.project, "pack.sh"), 0o755) //nolint:gosec // a script
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(d.project, "demo")), os.RemoveAll(filepath.Join(d.project, ".nf")))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(d.work))
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (d *demo) startServices() error {
	program := filepath.Join(d.work, "services")
	build := command(d.ctx, d.root, os.Environ(), goTool(), "build", "-o", program, "./examples/orders/services")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building them: %w\n%s", err, out)
	}
	var err error
	if d.services, err = d.start("services", d.environment(), program); err != nil {
		return err
	}
	for _, address := range []string{shopAddress, pricingAddress} {
		if err := d.reachable(d.services, address); err != nil {
			return err
		}
	}
	fmt.Printf("the shop listens on %s, prices on %s\n", shopAddress, pricingAddress)
	return nil
}

func goTool() string {
	if tool := os.Getenv("GO"); tool != "" && !strings.ContainsAny(tool, " \t") {
		return tool
	}
	return "go"
}

// startPostgres starts the private Postgres of nf dev without its runner: it must outlive the one that is killed.
func (d *demo) startPostgres() error {
	var err error
	if d.postgres, err = d.start("nf dev --no-run", d.environment(), d.nf, "dev", "--no-run"); err != nil {
		return err
	}
	state := filepath.Join(d.project, ".nf", "dev", "state.json")
	if err := d.until(d.postgres, "its state file is there", func() bool { return isFile(state) }); err != nil {
		return err
	}
	d.dataDir, err = readDataDir(state)
	fmt.Println("Postgres is up; commands in this folder find it by themselves")
	return err
}

func (d *demo) makeKeys() error {
	person, err := d.output(d.environment(), "keys", "create", "--name", "demo", "--scope", "admin", "--namespace", "*")
	if err != nil {
		return err
	}
	d.key = strings.TrimSpace(person)
	return nil
}

func (d *demo) startRunnerAndWorker() error {
	address, err := freeAddress(d.ctx)
	if err != nil {
		return err
	}
	d.url = "http://" + address
	if err := d.startRunner(); err != nil {
		return err
	}
	key, err := d.output(d.environment(), "keys", "create", "--name", "packer", "--namespace", "shop", "--scope", "queues:lease:pack", "--scope", "tasks:report")
	if err != nil {
		return err
	}
	environment := d.environment("NF_URL="+d.url, "NF_API_KEY="+strings.TrimSpace(key))
	d.worker, err = d.start("nf worker", environment, d.nf, "worker", "--namespace", "shop", "--queue", "pack", "--id", "packer-1", "--", "./pack.sh")
	return err
}

func (d *demo) startRunner() error {
	address := strings.TrimPrefix(d.url, "http://")
	var err error
	if d.runner, err = d.start("nf run", d.environment(), d.nf, "run", "--listen", address); err != nil {
		return err
	}
	if err := d.reachable(d.runner, address); err != nil {
		return err
	}
	return d.until(d.runner, "it is ready", func() bool { return ready(d.ctx, d.url) })
}

// watchOne starts an order and tells what happens while it happens.
func (d *demo) watchOne(o *order) error {
	id, err := d.order(o)
	if err != nil {
		return err
	}
	return d.showAs(d.client(), "get", id, "--watch")
}

// order starts an order, once for each order id: the idempotency key sees to it.
func (d *demo) order(o *order) (string, error) {
	arguments := []string{"start", "shop/fulfil-order", "--key", o.id, "--input", o.input()}
	printCommand(arguments)
	out, err := d.output(d.client(), arguments...)
	id := strings.TrimSpace(out)
	fmt.Println(id)
	return id, err
}

// killInTheMiddle starts orders, kills the runner when each has paid and one is being packed, and starts it again.
func (d *demo) killInTheMiddle(orders []order) error {
	for i := range orders {
		if _, err := d.order(&orders[i]); err != nil {
			return err
		}
	}
	var seen []execution
	err := d.until(d.runner, "all have paid and one is being packed", func() bool {
		seen = d.read(orders)
		return len(seen) == len(orders) && !slices.ContainsFunc(seen, func(x execution) bool { return x.status("charge") != "COMPLETED" }) &&
			slices.ContainsFunc(seen, func(x execution) bool { return x.status("pack") == "IN_PROGRESS" })
	})
	if err != nil {
		return err
	}
	fmt.Println("\nall three have paid, one is being packed; the others wait for the worker:")
	tellWhere(seen)
	pid := d.runner.pid()
	fmt.Printf("\n$ kill -9 %d    # the runner\n", pid)
	if err := d.runner.kill(); err != nil {
		return err
	}
	d.killed = time.Now()
	fmt.Println("the runner is dead; ./pack.sh goes on, and its worker tries again and again to report")
	fmt.Println("what it knew is in Postgres, and can be read without it (it counts as alive until it misses a beat):")
	if err := d.show("status"); err != nil {
		return err
	}
	if err := d.startRunner(); err != nil {
		return err
	}
	fmt.Printf("\na new runner is up (process %d); the orders go on where they were:\n", d.runner.pid())
	if err := d.until(d.runner, "all orders have ended", func() bool {
		seen = d.read(orders)
		return len(seen) == len(orders) && !slices.ContainsFunc(seen, func(x execution) bool { return x.Status == "RUNNING" })
	}); err != nil {
		return err
	}
	tellWhere(seen)
	return nil
}

func (d *demo) showTrees(orders []order) error {
	if err := d.showAs(d.client(), "execution", "list", "--namespace", "shop"); err != nil {
		return err
	}
	for i := range orders {
		id, err := d.output(d.client(), "start", "shop/fulfil-order", "--key", orders[i].id, "--input", orders[i].input()) // known by its key
		if err != nil {
			return err
		}
		if err := d.showAs(d.client(), "get", strings.TrimSpace(id)); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) showLogs() error {
	d.worker.tell(os.Stdout)
	fmt.Println()
	return d.showAs(d.client(), "worker", "list", "--namespace", "shop")
}

// summary says how long each part took.
func (d *demo) summary() {
	fmt.Println("\nHow long it took:")
	for _, s := range d.steps {
		fmt.Printf("  %6.1fs  %s\n", s.took.Seconds(), s.name)
	}
	fmt.Printf("  %6.1fs  in all\n", time.Since(d.started).Seconds())
	fmt.Println("\nThe demo went well. To play with it yourself: examples/orders/README.md.")
}
