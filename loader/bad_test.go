package loader_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"nf/loader"
	"nf/schema/diag"
	"nf/schema/spec"
)

// A fixture is an archive of files. Each line at fault ends with a comment `# want CODE@column …`; where no comment can
// stand, the archive's head has a line `want file:line:column CODE`. Other lines of the head: `without nf.yaml`, and
// `link PATH TARGET`. A file NAME.quoted is a Go string; NAME.repeat is a count and a Go string with one %d.

var (
	marker = regexp.MustCompile(`(?:#|//) want((?: NF[0-9]{4}@[0-9]+)+)\s*$`)
	wanted = regexp.MustCompile(`^want (\S+:[0-9]+:[0-9]+) (NF[0-9]{4})$`)
)

const plainProject = "apiVersion: nf/v1\nkind: Project\nmetadata: {name: fixture}\n"

// fixture is an unpacked archive.
type fixture struct {
	dir  string
	want []string // file:line:column code, sorted
}

func unpack(t testing.TB, path string) fixture {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	f := fixture{dir: t.TempDir()}
	files := map[string]string{"nf.yaml": plainProject}
	head := bufio.NewScanner(strings.NewReader(string(archive.Comment)))
	for head.Scan() {
		line := head.Text()
		if m := wanted.FindStringSubmatch(line); m != nil {
			f.want = append(f.want, m[1]+" "+m[2])
		}
		if line == "without nf.yaml" {
			delete(files, "nf.yaml")
		}
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "link" {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(f.dir, fields[1])), 0o755))
			require.NoError(t, os.Symlink(fields[2], filepath.Join(f.dir, fields[1])))
		}
	}
	for _, file := range archive.Files {
		name, text := file.Name, string(file.Data)
		if short, ok := strings.CutSuffix(name, ".quoted"); ok {
			name, text = short, unquote(t, strings.TrimSpace(text))
		}
		if short, ok := strings.CutSuffix(name, ".repeat"); ok {
			count, pattern, _ := strings.Cut(strings.TrimSpace(text), " ")
			n, err := strconv.Atoi(count)
			require.NoError(t, err)
			pattern = unquote(t, `"`+pattern+`"`)
			name, text = short, ""
			for i := range n {
				text += fmt.Sprintf(pattern, i)
			}
		}
		files[name] = text
		for i, line := range strings.Split(text, "\n") {
			if m := marker.FindStringSubmatch(line); m != nil {
				for one := range strings.FieldsSeq(m[1]) {
					code, column, _ := strings.Cut(one, "@")
					f.want = append(f.want, fmt.Sprintf("%s:%d:%s %s", name, i+1, column, code))
				}
			}
		}
	}
	for name, text := range files {
		path := filepath.Join(f.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	slices.Sort(f.want)
	return f
}

func unquote(t testing.TB, text string) string {
	t.Helper()
	s, err := strconv.Unquote(text)
	require.NoError(t, err, text)
	return s
}

// compiled is the one validator of these tests: compiling the schemas takes longer than most of them.
var compiled = sync.OnceValues(spec.Compile)

func validator(t testing.TB) *spec.Validator {
	t.Helper()
	v, err := compiled()
	require.NoError(t, err)
	return v
}

func load(t testing.TB, dir string) (loader.Bundle, diag.List) {
	t.Helper()
	snap, err := loader.ReadDir(dir)
	require.NoError(t, err)
	return loader.Load(t.Context(), snap, validator(t))
}

// bad loads a fixture and compares the set of places and codes.
func bad(t *testing.T, name string) diag.List {
	t.Helper()
	f := unpack(t, filepath.Join("testdata", "bad", name+".txtar"))
	b, list := load(t, f.dir)
	var got []string
	for _, d := range list {
		require.NotEmpty(t, d.Message)
		require.NotEmpty(t, d.File, d.Message)
		require.NotContains(t, d.Message, f.dir, "paths are relative to the project")
		got = append(got, fmt.Sprintf("%s:%d:%d %s", d.File, d.Range.Start.Line, d.Range.Start.Column, d.Code))
		explained, ok := diag.Explain(d.Code)
		require.True(t, ok, d.Code)
		require.Equal(t, explained.Level, d.Level, d.Code)
		for _, r := range d.Related {
			require.NotEmpty(t, r.File, "%s: %s", d.Message, r.Message)
			require.Positive(t, r.Start.Line)
		}
	}
	require.True(t, slices.IsSortedFunc(list, func(a, b diag.Diagnostic) int { return strings.Compare(a.File, b.File) }))
	slices.Sort(got)
	if !slices.Equal(f.want, got) {
		for _, d := range list {
			text, _ := b.Source(d.File)
			t.Log(d.Print(text))
		}
	}
	require.Equal(t, f.want, got)
	return list
}

// hints gives the hints of the findings with a code.
func hints(list diag.List, code diag.Code) []string {
	var out []string
	for _, d := range list {
		if d.Code == code {
			out = append(out, d.Hint)
		}
	}
	return out
}

func fixtures(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(p), ".txtar")
	}
	return names
}

func TestBad(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures(t, "bad") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad(t, name)
		})
	}
}

// TestEveryCodeHasAFixture demands a fixture for every code that a load raises.
func TestEveryCodeHasAFixture(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range fixtures(t, "bad") {
		for _, want := range unpack(t, filepath.Join("testdata", "bad", name+".txtar")).want {
			_, code, _ := strings.Cut(want, " ")
			seen[code] = true
		}
	}
	for _, e := range diag.Codes() {
		if e.Code < "NF5" || e.Code >= "NF7" && e.Code < "NF7004" { // the others are those of a running loop
			require.True(t, seen[string(e.Code)], "no fixture raises %s (%s)", e.Code, e.Title)
		}
	}
}

func TestBG_22_AsyncCompleteIsUnknown(t *testing.T) {
	t.Parallel()
	require.Contains(t, hints(bad(t, "bg_22_async_complete"), "NF2101")[0], "SIMPLE")
}

func TestBG_80_AsyncCompleteIsUnknown(t *testing.T) {
	t.Parallel()
	require.Contains(t, hints(bad(t, "bg_80_async_complete_by_reference"), "NF2101")[0], "SIMPLE")
}

func TestBG_31_DurationsNameTheirMaximum(t *testing.T) {
	t.Parallel()
	text := ""
	for _, d := range bad(t, "bg_31_overflowing_durations") {
		text += d.Message + "\n"
	}
	for _, part := range []string{"366 days", "24 h", `pollTimeoutSeconds`, "30"} {
		require.Contains(t, text, part)
	}
}

func TestBG_58_UnquotedCaseKeys(t *testing.T) {
	t.Parallel()
	for _, d := range bad(t, "bg_58_unquoted_case_keys") {
		if d.Message != "key is no text but map or list" {
			require.NotNil(t, d.Fix, d.Message)
			require.True(t, d.Fix.Safe)
		}
	}
}

func TestBG_115_PermissiveIsUnknown(t *testing.T) {
	t.Parallel()
	require.Contains(t, hints(bad(t, "bg_115_permissive"), "NF2101")[0], "optional")
}
