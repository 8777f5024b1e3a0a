package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
	"nf/runtime/execution"
)

// startCommand is nf start, and nf execution start.
func (sh *shell) startCommand(name string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "start an execution of a workflow", ArgsUsage: "WORKFLOW",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "input", Usage: "a JSON object, @FILE, or - for standard input ({})"},
			&cli.Int64Flag{Name: "version", Usage: "version of the workflow", DefaultText: "the newest in force"},
			&cli.StringFlag{Name: "key", Usage: "idempotency key: a repeated start with it gives the same execution"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the end; 3 if it is not COMPLETED"},
		},
		Action: sh.action(1, 1, "the name of a workflow", sh.start),
	}
}

// startRequest is the body of a start (contract 4.2).
type startRequest struct {
	Input          json.RawMessage `json:"input,omitempty"`
	Version        int64           `json:"version,omitempty"`
	IdempotencyKey string          `json:"idempotencyKey,omitempty"`
}

func (sh *shell) start() error {
	n := sh.inNamespace(sh.c.Args().First())
	body := startRequest{Version: sh.c.Int64("version"), IdempotencyKey: sh.c.String("key")}
	if sh.c.IsSet("version") && body.Version < 1 {
		return usage("--version %d is below 1", body.Version)
	}
	if sh.c.IsSet("key") && body.IdempotencyKey == "" {
		return usage("--key is empty")
	}
	if body.IdempotencyKey == "" {
		body.IdempotencyKey = "cli-" + rand.Text() // makes the start safe to send again when its answer is lost
	}
	var err error
	if body.Input, err = sh.readInput(sh.c.String("input")); err != nil {
		return err
	}
	c, err := sh.connect()
	if err != nil {
		return err
	}
	var started api.Started
	err = c.do(sh.ctx(), ask{method: http.MethodPost, path: n.path("executions", n.name), body: body, safe: true}, &started)
	if err != nil {
		return sh.elsewhere(c, n, err, func(ns string) string { return nsPath(ns, "metadata", "workflows", n.name) })
	}
	x := named{n.ns, started.ExecutionID, true}
	if !sh.c.Bool("wait") {
		return sh.tellStarted(n, started)
	}
	sh.say("%s %s; waiting for its end (Ctrl-C leaves it running; watch it with: nf get %s --watch)", verbOf(started), started.ExecutionID, started.ExecutionID)
	return sh.waitFor(c, x)
}

func verbOf(s api.Started) string {
	if s.Created {
		return "started"
	}
	return "known by its key:"
}

func (sh *shell) tellStarted(n named, s api.Started) error {
	if sh.settings.output == "json" {
		return sh.json(struct {
			FormatVersion string `json:"format_version"`
			Namespace     string `json:"namespace"`
			Workflow      string `json:"workflow"`
			api.Started
		}{view.FormatVersion, n.ns, n.name, s})
	}
	sh.print(s.ExecutionID + "\n")
	sh.say("%s %s, revision %d; look at it with: nf get %s", verbOf(s), view.Safe(n.name), s.Revision, s.ExecutionID)
	return nil
}

// waitFor follows an execution to its end, shows it, and gives 3 unless it is COMPLETED.
func (sh *shell) waitFor(c *client, n named) error {
	if _, err := sh.follow(c, n, "", nil); err != nil {
		return sh.apiFailure(c, err)
	}
	x, err := sh.readExecution(c, n, "")
	if err != nil {
		return err
	}
	sh.say("%s ended %s", x.ExecutionID, view.Safe(strings.TrimSpace(x.Status+" "+x.Cause)))
	if err := sh.showExecution(c, n, x); err != nil {
		return err
	}
	if x.Status != execution.NameCompleted {
		return quiet(exitFindings)
	}
	return nil
}

// maxInputFile bounds what is read as input: the API takes 6 MiB.
const maxInputFile = 64 << 20

// readInput reads --input: JSON, @FILE, or - for standard input. It gives nil for none.
func (sh *shell) readInput(text string) (json.RawMessage, error) {
	raw, where := []byte(text), "--input"
	var err error
	switch {
	case text == "":
		if sh.c.IsSet("input") {
			return nil, usage("--input is empty").hinted("give a JSON object, @FILE, or - for standard input")
		}
		return nil, nil
	case text == "-":
		where = "standard input"
		raw, err = io.ReadAll(io.LimitReader(sh.stdin, maxInputFile+1))
	case strings.HasPrefix(text, "@"):
		where = text[1:]
		raw, err = readBounded(where)
	}
	if err != nil {
		return nil, fail("input: %w", err)
	}
	if len(raw) > maxInputFile {
		return nil, usage("%s is over %d MiB", where, maxInputFile>>20)
	}
	raw = bytes.TrimSpace(raw)
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, usage("%s is not a JSON object%s", where, jsonTrouble(err)).hinted(`for example: --input '{"orderId": "A-1"}'`)
	}
	return raw, nil
}

func jsonTrouble(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.TrimPrefix(err.Error(), "json: ")
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the person at the keyboard names it
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxInputFile+1))
	return raw, errors.Join(err, f.Close())
}
