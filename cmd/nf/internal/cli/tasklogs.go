package cli

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
	"nf/runtime/execution"
)

// logPoll is how often nf task logs --follow looks for new lines.
const logPoll = time.Second

// attemptLine is a log line that says whose it is, since one document holds all attempts.
type attemptLine struct {
	TaskID  string `json:"taskId"`
	Attempt int32  `json:"attempt"`
	api.LogLine
}

// logReader shows the log of a task, attempt by attempt, each line once.
type logReader struct {
	sh    *shell
	c     *client
	n     named
	task  string         // as it was asked for
	shown map[string]int // lines of an attempt that were shown; absent: not even its heading
}

func (sh *shell) taskLogs() error {
	c, n, err := sh.connectTo(sh.c.Args().First())
	if err != nil {
		return err
	}
	follow := sh.c.Bool("follow")
	c.patience, c.away = patienceOf(follow), func(err error) {
		sh.say("the API is away (%s); looking again until it is back", view.Safe(err.Error()))
	}
	r := &logReader{sh: sh, c: c, n: n, task: sh.c.Args().Get(1), shown: map[string]int{}}
	for {
		newest, lines, ended, err := r.look()
		if err != nil {
			return sh.apiFailure(c, err)
		}
		if ended || !follow {
			if sh.settings.output == "json" {
				return sh.json(map[string]any{"format_version": view.FormatVersion, "taskId": newest, "items": lines})
			}
			return nil
		}
		if !pause(sh.ctx(), logPoll) {
			return sh.apiFailure(c, sh.ctx().Err())
		}
	}
}

func patienceOf(follow bool) time.Duration {
	if follow {
		return endless
	}
	return shortPatience
}

// look reads the attempts and then their lines, so that none is missed which came before the end of its attempt, and shows what is new.
func (r *logReader) look() (newest string, lines []attemptLine, ended bool, err error) {
	tasks, err := r.sh.readTasks(r.c, r.n, url.Values{"limit": {"500"}})
	if err != nil {
		return "", nil, false, r.sh.notHere(r.c, r.n, err)
	}
	attempts := attemptsOf(tasks, r.task)
	if len(attempts) == 0 {
		return "", nil, false, noSuchTask(r.n.name, tasks, r.task)
	}
	lines, ended = []attemptLine{}, true
	for i := range attempts {
		a := &attempts[i]
		newest, ended = a.TaskID, ended && a.EndedAt != ""
		read, err := r.sh.readLogs(r.c, r.n, a.TaskID)
		if err != nil {
			return "", nil, false, err
		}
		for _, l := range read {
			lines = append(lines, attemptLine{a.TaskID, a.Attempt, l})
		}
		if r.sh.settings.output != "json" {
			r.show(a, read)
		}
	}
	return newest, lines, ended, nil
}

// show prints the lines of an attempt that were not shown yet. The first time it is named, where there may be others.
func (r *logReader) show(a *api.Task, lines []api.LogLine) {
	known, named := r.shown[a.TaskID]
	if !named {
		r.sh.print(view.LogHead(a, len(lines)))
	}
	r.sh.print(view.Log(lines[min(known, len(lines)):]))
	r.shown[a.TaskID] = len(lines)
}

// attemptsOf gives the attempts that the command line means: all of a reference, the iteration or else the attempt of ref#2, or the one
// with that id. A task outside of a loop has the iteration 0 only, so ref#2 cannot mean both.
func attemptsOf(tasks []api.Task, text string) []api.Task {
	pick := func(is func(*api.Task) bool) []api.Task {
		var out []api.Task
		for i := range tasks {
			if is(&tasks[i]) {
				out = append(out, tasks[i])
			}
		}
		return out
	}
	if _, _, _, err := execution.ParseTaskID(text); err == nil {
		return pick(func(t *api.Task) bool { return strings.EqualFold(t.TaskID, text) })
	}
	ref, number, numbered := strings.Cut(text, "#")
	if !numbered {
		return pick(func(t *api.Task) bool { return t.Ref == ref })
	}
	if found := pick(func(t *api.Task) bool { return t.Ref == ref && t.Iteration == number }); len(found) > 0 {
		return found
	}
	return pick(func(t *api.Task) bool {
		return t.Ref == ref && t.Iteration == outsideLoops && strconv.Itoa(int(t.Attempt)) == number
	})
}

// outsideLoops is the iteration of a task that is in no loop.
const outsideLoops = "0"

// noSuchTask says which tasks, or which attempts of it, there are.
func noSuchTask(id string, tasks []api.Task, text string) error {
	refs := map[string]bool{}
	ref, _, numbered := strings.Cut(text, "#")
	last := int32(0)
	for i := range tasks {
		refs[tasks[i].Ref] = true
		if tasks[i].Ref == ref {
			last = max(last, tasks[i].Attempt)
		}
	}
	err := fail("execution %s has no task %q", id, text)
	switch {
	case len(refs) == 0:
		return err.hinted("none of its tasks has been scheduled yet")
	case numbered && last > 0:
		return err.hinted("the last attempt of %s is %s#%d", ref, ref, last)
	}
	return err.hinted("it has: %s", strings.Join(sorted(refs), ", "))
}

func (sh *shell) readLogs(c *client, n named, taskID string) ([]api.LogLine, error) {
	lines := []api.LogLine{}
	err := eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks", taskID, "logs"), url.Values{"limit": {"500"}}, func(page []api.LogLine) bool {
		lines = append(lines, page...)
		return true
	})
	return lines, err
}
