// Package loader turns a snapshot of a project's source into checked objects, or into findings.
//
// Everything is looked at in one pass: each document is parsed, judged against the schema of its kind, decoded, and what
// could be read is checked together, so that all that can be known is told at once. Findings carry the place of the key or
// value at fault; they come in the order of files and lines. The same snapshot gives the same bytes.
package loader

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nf/loader/check"
	"nf/loader/snapshot"
	"nf/loader/source"
	"nf/schema"
	"nf/schema/diag"
	"nf/schema/spec"
)

// MaxObjects is how many objects a project may have (contract 7.2 `objects`).
const MaxObjects = 50_000

// Bundle is what a load produced. It is immutable.
type Bundle struct {
	// Project is nf.yaml, nil if it could not be read.
	Project *schema.Project
	// Set is the desired set. It is complete only if the findings hold no error.
	Set schema.Set
	// Digest is of all bytes that were read, Commit and Branch of the commit if one was read.
	Digest [32]byte
	Commit string
	Branch string
	Dirty  bool
	// Origins says where each object of the set is declared.
	Origins map[schema.Address]diag.Location
	// Files counts the manifests that were read, Declared the objects found in them, broken ones included.
	Files    int
	Declared int
	// Empty says that the project has an nf.yaml and no manifest (NF7001). A plan of it must still be made: the guards of P9
	// refuse it where the project owns objects (NF6103).
	Empty bool

	documents map[schema.Address]source.Document
	sources   map[string][]byte
}

// Locate says where a value of an object stands.
func (b *Bundle) Locate(a schema.Address, pointer string) (diag.Location, bool) {
	doc, ok := b.documents[a]
	if !ok {
		return diag.Location{}, false
	}
	return located{doc}.Locate(diag.Place{Pointer: pointer})
}

// Source gives the text of a file that was read, for showing findings.
func (b *Bundle) Source(file string) ([]byte, bool) {
	text, ok := b.sources[file]
	return text, ok
}

// Selection says which files belong to a project.
func Selection() snapshot.Selection { return snapshot.Selection{Roots: roots, Follow: follow} }

// ReadDir reads the files of a project's folder.
func ReadDir(dir string) (snapshot.Snapshot, error) { return snapshot.ReadDir(dir, Selection()) }

// ReadGit reads a project from HEAD's commit. See snapshot.ReadGit.
func ReadGit(ctx context.Context, dir string) (snapshot.Snapshot, error) {
	return snapshot.ReadGit(ctx, dir, Selection())
}

// Load makes objects of a snapshot. It returns all findings, sorted; with an error among them the bundle may not be applied.
func Load(ctx context.Context, snap snapshot.Snapshot, v *spec.Validator) (Bundle, diag.List) {
	l := &load{
		snap: &snap, validator: v, objects: map[schema.Address]schema.Object{}, partial: map[schema.Address]schema.Object{}, first: map[schema.Address]document{},
		bundle: Bundle{
			Digest: snap.Digest, Commit: snap.Commit, Branch: snap.Branch, Dirty: snap.Dirty,
			Origins: map[schema.Address]diag.Location{}, documents: map[schema.Address]source.Document{}, sources: map[string][]byte{},
		},
	}
	l.project()
	for _, f := range snap.Files {
		l.bundle.sources[f.Path] = f.Data
		if !f.Named {
			l.bundle.Files++
			l.file(f.Path, f.Data)
		}
	}
	l.snapshotFindings()
	l.compile(ctx)
	l.check()
	l.set()
	l.findings.Sort()
	return l.bundle, l.findings.Compact()
}

// load is the state of one Load.
type load struct {
	snap      *snapshot.Snapshot
	validator *spec.Validator
	bundle    Bundle
	findings  diag.List

	objects map[schema.Address]schema.Object
	order   []schema.Address                 // of declaration
	first   map[schema.Address]document      // of each address that was declared, broken or not
	broken  []schema.Address                 // declared, content not readable
	partial map[schema.Address]schema.Object // broken ones without what is wrong in them
	methods map[schema.Address]map[string]bool
	nfyaml  *source.Document
}

// document is a document with the kind that it says it is.
type document struct {
	source.Document
	tree   any
	flawed bool // the parser found an error in it
}

// sound drops the findings about what the parser already has a finding about.
func (d document) sound(list diag.List) diag.List {
	return slices.DeleteFunc(list, func(f diag.Diagnostic) bool {
		pointer := f.Pointer
		if cut := strings.LastIndexByte(pointer, '/'); f.AtKey && cut >= 0 && f.Code != "NF1010" {
			pointer = pointer[:cut] // it is about the key, and only the value has a flaw
		}
		return d.Locate(pointer, false).Flawed
	})
}

// file reads all documents of a manifest.
func (l *load) file(path string, data []byte) {
	docs, list := source.Parse(path, data, source.DefaultLimits())
	l.findings = append(l.findings, list...)
	if len(docs) == 0 && !list.HasErrors() {
		start := diag.Pos{Line: 1, Column: 1}
		l.findings = append(l.findings, diag.Diagnostic{
			Code: "NF2001", Level: diag.Error, Message: "file holds no document", File: path, Range: diag.Range{Start: start, End: start},
			Hint: "write a manifest, or move the file out of the roots, begin its name with _, or list it in .nfignore",
		})
	}
	flawed := map[int]bool{}
	for _, f := range list {
		flawed[f.Document] = flawed[f.Document] || f.Level == diag.Error
	}
	for _, d := range docs {
		if d.Root == nil {
			continue // its error is among the findings
		}
		l.document(document{d, d.Root.Value(), flawed[d.Index]})
	}
}

// document judges one document and decodes it if it is well-formed.
func (l *load) document(d document) {
	kind, list := l.validator.Kind(d.tree)
	if len(list) > 0 {
		l.report(d, d.sound(list), nil)
		return
	}
	if kind == schema.KindProject {
		l.report(d, diag.List{diag.New("NF2003", "/kind", "a Project may stand only in the nf.yaml of the project's own folder").
			WithHint("leave the folder of another project out: name it in .nfignore, or narrow spec.roots")}, nil)
		return
	}
	l.bundle.Declared++
	if l.bundle.Declared == MaxObjects+1 {
		l.report(d, diag.List{diag.Newf("NF1016", "", "project has more objects than the limit objects = %d", MaxObjects).
			WithHint("split the project")}, nil)
	}
	list = d.sound(l.validator.Validate(kind, d.tree))
	address, named := addressOf(kind, d.Root)
	object := &diag.Object{Kind: string(kind), Namespace: address.Namespace, Name: address.Name}
	if !named {
		object = nil
	}
	l.report(d, list, object)
	if named && !l.declare(d, address, object) {
		return
	}
	if !named {
		return
	}
	if !list.HasErrors() && !d.flawed {
		l.decode(d, kind, address)
		return
	}
	l.broken = append(l.broken, address)
	if tree, ok := pruned(d.tree, list); ok && !d.flawed {
		if o, err := makeObject(kind, tree); err == nil {
			l.partial[address] = o
		}
	}
}

// pruned gives a manifest without what the findings are about, so that the rest of its meaning can be checked in the same
// run. It says false unless all of them are about a key or value that may be left out.
func pruned(tree any, list diag.List) (map[string]any, bool) {
	root, ok := copied(tree).(map[string]any)
	if !ok {
		return nil, false
	}
	for _, f := range list {
		switch f.Code {
		case "NF2101", "NF2104", "NF2112", "NF4001", "NF4002":
		default:
			return nil, false
		}
		if !remove(root, source.Steps(f.Pointer)) {
			return nil, false
		}
	}
	return root, true
}

// remove deletes the key that the steps lead to. It says false if they lead elsewhere.
func remove(v any, steps []string) bool {
	for len(steps) > 1 {
		switch in := v.(type) {
		case map[string]any:
			v = in[steps[0]]
		case []any:
			i, err := strconv.Atoi(steps[0])
			if err != nil || i < 0 || i >= len(in) {
				return false
			}
			v = in[i]
		default:
			return false
		}
		steps = steps[1:]
	}
	m, ok := v.(map[string]any)
	if !ok || len(steps) == 0 {
		return false
	}
	delete(m, steps[0])
	return true
}

// copied copies the maps and lists of a tree.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, in := range v {
			out[key] = copied(in)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, in := range v {
			out[i] = copied(in)
		}
		return out
	}
	return v
}

// makeObject makes an object of a manifest.
func makeObject(kind schema.Kind, tree map[string]any) (schema.Object, error) {
	metadata, _ := tree["metadata"].(map[string]any)
	content, _ := tree["spec"].(map[string]any)
	meta, err := schema.DecodeMetadata(kind, metadata)
	if err != nil {
		return nil, err
	}
	return schema.Decode(kind, meta, content)
}

// addressOf reads the address of a document, well-formed or not.
func addressOf(kind schema.Kind, root *source.Node) (schema.Address, bool) {
	meta := root.Get("metadata")
	name, ok := meta.Get("name").IsText()
	if !ok || name == "" {
		return schema.Address{}, false
	}
	a := schema.Address{Kind: kind, Name: name}
	if kind.Namespaced() {
		a.Namespace = schema.DefaultNamespace
		if ns, ok := meta.Get("namespace").IsText(); ok && ns != "" {
			a.Namespace = ns
		}
	}
	return a, true
}

// declare notes an address; a second declaration of it is NF3001.
func (l *load) declare(d document, a schema.Address, object *diag.Object) bool {
	if first, twice := l.first[a]; twice {
		place := first.Locate("/metadata/name", false).Range
		f := diag.Newf("NF3001", "/metadata/name", "%s is declared twice", a).WithHint("remove one of the two, or give it another name or namespace")
		f.Related = []diag.Related{{File: first.File(), Start: place.Start, Message: "first declared here"}}
		l.report(d, diag.List{f}, object)
		return false
	}
	l.first[a] = d
	l.bundle.documents[a] = d.Document
	at := d.Start()
	l.bundle.Origins[a] = diag.Location{File: d.File(), Document: d.Index, Range: at}
	l.order = append(l.order, a)
	return true
}

// decode makes the object of a well-formed document.
func (l *load) decode(d document, kind schema.Kind, a schema.Address) {
	tree, _ := d.tree.(map[string]any)
	o, err := makeObject(kind, tree)
	if err != nil { // the schemas and the Go types disagree: a mistake in nf, but never one to pass over
		l.report(d, diag.List{diag.New("NF2103", "/spec", err.Error())}, &diag.Object{Kind: string(kind), Namespace: a.Namespace, Name: a.Name})
		l.broken = append(l.broken, a)
		return
	}
	l.objects[a] = o
}

// report places findings about a document and takes them in.
func (l *load) report(d document, list diag.List, object *diag.Object) {
	if object != nil {
		list = list.For(*object)
	}
	list = list.In(located{d.Document})
	for i := range list {
		// a value that came through an alias is shown where it is used, with the place where it is written
		list[i].Related = append(list[i].Related, d.Locate(list[i].Pointer, list[i].AtKey).Related...)
	}
	l.findings = append(l.findings, list...)
}

// check runs the checks of meaning over all that could be read.
func (l *load) check() {
	objects := make([]schema.Object, 0, len(l.objects))
	for _, a := range l.order {
		if o, ok := l.objects[a]; ok {
			objects = append(objects, o)
		} else if o, ok := l.partial[a]; ok {
			objects = append(objects, o)
		}
	}
	list := check.All(check.Input{
		Objects: objects, Broken: l.broken, Origins: l.bundle.Origins, Methods: l.methods,
		Written: func(a schema.Address) map[string]any {
			tree, _ := l.first[a].tree.(map[string]any)
			return tree
		},
	})
	for _, f := range list {
		a := schema.Address{Kind: schema.Kind(f.Object.Kind), Namespace: f.Object.Namespace, Name: f.Object.Name}
		l.report(l.first[a], diag.List{f}, nil)
	}
}

// set gathers the objects.
func (l *load) set() {
	objects := make([]schema.Object, 0, len(l.objects))
	for _, a := range l.order {
		if o, ok := l.objects[a]; ok {
			objects = append(objects, o)
		}
	}
	set, err := schema.NewSet(objects...)
	if err != nil { // addresses are unique: they are keys of a map
		l.findings = append(l.findings, diag.New("NF3001", "", fmt.Sprint(err)))
	}
	l.bundle.Set = set
	if l.bundle.Project != nil && l.bundle.Files == 0 && !l.findings.HasErrors() {
		l.bundle.Empty = true
		l.empty()
	}
}

// Document gives the manifest of an object as plain JSON, as it was written. The value is the caller's.
func (b *Bundle) Document(a schema.Address) (map[string]any, bool) {
	doc, ok := b.documents[a]
	if !ok {
		return nil, false
	}
	tree, ok := doc.Root.Value().(map[string]any)
	return tree, ok
}
