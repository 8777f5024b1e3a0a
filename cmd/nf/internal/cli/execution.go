package cli

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
)

// executionCommand is nf execution.
func (sh *shell) executionCommand() *cli.Command {
	return &cli.Command{
		Name: "execution", Usage: "executions of workflows: start, get, list, terminate",
		Subcommands: []*cli.Command{
			sh.startCommand("start"), sh.getCommand("get"),
			{
				Name: "list", Usage: "list executions, newest start first",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "workflow", Usage: "only of this workflow"},
					&cli.StringSliceFlag{Name: "status", Usage: "only with this status; repeatable"},
					&cli.DurationFlag{Name: "since", Usage: "started within this long, such as 2h", DefaultText: "ever"},
					&cli.StringFlag{Name: "until", Usage: "started before this time (RFC 3339)"},
					&cli.IntFlag{Name: "limit", Usage: "at most so many", Value: 50},
					&cli.BoolFlag{Name: "all", Usage: "without a limit"},
				},
				Action: sh.action(0, 0, "", sh.listExecutions),
			},
			{
				Name: "terminate", Usage: "end executions TERMINATED", ArgsUsage: "EXECUTION…",
				Flags:  []cli.Flag{&cli.StringFlag{Name: "reason", Usage: "kept with the execution"}},
				Action: sh.action(1, -1, "the id of at least one execution", sh.terminateExecutions),
			},
		},
	}
}

// maxPage is the largest page of the API.
const maxPage = 500

func (sh *shell) listExecutions() error {
	limit := sh.c.Int("limit")
	switch {
	case sh.c.Bool("all") && sh.c.IsSet("limit"):
		return usage("--all and --limit exclude each other")
	case limit < 1:
		return usage("--limit %d is below 1", limit)
	}
	ns := sh.settings.namespace.value
	query := url.Values{"limit": {strconv.Itoa(min(limit, maxPage))}}
	if sh.c.Bool("all") {
		query.Set("limit", strconv.Itoa(maxPage))
	}
	if w := sh.c.String("workflow"); w != "" {
		n := sh.inNamespace(w)
		ns = n.ns
		query.Set("workflow", n.name)
	}
	for _, s := range sh.c.StringSlice("status") {
		query.Add("status", strings.ToUpper(s))
	}
	if err := sh.between(query); err != nil {
		return err
	}
	c, err := sh.connect()
	if err != nil {
		return err
	}
	items := []api.Execution{}
	err = c.pages(sh.ctx(), nsPath(ns, "executions"), query, func(page []api.Execution) bool {
		items = append(items, page...)
		return sh.c.Bool("all") || len(items) < limit
	})
	if err != nil {
		return sh.apiFailure(c, err)
	}
	if !sh.c.Bool("all") {
		items = items[:min(len(items), limit)]
	}
	return show(sh, items, view.Executions)
}

// between reads --since and --until.
func (sh *shell) between(query url.Values) error {
	if since := sh.c.Duration("since"); sh.c.IsSet("since") {
		if since <= 0 {
			return usage("--since %s is not above 0", since)
		}
		query.Set("startedAfter", stamp(time.Now().Add(-since)))
	}
	if until := sh.c.String("until"); until != "" {
		t, err := time.Parse(time.RFC3339Nano, until)
		if err != nil {
			return usage("--until %q is not an RFC 3339 time", until).hinted("for example 2026-01-31T12:00:00Z")
		}
		query.Set("startedBefore", stamp(t))
	}
	return nil
}

// show prints a list as a table, or as JSON.
func show[T any](sh *shell, items []T, table func([]T) string) error {
	if sh.settings.output == "json" {
		return sh.json(map[string]any{"format_version": view.FormatVersion, "items": items})
	}
	sh.print(table(items))
	return nil
}

// terminated is what became of one execution.
type terminated struct {
	ExecutionID string `json:"executionId"`
	Namespace   string `json:"namespace"`
	Status      string `json:"status,omitempty"`
	Replayed    bool   `json:"replayed"`
	Error       string `json:"error,omitempty"`
}

// terminateExecutions ends each execution by itself: one that is refused does not keep the others running.
func (sh *shell) terminateExecutions() error {
	c, err := sh.connect()
	if err != nil {
		return err
	}
	var codes []int
	results := []terminated{}
	for _, text := range sh.c.Args().Slice() {
		n, err := sh.findExecution(c, text)
		r := terminated{ExecutionID: n.name, Namespace: n.ns}
		if err == nil {
			err = c.do(sh.ctx(), ask{method: http.MethodPost, path: n.path("executions", n.name, "terminate"), body: map[string]string{"reason": sh.c.String("reason")}, safe: true}, &r)
			if err != nil {
				err = sh.notHere(c, n, err)
			}
		}
		if err != nil {
			sh.tell(err)
			r.Error = err.Error()
			codes = append(codes, codeOf(err))
		}
		results = append(results, r)
		if err == nil && sh.settings.output != "json" {
			note := ""
			if r.Replayed {
				note = " (it was already)"
			}
			sh.print(n.name + "  " + view.Safe(r.Status) + note + "\n")
		}
	}
	if sh.settings.output == "json" {
		if err := sh.json(map[string]any{"format_version": view.FormatVersion, "items": results}); err != nil {
			return err
		}
	}
	return quiet(worst(codes...))
}
