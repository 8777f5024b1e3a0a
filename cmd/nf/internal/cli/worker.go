package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
	"nf/schema/diag"
)

const (
	// minLease is the shortest lease that a worker asks for: three beats must fit in.
	minLease = 3 * time.Second
	// maxLeaseTasks is what one lease call gives at most.
	maxLeaseTasks = 100
	// killAfter is how long a command may take to end after SIGTERM.
	killAfter = 10 * time.Second
	// drainFor is how long running commands get when the worker is told to stop.
	drainFor = 30 * time.Second
	// pollWait is how long one lease call waits for work.
	pollWait = 20 * time.Second
)

// workerCommand is nf worker.
func (sh *shell) workerCommand() *cli.Command {
	return &cli.Command{
		Name: "worker", Usage: "run a command for each task of a queue", ArgsUsage: "-- CMD [ARG…]",
		Description: "The task is JSON on the command's standard input. A JSON object on its standard output is the task's output; its standard\n" +
			"error becomes the task's log. Exit 0: COMPLETED; 65: FAILED_WITH_TERMINAL_ERROR; other: FAILED. See also: nf worker list.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "queue", Usage: "a queue, named like its TaskDefinition; repeatable (the only one there is)"},
			&cli.BoolFlag{Name: "all-queues", Usage: "every queue that the key may lease"},
			&cli.IntFlag{Name: "concurrency", Usage: "tasks at once", Value: 1},
			&cli.DurationFlag{Name: "lease", Usage: "length of a lease; it is extended while the command runs", Value: 30 * time.Second},
			&cli.StringFlag{Name: "id", Usage: "name of this worker (host and process)"},
			&cli.BoolFlag{Name: "once", Usage: "end when the queues are empty"},
		},
		Subcommands: []*cli.Command{{Name: "list", Usage: "list the workers seen in the last 24 hours", Action: sh.action(0, 0, "", func() error {
			return listOf[api.WorkerSeen](sh, "queues", view.Workers, "workers")
		})}},
		Action: sh.action(1, -1, "a command after --", sh.work),
	}
}

func (sh *shell) work() error {
	w := &worker{
		command: sh.c.Args().Slice(), environ: childEnvironment(sh.environ), concurrency: sh.c.Int("concurrency"), lease: sh.c.Duration("lease"),
		id: sh.c.String("id"), once: sh.c.Bool("once"), killAfter: killAfter, drainFor: drainFor, pollWait: pollWait, beatEvery: beatEvery,
		say: sh.say, verbose: sh.settings.verbose, ns: sh.settings.namespace.value,
	}
	switch {
	case w.concurrency < 1 || w.concurrency > 1000:
		return usage("--concurrency %d is not 1 through 1000", w.concurrency)
	case w.lease < minLease:
		return usage("--lease %s is below %s", w.lease, minLease)
	case len(w.id) > 255 || !printable(w.id):
		return usage("--id takes at most 255 printable characters")
	case sh.c.IsSet("queue") && sh.c.Bool("all-queues"):
		return usage("--queue and --all-queues exclude each other")
	}
	if w.id == "" {
		w.id = workerName()
	}
	if _, err := exec.LookPath(w.command[0]); err != nil {
		return usage("cannot run %q: %v", w.command[0], errors.Unwrap(err))
	}
	c, err := sh.connect()
	if err != nil {
		return err
	}
	w.c = c
	if w.queues, err = sh.workerQueues(w); err != nil {
		return err
	}
	patient := *c
	patient.patience = endless
	patient.away = func(err error) {
		sh.say("the API is away (%s); trying again until it is back", view.Safe(err.Error()))
	}
	w.c = &patient
	sh.say("worker %s takes tasks of %s in namespace %s; up to %d at once", view.Safe(w.id), view.Safe(strings.Join(w.queues, ", ")), view.Safe(w.ns), w.concurrency)
	last := w.killAll
	sh.lastly.Store(&last)
	return sh.unknownQueue(w, w.run(sh.ctx()))
}

// unknownQueue explains a 404 of a lease call: which of the queues there is not, and which there are.
func (sh *shell) unknownQueue(w *worker, err error) error {
	once := *w.c
	once.patience = shortPatience
	w.c = &once
	if refusal := refusalOf(err); refusal == nil || refusal.status != http.StatusNotFound || !slices.Contains(sh.readable(w.c), w.ns) {
		return sh.apiFailure(w.c, err)
	}
	known, lookErr := w.knownQueues(sh.ctx())
	if lookErr != nil {
		return sh.apiFailure(w.c, err) // the key may not list them
	}
	for _, name := range w.queues {
		if slices.Contains(known, name) {
			continue
		}
		out := fail("namespace %s has no queue %q: no TaskDefinition of this name is used by a SIMPLE task in force", w.ns, name)
		switch near := diag.Nearest(name, known); {
		case len(known) == 0:
			return out.hinted("it has no queue for workers at all; nf plan shows whether the files are in force")
		case len(near) > 0:
			return out.hinted("did you mean %s? It has: %s", near[0], strings.Join(known, ", "))
		}
		return out.hinted("it has: %s", strings.Join(known, ", "))
	}
	return sh.apiFailure(w.c, err)
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 200 || !printable(host) {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:4]))
}

// workerQueues gives the queues to serve: those that were named, all, or the only one of the namespace.
func (sh *shell) workerQueues(w *worker) ([]string, error) {
	names := sh.c.StringSlice("queue")
	if len(names) > 0 {
		return names, sh.oneNamespace(w, names)
	}
	all, err := w.knownQueues(sh.ctx())
	if refusal := refusalOf(err); refusal != nil && refusal.status == http.StatusForbidden {
		return nil, usage("which queue? The key may not list them").hinted("give --queue NAME")
	}
	if err != nil {
		return nil, sh.apiFailure(w.c, err)
	}
	switch {
	case sh.c.Bool("all-queues"):
		w.all = true
		return all, nil
	case len(all) == 1:
		return all, nil
	case len(all) == 0:
		return nil, usage("namespace %s has no queue for workers", w.ns).
			hinted("a queue is there when a workflow in force has a task of type SIMPLE; other namespaces: -n NAME")
	}
	return nil, usage("which queue? Namespace %s has %s", w.ns, strings.Join(all, ", ")).hinted("give --queue NAME, or --all-queues")
}

// oneNamespace takes the namespace out of names like shop/pack. One worker serves one namespace.
func (sh *shell) oneNamespace(w *worker, names []string) error {
	for i, name := range names {
		n := sh.inNamespace(name)
		if n.name == "" || n.ns == "" {
			return usage("--queue %q has no name", name)
		}
		if i > 0 && n.ns != w.ns {
			return usage("queues of namespaces %s and %s", w.ns, n.ns).hinted("start one worker for each namespace")
		}
		w.ns, names[i] = n.ns, n.name
	}
	return nil
}

// knownQueues gives the queues of the namespace that workers may serve.
func (w *worker) knownQueues(ctx context.Context) ([]string, error) {
	var names []string
	err := eachPage(ctx, w.c, nsPath(w.ns, "queues"), nil, func(page []api.QueueFigures) bool {
		for i := range page {
			if !page[i].Retired && !strings.HasPrefix(page[i].Queue, "_nf.") {
				names = append(names, page[i].Queue)
			}
		}
		return true
	})
	return names, err
}
