package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"nf/schema/diag"
	"nf/schema/jsontext"
)

// Limits of an embedded JSON Schema (contract 7.1).
const (
	MaxSchemaBytes = 64 << 10
	MaxSubschemas  = 1_000
	MaxUnfolding   = 10_000 // schemas that meet at one value
)

// MaxSteps bounds one Check: how often some schema may be applied to some value.
const MaxSteps = 20_000_000

const draft = "https://json-schema.org/draft/2020-12/schema"

// UserSchema is a compiled inputSchema or outputSchema. It is immutable and safe for concurrent use.
type UserSchema struct {
	compiled *jsonschema.Schema
	graph    *graph
	doc      any
}

// SchemaError is why an embedded JSON Schema was refused.
type SchemaError struct {
	Pointer string // into the schema
	Message string
}

// Error implements error.
func (e *SchemaError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return "at " + e.Pointer + ": " + e.Message
}

// CompileUser compiles a JSON Schema 2020-12 that an author embedded, as decoded with json.Number. It reads nothing but the
// document: a reference to anything outside is an error, as is a schema over the limits, an expression that Go cannot match, a
// keyword that is misspelt, and a schema that refers to itself at one value. Every error is a *SchemaError. It never panics.
func CompileUser(doc any) (*UserSchema, error) {
	size, err := jsontext.Measure(doc, MaxSchemaBytes, jsontext.MaxDepth)
	switch {
	case errors.Is(err, jsontext.ErrTooLarge):
		return nil, &SchemaError{Message: fmt.Sprintf("schema is larger than %d bytes", MaxSchemaBytes)}
	case err != nil:
		return nil, &SchemaError{Message: err.Error()}
	}
	text, err := jsontext.Append(make([]byte, 0, size), doc)
	if err != nil {
		return nil, &SchemaError{Message: err.Error()}
	}
	own, err := jsontext.Decode(text, jsontext.Limits{}) // a copy of our own, with numbers and texts checked
	if err != nil {
		return nil, decodeError(err)
	}
	g, err := newGraph(own)
	if err != nil {
		return nil, err
	}
	if root, ok := own.(map[string]any); ok {
		delete(root, "$id") // references are to the schema itself, whatever it is called
		delete(root, "$schema")
	}
	compiled, err := compileOwn(own)
	if err != nil {
		return nil, err
	}
	return &UserSchema{compiled: compiled, graph: g, doc: own}, nil
}

func decodeError(err error) error {
	if problem, ok := errors.AsType[*jsontext.Error](err); ok {
		return &SchemaError{Pointer: problem.Pointer, Message: problem.Message}
	}
	return &SchemaError{Message: err.Error()}
}

const userURL = base + "user.json"

func compileOwn(doc any) (compiled *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, &SchemaError{Message: fmt.Sprintf("schema cannot be compiled: %v", r)}
		}
	}()
	text, err := jsontext.Encode(doc)
	if err != nil {
		return nil, &SchemaError{Message: err.Error()}
	}
	c := newCompiler()
	if err := c.AddResource(userURL, bytes.NewReader(text)); err != nil {
		return nil, compileError(err)
	}
	compiled, err = c.Compile(userURL)
	if err != nil {
		return nil, compileError(err)
	}
	return compiled, nil
}

// compileError words an error of the library. One against the meta-schema becomes its deepest fault, in a fixed order.
func compileError(err error) error {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		var outer *jsonschema.SchemaError
		if errors.As(err, &outer) && outer.Err != nil {
			err = outer.Err
		}
		return &SchemaError{Message: strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jsonschema: "), userURL, "")}
	}
	var faults []Problem
	leaves(invalid, func(e *jsonschema.ValidationError) {
		faults = append(faults, Problem{Pointer: instancePointer(e.InstanceLocation), Message: e.Message})
	})
	slices.SortFunc(faults, Problem.compare)
	best := faults[0]
	for _, f := range faults {
		if strings.Count(f.Pointer, "/") > strings.Count(best.Pointer, "/") {
			best = f
		}
	}
	return &SchemaError{Pointer: best.Pointer, Message: "is no valid JSON Schema: " + best.Message}
}

func leaves(e *jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		visit(e)
		return
	}
	for _, cause := range e.Causes {
		leaves(cause, visit)
	}
}

// Problem is one place where a value does not match a schema. Messages never repeat the value: it may be confidential.
type Problem struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

func (p Problem) compare(q Problem) int {
	if c := strings.Compare(p.Pointer, q.Pointer); c != 0 {
		return c
	}
	return strings.Compare(p.Message, q.Message)
}

// Mismatch says how a value does not match a schema. Problems are sorted, without repeats, and at most 50.
type Mismatch struct {
	Problems []Problem
}

// Error names the first few problems.
func (m *Mismatch) Error() string {
	const shown = 5
	var b strings.Builder
	for i, p := range m.Problems {
		if i == shown {
			fmt.Fprintf(&b, " (and %d more)", len(m.Problems)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		if p.Pointer != "" {
			b.WriteString(p.Pointer + " ")
		}
		b.WriteString(p.Message)
	}
	return b.String()
}

const maxProblems = 50

// ErrTooCostly says that checking a value would take more than MaxSteps.
var ErrTooCostly = errors.New("value is too large for its schema: the check would take too long")

// Check says how a value, as decoded with json.Number, does not match the schema: a *Mismatch, or ErrTooCostly, or another
// error for what is not JSON. It never panics, and its cost is bounded.
func (s *UserSchema) Check(v any) error {
	nodes, err := s.inspect(v, 0)
	if err != nil {
		return err
	}
	if nodes > MaxSteps/max(1, s.graph.widest) && s.graph.cost(v, MaxSteps) > MaxSteps {
		return ErrTooCostly
	}
	err = protected(s.compiled, v)
	var invalid *jsonschema.ValidationError
	if err == nil || !errors.As(err, &invalid) {
		return err
	}
	var problems []Problem
	s.collect(invalid, v, &problems)
	slices.SortFunc(problems, Problem.compare)
	problems = slices.Compact(problems)
	if len(problems) > maxProblems {
		problems = problems[:maxProblems]
	}
	return &Mismatch{Problems: problems}
}

// inspect counts the values and refuses what the library cannot be given.
func (s *UserSchema) inspect(v any, depth int) (int, error) {
	if depth > jsontext.MaxDepth {
		return 0, jsontext.ErrTooDeep
	}
	count := 1
	switch v := v.(type) {
	case nil, bool, string:
	case json.Number:
		if jsontext.CheckNumber(string(v), jsontext.Limits{}) != 0 {
			return 0, &Mismatch{Problems: []Problem{{Message: "holds a number beyond what nf computes with"}}}
		}
	case []any:
		for _, item := range v {
			n, err := s.inspect(item, depth+1)
			if err != nil {
				return 0, err
			}
			count += n
		}
	case map[string]any:
		for _, item := range v {
			n, err := s.inspect(item, depth+1)
			if err != nil {
				return 0, err
			}
			count += n
		}
	default:
		return 0, fmt.Errorf("value of type %T is not JSON", v)
	}
	return count, nil
}

func (s *UserSchema) collect(e *jsonschema.ValidationError, root any, out *[]Problem) {
	_, fragment, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	tokens := fragmentTokens(fragment)
	last := len(tokens) - 1
	if len(e.Causes) > 0 && (last < 0 || !slices.Contains([]string{"anyOf", "oneOf", "minContains"}, tokens[last])) {
		for _, cause := range e.Causes {
			s.collect(cause, root, out)
		}
		return
	}
	pointer := instancePointer(e.InstanceLocation)
	value, _ := lookup(root, plainTokens(pointer))
	keyword := ""
	if last >= 0 {
		keyword = tokens[last]
		if isIndex(keyword) && last >= 2 && (tokens[last-2] == "dependentRequired" || tokens[last-2] == "dependencies") {
			keyword, last = "dependentRequired", last-2
		}
		tokens = tokens[:last]
	}
	node, _ := lookup(s.doc, tokens)
	object, _ := node.(map[string]any)
	*out = append(*out, Problem{Pointer: pointer, Message: s.message(keyword, object, value)})
}

// message words a problem from what the schema says. The library's own words name values and come in random order.
func (s *UserSchema) message(keyword string, node map[string]any, value any) string {
	limit := show(node[keyword])
	if _, ok := node[keyword]; !ok && keyword == "minContains" {
		limit = "1"
	}
	object, _ := value.(map[string]any)
	switch keyword {
	case "type":
		return "must be " + strings.Join(schemaTypes(node), " or ") + ", not " + jsontext.TypeName(value)
	case "required":
		var missing []string
		for _, key := range texts(node["required"]) {
			if _, ok := object[key]; !ok {
				missing = append(missing, strconv.Quote(key))
			}
		}
		return "lacks " + strings.Join(missing, ", ")
	case "additionalProperties":
		return "has unknown keys: " + strings.Join(unknownProperties(node, object), ", ")
	case "enum", "const":
		return "must be " + map[string]string{"enum": "one of ", "const": ""}[keyword] + limit
	case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf":
		return map[string]string{
			"minimum": "must be at least ", "exclusiveMinimum": "must be more than ", "maximum": "must be at most ",
			"exclusiveMaximum": "must be less than ", "multipleOf": "must be a multiple of ",
		}[keyword] + limit
	case "minLength", "minItems", "minProperties", "minContains":
		return "is too short: " + keyword + " is " + limit
	case "maxLength", "maxItems", "maxProperties", "maxContains":
		return "is too long: " + keyword + " is " + limit
	case "pattern", "format":
		return "does not match " + keyword + " " + limit
	case "uniqueItems":
		return "has equal items"
	case "dependentRequired":
		return "lacks a key that another one needs: dependentRequired is " + limit
	case "anyOf", "oneOf":
		return "matches not " + map[string]string{"anyOf": "any", "oneOf": "exactly one"}[keyword] + " of the alternatives"
	case "not":
		return "matches what it must not"
	case "":
		return "is not allowed"
	}
	return "is not allowed by " + keyword
}

func unknownProperties(node, object map[string]any) []string {
	properties, _ := node["properties"].(map[string]any)
	patterns, _ := node["patternProperties"].(map[string]any)
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		_, known := properties[key]
		for pattern := range patterns {
			if re, err := regexp.Compile(pattern); err == nil && re.MatchString(key) {
				known = true
			}
		}
		if !known {
			unknown = append(unknown, strconv.Quote(key))
		}
	}
	const shown = 10
	if len(unknown) > shown {
		unknown = append(unknown[:shown], "…")
	}
	return unknown
}

// misspelt tells what a keyword that JSON Schema does not have was probably meant to be, "" for a keyword of somebody else's
// vocabulary. The standard has readers skip what they do not know, which hides a misspelt `required` for ever.
func misspelt(keyword string) string {
	if strings.HasPrefix(keyword, "x-") || slices.Contains(foreignKeywords, keyword) {
		return ""
	}
	near := diag.Nearest(keyword, keywords)
	if len(near) == 0 {
		return ""
	}
	return near[0]
}

// foreignKeywords are in wide use and harmless, though near to real ones.
var foreignKeywords = []string{"example", "definitions", "id", "name", "xml", "discriminator", "externalDocs", "unit", "units", "label", "notes", "tags", "order"}

// keywords are those of JSON Schema 2020-12.
var keywords = []string{
	"$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary", "additionalProperties", "allOf", "anyOf",
	"const", "contains", "contentEncoding", "contentMediaType", "contentSchema", "default", "dependencies", "dependentRequired", "dependentSchemas",
	"deprecated", "description", "else", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems",
	"maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
	"patternProperties", "prefixItems", "properties", "propertyNames", "readOnly", "required", "then", "title", "type", "unevaluatedItems",
	"unevaluatedProperties", "uniqueItems", "writeOnly",
}
