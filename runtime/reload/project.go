package reload

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"nf/loader"
	"nf/loader/snapshot"
	"nf/runtime/reload/watch"
	"nf/schema/diag"
)

// project is the loop of one project. Everything but status is used by one look at a time.
type project struct {
	*Group
	at     int // place among the projects of the runner
	folder string
	source *snapshot.Source
	wakes  chan Wake

	looking sync.Mutex
	waits   agenda
	watcher *watch.Watcher
	set     *loadedSet // of the last read
	judged  Outcome    // what came of the set
	name    string
	loaded  bool      // a sound set was loaded once
	held    [32]byte  // digest of the content that was in force here last
	seen    sighting  // first of two equal reads
	busy    time.Time // since when
	fails   int       // looks in a row that the world made fail
	told    string    // news that was told last

	state  sync.Mutex
	status Status
}

// loadedSet is what one read gave.
type loadedSet struct {
	snap     snapshot.Snapshot
	bundle   loader.Bundle
	findings diag.List
}

// sound says whether the set may be planned. One without manifests may: the guards judge it.
func (s *loadedSet) sound() bool { return !s.findings.HasErrors() || s.bundle.Empty }

func newProject(g *Group, at int, folder string) *project {
	return &project{
		Group: g, at: at, folder: folder, wakes: make(chan Wake, 8),
		source: snapshot.NewSource(folder, g.Mode, loader.Selection(), g.Clock.Now),
		status: Status{Folder: folder, State: StateWaiting, Since: g.Clock.Now(), Findings: diag.List{}},
	}
}

// run looks whenever something asks for it, until the context ends.
func (p *project) run(ctx context.Context) {
	defer p.unwatch()
	hints := p.hints()
	for ctx.Err() == nil {
		wake, wait := p.due()
		if wake != 0 {
			p.look(ctx, wake)
			hints = p.hints()
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case w := <-p.wakes:
			p.wake(w)
		case h := <-hints:
			p.hint(h)
		}
		timer.Stop()
	}
}

func (p *project) due() (Wake, time.Duration) {
	p.looking.Lock()
	defer p.looking.Unlock()
	return p.waits.due(p.Clock.Now(), p.timing)
}

func (p *project) wake(w Wake) {
	p.looking.Lock()
	defer p.looking.Unlock()
	p.waits.notice = p.waits.notice || w&Notice != 0
	p.waits.asked = p.waits.asked || w&Asked != 0
	if w&Hint != 0 {
		p.waits = p.waits.hinted(p.Clock.Now())
	}
}

func (p *project) hint(h watch.Hint) {
	if h.Overflow {
		p.overflow(p.label())
	}
	p.wake(Hint)
}

// look looks once and says what came of it.
func (p *project) look(ctx context.Context, wake Wake) Verdict {
	p.looking.Lock()
	defer p.looking.Unlock()
	started := p.Clock.Now()
	p.waits = p.waits.taken()
	set := p.set
	out, err := p.attempt(ctx, wake)
	if err != nil {
		out = Outcome{Result: Errored, Reason: err.Error(), Generation: p.judged.Generation, Commit: p.judged.Commit}
	}
	if ctx.Err() != nil {
		return p.verdict(out)
	}
	p.remember(out)
	now := p.Clock.Now()
	p.waits = p.waits.after(out.Result, p.fails, now, p.Jitter(), p.timing)
	if out.Unseen {
		p.waits.confirm = p.seen.at.Add(p.timing.Confirm)
	}
	if p.rewatch() { // what happened in a folder before it was watched was not seen
		p.waits = p.waits.hinted(now)
	}
	p.say(ctx, wake, out, now.Sub(started), p.set != set)
	return p.verdict(out)
}

// attempt settles, reads, loads and applies.
func (p *project) attempt(ctx context.Context, wake Wake) (Outcome, error) {
	look, err := p.source.Look(ctx)
	switch {
	case err != nil:
		return p.unread(err), nil
	case look.Missing:
		return p.not(Waiting, fmt.Sprintf("waiting for root: %s is not there, or empty", p.folder)), nil
	case look.Busy != "":
		return p.not(Busy, "NF7005 source busy: "+look.Busy), nil
	}
	before := p.set
	if !p.current(look, wake) {
		if out, err := p.read(ctx, look); err != nil || out.Result != "" {
			return out, err
		}
	}
	same := before != nil && before.snap.Digest == p.set.snap.Digest && before.snap.Commit == p.set.snap.Commit
	if !p.set.sound() {
		return p.broken(p.set.findings), nil
	}
	if f, clash := p.claim(p); clash {
		return p.broken(diag.List{f}), nil
	}
	if !again(wake, same, p.judged.Result) {
		return p.not(Unchanged, ""), nil
	}
	return p.apply(ctx)
}

// current says whether the set in memory is what a read would give.
func (p *project) current(look snapshot.Look, wake Wake) bool {
	if p.set == nil {
		return false
	}
	if look.Commit != "" {
		return look.Commit == p.set.snap.Commit
	}
	return p.set.snap.Commit == "" && wake&(Hint|Asked|Confirm) == 0 && p.source.Unmoved()
}

// read takes a snapshot and loads it, unless it holds the bytes that were loaded last.
func (p *project) read(ctx context.Context, look snapshot.Look) (Outcome, error) {
	snap, err := p.source.Read(ctx)
	if errors.Is(err, snapshot.ErrBusy) {
		return p.not(Busy, "NF7008 source changed while it was read"), nil
	}
	if err != nil {
		return p.unread(err), nil
	}
	if look.Commit != "" { // HEAD is read twice: a checkout in progress passes through commits
		if again, err := p.source.Look(ctx); err != nil || again.Commit != snap.Commit {
			return p.not(Busy, "NF7008 HEAD moved while it was read"), nil
		}
	}
	if p.set != nil && p.set.snap.Digest == snap.Digest {
		next := *p.set
		next.snap = snap
		next.bundle.Commit, next.bundle.Branch = snap.Commit, snap.Branch
		p.set = &next
		return Outcome{}, nil
	}
	bundle, findings := p.Load(ctx, snap)
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	p.set = &loadedSet{snap, bundle, findings}
	if bundle.Project != nil {
		p.name = bundle.Project.Metadata.Name
	}
	p.loaded = p.loaded || p.set.sound()
	return Outcome{}, nil
}

// unread is a source that could not be read at all.
func (p *project) unread(err error) Outcome {
	p.set = nil
	return p.not(Failed, err.Error())
}

// broken is a set with errors: the last good one goes on.
func (p *project) broken(findings diag.List) Outcome {
	out := p.not(Failed, findings.Err().Error())
	out.Findings = findings
	return out
}

// not is a result without an attempt to apply.
func (p *project) not(r Result, reason string) Outcome {
	return Outcome{Result: r, Reason: reason, Generation: p.judged.Generation, Commit: p.judged.Commit}
}

// apply has the set applied.
func (p *project) apply(ctx context.Context) (Outcome, error) {
	in := Loaded{Folder: p.folder, Snapshot: p.set.snap, Bundle: p.set.bundle, Findings: p.set.findings}
	in.RetireSeen = p.set.snap.Commit != ""
	if !in.RetireSeen {
		p.seen, in.RetireSeen = p.seen.confirmed(p.set.snap.Digest, p.Clock.Now(), p.timing)
	}
	if p.held != [32]byte{} && p.held != p.set.snap.Digest {
		in.ChangedFrom = digestText(p.held)
	}
	return p.Apply(ctx, in)
}

// remember takes in what came of a look.
func (p *project) remember(out Outcome) {
	now := p.Clock.Now()
	switch out.Result {
	case Errored:
		p.fails++
	case Applied, Unchanged, Pending, Refused, Behind, Failed:
		p.fails, p.judged = 0, out
	case Waiting, Busy:
		p.fails = 0
	}
	if out.Result == Applied || out.Result == Unchanged {
		p.held = p.set.snap.Digest
	}
	if out.Result != Busy {
		p.busy = time.Time{}
	} else if p.busy.IsZero() {
		p.busy = now
	}
	p.state.Lock()
	defer p.state.Unlock()
	s := &p.status
	s.Project = p.name
	s.Result = out.Result
	if state, changed := p.next(s.State, out, now); changed {
		s.State, s.Since = state, now
	}
	if out.Result != Busy || s.State == StateBusy {
		s.Reason = oneLine(out.Reason)
	}
	p.fill(s, out, now)
}

// next is the state after a result. A busy source is told after a minute, and a failure of the world says nothing about files that were in force.
func (p *project) next(now State, out Outcome, at time.Time) (State, bool) {
	if out.Result == Busy && at.Sub(p.busy) < p.timing.Busy {
		return now, false
	}
	if out.Result == Errored && now == OK && p.set != nil && p.set.snap.Digest == p.held {
		return now, false
	}
	next := stateOf(out.Result, p.loaded)
	if out.Paused {
		next = StatePaused
	}
	return next, next != now
}

// fill brings the figures of a status up to date.
func (p *project) fill(s *Status, out Outcome, now time.Time) {
	s.Generation, s.Commit = out.Generation, out.Commit
	if p.set != nil {
		s.Attempted = Content{Commit: p.set.snap.Commit, Branch: p.set.snap.Branch, Digest: digestText(p.set.snap.Digest), Sum: p.set.snap.Digest[:], At: now}
	}
	switch {
	case out.Result == Applied || out.Result == Unchanged:
		s.LastGood, s.OutOfSync = &now, nil
	case s.OutOfSync == nil && s.State != OK:
		s.OutOfSync = &now
	}
	s.Findings, s.Count, s.Plan = diag.List{}, 0, nil
	if list := out.Findings; len(list) > 0 {
		s.Findings, s.Count = slices.Clone(list[:min(len(list), maxFindings)]), len(list)
	}
	if out.Plan != nil && out.Result != Applied && out.Result != Unchanged {
		summary := out.Plan.Summary
		s.Plan = &summary
	}
}

func (p *project) verdict(out Outcome) Verdict {
	return Verdict{
		Project: p.name, Folder: p.folder, Generation: out.Generation, Commit: out.Commit, Result: out.Result, Reason: oneLine(out.Reason),
		Findings: out.Findings,
	}
}

// label names the project in metrics and logs: its folder until it has a name.
func (p *project) label() string {
	p.state.Lock()
	defer p.state.Unlock()
	if p.status.Project != "" {
		return p.status.Project
	}
	return p.folder
}

func digestText(digest [32]byte) string { return "sha256:" + hex.EncodeToString(digest[:]) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
