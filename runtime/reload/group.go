package reload

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"nf/schema/diag"
)

// Group are the projects of one runner. One that is broken holds up no other (P16). Safe for concurrent use.
type Group struct {
	Options
	timing   Timing
	projects []*project

	mu     sync.Mutex
	claims []claim
}

// claim is what a project has: a name, and the files that it reads.
type claim struct {
	name  string
	files map[string]bool
}

// New makes the projects of folders, which need not exist yet. It reads nothing.
func New(opt Options, folders []string) *Group {
	if opt.Quiet <= 0 {
		opt.Quiet = DefaultQuiet
	}
	if opt.Poll <= 0 {
		opt.Poll = DefaultPoll
	}
	if opt.Jitter == nil {
		opt.Jitter = rand.Float64
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	g := &Group{Options: opt, timing: timing(opt.Quiet, opt.Poll), claims: make([]claim, len(folders))}
	for i, folder := range folders {
		g.projects = append(g.projects, newProject(g, i, folder))
	}
	return g
}

// Look looks at every project once, in their order, and says what came of each. Run may be under way.
func (g *Group) Look(ctx context.Context) []Verdict {
	verdicts := make([]Verdict, 0, len(g.projects))
	for _, p := range g.projects {
		verdicts = append(verdicts, p.settled(ctx))
	}
	return verdicts
}

// settleWithin is how long a request waits for a source that is busy, or for the world.
const settleWithin = 20 * time.Second

// settled looks until the source is no longer busy.
func (p *project) settled(ctx context.Context) Verdict {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for tries := 1; ; tries++ {
		v := p.look(ctx, Asked)
		if v.Result != Busy && v.Result != Errored || ctx.Err() != nil {
			return v
		}
		timer := time.NewTimer(min(backoff(tries, 0), time.Second))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Run keeps the projects up to date until the context ends.
func (g *Group) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	for _, p := range g.projects {
		if ctx.Err() == nil {
			p.first(ctx)
		}
		loops.Go(func() { p.run(ctx) })
	}
	loops.Wait()
	return nil
}

// first looks once before the loops begin, so that of two projects that are in each other's way the first one named wins.
func (p *project) first(ctx context.Context) {
	if p.Status().Result == "" {
		p.look(ctx, Poll)
	}
}

// Wake has every project look soon, as a signal does. It does not wait.
func (g *Group) Wake(w Wake) {
	for _, p := range g.projects {
		select {
		case p.wakes <- w:
		default: // it is awake
		}
	}
}

// Status gives the state of every project, in their order.
func (g *Group) Status() []Status {
	all := make([]Status, 0, len(g.projects))
	for _, p := range g.projects {
		all = append(all, p.Status())
	}
	return all
}

// Observe brings the gauges up to date that grow with time. Call it before they are read.
func (g *Group) Observe() {
	if g.Metrics == nil {
		return
	}
	now := g.Clock.Now()
	for _, p := range g.projects {
		s, seconds := p.Status(), 0.0
		if s.OutOfSync != nil {
			seconds = now.Sub(*s.OutOfSync).Seconds()
		}
		g.Metrics.OutOfSync.WithLabelValues(p.label()).Set(seconds)
	}
}

// overflow counts lost events.
func (g *Group) overflow(project string) {
	if g.Metrics != nil {
		g.Metrics.WatchOverflow.WithLabelValues(project).Inc()
	}
	g.Log.Warn("events of the file system were lost: everything is looked at again", "project", project)
}

// claim notes name and files of a project, and finds out whether an earlier one has them already (NF7004).
func (g *Group) claim(p *project) (diag.Diagnostic, bool) {
	files := map[string]bool{}
	base := p.folder
	if whole, err := filepath.EvalSymlinks(base); err == nil {
		base = whole
	}
	if len(g.projects) > 1 {
		files[filepath.Join(base, "nf.yaml")] = true
		for _, f := range p.set.snap.Files {
			if !f.Named {
				files[filepath.Join(base, filepath.FromSlash(f.Path))] = true
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.claims[p.at] = claim{p.name, files}
	for i, other := range g.claims[:p.at] {
		if text := clash(g.claims[p.at], other, g.projects[i].folder); text != "" {
			start := diag.Pos{Line: 1, Column: 1}
			return diag.Diagnostic{
				Code: "NF7004", Level: diag.Error, Message: text, File: "nf.yaml", Range: diag.Range{Start: start, End: start},
				Hint: "narrow spec.roots, name the folder in .nfignore, or run the two projects on runners of their own",
			}, true
		}
	}
	return diag.Diagnostic{}, false
}

// clash says how two projects are in each other's way, "" if they are not.
func clash(mine, other claim, folder string) string {
	if mine.name != "" && mine.name == other.name {
		return "project " + mine.name + " is hosted from " + folder + " already"
	}
	for file := range mine.files {
		if other.files[file] {
			return "roots overlap with those of project " + other.name + ": both read " + file
		}
	}
	return ""
}
