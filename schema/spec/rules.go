package spec

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// Limits of a workflow (contract 1.5, 7.2).
const (
	MaxTasks   = 2_000 // with nested ones
	MaxNesting = 16
)

// rules are what the schemas say badly, checked on the raw tree so that they are reported together with the rest. They look only
// at values of the right type; the others have their finding already.
func rules(kind schema.Kind, document any) diag.List {
	var list diag.List
	spec, _ := lookup(document, []string{"spec"})
	tree, _ := spec.(map[string]any)
	switch kind {
	case schema.KindTaskDefinition:
		list = append(list, embeddedSchema(tree, "inputSchema")...)
		list = append(list, embeddedSchema(tree, "outputSchema")...)
	case schema.KindWorkflow:
		list = append(list, embeddedSchema(tree, "inputSchema")...)
		w := workflowRules{}
		w.tasks(tree["tasks"], "/spec/tasks", 1)
		list = append(list, w.findings...)
		if w.count > MaxTasks {
			list = append(list, diag.Newf("NF2111", "/spec/tasks", "workflow has %d tasks, nested ones included; the limit is %d", w.count, MaxTasks).
				WithHint("move a part into a workflow of its own"))
		}
	case schema.KindTarget:
		list = append(list, targetRules(tree)...)
	case schema.KindProject, schema.KindNamespace, schema.KindSemaphore:
	}
	return list
}

func embeddedSchema(spec map[string]any, key string) diag.List {
	doc, ok := spec[key]
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil
	}
	if !ok {
		return nil
	}
	if _, err := CompileUser(doc); err != nil {
		d := diag.Newf("NF2113", "/spec/"+key, "%s: %v", key, err)
		if at, ok := errors.AsType[*SchemaError](err); ok {
			if _, ok := lookup(doc, plainTokens(at.Pointer)); ok {
				d = diag.Newf("NF2113", "/spec/"+key+at.Pointer, "%s: %s", key, at.Message)
			}
		}
		return diag.List{d}
	}
	return nil
}

type workflowRules struct {
	count    int
	findings diag.List
}

func (w *workflowRules) tasks(v any, pointer string, depth int) {
	list, _ := v.([]any)
	if depth > MaxNesting {
		if len(list) > 0 {
			w.findings = append(w.findings, diag.Newf("NF1013", pointer, "tasks are nested deeper than %d levels", MaxNesting).
				WithHint("move a part into a workflow of its own"))
		}
		return
	}
	for i, item := range list {
		task, ok := item.(map[string]any)
		if !ok {
			continue
		}
		w.count++
		w.task(task, pointer+"/"+strconv.Itoa(i), depth)
	}
}

func (w *workflowRules) task(task map[string]any, at string, depth int) {
	input, _ := task["inputParameters"].(map[string]any)
	switch task["type"] {
	case string(schema.TypeHTTP):
		w.findings = append(w.findings, names(input["headers"], at+"/inputParameters/headers", schema.CheckHeaderName)...)
	case string(schema.TypeGRPC):
		w.findings = append(w.findings, names(input["metadata"], at+"/inputParameters/metadata", schema.CheckMetadataName)...)
	}
	cases, _ := task["decisionCases"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(cases)) {
		w.tasks(cases[key], at+"/decisionCases/"+jsontext.EscapePointer(key), depth+1)
	}
	w.tasks(task["defaultCase"], at+"/defaultCase", depth+1)
	branches, _ := task["forkTasks"].([]any)
	for i, branch := range branches {
		w.tasks(branch, at+"/forkTasks/"+strconv.Itoa(i), depth+1)
	}
}

// names holds the keys of a map of headers or metadata to contract 2.7.
func names(v any, pointer string, check func(string) error) diag.List {
	headers, _ := v.(map[string]any)
	var list diag.List
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		if err := check(key); err != nil {
			list = append(list, diag.New("NF2107", pointer+"/"+jsontext.EscapePointer(key), err.Error()).OnKey())
		}
	}
	return list
}

func targetRules(spec map[string]any) diag.List {
	var list diag.List
	if http, ok := spec["http"].(map[string]any); ok {
		if text, ok := http["baseUri"].(string); ok {
			if err := checkBase(text); err != nil {
				list = append(list, diag.Newf("NF2107", "/spec/http/baseUri", "baseUri %q: %v", text, err).
					WithHint("write http(s)://host, host:port or host/path, without query, template or user part"))
			}
		}
		list = append(list, names(http["headers"], "/spec/http/headers", schema.CheckHeaderName)...)
	}
	if grpc, ok := spec["grpc"].(map[string]any); ok {
		if text, ok := grpc["address"].(string); ok {
			if err := checkAddress(text); err != nil {
				list = append(list, diag.Newf("NF2107", "/spec/grpc/address", "address %q: %v", text, err).WithHint("write host:port"))
			}
		}
		list = append(list, names(grpc["metadata"], "/spec/grpc/metadata", schema.CheckMetadataName)...)
	}
	return list
}

func checkBase(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URI")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("scheme must be http or https")
	case u.Hostname() == "":
		return errors.New("has no host")
	case u.User != nil, strings.ContainsAny(text, "?#{}"):
		return errors.New("has a query, fragment, template or user part")
	}
	if u.Port() != "" || strings.HasSuffix(u.Host, ":") {
		return checkPort(u.Port())
	}
	return nil
}

func checkAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return errors.New("is not host:port")
	}
	return checkPort(port)
}

func checkPort(port string) error {
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}
