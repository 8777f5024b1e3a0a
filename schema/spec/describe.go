package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// Description is what the published schema says about a kind or one of its fields, for `nf explain`.
type Description struct {
	Path   string // as it may be asked for again, such as TaskDefinition.spec.retryCount
	Text   string // what it is for
	Type   string // JSON type, with its range
	Fields []Field
}

// Field is one field of a Description.
type Field struct {
	Name     string
	Type     string
	Default  string // JSON; "" = none
	Required bool
	Text     string
}

// Describe looks up a kind, or a field of one: `Workflow`, `TaskDefinition.retryCount` (`spec.` may be left out), `Workflow.tasks.HTTP` (the fields of one type of
// task), `Workflow.tasks.HTTP.uri`. A path that leads nowhere gives false and, if there is one near, a did-you-mean.
func (v *Validator) Describe(dotted string) (d Description, hint string, ok bool) {
	steps := strings.Split(dotted, ".")
	kind := schema.Kind(steps[0])
	if _, known := v.kinds[kind]; !known {
		return d, diag.DidYouMean(steps[0], kindNames()), false
	}
	at := spot{v: v, file: string(kind) + suffix}
	at.node, _ = v.docs[base+at.file].(map[string]any)
	shown := []string{steps[0]}
	for i, step := range steps[1:] {
		next, found := at.down(step)
		if !found && i == 0 {
			if inSpec, isThere := at.down("spec"); isThere {
				if next, found = inSpec.down(step); found {
					shown = append(shown, "spec")
				} else {
					return d, diag.DidYouMean(step, append(inSpec.names(), at.names()...)), false
				}
			}
		}
		if !found {
			return d, diag.DidYouMean(step, at.names()), false
		}
		at, shown = next, append(shown, step)
	}
	return at.describe(strings.Join(shown, ".")), "", true
}

// spot is a node of a schema with what was said on the way to it.
type spot struct {
	v    *Validator
	file string
	node map[string]any
}

// resolved follows references; what stands beside a reference wins over what it leads to.
func (p spot) resolved() spot {
	for range 8 {
		ref, is := p.node["$ref"].(string)
		if !is {
			break
		}
		file, fragment, _ := strings.Cut(ref, "#")
		if file == "" {
			file = p.file
		}
		node := p.v.docs[base+file]
		for step := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
			if m, is := node.(map[string]any); is && step != "" {
				node = m[step]
			}
		}
		target, is := node.(map[string]any)
		if !is {
			break
		}
		merged := maps.Clone(target)
		for key, value := range p.node {
			if key != "$ref" {
				merged[key] = value
			}
		}
		p.file, p.node = file, merged
	}
	return p
}

// at gives the node under a key.
func (p spot) at(value any) spot {
	node, _ := value.(map[string]any)
	return spot{v: p.v, file: p.file, node: node}.resolved()
}

// down goes to a field, through lists; or, in a task, to its type.
func (p spot) down(step string) (spot, bool) {
	p = p.items()
	if properties, is := p.node["properties"].(map[string]any); is {
		if value, there := properties[step]; there {
			return p.at(value), true
		}
		if input, there := properties["inputParameters"]; there {
			if found, is := p.at(input).down(step); is {
				return found, true
			}
		}
	}
	for name, branch := range p.branches() {
		if name == step {
			return branch, true
		}
	}
	return spot{}, false
}

// items goes into the items of lists.
func (p spot) items() spot {
	p = p.resolved()
	for {
		items, is := p.node["items"].(map[string]any)
		if !is {
			return p
		}
		p = p.at(items)
	}
}

// branches gives what a task looks like by its type.
func (p spot) branches() map[string]spot {
	all := map[string]spot{}
	list, _ := p.node["allOf"].([]any)
	for _, item := range list {
		rule, _ := item.(map[string]any)
		when := p.at(rule["if"])
		properties, _ := when.node["properties"].(map[string]any)
		kind, _ := properties["type"].(map[string]any)
		if name, is := kind["const"].(string); is {
			all[name] = p.at(rule["then"])
		}
	}
	return all
}

func (p spot) names() []string {
	p = p.items()
	properties, _ := p.node["properties"].(map[string]any)
	return slices.Concat(slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(p.branches())))
}

func (p spot) describe(shown string) Description {
	p = p.resolved()
	d := Description{Path: shown, Text: p.text("description"), Type: p.kindOf()}
	inner := p.items()
	required, _ := inner.node["required"].([]any)
	properties, _ := inner.node["properties"].(map[string]any)
	branches := inner.branches()
	for _, name := range inner.names() {
		var f spot
		if value, is := properties[name]; is {
			f = inner.at(value)
		} else {
			f = branches[name]
		}
		d.Fields = append(d.Fields, Field{
			Name: name, Type: f.kindOf(), Default: f.json("default"), Required: slices.Contains(required, any(name)), Text: f.text("description"),
		})
	}
	return d
}

func (p spot) text(key string) string {
	text, _ := p.node[key].(string)
	return text
}

func (p spot) json(key string) string {
	value, is := p.node[key]
	if !is {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// kindOf says what a value looks like: its JSON type with its range, or the words that it may be.
func (p spot) kindOf() string {
	if words, is := p.node["enum"].([]any); is {
		var all []string
		for _, w := range words {
			all = append(all, fmt.Sprint(w))
		}
		return strings.Join(all, " | ")
	}
	if c, is := p.node["const"]; is {
		return fmt.Sprint(c)
	}
	text := p.text("type")
	if list, is := p.node["type"].([]any); is {
		var all []string
		for _, t := range list {
			all = append(all, fmt.Sprint(t))
		}
		text = strings.Join(all, " or ")
	}
	if text == "array" {
		inner := spot{v: p.v, file: p.file}
		inner.node, _ = p.node["items"].(map[string]any)
		if of := inner.resolved().kindOf(); of != "" {
			return "list of " + of
		}
		return "list"
	}
	low, high := p.json("minimum"), p.json("maximum")
	switch {
	case low != "" && high != "":
		text += " from " + low + " to " + high
	case low != "":
		text += ", at least " + low
	case high != "":
		text += ", at most " + high
	}
	return text
}

// Bundle gives one schema of all kinds, for editors: it picks the branch by `kind`, and refers only to itself. With kinds, only to those.
func Bundle(kinds ...schema.Kind) ([]byte, error) {
	files, err := Files()
	if err != nil {
		return nil, err
	}
	if len(kinds) == 0 {
		kinds = schema.Kinds()
	}
	defs := map[string]any{}
	var choices []any
	var names []any
	for _, name := range slices.Sorted(maps.Keys(files)) {
		stem := strings.TrimSuffix(path.Base(name), suffix)
		isKind := slices.Contains(schema.Kinds(), schema.Kind(stem))
		if isKind && !slices.Contains(kinds, schema.Kind(stem)) {
			continue
		}
		doc, err := jsontext.Decode(files[name], jsontext.Limits{})
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		tree, _ := moved(doc, stem).(map[string]any)
		delete(tree, "$schema")
		defs[stem] = tree
		if isKind {
			names = append(names, stem)
			choices = append(choices, map[string]any{
				"if":   map[string]any{"properties": map[string]any{"kind": map[string]any{"const": stem}}, "required": []any{"kind"}},
				"then": map[string]any{"$ref": "#/$defs/" + stem},
			})
		}
	}
	return json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "nf manifest", "type": "object", "required": []any{"apiVersion", "kind"},
		"properties": map[string]any{"kind": map[string]any{"enum": names}}, "allOf": choices, "$defs": defs,
	}, "", "  ")
}

// moved gives a schema whose references lead into the bundle.
func moved(value any, stem string) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if ref, is := inner.(string); is && key == "$ref" {
				file, fragment, _ := strings.Cut(ref, "#")
				if file == "" {
					file = stem + suffix
				}
				out[key] = "#/$defs/" + strings.TrimSuffix(file, suffix) + fragment
				continue
			}
			out[key] = moved(inner, stem)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = moved(inner, stem)
		}
		return out
	}
	return value
}
