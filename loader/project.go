package loader

import (
	"bytes"
	"context"
	"path"
	"regexp"
	"strconv"
	"strings"

	"nf/loader/proto"
	"nf/loader/snapshot"
	"nf/loader/source"
	"nf/schema"
	"nf/schema/diag"
)

// project reads nf.yaml.
func (l *load) project() {
	text := l.snap.Project
	if text == nil {
		return // the snapshot says why
	}
	l.bundle.sources[snapshot.ProjectFile] = text
	docs, list := source.Parse(snapshot.ProjectFile, text, source.DefaultLimits())
	l.findings = append(l.findings, list...)
	if len(docs) == 0 {
		if !list.HasErrors() {
			l.projectFault("NF2001", diag.Range{Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 1}}, "nf.yaml holds no document",
				"write: {apiVersion: nf/v1, kind: Project, metadata: {name: my-project}}")
		}
		return
	}
	if len(docs) > 1 {
		l.projectFault("NF2001", docs[1].Start(), "nf.yaml holds more than the Project", "move the other documents into files of their own")
	}
	if docs[0].Root == nil {
		return
	}
	l.nfyaml = &docs[0]
	d := document{docs[0], docs[0].Root.Value(), list.HasErrors()}
	kind, list := l.validator.Kind(d.tree)
	if len(list) > 0 {
		l.report(d, list, nil)
		return
	}
	if kind != schema.KindProject {
		l.report(d, diag.List{diag.Newf("NF2003", "/kind", "nf.yaml must be a Project, not a %s", kind).WithHint("write kind: Project; other objects stand in files of their own")}, nil)
		return
	}
	list = d.sound(l.validator.Validate(kind, d.tree))
	l.report(d, list, nil)
	if list.HasErrors() || d.flawed {
		return
	}
	tree, _ := d.tree.(map[string]any)
	o, err := makeObject(kind, tree)
	if err != nil {
		l.report(d, diag.List{diag.New("NF2103", "/spec", err.Error())}, nil)
		return
	}
	l.bundle.Project, _ = o.(*schema.Project)
}

func (l *load) projectFault(code diag.Code, at diag.Range, message, hint string) {
	l.findings = append(l.findings, diag.Diagnostic{Code: code, Level: diag.Error, Message: message, Hint: hint, File: snapshot.ProjectFile, Range: at})
}

// empty reports a project without manifests (NF7001).
func (l *load) empty() {
	at := diag.Range{Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 1}}
	if l.nfyaml != nil {
		at = l.nfyaml.Locate("/spec/roots", false).Range
	}
	l.projectFault("NF7001", at, "no manifests were found under "+strings.Join(l.snap.Roots, ", "),
		"write manifests (*.yaml, *.yml, *.json) below a root, or mend spec.roots")
}

// snapshotFindings takes in what the snapshot says about files, placed in nf.yaml where that names them.
func (l *load) snapshotFindings() {
	for _, f := range l.snap.Findings {
		if f.File == snapshot.ProjectFile && f.Pointer != "" && l.nfyaml != nil {
			f.Range = l.nfyaml.Locate(f.Pointer, false).Range
		}
		l.findings = append(l.findings, f)
	}
}

// roots reads spec.roots of nf.yaml, as far as it can be read.
func roots(project []byte) []string {
	docs, _ := source.Parse(snapshot.ProjectFile, project, source.DefaultLimits())
	if len(docs) == 0 || docs[0].Root == nil {
		return nil
	}
	list, _ := docs[0].Root.Get("spec").Get("roots").Value().([]any)
	var out []string
	for _, item := range list {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

var protoImport = regexp.MustCompile(`(?m)^\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;`)

// follow lists the files that a file names: the proto files of a Target with its include folders, and the imports of a proto
// file that is found from the project's folder.
func follow(name string, data []byte) []string {
	if strings.HasSuffix(name, ".proto") {
		var out []string
		for _, m := range protoImport.FindAllSubmatch(data, -1) {
			out = append(out, string(m[1]))
		}
		return out
	}
	if !bytes.Contains(data, []byte("grpc")) {
		return nil
	}
	docs, _ := source.Parse(name, data, source.DefaultLimits())
	var out []string
	for _, d := range docs {
		grpc := d.Root.Get("spec").Get("grpc")
		out = append(out, textList(grpc.Get("protoFiles"))...)
		for _, dir := range textList(grpc.Get("includeDirs")) {
			out = append(out, strings.TrimSuffix(dir, "/")+"/")
		}
		if set, ok := grpc.Get("descriptorSet").IsText(); ok {
			out = append(out, set)
		}
	}
	return out
}

func textList(n *source.Node) []string {
	list, _ := n.Value().([]any)
	var out []string
	for _, item := range list {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// compile fills in the descriptors of gRPC Targets.
func (l *load) compile(ctx context.Context) {
	l.methods = map[schema.Address]map[string]bool{}
	for _, a := range l.order {
		t, ok := l.objects[a].(*schema.Target)
		if !ok || t.GRPC == nil {
			continue
		}
		if l.outside(a, t) {
			continue
		}
		descriptors, list := proto.Compile(ctx, proto.Sources{
			Service: t.GRPC.Service, ProtoFiles: t.GRPC.ProtoFiles, DescriptorSet: t.GRPC.DescriptorSet, IncludeDirs: t.GRPC.IncludeDirs, File: l.snap.File,
		})
		for i := range list {
			if f := &list[i]; f.File != "" { // a place in a proto file: say which Target wants it
				place := l.first[a].Locate("/spec/grpc/protoFiles", false).Range
				f.Related = append(f.Related, diag.Related{File: l.first[a].File(), Start: place.Start, Message: "named by this Target"})
			}
		}
		l.report(l.first[a], list, &diag.Object{Kind: string(a.Kind), Namespace: a.Namespace, Name: a.Name})
		if list.HasErrors() {
			continue
		}
		full := *t
		grpc := *t.GRPC
		grpc.Descriptors = descriptors
		full.GRPC = &grpc
		l.objects[a] = &full
		if methods, err := proto.Methods(descriptors, t.GRPC.Service); err == nil {
			l.methods[a] = methods
		}
	}
}

// outside reports files of a Target that are not inside the project by their spelling (NF3109).
func (l *load) outside(a schema.Address, t *schema.Target) bool {
	var list diag.List
	look := func(file, pointer string) {
		clean := path.Clean(file)
		if path.IsAbs(file) || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(file, "\\") {
			list = append(list, diag.Newf("NF3109", pointer, "%q is not inside the project", file).WithHint("copy it into the project; paths are relative to the folder of nf.yaml"))
		}
	}
	for i, f := range t.GRPC.ProtoFiles {
		look(f, "/spec/grpc/protoFiles/"+strconv.Itoa(i))
	}
	for i, f := range t.GRPC.IncludeDirs {
		look(f, "/spec/grpc/includeDirs/"+strconv.Itoa(i))
	}
	if t.GRPC.DescriptorSet != "" {
		look(t.GRPC.DescriptorSet, "/spec/grpc/descriptorSet")
	}
	l.report(l.first[a], list, &diag.Object{Kind: string(a.Kind), Namespace: a.Namespace, Name: a.Name})
	return len(list) > 0
}
