package loader_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/loader"
	"nf/loader/plan"
	"nf/loader/snapshot"
	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
	"nf/schema/spec"
)

var update = flag.Bool("update", false, "write the golden digests anew")

func goodProjects(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob("testdata/good/*/nf.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	dirs := make([]string, len(found))
	for i, p := range found {
		dirs[i] = filepath.Dir(p)
	}
	return append(dirs, "../examples/orders")
}

func loadGood(t testing.TB, dir string) loader.Bundle {
	t.Helper()
	b, list := load(t, dir)
	for _, d := range list {
		text, _ := b.Source(d.File)
		t.Log(d.Print(text))
	}
	require.Empty(t, list)
	return b
}

func TestGood(t *testing.T) {
	t.Parallel()
	for _, dir := range goodProjects(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			b := loadGood(t, dir)
			require.Positive(t, b.Set.Len())
			require.Equal(t, b.Set.Len(), b.Declared)
			for _, o := range b.Set.All() {
				at := b.Origins[o.Address()]
				require.NotEmpty(t, at.File)
				text, ok := b.Source(at.File)
				require.True(t, ok)
				line := strings.Split(string(text), "\n")[at.Range.Start.Line-1]
				require.Regexp(t, `apiVersion|^\{`, line, "an object's place is its first key")
			}
		})
	}
}

// TestGoldenDigests: a default of nf/v1 never moves and a new field changes no digest, so these hold for ever.
func TestGoldenDigests(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, dir := range goodProjects(t) {
		if !strings.HasPrefix(dir, "testdata") {
			continue
		}
		for _, o := range loadGood(t, dir).Set.All() {
			lines = append(lines, fmt.Sprintf("%s %s %s", filepath.Base(dir), o.Address(), schema.DigestOf(o)))
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/good/digests.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// TestGoodFixturesUseEveryField: every property of every schema stands in some good fixture.
func TestGoodFixturesUseEveryField(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	var keys func(v any)
	keys = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, in := range v {
				used[k] = true
				keys(in)
			}
		case []any:
			for _, in := range v {
				keys(in)
			}
		}
	}
	kinds := map[schema.Kind]bool{schema.KindProject: true}
	for _, dir := range goodProjects(t) {
		b := loadGood(t, dir)
		for _, o := range b.Set.All() {
			kinds[o.Address().Kind] = true
			doc, ok := b.Document(o.Address())
			require.True(t, ok)
			keys(doc)
		}
		keys(map[string]any{"roots": nil})
	}
	for _, k := range schema.Kinds() {
		require.True(t, kinds[k], k)
	}
	files, err := spec.Files()
	require.NoError(t, err)
	var properties func(name string, v any)
	properties = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if p, ok := v["properties"].(map[string]any); ok {
				for k := range p {
					require.True(t, used[k], "no good fixture has the field %q of %s", k, name)
				}
			}
			for _, in := range v {
				properties(name, in)
			}
		case []any:
			for _, in := range v {
				properties(name, in)
			}
		}
	}
	for name, text := range files {
		doc, err := jsontext.Decode(text, jsontext.Limits{})
		require.NoError(t, err)
		properties(name, doc)
	}
}

// asRegistered gives what the registry holds after an apply of a set.
func asRegistered(project string, set schema.Set) plan.Registered {
	r := plan.Registered{Generation: 1, Digest: set.Digest(), Namespaces: map[string]int{}}
	for _, o := range set.All() {
		reg := plan.Object{
			Address: o.Address(), Project: project, Revision: 1, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), Labels: o.Meta().Labels,
			Description: o.Meta().Description, File: "x.yaml", Line: 1,
		}
		if w, ok := o.(*schema.Workflow); ok && w.Version > 0 {
			reg.Versions = []plan.Version{{Version: w.Version, Revision: 1, Digest: reg.Digest}}
		}
		r.Namespaces[o.Address().Namespace] = 0
		r.Objects = append(r.Objects, reg)
	}
	return r
}

// TestPlanAfterApplyIsEmpty: applying a set and planning again finds nothing, for every good fixture.
func TestPlanAfterApplyIsEmpty(t *testing.T) {
	t.Parallel()
	for _, dir := range goodProjects(t) {
		b := loadGood(t, dir)
		in := plan.Input{Project: b.Project.Metadata.Name, Desired: b.Set, Origins: b.Origins, Locate: b.Locate}
		first := plan.Diff(in)
		require.Equal(t, b.Set.Len(), first.Summary.Add)
		in.Registered = asRegistered(in.Project, b.Set)
		p := plan.Diff(in)
		require.True(t, p.Empty(), "%+v", p.Changes)
		require.Empty(t, p.Namespaces)
		require.Equal(t, b.Set.Len(), p.Summary.Unchanged)
	}
}

// TestRewritingChangesNothing: order of keys, comments, line ends, forms of numbers, styles of text, written defaults and the
// split into files never change a digest, nor make a plan.
func TestRewritingChangesNothing(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for _, dir := range goodProjects(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			b := loadGood(t, dir)
			snap, err := loader.ReadDir(dir)
			require.NoError(t, err)
			rapid.Check(t, func(rt *rapid.T) {
				again := snapshot.Snapshot{Project: snap.Project, Roots: snap.Roots, Files: rewritten(t, rt, &b, snap)}
				c, list := loader.Load(t.Context(), again, v)
				for _, d := range list {
					text, _ := c.Source(d.File)
					rt.Log(d.Print(text))
				}
				require.Empty(rt, list)
				require.Equal(rt, b.Set.Digest(), c.Set.Digest())
				p := plan.Diff(plan.Input{Project: "p", Desired: c.Set, Registered: asRegistered("p", b.Set)})
				require.True(rt, p.Empty(), "%+v", p.Changes)
			})
		})
	}
}

// rewritten writes all objects anew, each in its own way.
func rewritten(t *testing.T, rt *rapid.T, b *loader.Bundle, snap snapshot.Snapshot) []snapshot.File {
	var files []snapshot.File
	for _, f := range snap.Files {
		if f.Named {
			files = append(files, f)
		}
	}
	w := &writer{rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))}
	var text bytes.Buffer
	flush := func(i int) {
		if text.Len() > 0 {
			data := text.Bytes()
			if w.chance(3) {
				data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
			}
			if w.chance(4) {
				data = append([]byte("\xEF\xBB\xBF"), data...)
			}
			files = append(files, snapshot.File{Path: fmt.Sprintf("f%03d.yaml", i), Data: data})
			text = bytes.Buffer{}
		}
	}
	for i, o := range b.Set.All() {
		doc, ok := b.Document(o.Address())
		require.True(t, ok)
		if w.chance(2) {
			doc["spec"] = withDefaults(doc, o)
		}
		if w.chance(2) {
			flush(i)
		}
		if text.Len() > 0 || w.chance(2) {
			text.WriteString("--- # next\n")
		}
		w.block(&text, doc, 0)
	}
	flush(999)
	slices.SortFunc(files, func(a, b snapshot.File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// withDefaults gives the effective spec, with the file names of a gRPC Target that the effective form does not hold.
func withDefaults(doc map[string]any, o schema.Object) map[string]any {
	full := maps.Clone(schema.Tree(o))
	if grpc, ok := full["grpc"].(map[string]any); ok {
		grpc = maps.Clone(grpc)
		delete(grpc, "descriptors")
		written := doc["spec"].(map[string]any)["grpc"].(map[string]any)
		for _, key := range []string{"protoFiles", "descriptorSet", "includeDirs"} {
			if v, ok := written[key]; ok {
				grpc[key] = v
			}
		}
		full["grpc"] = grpc
	}
	named(full["tasks"])
	return full
}

// named takes the time-out from tasks that name a definition: even its default may not be written beside a name.
func named(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["name"]; ok && v["type"] == "WAIT" {
			delete(v, "timeoutSeconds")
		}
		for _, in := range v {
			named(in)
		}
	case []any:
		for _, in := range v {
			named(in)
		}
	}
}

// writer writes a tree as YAML in one of many ways.
type writer struct{ rand *rand.Rand }

func (w *writer) chance(n int) bool { return w.rand.IntN(n) == 0 }

func (w *writer) keys(m map[string]any) []string {
	keys := slices.Sorted(maps.Keys(m))
	w.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func (w *writer) block(b *bytes.Buffer, m map[string]any, indent int) {
	for _, key := range w.keys(m) {
		pad := strings.Repeat(" ", indent)
		if w.chance(6) {
			b.WriteString(pad + "# a comment: with { brackets\n")
		}
		if w.chance(8) {
			b.WriteString("\n")
		}
		b.WriteString(pad + w.key(key) + ":")
		w.value(b, m[key], indent, false)
	}
}

// value writes a value after its key or dash, and the line's end.
func (w *writer) value(b *bytes.Buffer, v any, indent int, inList bool) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 && !w.chance(4) {
			b.WriteString("\n")
			w.block(b, v, indent+1+w.rand.IntN(4))
			return
		}
	case []any:
		if len(v) > 0 && !w.chance(4) {
			b.WriteString("\n")
			deeper := indent + w.rand.IntN(3)
			if inList {
				deeper++
			}
			for _, item := range v {
				b.WriteString(strings.Repeat(" ", deeper) + "-")
				w.value(b, item, deeper, true)
			}
			return
		}
	}
	b.WriteString(" " + w.flow(v))
	if w.chance(6) {
		b.WriteString("  # end")
	}
	b.WriteString("\n")
}

func (w *writer) flow(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range w.keys(v) {
			parts = append(parts, w.key(key)+": "+w.flow(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, w.flow(item))
		}
		return "[ " + strings.Join(parts, " , ") + " ]"
	case string:
		return w.text(v)
	case json.Number:
		return w.number(v)
	case bool:
		return strconv.FormatBool(v)
	}
	return []string{"null", "~"}[w.rand.IntN(2)]
}

func (w *writer) number(n json.Number) string {
	i, err := n.Int64()
	if err != nil || i <= 0 || i > 1<<50 {
		return n.String()
	}
	switch w.rand.IntN(4) {
	case 0:
		return fmt.Sprintf("%d.0", i)
	case 1:
		if i%1000 == 0 {
			return fmt.Sprintf("%de3", i/1000)
		}
	case 2:
		return fmt.Sprintf("+%d", i)
	}
	return n.String()
}

func (w *writer) key(s string) string {
	if w.chance(3) {
		return w.quoted(s)
	}
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == "" && s != "null" && s != "true" && s != "false" {
		return s
	}
	return w.quoted(s)
}

func (w *writer) text(s string) string {
	plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/.") == "" && len(s) > 3 && s != "true" && s != "false" && s != "null" && s[0] != '.'
	if plain && !w.chance(3) {
		return s
	}
	return w.quoted(s)
}

func (w *writer) quoted(s string) string {
	if w.chance(2) && !strings.ContainsAny(s, "\n\t") {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestD01_WrittenDefaultsAreNoChange: applying `spec: {}` and then the same with every default written out plans nothing.
func TestD01_WrittenDefaultsAreNoChange(t *testing.T) {
	t.Parallel()
	v := validator(t)
	read := func(text string) schema.Set {
		b, list := loader.Load(t.Context(), snapshot.Snapshot{Project: []byte(plainProject), Files: []snapshot.File{{Path: "a.yaml", Data: []byte(text)}}}, v)
		require.Empty(t, list)
		return b.Set
	}
	short := read("apiVersion: nf/v1\nkind: TaskDefinition\nmetadata: {name: d}\nspec: {}\n")
	long := read("apiVersion: nf/v1\nkind: TaskDefinition\nmetadata: {name: d, labels: {}, namespace: default, description: ''}\nspec:\n  retryCount: 3\n" +
		"  retryLogic: EXPONENTIAL_BACKOFF\n  retryDelaySeconds: 1.000\n  backoffScaleFactor: 2\n  maxRetryDelaySeconds: 3.6e3\n  jitter: 0.20\n  retryBudget: 0.3\n" +
		"  nonRetryableErrors: []\n  scheduleToStartTimeout: 0\n  startToCloseTimeout: 0\n  timeoutSeconds: 0\n  totalTimeoutSeconds: 0\n  heartbeatTimeout: 0\n" +
		"  responseTimeoutSeconds: 3600\n  pollTimeoutSeconds: 30\n  timeoutPolicy: TIME_OUT_WF\n  delivery: atLeastOnce\n  semaphores: []\n")
	require.Equal(t, short.Digest(), long.Digest())
	require.True(t, plan.Diff(plan.Input{Project: "p", Desired: long, Registered: asRegistered("p", short)}).Empty())
}

// TestV17_LaterDocumentsAreSeen: a reference to the second document of a file resolves.
func TestV17_LaterDocumentsAreSeen(t *testing.T) {
	t.Parallel()
	loadGood(t, "testdata/good/everything")
}

// TestD05_ManyLoadsOneDigest: the same bytes give the same digest and findings, every time.
func TestD05_ManyLoadsOneDigest(t *testing.T) {
	t.Parallel()
	v := validator(t)
	good, err := loader.ReadDir("testdata/good/everything")
	require.NoError(t, err)
	faulty, err := loader.ReadDir(unpack(t, "testdata/bad/nf3204_not_yet.txtar").dir)
	require.NoError(t, err)
	first, _ := loader.Load(t.Context(), good, v)
	_, list := loader.Load(t.Context(), faulty, v)
	want := texts(list)
	for range 100 {
		b, _ := loader.Load(t.Context(), good, v)
		require.Equal(t, first.Set.Digest(), b.Set.Digest())
		_, list := loader.Load(t.Context(), faulty, v)
		require.Equal(t, want, texts(list))
	}
}

func texts(list diag.List) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.Print(nil))
	}
	return out
}
