package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/schema"
)

func (sh *shell) newCommand() *cli.Command {
	return &cli.Command{
		Name: "new", Usage: "write a manifest to begin with", ArgsUsage: "KIND NAME",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "type", Usage: "type of a Workflow's first task (SIMPLE, HTTP, WAIT, …), or http or grpc for a Target"}},
		Action: sh.action(2, 2, "a kind and a name", sh.newManifest),
	}
}

var nameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,254}$`)

// newManifest writes one file that is valid as it stands, but for what it refers to.
func (sh *shell) newManifest() error {
	kind, name := schema.Kind(sh.c.Args().Get(0)), sh.c.Args().Get(1)
	if !slices.Contains(schema.Kinds(), kind) || kind == schema.KindProject {
		if kind == schema.KindProject {
			return usage("a project is made by hand").hinted("write nf.yaml with apiVersion, kind: Project and metadata.name")
		}
		return usage("unknown kind %q", string(kind)).hinted("%s", didYouMeanKind(string(kind)))
	}
	if !nameForm.MatchString(name) {
		return usage("%q is no name", name).hinted("names begin with a letter or _ and go on with letters, digits, _, . and -, at most 255")
	}
	if sh.settings.projectDir == "" {
		return fail("there is no nf.yaml here or above").hinted("write one first:\n%s", "apiVersion: nf/v1\nkind: Project\nmetadata:\n  name: my-project")
	}
	body, err := skeleton(kind, sh.c.String("type"))
	if err != nil {
		return err
	}
	namespace := sh.settings.namespace.value
	rel := manifestPath(kind, namespace, name)
	text := "# yaml-language-server: $schema=" + strings.Repeat("../", strings.Count(rel, "/")) + schemaFile + "\napiVersion: nf/v1\nkind: " + string(kind) + "\nmetadata:\n  name: " + yamlName(name) + "\n"
	if namespace != "default" && kind != schema.KindNamespace {
		text += "  namespace: " + yamlName(namespace) + "\n"
	}
	full := filepath.Join(sh.settings.projectDir, filepath.FromSlash(rel))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil { //nolint:gosec // a folder of the checkout
		return fail("%w", err)
	}
	file, err := os.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a file of the checkout
	if errors.Is(err, fs.ErrExist) {
		return fail("%s is there already", rel).hinted("choose another name, or edit it")
	}
	if err != nil {
		return fail("%w", err)
	}
	_, err = file.WriteString(text + body)
	if err = errors.Join(err, file.Close()); err != nil {
		return fail("%w", err)
	}
	if _, err := writeSchema(sh.settings.projectDir); err != nil {
		return fail("%w", err)
	}
	sh.print(rel + "\n")
	return nil
}

// yamlName writes a name so that it is text.
func yamlName(name string) string {
	if slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}, strings.ToLower(name)) {
		return `"` + name + `"`
	}
	return name
}

// manifestPath is where a new manifest goes (design D1).
func manifestPath(kind schema.Kind, namespace, name string) string {
	folder := map[schema.Kind]string{
		schema.KindTaskDefinition: "tasks", schema.KindWorkflow: "workflows", schema.KindSemaphore: "semaphores", schema.KindTarget: "targets",
	}[kind]
	if kind == schema.KindNamespace {
		return path.Join("namespaces", name, "namespace.yaml")
	}
	return path.Join("namespaces", namespace, folder, name+".yaml")
}

// skeleton is the spec of a new manifest.
func skeleton(kind schema.Kind, of string) (string, error) {
	switch kind {
	case schema.KindNamespace:
		return "spec: {}\n", nil
	case schema.KindSemaphore:
		return "spec:\n  permits: 1 # how many tasks that name it run at once\n", nil
	case schema.KindTaskDefinition:
		return "spec:\n  retryCount: 3\n  retryDelaySeconds: 1\n  scheduleToStartTimeout: 3600 # a worker must take it within this many seconds\n  responseTimeoutSeconds: 60\n", nil
	case schema.KindTarget:
		switch strings.ToLower(of) {
		case "", "http":
			return "spec:\n  http:\n    baseUri: https://api.example.com\n", nil
		case "grpc":
			return "spec:\n  grpc:\n    address: api.example.com:443\n    service: example.v1.Service\n    protoFiles: [service.proto]\n", nil
		}
		return "", usage("no target of type %q", of).hinted("use http or grpc")
	case schema.KindWorkflow:
		return workflowSkeleton(of)
	case schema.KindProject:
	}
	return "", usage("no manifest for %s", kind)
}

func workflowSkeleton(of string) (string, error) {
	bodies := map[string]string{
		"SIMPLE":       "      name: do-it # the TaskDefinition, and the queue that workers poll: nf new TaskDefinition do-it\n      inputParameters: {order: \"${workflow.input.order}\"}\n",
		"HTTP":         "      inputParameters:\n        method: GET\n        uri: https://api.example.com/orders\n",
		"WAIT":         "      inputParameters: {duration: 10s}\n",
		"SET_VARIABLE": "      inputParameters: {order: \"${workflow.input.order}\"}\n",
		"TERMINATE":    "      inputParameters: {terminationStatus: COMPLETED}\n",
	}
	if of == "" {
		of = "WAIT"
	}
	body, ok := bodies[strings.ToUpper(of)]
	if !ok {
		return "", usage("no beginning with a task of type %q", of).hinted("use SIMPLE, HTTP, WAIT, SET_VARIABLE or TERMINATE")
	}
	return fmt.Sprintf("spec:\n  tasks:\n    - taskReferenceName: first\n      type: %s\n%s", strings.ToUpper(of), body), nil
}
