package spec_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/schema"
)

// The effective form of any valid object of any kind, every default written out, is valid itself and is the same object. Fields that exclude
// each other are why this needs combinations: the default of one may not stand beside another.
func TestEffectiveFormIsValidAndTheSameObject(t *testing.T) {
	t.Parallel()
	v, all, places := compile(t), load(t), fieldPlaces()
	for _, p := range places {
		file := string(p.kind) + ".schema.json"
		properties, _ := all.at(file, "$defs", p.def)["properties"].(map[string]any)
		values := map[string]any{}
		for key, raw := range properties {
			node := all.resolved(file, raw)
			if node["const"] != nil || key == "inputParameters" && node["additionalProperties"] == false {
				continue
			}
			if value := sample(t, key, node); value != nil {
				values[key] = value
			}
		}
		rapid.Check(t, func(rt *rapid.T) {
			doc := decode(rt, p.base)
			if len(values) > 0 {
				for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(values))), rapid.ID).Draw(rt, "fields of "+p.def) {
					if with := set(doc, p.path, key, values[key]); len(v.Validate(p.kind, p.document(t, with))) == 0 {
						doc = with
					}
				}
			}
			o := decodeSpec(t, p.kind, doc)
			full := decode(rt, encode(t, schema.Tree(o)))
			if grpc, ok := get(full, nil, "grpc"); ok { // compiled content stands in place of the file names
				delete(grpc.(map[string]any), "descriptors")
				grpc.(map[string]any)["protoFiles"] = []any{"x"}
			}
			require.Empty(rt, v.Validate(p.kind, p.document(t, full)), "%s", encode(t, full))
			require.Equal(rt, string(schema.Canonical(o)), string(schema.Canonical(decodeSpec(t, p.kind, full))))
		})
	}
}
