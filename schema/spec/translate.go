package spec

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// translator turns the library's error tree into findings. It relies on where a keyword stands and on the value it judged, never
// on the library's wording or order.
type translator struct {
	docs     map[string]any
	kind     schema.Kind
	root     any
	findings diag.List
	skipped  map[string]bool
}

// fault is one keyword that a value does not satisfy.
type fault struct {
	keyword string
	tokens  []string       // of the schema that holds the keyword, from its document
	node    map[string]any // that schema
	def     string         // its name if it stands right under $defs
	pointer string         // of the value
	value   any
	causes  []*jsonschema.ValidationError
}

func (t *translator) walk(e *jsonschema.ValidationError) {
	f, ok := t.fault(e)
	if !ok {
		for _, cause := range e.Causes {
			t.walk(cause)
		}
		return
	}
	if t.skipped[f.pointer] {
		return
	}
	t.judge(f)
}

// fault reads what an error is about, false for one that only wraps others.
func (t *translator) fault(e *jsonschema.ValidationError) (fault, bool) {
	document, fragment, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	tokens := fragmentTokens(fragment)
	if e.Message == "" || len(tokens) == 0 {
		return fault{}, false
	}
	last := len(tokens) - 1
	f := fault{keyword: tokens[last], pointer: instancePointer(e.InstanceLocation), causes: e.Causes}
	switch {
	case last >= 1 && isIndex(tokens[last]) && tokens[last-1] == "allOf":
		return fault{}, false
	case last >= 2 && isIndex(tokens[last]) && tokens[last-2] == "dependentRequired":
		f.keyword, last = "dependentRequired", last-2
	case slices.Contains([]string{"$ref", "then", "else"}, f.keyword) && len(e.Causes) > 0:
		return fault{}, false
	}
	f.tokens = tokens[:last]
	node, ok := lookup(t.docs[document], f.tokens)
	if f.node, _ = node.(map[string]any); !ok || f.node == nil {
		return fault{}, false
	}
	if n := len(f.tokens); n >= 2 && f.tokens[n-2] == "$defs" {
		f.def = f.tokens[n-1]
	}
	f.value, _ = lookup(t.root, plainTokens(f.pointer))
	return f, true
}

func isIndex(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// instancePointer undoes the library's escaping of pointers for URLs.
func instancePointer(location string) string {
	tokens := strings.Split(location, "/")
	for i, token := range tokens {
		if plain, err := url.PathUnescape(token); err == nil {
			tokens[i] = plain
		}
	}
	return strings.Join(tokens, "/")
}

// fragmentTokens gives the tokens of a JSON Pointer that stands in a URL.
func fragmentTokens(fragment string) []string {
	if fragment == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(fragment, "/"), "/")
	for i, token := range tokens {
		if plain, err := url.PathUnescape(token); err == nil {
			token = plain
		}
		tokens[i] = unescaper.Replace(token)
	}
	return tokens
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// plainTokens gives the tokens of a JSON Pointer.
func plainTokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, token := range tokens {
		tokens[i] = unescaper.Replace(token)
	}
	return tokens
}

func lookup(v any, tokens []string) (any, bool) {
	for _, token := range tokens {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[token]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// resolve follows a $ref of our own schemas.
func (t *translator) resolve(v any) map[string]any {
	node, _ := v.(map[string]any)
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	file, fragment, _ := strings.Cut(ref, "#")
	document := t.docs[base+file]
	if file == "" {
		document = t.docs[base+string(t.kind)+suffix]
	}
	target, _ := lookup(document, plainTokens(fragment))
	resolved, _ := target.(map[string]any)
	return resolved
}

// name is the last step of a pointer, quoted: what people call the value.
func name(pointer string) string {
	tokens := plainTokens(pointer)
	if len(tokens) == 0 {
		return "the document"
	}
	last := tokens[len(tokens)-1]
	if isIndex(last) && len(tokens) > 1 {
		return fmt.Sprintf("item %s of %q", last, tokens[len(tokens)-2])
	}
	return strconv.Quote(last)
}

// show writes a value for a message, shortened.
func show(v any) string {
	text, err := jsontext.Encode(v)
	if err != nil {
		return fmt.Sprintf("of type %T", v)
	}
	const longest = 60
	if len(text) > longest {
		return strings.ToValidUTF8(string(text[:longest]), "") + "…"
	}
	return string(text)
}

func article(typeName string) string {
	switch typeName {
	case "text", "null":
		return typeName
	case "object":
		return "a map"
	case "integer":
		return "a whole number"
	}
	return "a " + typeName
}

// schemaTypes gives the types that a schema wants, in nf's words.
func schemaTypes(node map[string]any) []string {
	var names []string
	switch types := node["type"].(type) {
	case string:
		names = []string{typeWord(types)}
	case []any:
		for _, item := range types {
			s, _ := item.(string)
			names = append(names, typeWord(s))
		}
	default:
		if list, ok := node["enum"].([]any); ok && len(list) > 0 {
			return []string{jsontext.TypeName(list[0])}
		}
		if c, ok := node["const"]; ok {
			return []string{jsontext.TypeName(c)}
		}
	}
	return names
}

func typeWord(jsonType string) string {
	switch jsonType {
	case "string":
		return "text"
	case "array":
		return "list"
	}
	return jsonType
}

// accepts says whether a value has one of the types that a schema wants.
func accepts(node map[string]any, v any) bool {
	wanted := schemaTypes(node)
	if len(wanted) == 0 {
		return true
	}
	is := jsontext.TypeName(v)
	if slices.Contains(wanted, is) {
		return true
	}
	n, isNumber := v.(json.Number)
	return isNumber && slices.Contains(wanted, "integer") && strings.TrimLeft(string(jsontext.CanonicalNumber(n)), "-0123456789") == ""
}
