package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/loader"
	"nf/loader/plan"
	"nf/loader/snapshot"
	"nf/runtime/reload"
	"nf/runtime/store"
	"nf/schema/diag"
	"nf/schema/spec"
)

// filesOptions say how a runner keeps the files of its projects in force.
type filesOptions struct {
	folders []string
	mode    snapshot.Mode
	watch   bool
	manual  bool
	quiet   time.Duration
	poll    time.Duration
	actor   string
	plan    func(context.Context, *store.Store, reload.Loaded) (plan.Plan, plan.Input, error)
	told    func(reload.Event)
}

func debounceFlag() cli.Flag {
	return &cli.DurationFlag{Name: "debounce", Usage: "look at changed files once nothing has changed for this long", DefaultText: "100ms"}
}

// filesOptions reads the settings of nf run and nf dev about files. Against the private database of nf dev the files are read, never a commit (P11).
func (sh *shell) filesOptions(private bool) (filesOptions, error) {
	o := filesOptions{watch: !sh.c.Bool("no-watch"), quiet: reload.DefaultQuiet, poll: reload.DefaultPoll, actor: sh.settings.actor()}
	if sh.c.Bool("watch") && sh.c.Bool("no-watch") {
		return o, usage("--watch and --no-watch are both given")
	}
	for name, into := range map[string]*time.Duration{"debounce": &o.quiet, "poll": &o.poll} {
		if sh.c.IsSet(name) {
			*into = sh.c.Duration(name)
		}
		if *into < time.Millisecond {
			return o, usage("--%s %s is below 1ms", name, *into)
		}
	}
	switch text := sh.c.String("source"); {
	case text == "git" && private:
		return o, usage("against the private database of nf dev the files are read, not a commit").hinted("leave out --source, or give --database-url")
	case text == "dir" || private:
		o.mode = snapshot.Files
	case text == "git":
		o.mode = snapshot.Git
	case text != "" && text != "auto":
		return o, usage("--source %q", text).hinted("use auto, git or dir")
	}
	switch text := sh.c.String("apply"); text {
	case "", "auto":
	case "manual":
		o.manual = true
	default:
		return o, usage("--apply %q", text).hinted("use auto or manual")
	}
	o.plan = sh.planLoaded(private)
	var one sync.Mutex // projects have their news at the same time
	o.told = func(e reload.Event) {
		one.Lock()
		defer one.Unlock()
		sh.tellFiles(e)
	}
	return o, nil
}

// planLoaded plans what a loop has loaded, as nf plan does. NF_COMMIT names the content that was read first (P11): what comes later has no name.
func (sh *shell) planLoaded(private bool) func(context.Context, *store.Store, reload.Loaded) (plan.Plan, plan.Input, error) {
	var mu sync.Mutex
	first := map[string][32]byte{}
	return func(ctx context.Context, s *store.Store, in reload.Loaded) (plan.Plan, plan.Input, error) {
		mu.Lock()
		if _, seen := first[in.Folder]; !seen {
			first[in.Folder] = in.Snapshot.Digest
		}
		named := first[in.Folder] == in.Snapshot.Digest
		mu.Unlock()
		vars := sh.env
		if !named {
			vars = environ{}
		}
		env := sh.settings.envName.value
		if private {
			env = devEnvironment
		}
		p := project{dir: in.Folder, bundle: in.Bundle, findings: in.Findings, parents: in.Snapshot.Parents, at: in.Snapshot.CommittedAt}
		return planProject(ctx, s, &p, planned{env: env, private: private, vars: vars, apply: true, changedFrom: in.ChangedFrom})
	}
}

// tellFiles shows people what came of the files: findings as nf validate does, the plan as nf plan does.
func (sh *shell) tellFiles(e reload.Event) {
	if e.Bundle == nil {
		return // the log has it
	}
	p := project{dir: e.Status.Folder, bundle: *e.Bundle}
	switch e.Status.Result {
	case reload.Failed:
		if len(e.Findings) > 0 {
			_ = sh.tellFindings(checkedOf(&p, e.Findings)) // a terminal that is gone must not end the runner
		}
	case reload.Applied, reload.Unchanged, reload.Refused, reload.Pending, reload.Behind:
		if e.Plan == nil || sh.settings.output != "text" {
			return
		}
		_ = sh.tellPlan(&p, e.Plan)
		if e.Status.Result == reload.Applied {
			sh.print(view.Applied(e.Status.Generation, e.Plan.Environment))
		}
	case reload.Waiting, reload.Busy, reload.Errored:
	}
}

// reloader makes the projects of the runner.
func (r *runner) reloader() (*reload.Group, error) {
	validator, err := spec.Compile()
	if err != nil {
		return nil, fail("schemas: %w", err)
	}
	o := r.opt.files
	applier := &reload.Applier{
		Registry: r.registry, Terms: reload.Terms{Manual: o.manual, Private: r.opt.private}, Actor: o.actor, Build: Build,
		Plan: func(ctx context.Context, in reload.Loaded) (plan.Plan, plan.Input, error) {
			return o.plan(ctx, r.store, in)
		},
		Forbid: func(in reload.Loaded) string {
			if c := collisionsOf(in.Bundle.Set, r.opt.secrets); len(c) > 0 {
				return c[0].String()
			}
			return ""
		},
	}
	return reload.New(reload.Options{
		Load: func(ctx context.Context, snap snapshot.Snapshot) (loader.Bundle, diag.List) {
			return loader.Load(ctx, snap, validator)
		},
		Apply: applier.Apply, Told: o.told, Save: r.keepStatus, Mode: o.mode, Watch: o.watch, Quiet: o.quiet, Poll: o.poll,
		Clock: r.clock, Metrics: r.metrics, Log: r.opt.log,
	}, o.folders), nil
}

// keepStatus shows the others how the files of a project fare here.
func (r *runner) keepStatus(ctx context.Context, s reload.Status) error {
	row := store.RunnerProject{
		Runner: r.number.No(), Project: s.Project, Commit: s.Attempted.Commit, Digest: s.Attempted.Sum, Generation: s.Generation, State: string(s.State),
		Reason: s.Reason, Findings: int64(s.Count),
	}
	if row.Project == "" {
		row.Project = s.Folder
	}
	return r.store.SaveRunnerProject(ctx, row, r.clock.Now().Sub(s.Since), s.Folder)
}

// onceVerdict ends nf run --once where the files are not in force.
func onceVerdict(ctx context.Context, verdicts []reload.Verdict) error {
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	var codes []int
	var all []error
	for _, v := range verdicts {
		if v.OK() {
			continue
		}
		codes = append(codes, codeOfVerdict(v))
		all = append(all, errors.New(v.Reason))
	}
	if len(codes) == 0 {
		return nil
	}
	return &exitError{code: worst(codes...), message: errors.Join(all...).Error()}
}

func codeOfVerdict(v reload.Verdict) int {
	if code := codeOfFindings(v.Findings); code != exitOK {
		return code
	}
	switch v.Result {
	case reload.Refused:
		return exitRefused
	case reload.Behind, reload.Busy:
		return exitStale
	case reload.Applied, reload.Unchanged, reload.Pending, reload.Failed, reload.Waiting, reload.Errored:
	}
	return exitFailed
}
