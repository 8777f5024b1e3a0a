package main_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// row is one line of the table of packages (ARCHITECTURE.md): what a package may import of the project, and whether it is pure:
// then it imports only pure packages and nothing of impure.
type row struct {
	pkg    string
	pure   bool
	may    string // packages, separated by blanks; * = any
	reason string // of what is not as the first design had it
}

const (
	pure     = true
	anyOne   = "*"
	forTests = "for tests of this package and of those above it"
)

// table is the order of the project: who may know whom. To add an edge, add it here and say in the change why.
var table = []row{
	{pkg: "schema", pure: pure, may: "schema/jsontext"},
	{pkg: "schema/jsontext", pure: pure, reason: "exact JSON is needed by definitions, expressions and the engine alike"},
	{pkg: "schema/diag", pure: pure},
	{pkg: "schema/expr", pure: pure, may: "schema/diag schema/jsontext"},
	{pkg: "schema/spec", may: "schema schema/diag schema/jsontext"},

	{pkg: "policies/retry", pure: pure, may: "schema"},
	{pkg: "policies/timeout", pure: pure, may: "schema"},
	{pkg: "policies/limit", pure: pure},
	{pkg: "policies/gate", pure: pure, may: "policies/limit"},

	{pkg: "loader/snapshot", may: "schema/diag", reason: "what cannot be read is a finding with a place"},
	{pkg: "loader/source", pure: pure, may: "schema/diag"},
	{pkg: "loader/format", pure: pure, may: "schema/diag loader/source", reason: "nf fmt works on the text of what the reader understands"},
	{pkg: "loader/check", pure: pure, may: "schema schema/diag schema/expr schema/jsontext"},
	{pkg: "loader/proto", may: "schema/diag loader/snapshot"},
	{pkg: "loader/plan", pure: pure, may: "schema schema/diag schema/expr schema/jsontext", reason: "a retired object's users are found by their references"},
	{pkg: "loader", may: "schema schema/diag schema/expr schema/jsontext schema/spec loader/snapshot loader/source loader/check loader/proto"},

	{pkg: "systemtasks", may: "schema schema/jsontext"},
	{pkg: "systemtasks/outbound", may: "systemtasks schema"},
	{pkg: "systemtasks/httptask", may: "systemtasks systemtasks/outbound schema schema/jsontext"},
	{pkg: "systemtasks/grpctask", may: "systemtasks systemtasks/outbound schema schema/jsontext", reason: "one guarded dialer for HTTP and gRPC"},
	{pkg: "systemtasks/taskstest", may: "systemtasks schema schema/jsontext", reason: "the suite that every system task passes; for tests"},

	{pkg: "runtime/clock"},
	{pkg: "runtime/pgdev", may: "runtime/clock"},
	{pkg: "runtime/pgdev/pgtest", may: "runtime/pgdev", reason: "databases for tests, of package store too, which cannot import storetest"},
	{pkg: "runtime/pgdev/pgtest/pgrun", may: "runtime/pgdev runtime/pgdev/pgtest", reason: "shares one server among the processes of make test"},
	{pkg: "runtime/telemetry", may: "runtime/clock"},
	{pkg: "runtime/execution", pure: pure, may: "schema"},
	{pkg: "runtime/decider", pure: pure, may: "schema schema/expr schema/jsontext runtime/execution policies/retry policies/timeout"},
	{pkg: "runtime/store", may: "schema runtime/clock runtime/execution policies/gate policies/limit"},
	{pkg: "runtime/store/storetest", may: "runtime/store runtime/pgdev/pgtest"},
	{pkg: "runtime/auth", may: "runtime/clock runtime/store"},
	{pkg: "runtime/registry", may: "schema schema/diag schema/spec loader/plan runtime/execution runtime/store", reason: "pins the compiled input schema of a revision"},
	{pkg: "runtime/registry/registrytest", may: "runtime/registry runtime/store schema", reason: forTests},
	{pkg: "runtime/engine/enginetest", may: "runtime/engine runtime/execution runtime/registry runtime/store runtime/store/storetest schema schema/jsontext", reason: forTests},
	{pkg: "runtime/queue/queuetest", may: "runtime/clock runtime/execution runtime/queue runtime/registry runtime/store runtime/store/storetest schema", reason: forTests},
	{pkg: "runtime/worker/workertest", may: "runtime/clock runtime/engine runtime/engine/enginetest runtime/queue runtime/store runtime/sweep runtime/worker schema systemtasks", reason: forTests},
	{pkg: "runtime/store/storetest/history", may: "policies/retry runtime/execution schema", reason: forTests},
	{pkg: "runtime/secret", may: "schema"},
	{pkg: "runtime/engine", may: "schema schema/expr schema/jsontext runtime/clock runtime/execution runtime/decider runtime/store runtime/registry runtime/telemetry"},
	{pkg: "runtime/queue", may: "schema policies/gate policies/limit runtime/clock runtime/execution runtime/store runtime/registry runtime/telemetry"},
	{pkg: "runtime/sweep", may: "schema runtime/clock runtime/execution runtime/store runtime/registry runtime/engine runtime/queue runtime/telemetry"},
	{pkg: "runtime/worker", may: "schema schema/jsontext systemtasks runtime/clock runtime/execution runtime/store runtime/queue runtime/engine runtime/registry runtime/secret runtime/decider runtime/telemetry", reason: "the decider names the task of a leased slot"},
	{pkg: "runtime/reload/watch"},
	{pkg: "runtime/reload", may: "schema/diag loader loader/plan loader/snapshot runtime/clock runtime/registry runtime/reload/watch runtime/store runtime/telemetry"},
	{pkg: "runtime/api", may: "schema schema/diag schema/jsontext runtime/clock runtime/execution runtime/store runtime/registry runtime/engine runtime/queue runtime/auth runtime/reload runtime/telemetry schema/spec", reason: "an input is held to the workflow's inputSchema, whose findings it tells"},

	{pkg: "cmd/nf", may: "cmd/nf/internal/cli"},
	{pkg: "cmd/nf/internal/cli", may: anyOne},
	{pkg: "cmd/nf/internal/view", may: "schema schema/diag schema/spec loader/plan runtime/api runtime/execution runtime/store", reason: "shows the answers of the API and the status of the store in their own types"},
	{pkg: "examples/orders/services", reason: "stands for other people's services: knows nothing of nf"},
	{pkg: "examples/orders/demo", may: "examples/orders/services"},
}

// owned says which package imports a module that is not the standard library's. A module with several owners needs a reason.
type owned struct {
	module string
	by     string
	reason string
}

var dependencies = []owned{
	{module: "github.com/jackc/pgx/v5", by: "runtime/store runtime/pgdev/pgtest runtime/store/storetest runtime/store/storetest/history runtime/queue/queuetest", reason: "packages for tests make databases and look into them"},
	{module: "github.com/klauspost/compress", by: "runtime/store"},
	{module: "github.com/santhosh-tekuri/jsonschema/v5", by: "schema/spec"},
	{module: "github.com/agnivade/levenshtein", by: "schema/diag"},
	{module: "golang.org/x/text", by: "schema/diag"},
	{module: "gopkg.in/yaml.v3", by: "loader/source"},
	{module: "github.com/bufbuild/protocompile", by: "loader/proto"},
	{module: "github.com/hashicorp/go-retryablehttp", by: "systemtasks/outbound"},
	{module: "golang.org/x/net", by: "systemtasks/outbound"},
	{module: "google.golang.org/grpc", by: "systemtasks/grpctask examples/orders/services", reason: "the example's service is a server"},
	{module: "google.golang.org/genproto/googleapis/rpc", by: "systemtasks/grpctask"},
	{module: "google.golang.org/protobuf", by: "systemtasks/grpctask loader/proto examples/orders/services", reason: "descriptors: made by one, used by the other"},
	{module: "github.com/fsnotify/fsnotify", by: "runtime/reload/watch"},
	{module: "github.com/prometheus/client_golang", by: "runtime/telemetry"},
	{module: "github.com/urfave/cli/v2", by: "cmd/nf/internal/cli"},
	{module: "github.com/mattn/go-isatty", by: "cmd/nf/internal/cli"},
	{module: "github.com/aymanbagabas/go-udiff", by: "cmd/nf/internal/cli"},
	{module: "golang.org/x/sync", by: anyOne, reason: "errgroup: a loop that ends ends its siblings; an extension of the standard library"},
	{module: "github.com/stretchr/testify", by: "systemtasks/taskstest runtime/engine/enginetest runtime/queue/queuetest runtime/worker/workertest", reason: "packages for tests; elsewhere test files only"},
}

// impure is what no pure package imports.
var impure = []string{
	"context", "crypto/rand", "database/sql", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
	"sync", "sync/atomic",
}

// module is the name in go.mod.
const module = "nf"

// notOfTheModule are folders that hold no package of the table: a module of its own, and requirements kept until first use.
var notOfTheModule = []string{"bench"}

func TestImportTable(t *testing.T) {
	t.Parallel()
	require.Empty(t, judge(t, os.DirFS("../.."), table, dependencies), "see ARCHITECTURE.md")
}

// Principle 3: folders point one way. It holds the table itself, so that no edge can be added to it by mistake.
func TestImportTableKeepsFoldersOneWay(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{
		"schema":      {"schema"},
		"policies":    {"policies", "schema"},
		"loader":      {"loader", "schema"},
		"systemtasks": {"systemtasks", "policies", "schema"},
		"runtime":     {"runtime", "loader", "systemtasks", "policies", "schema"},
		"cmd":         {"cmd", "runtime", "loader", "systemtasks", "policies", "schema"},
		"examples":    {"examples"},
	}
	for _, r := range table {
		for to := range strings.FieldsSeq(r.may) {
			if to != anyOne {
				require.Contains(t, allowed[top(r.pkg)], top(to), "%s → %s", r.pkg, to)
			}
		}
	}
}

func top(pkg string) string { first, _, _ := strings.Cut(pkg, "/"); return first }

// Each planted violation turns the judge red, and nothing else does.
func TestImportTableFindsPlantedViolations(t *testing.T) {
	t.Parallel()
	file := func(pkg string, imports ...string) *fstest.MapFile {
		text := "package " + path.Base(pkg) + "\n"
		for _, i := range imports {
			text += fmt.Sprintf("import _ %q\n", i)
		}
		return &fstest.MapFile{Data: []byte(text)}
	}
	for _, c := range []struct {
		name    string
		planted fstest.MapFS
		without string // a package whose files are gone
		want    string
	}{
		{
			name:    "an import that is not listed",
			planted: fstest.MapFS{"loader/source/planted.go": file("source", module+"/runtime/store")},
			want:    "loader/source imports runtime/store, which its line does not list",
		},
		{
			name:    "a package that is not in the table",
			planted: fstest.MapFS{"runtime/util/planted.go": file("util")},
			want:    "runtime/util is not in the table",
		},
		{
			name:    "a line without a package",
			without: "policies/retry",
			want:    "policies/retry is in the table and does not exist",
		},
		{
			name:    "a pure package that imports an impure one",
			planted: fstest.MapFS{"runtime/decider/planted.go": file("decider", module+"/runtime/clock")},
			want:    "runtime/decider is pure and imports runtime/clock, which is not",
		},
		{
			name:    "a pure package that reads the world",
			planted: fstest.MapFS{"policies/gate/planted.go": file("gate", "os")},
			want:    "policies/gate is pure and imports os",
		},
		{
			name:    "a module imported by a second package",
			planted: fstest.MapFS{"runtime/engine/planted.go": file("engine", "github.com/jackc/pgx/v5")},
			want:    "runtime/engine imports github.com/jackc/pgx/v5, which belongs to " + dependencies[0].by,
		},
		{
			name:    "a module that nobody listed",
			planted: fstest.MapFS{"schema/planted.go": file("schema", "example.com/left-pad")},
			want:    "schema imports example.com/left-pad, which is not in the table of dependencies",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := judge(t, os.DirFS("../.."), table, dependencies)
			after := judge(t, overlay{os.DirFS("../.."), c.planted, c.without}, table, dependencies)
			fresh := slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
			require.Contains(t, fresh, c.want)
		})
	}
}

// judge reads the imports of all files but tests, in this process: the test's cache then knows every file that matters.
func judge(t *testing.T, files fs.FS, table []row, dependencies []owned) []string {
	t.Helper()
	lines := map[string]row{}
	for _, r := range table {
		lines[r.pkg] = r
	}
	found := map[string][]string{} // package → imports
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && name != "."
			if hidden || entry.Name() == "testdata" || slices.Contains(notOfTheModule, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		imports, err := importsOf(files, name)
		pkg := path.Dir(name)
		found[pkg] = append(found[pkg], imports...)
		return err
	})
	require.NoError(t, err)

	var wrong []string
	for pkg, imports := range found {
		line, listed := lines[pkg]
		if !listed {
			wrong = append(wrong, pkg+" is not in the table")
			continue
		}
		for _, i := range imports {
			wrong = append(wrong, judgeImport(line, i, lines, dependencies)...)
		}
	}
	for pkg := range lines {
		if _, there := found[pkg]; !there {
			wrong = append(wrong, pkg+" is in the table and does not exist")
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func judgeImport(line row, imported string, lines map[string]row, dependencies []owned) (wrong []string) {
	if to, ours := strings.CutPrefix(imported, module+"/"); ours {
		if line.may != anyOne && !slices.Contains(strings.Fields(line.may), to) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s, which its line does not list", line.pkg, to))
		}
		if line.pure && !lines[to].pure {
			wrong = append(wrong, fmt.Sprintf("%s is pure and imports %s, which is not", line.pkg, to))
		}
		return wrong
	}
	if line.pure && slices.Contains(impure, imported) {
		wrong = append(wrong, fmt.Sprintf("%s is pure and imports %s", line.pkg, imported))
	}
	if !strings.Contains(top(imported), ".") {
		return wrong // the standard library
	}
	at := slices.IndexFunc(dependencies, func(d owned) bool {
		return imported == d.module || strings.HasPrefix(imported, d.module+"/")
	})
	switch {
	case at < 0:
		wrong = append(wrong, fmt.Sprintf("%s imports %s, which is not in the table of dependencies", line.pkg, imported))
	case dependencies[at].by != anyOne && !slices.Contains(strings.Fields(dependencies[at].by), line.pkg):
		wrong = append(wrong, fmt.Sprintf("%s imports %s, which belongs to %s", line.pkg, dependencies[at].module, dependencies[at].by))
	}
	return wrong
}

func importsOf(files fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	imports := make([]string, 0, len(parsed.Imports))
	for _, i := range parsed.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, imported)
	}
	return imports, nil
}

// A dependency with several owners says why, and owners exist.
func TestDependencyTableGivesReasons(t *testing.T) {
	t.Parallel()
	for _, d := range dependencies {
		owners := strings.Fields(d.by)
		require.NotEmpty(t, owners, d.module)
		if len(owners) > 1 || d.by == anyOne {
			require.NotEmpty(t, d.reason, d.module)
		}
		for _, o := range owners {
			known := o == anyOne || slices.ContainsFunc(table, func(r row) bool { return r.pkg == o })
			require.True(t, known, "%s of %s", o, d.module)
		}
	}
}

// overlay is a tree with planted files, and without the files of one package.
type overlay struct {
	fs.FS
	planted fstest.MapFS
	without string
}

func (o overlay) Open(name string) (fs.File, error) {
	if _, ok := o.planted[name]; ok {
		return o.planted.Open(name)
	}
	return o.FS.Open(name)
}

// ReadDir lists both.
func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	under, err := fs.ReadDir(o.FS, name)
	if err == nil && name != o.without {
		all = append(all, under...)
	}
	over, err2 := o.planted.ReadDir(name)
	if err != nil && err2 != nil {
		return nil, err
	}
	for _, e := range over {
		if !slices.ContainsFunc(all, func(a fs.DirEntry) bool { return a.Name() == e.Name() }) {
			all = append(all, e)
		}
	}
	return all, nil
}
