package spec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/schema/spec"
)

// These tests hold the JSON Schemas and the Go types together, both ways: each field and each default of a schema is decoded,
// written and compared by Go, and each field of Go is in a schema.

type schemas map[string]map[string]any

func load(t *testing.T) schemas {
	t.Helper()
	files, err := spec.Files()
	require.NoError(t, err)
	all := schemas{}
	for name, text := range files {
		doc, err := jsontext.DecodeObject(text, jsontext.Limits{})
		require.NoError(t, err, name)
		all[name] = doc
	}
	return all
}

// at follows keys and, at each step, $ref. The keywords beside a $ref are laid over what it names.
func (s schemas) at(file string, path ...string) map[string]any {
	node := s[file]
	for _, step := range path {
		node = s.resolved(file, node[step])
	}
	return node
}

func (s schemas) resolved(file string, v any) map[string]any {
	node, _ := v.(map[string]any)
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	target, fragment, _ := strings.Cut(ref, "#/")
	if target == "" {
		target = file
	}
	merged := maps.Clone(s.at(target, strings.Split(fragment, "/")...))
	maps.Copy(merged, node)
	delete(merged, "$ref")
	return merged
}

// A place is a map of fields in a document, with a valid document around it.
type fieldPlace struct {
	kind schema.Kind
	def  string // in $defs
	base string // spec of a valid document
	path []string
}

func fieldPlaces() []fieldPlace {
	task := func(def, task string) fieldPlace {
		return fieldPlace{schema.KindWorkflow, def, `{"tasks": [` + task + `]}`, []string{"tasks", "0"}}
	}
	input := func(def, task string) fieldPlace {
		return fieldPlace{schema.KindWorkflow, def, `{"tasks": [` + task + `]}`, []string{"tasks", "0", "inputParameters"}}
	}
	const http, httpTarget = `{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"uri": "https://x"}}`, `{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "t", "method": "PUT"}}`
	const grpc = `{"taskReferenceName": "a", "type": "GRPC", "inputParameters": {"target": "t", "method": "M"}}`
	return []fieldPlace{
		{schema.KindProject, "spec", `{}`, nil},
		{schema.KindNamespace, "spec", `{}`, nil},
		{schema.KindSemaphore, "spec", `{"permits": 3}`, nil},
		{schema.KindTaskDefinition, "spec", `{}`, nil},
		{schema.KindTarget, "spec", `{"http": {"baseUri": "https://x"}}`, nil},
		{schema.KindTarget, "http", `{"http": {"baseUri": "https://x"}}`, []string{"http"}},
		{schema.KindTarget, "grpc", `{"grpc": {"address": "h:1", "service": "a.B", "protoFiles": ["x"]}}`, []string{"grpc"}},
		{schema.KindWorkflow, "spec", `{"tasks": [{"taskReferenceName": "a", "name": "d"}]}`, nil},
		task("SIMPLE", `{"taskReferenceName": "a"}`),
		task("HTTP", http), task("GRPC", grpc),
		task("SWITCH", `{"taskReferenceName": "a", "type": "SWITCH", "expression": "k"}`),
		task("FORK_JOIN", `{"taskReferenceName": "a", "type": "FORK_JOIN", "forkTasks": [[{"taskReferenceName": "b"}]]}`),
		task("JOIN", `{"taskReferenceName": "a", "type": "JOIN"}`),
		task("SET_VARIABLE", `{"taskReferenceName": "a", "type": "SET_VARIABLE", "inputParameters": {"v": 1}}`),
		task("TERMINATE", `{"taskReferenceName": "a", "type": "TERMINATE"}`),
		task("WAIT", `{"taskReferenceName": "a", "type": "WAIT", "inputParameters": {"duration": 5}}`),
		input("httpInput", http), input("httpInput", httpTarget), input("grpcInput", grpc),
		input("terminateInput", `{"taskReferenceName": "a", "type": "TERMINATE", "inputParameters": {}}`),
		input("waitInput", `{"taskReferenceName": "a", "type": "WAIT", "inputParameters": {"duration": 5}}`),
	}
}

// samples are valid values other than the default, for fields where one cannot be made from the schema.
func samples() map[string]string {
	return map[string]string{
		"tasks": `[{"taskReferenceName": "z", "name": "other"}]`, "inputSchema": `{"type": "object"}`, "outputSchema": `{"type": "string"}`, "usableFrom": `["n"]`,
		"baseUri": `"http://y"`, "address": `"k:2"`, "service": `"c.D"`, "protoFiles": `["y.proto"]`, "roots": `["r"]`, "semaphores": `["s"]`, "nonRetryableErrors": `["e"]`,
		"headers": `{"x-a": "b"}`, "metadata": `{"a": "b"}`, "taskReferenceName": `"zz"`, "name": `"nn"`, "inputParameters": `{"extra": 1}`, "decisionCases": `{"a": []}`,
		"defaultCase": `[{"taskReferenceName": "z"}]`, "forkTasks": `[[{"taskReferenceName": "z"}]]`, "joinOn": `["z"]`, "outputParameters": `{}`, "variables": `{"v": 2}`,
		"uri": `"https://other"`, "target": `"tt"`, "path": `"/p"`, "method": `"POST"`, "query": `{"q": [1]}`, "timeoutMs": `77`, "request": `{"r": 1}`,
		"terminationStatus": `"FAILED"`, "workflowOutput": `{"o": 1}`, "duration": `"90s"`, "http": `{"baseUri": "http://z"}`, "body": `{"b": 1}`,
		"descriptorSet": ``, "includeDirs": `["d"]`, "grpc": ``, "heartbeatTimeout": `7`, "maxResponseBytes": `2048`, "version": `4`, "expression": `"kk"`,
	}
}

// sample makes a valid value other than the default.
func sample(t *testing.T, key string, node map[string]any) any {
	if text, ok := samples()[key]; ok {
		if text == "" {
			return nil
		}
		return decode(t, text)
	}
	def := node["default"]
	if words, ok := node["enum"].([]any); ok {
		for _, word := range words {
			if !jsontext.Equal(word, def) {
				return word
			}
		}
		return nil // only one word: the default
	}
	switch node["type"] {
	case "boolean":
		return def != true
	case "integer", "number":
		for _, n := range []json.Number{"1", "2", "0.5"} {
			if !jsontext.Equal(n, def) {
				return n
			}
		}
	case "string":
		return "sample"
	}
	require.Failf(t, "no sample", "%s: %v", key, node)
	return nil
}

func set(doc any, path []string, key string, value any) any {
	if len(path) == 0 {
		m := maps.Clone(doc.(map[string]any))
		m[key] = value
		return m
	}
	switch doc := doc.(type) {
	case map[string]any:
		m := maps.Clone(doc)
		in, ok := m[path[0]]
		if !ok {
			in = map[string]any{}
		}
		m[path[0]] = set(in, path[1:], key, value)
		return m
	case []any:
		l := slices.Clone(doc)
		l[0] = set(l[0], path[1:], key, value)
		return l
	}
	return doc
}

func get(doc any, path []string, key string) (any, bool) {
	for _, step := range append(slices.Clone(path), key) {
		switch in := doc.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			doc = in[0]
		default:
			return nil, false
		}
	}
	return doc, true
}

func (p fieldPlace) document(t *testing.T, spec any) map[string]any {
	return map[string]any{"apiVersion": "nf/v1", "kind": string(p.kind), "metadata": map[string]any{"name": "x"}, "spec": spec}
}

func decodeSpec(t *testing.T, kind schema.Kind, spec any) schema.Object {
	o, err := schema.Decode(kind, schema.Metadata{Name: "x"}, spec.(map[string]any))
	require.NoError(t, err)
	if target, ok := o.(*schema.Target); ok && target.GRPC != nil { // names of files are not content
		target.GRPC.ProtoFiles, target.GRPC.DescriptorSet, target.GRPC.IncludeDirs = nil, "", nil
	}
	return o
}

func TestEverySchemaFieldIsDecoded(t *testing.T) {
	t.Parallel()
	v, all := compile(t), load(t)
	for _, p := range fieldPlaces() {
		file := string(p.kind) + ".schema.json"
		properties, _ := all.at(file, "$defs", p.def)["properties"].(map[string]any)
		base := decode(t, p.base)
		require.Empty(t, v.Validate(p.kind, p.document(t, base)), p.base)
		plain := schema.Canonical(decodeSpec(t, p.kind, base))
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			about := fmt.Sprintf("%s %s.%s", p.kind, p.def, key)
			node := all.resolved(file, properties[key])
			if node["const"] != nil || key == "inputParameters" && node["additionalProperties"] == false {
				continue // the discriminator; a type without input
			}
			value := sample(t, key, node)
			if value == nil {
				continue
			}
			// Some fields exclude what the base has, or need something beside them.
			doc := set(base, p.path, key, value)
			if list := v.Validate(p.kind, p.document(t, doc)); len(list) > 0 {
				require.Contains(t, []string{"NF2108", "NF2109"}, string(list[0].Code), "%s: %v", about, list)
				continue
			}
			o := decodeSpec(t, p.kind, doc)
			if key == "protoFiles" || key == "includeDirs" { // compiled; their names are not content
				require.Equal(t, plain, schema.Canonical(o), about)
				continue
			}
			require.NotEqual(t, string(plain), string(schema.Canonical(o)), about)
			back, ok := get(decode(t, string(schema.Canonical(o))), p.path, key)
			require.True(t, ok, about)
			if !strings.Contains(`tasks defaultCase forkTasks decisionCases http`, key) {
				require.True(t, jsontext.Equal(value, back), "%s: %v %v", about, value, back)
			}
			again, err := schema.DecodeCanonical(p.kind, o.Meta(), schema.Canonical(o))
			require.NoError(t, err)
			require.Equal(t, o, again, about)
		}
	}
}

func TestDefaultsOfSchemaAndGoAgree(t *testing.T) {
	t.Parallel()
	v, all := compile(t), load(t)
	for _, p := range fieldPlaces() {
		file := string(p.kind) + ".schema.json"
		def := all.at(file, "$defs", p.def)
		properties, _ := def["properties"].(map[string]any)
		base := decode(t, p.base)
		plain := decodeSpec(t, p.kind, base)
		full := decode(t, encode(t, schema.Tree(plain)))
		for key, raw := range properties {
			about := fmt.Sprintf("%s %s.%s", p.kind, p.def, key)
			value, ok := all.resolved(file, raw)["default"]
			shown, isShown := get(full, p.path, key)
			if _, written := get(base, p.path, key); written {
				continue
			}
			if !ok {
				require.False(t, isShown && key != "timeoutMs", "%s: Go has a default (%v), the schema none", about, shown)
				continue
			}
			if key == "path" && p.path != nil && strings.Contains(p.base, "uri") || key == "includeDirs" {
				continue // only beside target; not part of the content
			}
			list, isList := value.([]any)
			if empty := isList && len(list) == 0; !empty { // empty lists are not shown
				if object, isMap := value.(map[string]any); !isMap || len(object) > 0 {
					require.True(t, isShown && jsontext.Equal(value, shown), "%s: schema %v, Go %v", about, value, shown)
				}
			}
			doc := set(base, p.path, key, value)
			require.Empty(t, v.Validate(p.kind, p.document(t, doc)), about)
			require.Equal(t, string(schema.Canonical(plain)), string(schema.Canonical(decodeSpec(t, p.kind, doc))), about)
		}
		// What Go shows is in the schema.
		shown := full
		for range p.path {
			switch in := shown.(type) {
			case []any:
				shown = in[0]
			case map[string]any:
				shown = in[p.path[slices.IndexFunc(p.path, func(s string) bool { _, ok := in[s]; return ok })]]
			}
		}
		for key := range shown.(map[string]any) {
			require.Contains(t, properties, key, "%s %s", p.kind, p.def)
		}
	}
}

func encode(t *testing.T, v any) string {
	text, err := jsontext.Encode(v)
	require.NoError(t, err)
	return string(text)
}

// Each field of a Go struct, set to something, is written to a tree that the schemas accept, and read back.
func TestEveryGoFieldIsInASchema(t *testing.T) {
	t.Parallel()
	v := compile(t)
	words := map[string]any{
		"Logic": schema.RetryLinear, "TimeoutPolicy": schema.TimeoutRetry, "Delivery": schema.AtMostOnce, "BaseURI": "https://other", "Address": "host:77", "Service": "x.Y",
		"Ref": "zz", "Definition": "def", "UsableFrom": []string{"n"}, "Headers": map[string]schema.Secretable{"x-a": {Secret: &schema.SecretRef{Name: "n", Key: "k", Prefix: "p"}}},
		"Metadata": map[string]schema.Secretable{"a": {Text: "b"}}, "InputSchema": map[string]any{"type": "object"}, "OutputSchema": map[string]any{"type": "string"},
		"Semaphores": []schema.Ref{{Namespace: "default", Name: "s"}}, "Tasks": []*schema.Task{{Ref: "zz", Type: schema.TypeSimple}}, "Roots": []string{"r"},
		"DecisionCases": map[string][]*schema.Task{"a": {}}, "DefaultCase": []*schema.Task{{Ref: "d", Type: schema.TypeSimple}},
		"ForkTasks": [][]*schema.Task{{{Ref: "d", Type: schema.TypeSimple}}}, "JoinOn": []string{"j"}, "Jitter": 0.5, "RetryBudget": 0.5, "HeartbeatTimeout": schema.Millis(7000),
		"OutputParameters": map[string]any{"o": json.Number("1")}, "Variables": map[string]any{"o": json.Number("1")}, "InputParameters": map[string]any{"uri": "https://z", "extra": true},
		"EvaluatorType": "value-param", "MaxResponseBytes": int64(2048),
	}
	seen := map[string]bool{}
	for _, p := range fieldPlaces() {
		object := decodeSpec(t, p.kind, decode(t, p.base))
		eachField(reflect.ValueOf(object).Elem(), p.path, func(name string, f reflect.Value) {
			before := reflect.New(f.Type()).Elem()
			before.Set(f)
			if !setSample(t, f, words[name]) {
				return
			}
			defer f.Set(before)
			tree := decode(t, encode(t, schema.Tree(object)))
			if grpc, ok := get(tree, nil, "grpc"); ok { // compiled content stands in place of the file names
				delete(grpc.(map[string]any), "descriptors")
				grpc.(map[string]any)["protoFiles"] = []any{"x"}
			}
			if len(v.Validate(p.kind, p.document(t, tree))) > 0 {
				return
			}
			back, err := schema.DecodeCanonical(p.kind, object.Meta(), schema.Canonical(object))
			require.NoError(t, err)
			if reflect.DeepEqual(object, back) {
				seen[f.Type().String()+" "+name] = true
			}
		})
	}
	for _, p := range fieldPlaces() {
		object := decodeSpec(t, p.kind, decode(t, p.base))
		eachField(reflect.ValueOf(object).Elem(), p.path, func(name string, f reflect.Value) {
			if slices.Contains([]string{"Type", "ProtoFiles", "DescriptorSet", "IncludeDirs"}, name) {
				return // Type is the discriminator; files are compiled to Descriptors
			}
			require.True(t, seen[f.Type().String()+" "+name], "%s: Go field %s %s is in no schema, or is not written and read", p.kind, name, f.Type())
		})
	}
}

// eachField visits the fields that hold content: of the object, or of the part of it that the path leads to.
func eachField(v reflect.Value, path []string, visit func(name string, f reflect.Value)) {
	switch {
	case len(path) > 0 && path[0] == "tasks":
		v = v.FieldByName("Tasks").Index(0).Elem()
	case len(path) > 0:
		v = v.FieldByName(strings.ToUpper(path[0])).Elem()
	}
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		switch {
		case f.Type() == reflect.TypeFor[schema.Metadata](), f.Type() == reflect.TypeFor[*schema.HTTPTarget](), f.Type() == reflect.TypeFor[*schema.GRPCTarget]():
		case f.Type() == reflect.TypeFor[schema.RetryPolicy]():
			eachField(f, nil, visit)
		default:
			visit(name, f)
		}
	}
}

func setSample(t *testing.T, f reflect.Value, word any) bool {
	if word != nil {
		f.Set(reflect.ValueOf(word).Convert(f.Type()))
		return true
	}
	switch f.Interface().(type) {
	case bool:
		f.SetBool(!f.Bool())
	case int, int64:
		f.SetInt(2)
	case schema.Millis:
		f.SetInt(5000)
	case float64:
		f.SetFloat(3)
	case string, schema.TaskType:
		f.SetString("sample")
	case []string:
		f.Set(reflect.ValueOf([]string{"sample"}))
	case []byte:
		f.SetBytes([]byte{1, 2})
	case *int:
		n := 7
		f.Set(reflect.ValueOf(&n))
	default:
		require.Failf(t, "no sample", "%s", f.Type())
	}
	return true
}

// Our own schemas use only keywords that the validator understands, close every map of fields and describe every property.
func TestOwnSchemasAreClean(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"$schema", "$defs", "$ref", "title", "description", "default", "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "required", "additionalProperties", "properties",
		"propertyNames", "items", "dependentRequired", "oneOf", "anyOf", "allOf", "not", "if", "then",
	}
	all := load(t)
	for file, doc := range all {
		var walk func(at string, node map[string]any)
		walk = func(at string, node map[string]any) {
			for _, keyword := range slices.Sorted(maps.Keys(node)) {
				require.Contains(t, allowed, keyword, "%s %s", file, at)
				switch in := node[keyword].(type) {
				case map[string]any:
					switch keyword {
					case "properties", "$defs":
						for key, child := range in {
							walk(at+"/"+keyword+"/"+key, child.(map[string]any))
						}
					case "dependentRequired", "default", "const":
					default:
						walk(at+"/"+keyword, in)
					}
				case []any:
					if slices.Contains([]string{"oneOf", "anyOf", "allOf"}, keyword) {
						for i, child := range in {
							walk(fmt.Sprintf("%s/%s/%d", at, keyword, i), child.(map[string]any))
						}
					}
				}
			}
			properties, ok := node["properties"].(map[string]any)
			if !ok || strings.Contains(at, "/if") || strings.Contains(at, "/then") || at == "/$defs/task" {
				return
			}
			require.Equal(t, false, node["additionalProperties"], "%s %s is not closed", file, at)
			for key, raw := range properties {
				if key == "secretRef" {
					continue
				}
				require.NotEmpty(t, all.resolved(file, raw)["description"], "%s %s/%s has no description", file, at, key)
			}
		}
		walk("", doc)
	}
}
