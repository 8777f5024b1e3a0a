package reload

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"nf/runtime/reload/watch"
	"nf/runtime/telemetry"
)

// say tells what came of a look: metrics, the state for others, one log line where there is news. The same content with the same result is told once.
func (p *project) say(ctx context.Context, wake Wake, out Outcome, took time.Duration, read bool) {
	if out.Result == Applied || out.Result == Unchanged && (read || wake&Asked != 0) {
		p.compare(ctx)
	}
	s := p.Status()
	if out.Plan != nil {
		out.Plan.Source.Dirty = len(s.Changed) > 0
	}
	p.count(s, out)
	came := out.Result
	if came == Applied {
		came = Unchanged // the next look at the same files finds them in force: no news
	}
	news := strconv.FormatInt(s.Generation, 10) + "\x00" + string(came) + "\x00" + string(s.State) + "\x00" + s.Attempted.Digest + "\x00" + s.Attempted.Commit + "\x00" + s.Reason
	fresh := news != p.told && (out.Result != Busy || s.State == StateBusy)
	if !fresh && wake&Asked == 0 {
		return
	}
	p.log(ctx, s, wake, out, took)
	if !fresh {
		return
	}
	p.told = news
	if p.Save != nil {
		if err := p.Save(ctx, s); err != nil {
			p.told = "" // tried again by the next look
			p.Log.Debug("the state of a project was not kept", telemetry.KeyProject, s.Project, telemetry.KeyError, err)
		}
	}
	if p.Told == nil {
		return
	}
	e := Event{Status: s, Plan: out.Plan, Findings: out.Findings, Took: took}
	if p.set != nil {
		e.Bundle = &p.set.bundle
	}
	p.Told(e)
}

// compare looks for changes that were not committed: they are not in force, and somebody may wonder.
func (p *project) compare(ctx context.Context) {
	changed, err := p.source.Changed(ctx, p.set.snap)
	if err != nil {
		p.Log.Debug("the work tree was not compared with the commit", "folder", p.folder, telemetry.KeyError, err)
	}
	p.state.Lock()
	before := p.status.Changed
	p.status.Changed = changed
	p.state.Unlock()
	if len(changed) > 0 && !slices.Equal(before, changed) {
		p.Log.Warn("NF7006 the work tree differs from HEAD's commit, which is what runs: commit the changes", "folder", p.folder, "changed", changed)
	}
}

// levels says how loud a result is.
var levels = map[Result]slog.Level{ //nolint:gochecknoglobals // a constant table
	Applied: slog.LevelInfo, Unchanged: slog.LevelInfo, Pending: slog.LevelInfo, Behind: slog.LevelWarn, Waiting: slog.LevelWarn, Busy: slog.LevelWarn,
	Errored: slog.LevelWarn, Failed: slog.LevelError, Refused: slog.LevelError,
}

// log writes the one line of a look.
func (p *project) log(ctx context.Context, s Status, wake Wake, out Outcome, took time.Duration) {
	attrs := []any{
		telemetry.KeyProject, s.Project, "folder", p.folder, "result", out.Result, "state", s.State, telemetry.KeyGeneration, s.Generation,
		telemetry.KeyCommit, s.Attempted.Commit, "wake", wake.String(), "took", took.Round(time.Millisecond),
	}
	if out.Plan != nil {
		n := out.Plan.Summary
		attrs = append(attrs, "add", n.Add, "change", n.Change, "retire", n.Delete, "refused", n.Refused)
	}
	if s.Count > 0 {
		attrs = append(attrs, "findings", s.Count, "first", s.Findings[0].Code, "file", s.Findings[0].File, "line", s.Findings[0].Range.Start.Line)
	}
	if s.Reason != "" {
		attrs = append(attrs, "reason", s.Reason)
	}
	message := "the files were looked at"
	switch out.Result {
	case Applied:
		message = "files applied"
	case Unchanged:
		message = "the files are in force"
	case Pending, Refused, Behind, Failed, Waiting, Busy, Errored:
		message = "the files are not used; what is in force goes on"
	}
	p.Log.Log(ctx, levels[out.Result], message, attrs...) //nolint:sloglint // one of the constants above
}

// count brings the metrics up to date.
func (p *project) count(s Status, out Outcome) {
	m := p.Metrics
	if m == nil {
		return
	}
	name := s.Project
	if name == "" {
		name = p.folder
	}
	m.Reloads.WithLabelValues(string(out.Result), name).Inc()
	good := out.Result == Applied || out.Result == Unchanged
	if good {
		m.ReloadLastSuccessAt.WithLabelValues(name).Set(float64(p.Clock.Now().UnixMilli()) / 1000)
	}
	if out.Result != Busy {
		m.ReloadLastSuccess.WithLabelValues(name).Set(flag(good))
	}
	m.ProjectDegraded.WithLabelValues(name).Set(flag(s.State != OK))
	if s.Attempted.Digest != "" {
		m.SourceRevision.DeletePartialMatch(map[string]string{"project": name})
		m.SourceRevision.WithLabelValues(name, s.Attempted.Commit).Set(1)
	}
	for _, f := range out.Findings {
		if f.Code == "NF6103" || f.Code == "NF6104" {
			m.PruneRefused.WithLabelValues(name).Inc()
		}
	}
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Status gives the state of the project.
func (p *project) Status() Status {
	p.state.Lock()
	defer p.state.Unlock()
	return p.status
}

// hints is where the watcher of the project gives its hints; nil = nowhere.
func (p *project) hints() <-chan watch.Hint {
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.watcher == nil {
		return nil
	}
	return p.watcher.Hints()
}

// rewatch watches the folders of the source as it is now, and says whether there are new ones. Where that cannot be done, polling has to do.
func (p *project) rewatch() bool {
	if !p.Watch {
		return false
	}
	var why error
	if p.watcher == nil {
		p.watcher, why = watch.Open()
	}
	fresh, count := false, 0
	if p.watcher != nil {
		fresh, why = p.watcher.Set(p.source.Places())
		count = p.watcher.Count()
	}
	polling := ""
	if why != nil {
		polling = "NF7007 " + oneLine(why.Error())
	}
	p.state.Lock()
	told := p.status.Polling
	p.status.Watched, p.status.Polling = count, polling
	p.state.Unlock()
	if polling != "" && told == "" {
		p.Log.Warn("changes are found by polling only", "folder", p.folder, "poll", p.Poll, telemetry.KeyError, polling)
	}
	return fresh
}

func (p *project) unwatch() {
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.watcher != nil {
		_ = p.watcher.Close()
		p.watcher = nil
	}
}
