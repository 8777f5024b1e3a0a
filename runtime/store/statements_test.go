package store_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// P18: every statement is prepared on the migrated schema, and the Go code that calls it is held to what the server says: the number
// and types of its parameters, and, where the code that reads the answer stands beside the call, of its columns. Nothing has to be
// registered: statements come from query/*.sql, calls from the source of the package.
func TestStatementsFitTheSchemaAndTheGoCode(t *testing.T) {
	t.Parallel()
	conn := connect(t, storetest.URL(t))
	prepared := map[string]*pgconn.StatementDescription{}
	day := time.Now().UTC().Format("20060102")
	for _, name := range store.StatementNames() {
		sd, err := conn.Prepare(t.Context(), name, store.StatementText(name, day))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		prepared[name] = sd
	}

	src := loadSource(t)
	texts := src.texts()
	for _, name := range store.StatementNames() {
		if !calledByName(texts, name) {
			t.Errorf("statement %s is called nowhere", name)
		}
	}
	checked := 0
	for _, call := range src.calls() {
		sd, ok := prepared[call.name]
		if !ok {
			t.Errorf("%s: no statement %q", call.at, call.name)
			continue
		}
		checked++
		for _, problem := range call.problems(conn.TypeMap(), sd) {
			t.Errorf("%s: %s: %s", call.at, call.name, problem)
		}
	}
	require.Greater(t, checked, 60, "the calls are no longer found")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// source is the type-checked source of package store.
type source struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	pkg   *types.Package
}

func loadSource(t *testing.T) *source {
	t.Helper()
	s := &source{fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "dial_other.go" {
			continue
		}
		file, err := parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		s.files = append(s.files, file)
	}
	exports := exportData(t)
	lookup := func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(file)
	}
	conf := types.Config{Importer: importer.ForCompiler(s.fset, "gc", lookup)}
	s.pkg, err = conf.Check("nf/runtime/store", s.fset, s.files, s.info)
	require.NoError(t, err)
	return s
}

// exportData asks the go command for the export data of what the package imports.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")
	out, err := cmd.Output()
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		if file != "" {
			all[path] = file
		}
	}
	return all
}

// texts gives every text constant of the source.
func (s *source) texts() map[string]bool {
	all := map[string]bool{}
	for _, tv := range s.info.Types {
		if tv.Value != nil && tv.Value.Kind() == constant.String {
			all[constant.StringVal(tv.Value)] = true
		}
	}
	return all
}

// calledByName says whether a statement's name stands in the source, whole or as "prefix_" and "rest".
func calledByName(texts map[string]bool, name string) bool {
	if texts[name] {
		return true
	}
	for i := range name {
		if name[i] == '_' && texts[name[:i+1]] && texts[name[i+1:]] {
			return true
		}
	}
	return false
}

// call is one call of a statement by a constant name.
type call struct {
	at      string
	name    string
	args    []types.Type
	known   bool         // args are all of them
	columns []types.Type // nil: not known
}

// calls finds t.query(ctx, "name", day, …), t.exec(…) and p.queue("name", day, []any{…}, …).
func (s *source) calls() []call {
	var all []call
	for _, file := range s.files {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			all = append(all, s.callsOf(fn)...)
		}
	}
	return all
}

func (s *source) callsOf(fn *ast.FuncDecl) []call {
	var found []call
	reader := -1 // the call whose rows are read next
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		expr, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if c, rows, ok := s.statementCall(expr); ok {
			found = append(found, c)
			reader = -1
			if rows {
				reader = len(found) - 1
			}
			return true
		}
		if reader >= 0 && found[reader].columns == nil {
			if columns := s.columns(expr); columns != nil {
				found[reader].columns = columns
			}
		}
		return true
	})
	return found
}

func (s *source) statementCall(expr *ast.CallExpr) (c call, rows, ok bool) {
	sel, ok := expr.Fun.(*ast.SelectorExpr)
	if !ok {
		return call{}, false, false
	}
	selection := s.info.Selections[sel]
	if selection == nil || selection.Obj().Pkg() != s.pkg {
		return call{}, false, false
	}
	first := 1
	switch sel.Sel.Name {
	case "query", "exec":
	case "queue":
		first = 0
	default:
		return call{}, false, false
	}
	if len(expr.Args) < first+2 {
		return call{}, false, false
	}
	value := s.info.Types[expr.Args[first]].Value
	if value == nil {
		return call{}, false, false // a name in a variable
	}
	c = call{at: s.fset.Position(expr.Pos()).String(), name: constant.StringVal(value)}
	args := expr.Args[first+2:]
	c.known = !expr.Ellipsis.IsValid()
	if sel.Sel.Name == "queue" {
		list, isList := args[0].(*ast.CompositeLit)
		tv := s.info.Types[args[0]]
		c.known = isList || tv.IsNil()
		args = nil
		if isList {
			args = list.Elts
		}
	}
	for _, arg := range args {
		c.args = append(c.args, s.info.Types[arg].Type)
	}
	return c, sel.Sel.Name == "query", true
}

// columns gives the types that a piece of reading code wants: row.Scan(&a, …), pgx.ForEachRow(rows, []any{&a, …}, …), pgx.RowTo[T] and
// pgx.RowToStructByPos[T] as an argument, or a function of the package that scans.
func (s *source) columns(expr *ast.CallExpr) []types.Type {
	switch fun := expr.Fun.(type) {
	case *ast.SelectorExpr:
		switch fun.Sel.Name {
		case "Scan":
			return s.pointees(expr.Args)
		case "ForEachRow":
			if list, ok := expr.Args[1].(*ast.CompositeLit); ok {
				return s.pointees(list.Elts)
			}
		case "CollectRows", "CollectExactlyOneRow", "CollectOneRow":
			return s.rowColumns(expr.Args[1])
		}
	}
	return nil
}

func (s *source) rowColumns(arg ast.Expr) []types.Type {
	switch a := arg.(type) {
	case *ast.IndexExpr: // pgx.RowTo[T]
		sel, ok := a.X.(*ast.SelectorExpr)
		if !ok {
			return nil
		}
		of := s.info.Types[a.Index].Type
		switch sel.Sel.Name {
		case "RowTo":
			return []types.Type{of}
		case "RowToStructByPos":
			return fieldTypes(of)
		}
	case *ast.Ident: // a function of the package
		for _, file := range s.files {
			for _, decl := range file.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == a.Name && fn.Recv == nil {
					return s.scanIn(fn.Body)
				}
			}
		}
	case *ast.FuncLit:
		return s.scanIn(a.Body)
	}
	return nil
}

func (s *source) scanIn(body ast.Node) (columns []types.Type) {
	ast.Inspect(body, func(n ast.Node) bool {
		if expr, ok := n.(*ast.CallExpr); ok && columns == nil {
			if sel, ok := expr.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Scan" {
				columns = s.pointees(expr.Args)
			}
		}
		return true
	})
	return columns
}

func (s *source) pointees(args []ast.Expr) []types.Type {
	var all []types.Type
	for _, arg := range args {
		p, ok := s.info.Types[arg].Type.(*types.Pointer)
		if !ok {
			return nil // a list made elsewhere
		}
		all = append(all, p.Elem())
	}
	return all
}

func fieldTypes(t types.Type) []types.Type {
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	var all []types.Type
	for f := range st.Fields() {
		all = append(all, f.Type())
	}
	return all
}

// problems compares a call with what the server says of its statement.
func (c call) problems(m *pgtype.Map, sd *pgconn.StatementDescription) []string {
	var all []string
	if c.known && len(c.args) != len(sd.ParamOIDs) {
		all = append(all, fmt.Sprintf("%d arguments for %d parameters", len(c.args), len(sd.ParamOIDs)))
	} else if c.known {
		for i, oid := range sd.ParamOIDs {
			if !fits(typeName(m, oid), c.args[i]) {
				all = append(all, fmt.Sprintf("argument %d is %s, the parameter %s", i+1, c.args[i], typeName(m, oid)))
			}
		}
	}
	if c.columns == nil {
		return all
	}
	if len(c.columns) != len(sd.Fields) {
		return append(all, fmt.Sprintf("%d columns are read, %d come", len(c.columns), len(sd.Fields)))
	}
	for i, f := range sd.Fields {
		if !fits(typeName(m, f.DataTypeOID), c.columns[i]) {
			all = append(all, fmt.Sprintf("column %d (%s) is read as %s, it is %s", i+1, f.Name, c.columns[i], typeName(m, f.DataTypeOID)))
		}
	}
	return all
}

func typeName(m *pgtype.Map, oid uint32) string {
	if t, ok := m.TypeForOID(oid); ok {
		return t.Name
	}
	return fmt.Sprintf("oid %d", oid)
}

// fits says whether a Go type carries a Postgres type, a pointer the nullable form. Arrays go as slices of what fits, or as columns that
// write their own binary form.
func fits(pg string, t types.Type) bool {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		if strings.HasSuffix(p.Elem().String(), ".column") {
			return strings.HasPrefix(pg, "_")
		}
		return fits(pg, p.Elem())
	}
	if types.IsInterface(t) {
		return true // null or a value
	}
	if elem, ok := strings.CutPrefix(pg, "_"); ok {
		slice, isSlice := t.Underlying().(*types.Slice)
		return isSlice && fits(elem, slice.Elem())
	}
	switch pg {
	case "timestamptz", "date":
		return t.String() == "time.Time"
	case "uuid":
		array, ok := t.Underlying().(*types.Array)
		return ok && array.Len() == 16
	case "bytea", "json", "jsonb":
		slice, ok := t.Underlying().(*types.Slice)
		return ok && fits("uint8", slice.Elem()) || pg != "bytea" && fits("text", t)
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && slices.Contains(basicsOf[pg], basic.Kind())
}

var basicsOf = map[string][]types.BasicKind{
	"bool":    {types.Bool, types.UntypedBool},
	"int2":    {types.Int16, types.Int8},
	"int4":    {types.Int32, types.Int16, types.Int, types.UntypedInt},
	"int8":    {types.Int64, types.Int32, types.Int, types.UntypedInt},
	"float4":  {types.Float32},
	"float8":  {types.Float64},
	"text":    {types.String, types.UntypedString},
	"varchar": {types.String},
	"name":    {types.String},
	"uint8":   {types.Uint8},
}
