package cli

import (
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
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
				Name: "logs", Usage: "show what a task logged, attempt by attempt", ArgsUsage: "EXECUTION TASK",
				Description: "TASK is a reference (all its attempts), ref#2 (iteration 2 of a task in a loop, the second attempt of any other), or a task\n" +
					"id of nf task list (that attempt alone).",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "follow", Usage: "go on until the task ends"}},
				Action: sh.action(2, 2, "the id of an execution and a task: a reference, ref#2, or a task id", sh.taskLogs),
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
	items, err := sh.readTasks(c, n, query)
	if err != nil {
		return sh.notHere(c, n, err)
	}
	return show(sh, items, view.Tasks)
}

// readTasks reads the attempts of an execution, in the order in which they were scheduled.
func (sh *shell) readTasks(c *client, n named, query url.Values) ([]api.Task, error) {
	items := []api.Task{}
	err := eachPage(sh.ctx(), c, n.path("executions", n.name, "tasks"), query, func(page []api.Task) bool {
		items = append(items, page...)
		return true
	})
	return items, err
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
