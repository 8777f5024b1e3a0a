package loader_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/loader"
	"nf/loader/snapshot"
	"nf/schema/diag"
)

// FuzzLoad holds what no manifest may break: no panic, every finding has a place inside its file, what comes out without
// errors is a set that plans and reads back.
func FuzzLoad(f *testing.F) {
	add := func(paths ...string) {
		for _, p := range paths {
			if strings.HasSuffix(p, ".yaml") {
				text, err := os.ReadFile(p)
				require.NoError(f, err)
				f.Add(string(text))
			}
		}
	}
	for _, pattern := range []string{"testdata/good/*/*.yaml", "testdata/good/*/*/*/*.yaml", "testdata/good/*/*/*/*/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(f, err)
		add(paths...)
	}
	for _, name := range fixtures(f, "bad") {
		text, err := os.ReadFile(filepath.Join("testdata", "bad", name+".txtar"))
		require.NoError(f, err)
		_, first, _ := strings.Cut(string(text), "yaml --\n")
		f.Add(first)
	}
	v := validator(f)
	f.Fuzz(func(t *testing.T, text string) {
		b, list := loader.Load(t.Context(), snapshot.Snapshot{Project: []byte(plainProject), Roots: []string{"."}, Files: []snapshot.File{{Path: "a.yaml", Data: []byte(text)}}}, v)
		for _, d := range list {
			source, ok := b.Source(d.File)
			require.True(t, ok, d.File)
			for _, p := range []diag.Pos{d.Range.Start, d.Range.End} {
				require.Positive(t, p.Line)
				require.Positive(t, p.Column)
				require.LessOrEqual(t, p.Offset, len(source))
			}
			require.LessOrEqual(t, d.Range.Start.Offset, d.Range.End.Offset)
			d.Print(source)
		}
		if !list.HasErrors() {
			r := asRegistered("p", b.Set)
			require.Len(t, r.Objects, b.Declared)
		}
	})
}
