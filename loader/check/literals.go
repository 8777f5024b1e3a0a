package check

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// literals holds values that are written out, not computed: a WAIT's duration, an HTTP task's address, path and headers
// (NF3301, NF2108).
func literals(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	for _, p := range tasks {
		at := p.pointer + "/inputParameters/"
		switch p.task.Type {
		case schema.TypeWait:
			c.duration(p.task.InputParameters["duration"], at+"duration")
		case schema.TypeHTTP:
			c.uri(p.task.InputParameters["uri"], at+"uri")
			c.path(p.task.InputParameters["path"], at+"path")
			c.headers(w, p, "headers", schema.CheckHeaderValue)
		case schema.TypeGRPC:
			c.headers(w, p, "metadata", schema.CheckMetadataValue)
		case schema.TypeSimple, schema.TypeSwitch, schema.TypeForkJoin, schema.TypeJoin, schema.TypeSetVariable, schema.TypeTerminate:
		}
	}
	if t, ok := o.(*schema.Target); ok {
		c.targetHeaders(t)
	}
}

func (c *checker) duration(v schema.Value, at string) {
	text, isText := v.(string)
	if v == nil || isText && expr.Has(text) {
		return
	}
	if _, err := schema.ParseWaitDuration(v); err != nil {
		c.add(diag.New("NF3301", at, err.Error()).WithHint("write seconds, or text such as 90s, 1h30m, 2 days"))
	}
}

// uri holds a literal address. One with expressions is held in what is literal of it: the scheme, if it is written out.
func (c *checker) uri(v schema.Value, at string) {
	text, isText := v.(string)
	if !isText {
		return
	}
	if expr.Has(text) {
		scheme, _, ok := strings.Cut(text, "://")
		if ok && !expr.Has(scheme) && !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			c.add(diag.Newf("NF3301", at, "uri has scheme %q; it must be http or https", scheme))
		}
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		c.add(diag.Newf("NF3301", at, "uri %q is no URI", text))
	case u.Scheme != "http" && u.Scheme != "https":
		c.add(diag.Newf("NF3301", at, "uri %q does not start with http:// or https://", text).WithHint("write the whole address, or target: and path:"))
	case u.Hostname() == "":
		c.add(diag.Newf("NF3301", at, "uri %q has no host", text))
	case u.User != nil:
		c.add(diag.Newf("NF3301", at, "uri has a user part").WithHint("send it as a header of a Target, with a secretRef"))
	}
}

// path holds the path of a call, each expression taken as one segment.
func (c *checker) path(v schema.Value, at string) {
	text, ok := v.(string)
	if !ok {
		return
	}
	template, list := expr.Parse(text)
	if len(list) > 0 {
		return // reported with all expressions
	}
	stands := func(string) (string, error) { return "x", nil }
	literal, err := template.EvalEscaped(func(string, string) any { return nil }, expr.Limits{Bytes: 1 << 20, Depth: 8}, stands)
	if err != nil {
		return
	}
	if err := schema.CheckPath(literal); err != nil {
		c.add(diag.New("NF3301", at, err.Error()))
	}
}

// headers holds literal values, and names against those of the Target, which cannot be overridden.
func (c *checker) headers(w *schema.Workflow, p placed, field string, check func(string) error) {
	entries, _ := p.task.InputParameters[field].(map[string]any)
	var own map[string]string
	var a schema.Address
	if ref, ok := p.task.Target(w.Metadata.Namespace); ok {
		a = schema.Address{Kind: schema.KindTarget, Namespace: ref.Namespace, Name: ref.Name}
		if t, ok := c.objects[a].(*schema.Target); ok {
			own = headerKeys(t)
		}
	}
	for _, name := range sortedKeys(entries) {
		at := p.pointer + "/inputParameters/" + field + "/" + jsontext.EscapePointer(name)
		if theirs, has := own[schema.HeaderKey(name)]; has {
			c.add(c.relate(diag.Newf("NF2108", at, "%q is set by the target as %q, which a task cannot override", name, theirs).
				WithHint("remove it here, or take it out of the target").OnKey(), a, "the target"))
		}
		if text, isText := entries[name].(string); isText && !expr.Has(text) {
			if err := check(text); err != nil {
				c.add(diag.Newf("NF3301", at, "%s: %v", name, err))
			}
		}
	}
}

// headerKeys gives the names that a target sets, by the form in which names are compared.
func headerKeys(t *schema.Target) map[string]string {
	out := map[string]string{}
	if t.HTTP != nil {
		for name := range t.HTTP.Headers {
			out[schema.HeaderKey(name)] = name
		}
	}
	if t.GRPC != nil {
		for name := range t.GRPC.Metadata {
			out[schema.HeaderKey(name)] = name
		}
	}
	return out
}

func (c *checker) targetHeaders(t *schema.Target) {
	each := func(entries map[string]schema.Secretable, at string, check func(string) error) {
		for _, name := range sortedKeys(entries) {
			text := entries[name].Text
			if s := entries[name].Secret; s != nil {
				text = s.Prefix
			}
			if err := check(text); err != nil {
				c.add(diag.Newf("NF3301", at+jsontext.EscapePointer(name), "%s: %v", name, err))
			}
		}
	}
	if t.HTTP != nil {
		each(t.HTTP.Headers, "/spec/http/headers/", schema.CheckHeaderValue)
	}
	if t.GRPC != nil {
		each(t.GRPC.Metadata, "/spec/grpc/metadata/", schema.CheckMetadataValue)
	}
}

// secrets refuses secret references where a value is stored or shown (NF3208): only headers beside a target, and metadata of
// a GRPC task, are resolved at dispatch.
func secrets(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	if w == nil {
		return
	}
	for _, p := range tasks {
		at := p.pointer + "/inputParameters"
		field := schema.SecretEntries(p.task.Type)
		for _, key := range sortedKeys(p.task.InputParameters) {
			v := p.task.InputParameters[key]
			if key != field {
				c.secretIn(v, at+"/"+jsontext.EscapePointer(key), "")
				continue
			}
			entries, _ := v.(map[string]any)
			_, beside := p.task.InputParameters["target"]
			for _, name := range sortedKeys(entries) {
				entry := at + "/" + jsontext.EscapePointer(key) + "/" + jsontext.EscapePointer(name)
				if !beside {
					c.secretIn(entries[name], entry, "beside uri no secret is sent: declare a Target and write target: and path:")
				}
			}
		}
	}
	for _, key := range sortedKeys(w.Variables) {
		c.secretIn(w.Variables[key], "/spec/variables/"+jsontext.EscapePointer(key), "")
	}
	for _, key := range sortedKeys(w.OutputParameters) {
		c.secretIn(w.OutputParameters[key], "/spec/outputParameters/"+jsontext.EscapePointer(key), "")
	}
}

// secretIn reports secret references anywhere in a value.
func (c *checker) secretIn(v any, at, hint string) {
	switch v := v.(type) {
	case map[string]any:
		if _, is := v["secretRef"]; is {
			if hint == "" {
				hint = "secrets may stand in headers and metadata of a Target, and of a task beside target:"
			}
			c.add(diag.Newf("NF3208", at, "a secret may not stand here: the value would be stored").WithHint(hint))
			return
		}
		for _, key := range sortedKeys(v) {
			c.secretIn(v[key], at+"/"+jsontext.EscapePointer(key), hint)
		}
	case []any:
		for i, item := range v {
			c.secretIn(item, at+"/"+strconv.Itoa(i), hint)
		}
	case string, json.Number, bool, nil:
	}
}
