package cli

import (
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
	"nf/runtime/execution"
)

// taskCommand is nf task.
func (sh *shell) taskCommand() *cli.Command {
	return &cli.Command{
		Name: "task", Usage: "tasks of an execution: list, logs",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the attempts of an execution", ArgsUsage: "EXECUTION",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "control", Usage: "only what this control holds"},
					&cli.StringSliceFlag{Name: "status", Usage: "only with this status; repeatable"},
				},
				Action: sh.action(1, 1, "the id of an execution", sh.listTasks),
			},
			{
				Name: "logs", Usage: "show what a task logged", ArgsUsage: "EXECUTION TASK",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "follow", Usage: "go on until the attempt ends"}},
				Action: sh.action(2, 2, "the id of an execution and a task: a reference, ref#3, or a task id", sh.taskLogs),
			},
		},
	}
}

func (sh *shell) listTasks() error {
	c, n, err := sh.connectTo(sh.c.Args().First())
	if err != nil {
		return err
	}
	query := url.Values{"limit": {"500"}}
	if control := sh.c.String("control"); control != "" {
		query.Set("control", control)
	}
	for _, s := range sh.c.StringSlice("status") {
		query.Add("status", strings.ToUpper(s))
	}
	items := []api.Task{}
	err = eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks"), query, func(page []api.Task) bool {
		items = append(items, page...)
		return true
	})
	if err != nil {
		return sh.elsewhere(c, n, err, func(ns string) string { return nsPath(ns, "executions", n.name) })
	}
	return show(sh, items, view.Tasks)
}

// connectTo makes the client and finds the execution of an argument.
func (sh *shell) connectTo(id string) (*client, named, error) {
	c, err := sh.connect()
	if err != nil {
		return nil, named{}, err
	}
	n, err := sh.findExecution(c, id)
	return c, n, err
}

// findTask finds the newest attempt of a task: a reference, ref#iteration, or a task id.
func (sh *shell) findTask(c *client, n named, text string) (api.Task, error) {
	if _, _, _, err := execution.ParseTaskID(text); err == nil {
		return api.Task{TaskID: text}, nil
	}
	ref, iteration, hasIteration := strings.Cut(text, "#")
	var found *api.Task
	refs := map[string]bool{}
	err := eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks"), url.Values{"limit": {"500"}}, func(page []api.Task) bool {
		for i := range page {
			refs[page[i].Ref] = true
			if page[i].Ref == ref && (!hasIteration || page[i].Iteration == iteration) {
				found = &page[i]
			}
		}
		return true
	})
	if err != nil {
		return api.Task{}, sh.elsewhere(c, n, err, func(ns string) string { return nsPath(ns, "executions", n.name) })
	}
	if found == nil {
		return api.Task{}, fail("execution %s has no task %q", n.name, text).hinted("it has: %s", strings.Join(sorted(refs), ", "))
	}
	return *found, nil
}

// logPoll is how often nf task logs --follow looks for new lines.
const logPoll = time.Second

func (sh *shell) taskLogs() error {
	c, n, err := sh.connectTo(sh.c.Args().First())
	if err != nil {
		return err
	}
	task, err := sh.findTask(c, n, sh.c.Args().Get(1))
	if err != nil {
		return err
	}
	follow := sh.c.Bool("follow")
	c.patience, c.away = patienceOf(follow), func(err error) {
		sh.say("the API is away (%s); looking again until it is back", view.Safe(err.Error()))
	}
	var all []api.LogLine
	shown := 0
	for {
		ended := !follow
		if follow {
			if ended, err = sh.attemptEnded(c, n, task.TaskID); err != nil {
				return sh.apiFailure(c, err)
			}
		}
		// The lines are read after the look at the attempt: none that came before its end is missed.
		if all, err = sh.readLogs(c, n, task.TaskID); err != nil {
			return sh.apiFailure(c, err)
		}
		if sh.settings.output != "json" {
			sh.print(view.Log(all[min(shown, len(all)):]))
			shown = len(all)
		}
		if ended {
			break
		}
		if !pause(sh.ctx(), logPoll) {
			return sh.apiFailure(c, sh.ctx().Err())
		}
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{"format_version": view.FormatVersion, "taskId": task.TaskID, "items": all})
	}
	return nil
}

func patienceOf(follow bool) time.Duration {
	if follow {
		return endless
	}
	return shortPatience
}

func (sh *shell) readLogs(c *client, n named, taskID string) ([]api.LogLine, error) {
	lines := []api.LogLine{}
	err := eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks", taskID, "logs"), url.Values{"limit": {"500"}}, func(page []api.LogLine) bool {
		lines = append(lines, page...)
		return true
	})
	return lines, err
}

func (sh *shell) attemptEnded(c *client, n named, taskID string) (bool, error) {
	ended, found := false, false
	err := eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks"), url.Values{"limit": {"500"}}, func(page []api.Task) bool {
		for i := range page {
			if page[i].TaskID == taskID {
				ended, found = page[i].EndedAt != "", true
			}
		}
		return !found
	})
	return ended || !found, err
}
