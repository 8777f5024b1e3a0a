package schema_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/jsontext"
)

// Digests of the fixtures are golden for ever: databases hold revisions by them. A new field gets a default that is the old
// behaviour; new fixtures may be added, none of the golden files may change.
func TestDigestsAreGoldenForEver(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/canonical/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		fixture, err := jsontext.DecodeObject(text, jsontext.Limits{})
		require.NoError(t, err, file)
		kind, _ := fixture["kind"].(string)
		namespace, _ := fixture["namespace"].(string)
		spec, _ := fixture["spec"].(map[string]any)
		o, err := schema.Decode(schema.Kind(kind), schema.Metadata{Name: "x", Namespace: namespace}, spec)
		require.NoError(t, err, file)
		if encoded, ok := fixture["descriptors"].(string); ok {
			o.(*schema.Target).GRPC.Descriptors, err = base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)
		}
		got := string(schema.Canonical(o)) + "\n" + schema.DigestOf(o).String() + "\n"
		golden := strings.TrimSuffix(file, ".json") + ".golden"
		want, err := os.ReadFile(golden)
		require.NoError(t, err, "%s is missing; it should hold:\n%s", golden, got)
		require.Equal(t, string(want), got, file)

		back, err := schema.DecodeCanonical(schema.Kind(kind), o.Meta(), schema.Canonical(o))
		require.NoError(t, err)
		require.Equal(t, schema.DigestOf(o), schema.DigestOf(back), file)
		require.Equal(t, schema.DigestOf(o), schema.DigestCanonical(schema.Kind(kind), schema.Canonical(o)))
		again, err := schema.Decode(schema.Kind(kind), o.Meta(), roundTrip(t, schema.Tree(o)))
		if kind != string(schema.KindTarget) || fixture["descriptors"] == nil {
			require.NoError(t, err, file)
			require.Equal(t, schema.DigestOf(o), schema.DigestOf(again), file)
		}
	}
}

func roundTrip(t *testing.T, v map[string]any) map[string]any {
	text, err := jsontext.Encode(v)
	require.NoError(t, err)
	return tree(t, string(text))
}
