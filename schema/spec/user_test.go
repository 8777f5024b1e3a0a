package spec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/schema/jsontext"
	"nf/schema/spec"
)

func TestCompileUserRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, pointer, message string }{
		"no schema":            {`[]`, "", "not a list"},
		"text":                 {`"x"`, "", "not text"},
		"outside":              {`{"$ref": "https://example.com/x"}`, "/$ref", "leads outside"},
		"file":                 {`{"properties": {"a": {"$ref": "file:///etc/passwd"}}}`, "/properties/a/$ref", "leads outside"},
		"relative":             {`{"$ref": "other.json"}`, "/$ref", "leads outside"},
		"meta-schema":          {`{"$ref": "https://json-schema.org/draft/2020-12/schema"}`, "/$ref", "leads outside"},
		"dynamic outside":      {`{"$dynamicRef": "x#y"}`, "/$dynamicRef", "leads outside"},
		"reference is no text": {`{"$ref": 1}`, "/$ref", "leads outside"},
		"names nothing":        {`{"$ref": "#/$defs/x"}`, "/$ref", "names nothing"},
		"no anchor":            {`{"$ref": "#x"}`, "/$ref", "names nothing"},
		"other draft":          {`{"$schema": "http://json-schema.org/draft-07/schema#"}`, "/$schema", "2020-12"},
		"nested id":            {`{"properties": {"a": {"$id": "x"}}}`, "/properties/a/$id", "root"},
		"nested schema":        {`{"properties": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}}`, "/properties/a/$schema", "root"},
		"misspelt keyword":     {`{"tpye": "object"}`, "/tpye", `did you mean "type"?`},
		"misspelt required":    {`{"items": {"requierd": []}}`, "/items/requierd", `did you mean "required"?`},
		"unknown type":         {`{"type": "strng"}`, "/type", "no valid JSON Schema"},
		"required is no list":  {`{"required": "a"}`, "/required", "no valid JSON Schema"},
		"list of items":        {`{"items": [{}]}`, "/items", "not a list"},
		"properties no map":    {`{"properties": []}`, "/properties", "no valid JSON Schema"},
		"look-ahead":           {`{"pattern": "(?=a)"}`, "/pattern", "RE2"},
		"pattern of keys":      {`{"patternProperties": {"(": {}}}`, "/patternProperties", "RE2"},
		"applies itself":       {`{"$ref": "#"}`, "", "without end"},
		"apply each other":     {`{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}`, "/$defs/a", "without end"},
		"huge number":          {`{"minimum": 1e401}`, "", ""},
		"vocabulary":           {`{"$vocabulary": {"https://x": true}}`, "/$vocabulary", "meta-schema"},
	} {
		var doc any
		if name == "huge number" {
			doc = map[string]any{"minimum": json.Number("1e401")}
			c.pointer, c.message = "/minimum", "exponent"
		} else {
			doc = decode(t, c.schema)
		}
		_, err := spec.CompileUser(doc)
		var refused *spec.SchemaError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, c.pointer, refused.Pointer, name)
		require.Contains(t, refused.Message, c.message, name)
	}
}

// Nothing outside is ever read, whatever a schema names: a file that exists makes no difference.
func TestCompileUserReadsNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"type": "string"}`), 0o600))
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		for _, target := range []string{"file://" + file, file} {
			_, err := spec.CompileUser(map[string]any{keyword: target})
			require.ErrorContains(t, err, "leads outside")
		}
	}
	// An $id changes nothing about where references lead.
	s, err := spec.CompileUser(decode(t, `{"$id": "file://`+file+`", "$defs": {"n": {"type": "number"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}`))
	require.NoError(t, err)
	require.Error(t, s.Check(decode(t, `{"a": "x"}`)))
}

func TestUserSchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema, value string
		want          []spec.Problem // nil = matches
	}{
		{`true`, `null`, nil},
		{`false`, `1`, []spec.Problem{{"", "is not allowed"}}},
		{`{}`, `{"a": 1}`, nil},
		{`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/order", "type": "object"}`, `[]`, []spec.Problem{{"", "must be object, not list"}}},
		{`{"type": "integer"}`, `1.0`, nil},
		{`{"type": "integer"}`, `9007199254740993`, nil},
		{`{"const": 9007199254740993}`, `9007199254740992`, []spec.Problem{{"", "must be 9007199254740993"}}},
		{`{"type": "integer"}`, `1.5`, []spec.Problem{{"", "must be integer, not number"}}},
		{`{"type": ["string", "null"]}`, `1`, []spec.Problem{{"", "must be text or null, not number"}}},
		{`{"required": ["b", "a"], "additionalProperties": false, "properties": {"c": {}}}`, `{"z": 1, "y": 2}`, []spec.Problem{{"", `has unknown keys: "y", "z"`}, {"", `lacks "b", "a"`}}},
		{`{"properties": {"a/b": {"type": "string"}}}`, `{"a/b": 1}`, []spec.Problem{{"/a~1b", "must be text, not number"}}},
		{`{"format": "date-time"}`, `"yesterday"`, []spec.Problem{{"", `does not match format "date-time"`}}},
		{`{"format": "date-time"}`, `"2024-02-29T12:00:00Z"`, nil},
		{`{"format": "our-own"}`, `"x"`, nil},
		{`{"enum": ["a", 1]}`, `"b"`, []spec.Problem{{"", `must be one of ["a",1]`}}},
		{`{"minimum": 3}`, `2`, []spec.Problem{{"", "must be at least 3"}}},
		{`{"multipleOf": 0.01}`, `0.07`, nil},
		{`{"multipleOf": 0.01}`, `0.075`, []spec.Problem{{"", "must be a multiple of 0.01"}}},
		{`{"maxLength": 1e300}`, `"abc"`, nil},
		{`{"maxLength": 2}`, `"日本人"`, []spec.Problem{{"", "is too long: maxLength is 2"}}},
		{`{"uniqueItems": true}`, `[1, 1.0]`, []spec.Problem{{"", "has equal items"}}},
		{`{"anyOf": [{"type": "string"}, {"required": ["a"]}], "type": ["string", "object"]}`, `{}`, []spec.Problem{{"", "matches not any of the alternatives"}}},
		{`{"oneOf": [{}, true]}`, `1`, []spec.Problem{{"", "matches not exactly one of the alternatives"}}},
		{`{"not": {"type": "number"}}`, `1`, []spec.Problem{{"", "matches what it must not"}}},
		{`{"dependentRequired": {"a": ["b"]}}`, `{"a": 1}`, []spec.Problem{{"", `lacks a key that another one needs: dependentRequired is {"a":["b"]}`}}},
		{`{"contains": {"type": "number"}}`, `["a"]`, []spec.Problem{{"", "is too short: minContains is 1"}}},
		{`{"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "number"}}}`, `[1, "x"]`, []spec.Problem{{"/1", "must be number, not text"}}},
		{`{"items": {"$ref": "#n"}, "$defs": {"x": {"$anchor": "n", "type": "number"}}}`, `["x"]`, []spec.Problem{{"/0", "must be number, not text"}}},
		{`{"allOf": [{"type": "string"}, {"minLength": 2}]}`, `"a"`, []spec.Problem{{"", "is too short: minLength is 2"}}},
		{`{"if": {"properties": {"t": {"const": 1}}}, "then": {"required": ["a"]}}`, `{"t": 1}`, []spec.Problem{{"", `lacks "a"`}}},
		{`{"unevaluatedProperties": false, "allOf": [{"properties": {"a": {}}}]}`, `{"a": 1, "b": 2}`, []spec.Problem{{"/b", "is not allowed by unevaluatedProperties"}}},
		{`{"propertyNames": {"maxLength": 1}}`, `{"ab": 1}`, []spec.Problem{{"/ab", "is too long: maxLength is 1"}}},
		{`{"x-note": 1, "example": {}, "discriminator": {}}`, `1`, nil},
	} {
		s, err := spec.CompileUser(decode(t, c.schema))
		require.NoError(t, err, c.schema)
		err = s.Check(decode(t, c.value))
		if c.want == nil {
			require.NoError(t, err, c.schema)
			continue
		}
		var mismatch *spec.Mismatch
		require.ErrorAs(t, err, &mismatch, c.schema)
		require.Equal(t, c.want, mismatch.Problems, c.schema)
	}
}

func TestMismatchText(t *testing.T) {
	t.Parallel()
	s, err := spec.CompileUser(decode(t, `{"items": {"type": "number"}, "maxItems": 1}`))
	require.NoError(t, err)
	err = s.Check(decode(t, `["hunter2", "b", "c", "d", "e", "f", "g"]`))
	require.EqualError(t, err, "is too long: maxItems is 1; /0 must be number, not text; /1 must be number, not text; /2 must be number, not text; /3 must be number, not text (and 3 more)")
	require.NotContains(t, err.Error(), "hunter2") // values may be confidential
	for range 20 {
		require.Equal(t, err, s.Check(decode(t, `["hunter2", "b", "c", "d", "e", "f", "g"]`)))
	}
}

// The library panics about these; a check never does.
func TestCheckNeverPanics(t *testing.T) {
	t.Parallel()
	s, err := spec.CompileUser(decode(t, `{"properties": {"n": {"type": "integer", "minimum": 1, "multipleOf": 0.1, "enum": [1, 2]}}, "uniqueItems": true}`))
	require.NoError(t, err)
	for _, n := range []string{"NaN", "Infinity", "1e2000000", "1e-2000000", "", "abc"} {
		require.Error(t, s.Check(map[string]any{"n": json.Number(n)}))
		require.Error(t, s.Check([]any{json.Number(n), json.Number(n)}))
	}
	require.ErrorContains(t, s.Check(map[string]any{"t": time.Time{}}), "not JSON")
	require.ErrorContains(t, s.Check(map[any]any{}), "not JSON")
	var deep any = "x"
	for range 300 {
		deep = []any{deep}
	}
	require.ErrorIs(t, s.Check(deep), jsontext.ErrTooDeep)
}

func TestSchemaBounds(t *testing.T) {
	t.Parallel()
	large := map[string]any{"description": strings.Repeat("x", 64<<10)}
	_, err := spec.CompileUser(large)
	require.ErrorContains(t, err, "larger than 65536 bytes")

	properties := map[string]any{}
	for i := range 999 {
		properties[fmt.Sprintf("p%d", i)] = true
	}
	_, err = spec.CompileUser(map[string]any{"properties": properties})
	require.NoError(t, err)
	properties["one more"] = true
	_, err = spec.CompileUser(map[string]any{"properties": properties})
	require.ErrorContains(t, err, "more than 1000 subschemas")

	// Paired references unfold to 2^n at one value: 12 levels are 8,191 schemas, 13 are over the limit.
	for levels, fine := range map[int]bool{12: true, 13: false, 18: false, 60: false} {
		defs := map[string]any{"l1": map[string]any{"type": "string"}}
		for i := 2; i <= levels; i++ {
			ref := map[string]any{"$ref": fmt.Sprintf("#/$defs/l%d", i-1)}
			defs[fmt.Sprintf("l%d", i)] = map[string]any{"allOf": []any{ref, ref}}
		}
		start := time.Now()
		_, err = spec.CompileUser(map[string]any{"$defs": defs})
		if fine {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "meet at one value", levels)
		}
		require.Less(t, time.Since(start), 10*time.Second)
	}
}

// A recursive schema that reaches itself twice is fine for small values, and refused instead of checked for one that would take
// 2^200 steps.
func TestRecursionTwice(t *testing.T) {
	t.Parallel()
	s, err := spec.CompileUser(decode(t, `{"anyOf": [
		{"required": ["add"], "properties": {"add": {"$ref": "#"}}}, {"required": ["add", "x"], "properties": {"add": {"$ref": "#"}}}, {"type": "number"}]}`))
	require.NoError(t, err)
	var value any = json.Number("1")
	for range 10 {
		value = map[string]any{"add": value}
	}
	require.NoError(t, s.Check(value))
	for range 200 {
		value = map[string]any{"add": value}
	}
	start := time.Now()
	require.ErrorIs(t, s.Check(value), spec.ErrTooCostly)
	require.Less(t, time.Since(start), 10*time.Second)

	tree, err := spec.CompileUser(decode(t, `{"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "number"}}, "additionalProperties": false}`))
	require.NoError(t, err)
	value = map[string]any{}
	for range 12 {
		value = map[string]any{"left": value, "right": value, "value": json.Number("1")}
	}
	require.NoError(t, tree.Check(value))
}

// The count before a check is what a check does: it never lets through what it should not.
func TestLargeValueOfSimpleSchema(t *testing.T) {
	t.Parallel()
	s, err := spec.CompileUser(decode(t, `{"items": {"type": "number"}}`))
	require.NoError(t, err)
	list := make([]any, 300_000)
	for i := range list {
		list[i] = json.Number("1")
	}
	require.NoError(t, s.Check(list))
}

func FuzzCompileUser(f *testing.F) {
	for _, seed := range []string{
		`{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1]}}}`, `{"allOf": [{"$ref": "#/x"}], "x": {"not": {}}}`,
		`{"$ref": "#/%24defs/a~1b", "$defs": {"a/b": true}}`, `{"pattern": "(a|b)+", "format": "regex"}`, `{"dependencies": {"a": ["b"], "c": {}}}`, `{"maxLength": 1e300}`,
		`{"regexProperties": 1}`, `{"contains": true, "minContains": 0}`, `{"$recursiveRef": "#"}`, `{"if": null}`,
	} {
		f.Add([]byte(seed), []byte(`{"a": [1, "x", {"b": null}], "c": 1.5}`))
	}
	f.Fuzz(func(t *testing.T, schemaText, valueText []byte) {
		doc, err := jsontext.Decode(schemaText, jsontext.Limits{})
		if err != nil {
			return
		}
		value, err := jsontext.Decode(valueText, jsontext.Limits{})
		if err != nil {
			return
		}
		s, err := spec.CompileUser(doc)
		if err != nil {
			var refused *spec.SchemaError
			require.ErrorAs(t, err, &refused)
			return
		}
		if err := s.Check(value); err != nil {
			var mismatch *spec.Mismatch
			require.True(t, errors.As(err, &mismatch) || errors.Is(err, spec.ErrTooCostly), "%v", err)
		}
	})
}
