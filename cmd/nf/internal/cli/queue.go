package cli

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// queueCommand is nf queue.
func (sh *shell) queueCommand() *cli.Command {
	return &cli.Command{
		Name: "queue", Usage: "queues of tasks for workers: list, depth",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list queues and what they hold", Action: sh.action(0, 0, "", sh.listQueues)},
			{
				Name: "depth", Usage: "say what a queue holds", ArgsUsage: "QUEUE",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "exact", Usage: "count beyond 10,000"}},
				Action: sh.action(1, 1, "the name of a queue", sh.queueDepth),
			},
		},
	}
}

func (sh *shell) listQueues() error {
	return listOf(sh, "queues", view.Queues)
}

// listOf shows a list of a namespace that has one page.
func listOf[T any](sh *shell, what string, table func([]T) string, more ...string) error {
	c, err := sh.connect()
	if err != nil {
		return err
	}
	items, err := listIn[T](sh, c, append([]string{what}, more...)...)
	if err != nil {
		return sh.apiFailure(c, err)
	}
	return show(sh, items, table)
}

func listIn[T any](sh *shell, c *client, path ...string) ([]T, error) {
	items := []T{}
	err := eachPage(sh.ctx(), c, nsPath(sh.settings.namespace.value, path...), url.Values{}, func(page []T) bool {
		items = append(items, page...)
		return true
	})
	return items, err
}

// depth is what nf queue depth shows.
type depth struct {
	Queue              string  `json:"queue"`
	Ready              any     `json:"ready"`
	Delayed            any     `json:"delayed"`
	Leased             any     `json:"leased"`
	OldestReadySeconds float64 `json:"oldestReadySeconds"`
}

func (sh *shell) queueDepth() error {
	n := sh.inNamespace(sh.c.Args().First())
	c, err := sh.connect()
	if err != nil {
		return err
	}
	query := url.Values{}
	if sh.c.Bool("exact") {
		query.Set("exact", "true")
	}
	var d depth
	if err := c.do(sh.ctx(), ask{method: http.MethodGet, path: n.path("queues", n.name, "depth"), query: query, safe: true}, &d); err != nil {
		return sh.elsewhere(c, n, err, func(ns string) string { return nsPath(ns, "queues", n.name, "depth") })
	}
	if sh.settings.output == "json" {
		return sh.json(struct {
			FormatVersion string `json:"format_version"`
			depth
		}{view.FormatVersion, d})
	}
	sh.print(view.Table([]string{"QUEUE", "READY", "DELAYED", "LEASED", "OLDEST READY"},
		[][]string{{d.Queue, view.Count(d.Ready), view.Count(d.Delayed), view.Count(d.Leased), view.Seconds(d.OldestReadySeconds)}}))
	return nil
}

// semaphoreCommand is nf semaphore.
func (sh *shell) semaphoreCommand() *cli.Command {
	return &cli.Command{
		Name: "semaphore", Usage: "semaphores: list",
		Subcommands: []*cli.Command{{Name: "list", Usage: "list semaphores and the permits held", Action: sh.action(0, 0, "", func() error {
			return listOf[api.SemaphoreFigures](sh, "semaphores", view.Semaphores)
		})}},
	}
}
