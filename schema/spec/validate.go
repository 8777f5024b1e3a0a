package spec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// maxText is the longest text of a manifest in bytes (contract 7.2).
const maxText = 1 << 20

// Check finds the kind of a document and validates it.
func (v *Validator) Check(document any) (schema.Kind, diag.List) {
	kind, list := v.Kind(document)
	if len(list) > 0 {
		return "", list
	}
	return kind, v.Validate(kind, document)
}

// Validate checks a whole document, envelope included, as decoded with json.Number. The document is not changed. Findings are in
// a fixed order and carry pointers only. Validate never panics, whatever the document holds.
func (v *Validator) Validate(kind schema.Kind, document any) diag.List {
	compiled, ok := v.kinds[kind]
	if !ok {
		return diag.List{unknownKind(string(kind))}
	}
	t := translator{docs: v.docs, kind: kind, root: document}
	safe, ok := t.guard(document, "", 0)
	if !ok {
		return t.findings
	}
	if err := protected(compiled, safe); err != nil {
		t.translate(err)
	}
	for _, d := range rules(kind, safe) { // these say better what a schema said about the same place
		t.findings = slices.DeleteFunc(t.findings, func(e diag.Diagnostic) bool { return e.Code == d.Code && e.Pointer == d.Pointer })
		t.findings = append(t.findings, d)
	}
	slices.SortStableFunc(t.findings, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return t.findings.Compact()
}

// protected runs the library so that what it panics about is an error.
func protected(s *jsonschema.Schema, value any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("checking the value ended abnormally: %v", r)
		}
	}()
	return s.Validate(value)
}

// guard finds what the library cannot be given: numbers beyond the limits and values that are not JSON. It answers a tree in which
// they are replaced, so that everything else is checked too; false if there is nothing left to check.
func (t *translator) guard(v any, pointer string, depth int) (any, bool) {
	if depth > jsontext.MaxDepth {
		t.add(diag.Newf("NF1013", pointer, "nested deeper than %d levels", jsontext.MaxDepth))
		return nil, false
	}
	switch v := v.(type) {
	case nil, bool:
		return v, true
	case string:
		if len(v) > maxText {
			t.add(diag.Newf("NF2104", pointer, "text of %d bytes is over the limit of %d", len(v), maxText))
		}
		return v, true
	case json.Number:
		if jsontext.CheckNumber(string(v), jsontext.Limits{}) != 0 {
			t.add(diag.Newf("NF2104", pointer, "number is beyond what nf computes with: at most %d characters, exponent within ±%d", jsontext.MaxNumberLength, jsontext.MaxExponent))
			t.skip(pointer)
			return json.Number("1"), true
		}
		return v, true
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var ok bool
			if out[i], ok = t.guard(item, pointer+"/"+strconv.Itoa(i), depth+1); !ok {
				return nil, false
			}
		}
		return out, true
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			var ok bool
			if out[key], ok = t.guard(v[key], pointer+"/"+jsontext.EscapePointer(key), depth+1); !ok {
				return nil, false
			}
		}
		return out, true
	}
	t.add(diag.Newf("NF2103", pointer, "value of type %T is not JSON", v))
	return nil, false
}

func (t *translator) add(d diag.Diagnostic) { t.findings = append(t.findings, d) }

// skip drops what the library finds at a pointer whose value was replaced.
func (t *translator) skip(pointer string) {
	if t.skipped == nil {
		t.skipped = map[string]bool{}
	}
	t.skipped[pointer] = true
}

// translate turns an error of the library into findings.
func (t *translator) translate(err error) {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		t.add(diag.New("NF2103", "", err.Error()))
		return
	}
	t.walk(invalid)
}
