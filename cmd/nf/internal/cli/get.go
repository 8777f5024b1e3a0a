package cli

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
	"nf/runtime/execution"
)

// getCommand is nf get, and nf execution get.
func (sh *shell) getCommand(name string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "show an execution as a tree", ArgsUsage: "EXECUTION",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "watch", Usage: "tell what happens until it ends"},
			&cli.BoolFlag{Name: "input", Usage: "show the inputs of the tasks too"},
			&cli.BoolFlag{Name: "output-only", Usage: "print its output, JSON, and nothing else"},
		},
		Action: sh.action(1, 1, "the id of an execution, or its first 8 or more characters", sh.get),
	}
}

const (
	everything   = "tasks,input,output,variables"
	withInputs   = everything + ",taskInputs"
	outputAlone  = "output"
	watchingTask = "tasks"
)

func (sh *shell) get() error {
	c, err := sh.connect()
	if err != nil {
		return err
	}
	n, err := sh.findExecution(c, sh.c.Args().First())
	if err != nil {
		return err
	}
	include := everything
	if sh.c.Bool("input") {
		include = withInputs
	}
	if sh.c.Bool("watch") {
		if err := sh.watch(c, n); err != nil {
			return err
		}
	}
	if sh.c.Bool("output-only") {
		return sh.outputOnly(c, n)
	}
	x, err := sh.readExecution(c, n, include)
	if err != nil {
		return err
	}
	return sh.showExecution(c, n, x)
}

func (sh *shell) outputOnly(c *client, n named) error {
	x, err := sh.readExecution(c, n, outputAlone)
	if err != nil {
		return err
	}
	if sh.settings.output == "json" {
		return sh.json(struct {
			FormatVersion string          `json:"format_version"`
			ExecutionID   string          `json:"executionId"`
			Status        string          `json:"status"`
			Output        json.RawMessage `json:"output,omitempty"`
		}{view.FormatVersion, x.ExecutionID, x.Status, x.Output})
	}
	sh.print(view.Payload(x.Output))
	return nil
}

// readExecution reads an execution; include "" = everything but the inputs of tasks.
func (sh *shell) readExecution(c *client, n named, include string) (*api.Execution, error) {
	if include == "" {
		include = everything
	}
	var x api.Execution
	err := c.get(sh.ctx(), n.path("executions", n.name), url.Values{"include": {include}}, &x)
	if err != nil {
		return nil, sh.notHere(c, n, err)
	}
	return &x, nil
}

// showExecution prints an execution as a tree, or as JSON.
func (sh *shell) showExecution(c *client, n named, x *api.Execution) error {
	if sh.settings.output == "json" {
		return sh.json(struct {
			FormatVersion string `json:"format_version"`
			*api.Execution
		}{view.FormatVersion, x})
	}
	sh.print(view.Execution(x, sh.outline(c, n, x)))
	return nil
}

// outline reads the shape of an execution's pinned revision. A key that may not read workflows gets the tree without its branches.
func (sh *shell) outline(c *client, n named, x *api.Execution) view.Outline {
	var object struct {
		Spec view.Outline `json:"spec"`
	}
	path := n.path("metadata", "workflows", x.Workflow, "revisions", strconv.Itoa(int(x.Revision)))
	if err := c.get(sh.ctx(), path, nil, &object); err != nil {
		return view.Outline{}
	}
	return object.Spec
}

// watch tells what happens to an execution until it ends.
func (sh *shell) watch(c *client, n named) error {
	var tell func(before, now *api.Execution)
	if sh.settings.output != "json" && !sh.c.Bool("output-only") {
		tell = func(before, now *api.Execution) {
			for _, line := range view.Changes(before, now) {
				sh.print(line + "\n")
			}
		}
	}
	if _, err := sh.follow(c, n, watchingTask, tell); err != nil {
		return sh.apiFailure(c, err)
	}
	if tell != nil {
		sh.print("\n")
	}
	return nil
}

// watchWait is how long one look waits for a change.
const watchWait = 20 * time.Second

// follow looks at an execution until it ends, and calls tell after each look. The API may go away meanwhile: it looks again until it is
// back.
func (sh *shell) follow(c *client, n named, include string, tell func(before, now *api.Execution)) (*api.Execution, error) {
	patient := *c
	patient.patience = endless
	patient.away = func(err error) {
		sh.say("the API is away (%s); looking again until it is back", view.Safe(err.Error()))
	}
	query := url.Values{"include": {include}}
	var before *api.Execution
	for {
		var now api.Execution
		err := patient.do(sh.ctx(), ask{method: "GET", path: n.path("executions", n.name), query: query, safe: true, wait: watchWait}, &now)
		if err != nil {
			return nil, err
		}
		if tell != nil {
			tell(before, &now)
		}
		if now.Status != execution.NameRunning && now.Status != execution.NamePaused {
			return &now, nil
		}
		query.Set("afterSeq", strconv.FormatInt(now.Seq, 10))
		query.Set("waitSeconds", strconv.Itoa(int(watchWait/time.Second)))
		before = &now
	}
}
