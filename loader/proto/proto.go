// Package proto turns the proto files of a Target, or its descriptor set, into one deterministic FileDescriptorSet.
//
// What comes out holds the files that the service needs and nothing else, without comments and places. File names are
// replaced by digests of content, and what compilers write differently is brought into one form, so the same service gives
// the same bytes however it was handed in: that is what stands in the digest of a Target.
//
// Proto files are read from a snapshot, never from the disk. It is the only importer of the proto compiler.
package proto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"nf/schema/diag"
)

// MaxBytes is the budget of all proto files of a Target, and of its descriptor set (contract 7.2 `descriptorBytes`).
const MaxBytes = 8 << 20

// maxFindings bounds what one Target reports.
const maxFindings = 50

// Sources is what a Target says about its service. Either ProtoFiles or DescriptorSet is given. Paths are relative to the
// project.
type Sources struct {
	Service       string
	ProtoFiles    []string
	DescriptorSet string
	IncludeDirs   []string
	// File gives the bytes of a file of the snapshot.
	File func(path string) ([]byte, bool)
}

// Compile gives the service's descriptors, and what is wrong with them (NF3109, NF1016). A finding about the text of a proto
// file has that file and its place; the others have a pointer into the Target's manifest.
func Compile(ctx context.Context, src Sources) (descriptors []byte, list diag.List) {
	defer func() {
		if r := recover(); r != nil { // untrusted text through a compiler
			descriptors, list = nil, diag.List{diag.Newf("NF3109", "/spec/grpc", "proto files cannot be compiled: %v", r)}
		}
	}()
	var files []protoreflect.FileDescriptor
	if src.DescriptorSet != "" {
		files, list = fromSet(src)
	} else {
		files, list = fromFiles(ctx, src)
	}
	if list.HasErrors() {
		return nil, list
	}
	service, findings := find(files, src.Service)
	if service == nil {
		return nil, append(list, findings...)
	}
	descriptors, err := normalise(service.ParentFile())
	if err != nil {
		return nil, append(list, diag.Newf("NF3109", "/spec/grpc", "descriptors of %s cannot be written: %v", src.Service, err))
	}
	return descriptors, list
}

// Methods gives the methods of a service by name: true for one that streams. It reads what Compile gave.
func Methods(descriptors []byte, service string) (map[string]bool, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptors, &set); err != nil {
		return nil, fmt.Errorf("descriptors of %s: %w", service, err)
	}
	for _, f := range set.File {
		for _, s := range f.Service {
			if strings.TrimPrefix(f.GetPackage()+"."+s.GetName(), ".") != service {
				continue
			}
			methods := make(map[string]bool, len(s.Method))
			for _, m := range s.Method {
				methods[m.GetName()] = m.GetClientStreaming() || m.GetServerStreaming()
			}
			return methods, nil
		}
	}
	return nil, fmt.Errorf("descriptors have no service %s", service)
}

// find looks a service up.
func find(files []protoreflect.FileDescriptor, name string) (protoreflect.ServiceDescriptor, diag.List) {
	var names []string
	for _, f := range files {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if string(s.FullName()) == name {
				return s, nil
			}
			names = append(names, string(s.FullName()))
		}
	}
	slices.Sort(names)
	d := diag.Newf("NF3109", "/spec/grpc/service", "the proto files declare no service %q", name)
	switch near := diag.DidYouMean(name, names); {
	case near != "":
		d = d.WithHint(near)
	case len(names) > 0:
		d = d.WithHint("they declare " + strings.Join(names[:min(len(names), 5)], ", "))
	}
	return nil, diag.List{d}
}

// fromSet reads a descriptor set.
func fromSet(src Sources) ([]protoreflect.FileDescriptor, diag.List) {
	const pointer = "/spec/grpc/descriptorSet"
	data, ok := src.File(path.Clean(src.DescriptorSet))
	if !ok {
		return nil, diag.List{diag.Newf("NF3109", pointer, "file %q does not exist in the project", src.DescriptorSet)}
	}
	if len(data) > MaxBytes {
		return nil, diag.List{tooLarge(pointer, len(data))}
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return nil, diag.List{diag.Newf("NF3109", pointer, "file %q is no descriptor set", src.DescriptorSet).
			WithHint("make it with: protoc --include_imports --descriptor_set_out=" + src.DescriptorSet)}
	}
	registry, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, diag.List{diag.Newf("NF3109", pointer, "descriptor set %q is not complete: %v", src.DescriptorSet, err).
			WithHint("make it with --include_imports")}
	}
	var files []protoreflect.FileDescriptor
	registry.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		files = append(files, f)
		return true
	})
	return files, nil
}

func tooLarge(pointer string, n int) diag.Diagnostic {
	return diag.Newf("NF1016", pointer, "proto files have %d bytes, more than the limit descriptorBytes = %d", n, MaxBytes)
}

// errUnknownFile says that an import names no file of the project.
var errUnknownFile = errors.New("file does not exist in the project")

// opener gives the compiler the project's files and counts what it takes.
type opener struct {
	src   Sources
	bytes int
	paths map[string]string // name in imports → path in the project
}

// place finds the file that an import means: below an include folder, else from the project's folder.
func (o *opener) place(name string) (string, []byte, bool) {
	for _, dir := range append(slices.Clone(o.src.IncludeDirs), ".") {
		p := path.Join(dir, name)
		if data, ok := o.src.File(p); ok {
			return p, data, true
		}
	}
	return "", nil, false
}

func (o *opener) open(name string) (io.ReadCloser, error) {
	p, data, ok := o.place(name)
	if !ok {
		return nil, errUnknownFile
	}
	o.paths[name] = p
	if o.bytes += len(data); o.bytes > MaxBytes {
		return nil, fmt.Errorf("proto files have more bytes than the limit descriptorBytes = %d", MaxBytes)
	}
	return io.NopCloser(strings.NewReader(string(data))), nil
}

// importName gives the name by which other files import a file: below the innermost include folder that holds it.
func importName(file string, includes []string) string {
	file = path.Clean(file)
	best := file
	for _, dir := range includes {
		if rest, ok := strings.CutPrefix(file, path.Clean(dir)+"/"); ok && len(rest) < len(best) {
			best = rest
		}
	}
	return best
}

// fromFiles compiles proto files.
func fromFiles(ctx context.Context, src Sources) ([]protoreflect.FileDescriptor, diag.List) {
	var list diag.List
	o := &opener{src: src, paths: map[string]string{}}
	var names []string
	for i, f := range src.ProtoFiles {
		if _, ok := src.File(path.Clean(f)); !ok {
			list = append(list, diag.Newf("NF3109", fmt.Sprintf("/spec/grpc/protoFiles/%d", i), "file %q does not exist in the project", f).
				WithHint("paths are relative to the folder of nf.yaml"))
			continue
		}
		names = append(names, importName(f, src.IncludeDirs))
	}
	if len(list) > 0 {
		return nil, list
	}
	r := &report{opener: o}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: o.open}),
		MaxParallelism: 1, // the opener counts; many Targets matter, not one
		Reporter:       reporter.NewReporter(r.error, nil),
		SourceInfoMode: protocompile.SourceInfoNone,
	}
	compiled, err := compiler.Compile(ctx, names...)
	if at := reporter.ErrorWithPos(nil); len(r.list) == 0 && errors.As(err, &at) {
		_ = r.error(at) // an import that cannot be found does not go through the reporter
	}
	if len(r.list) > 0 {
		r.list.Sort()
		return nil, r.list
	}
	if err != nil {
		return nil, diag.List{diag.Newf("NF3109", "/spec/grpc/protoFiles", "proto files do not compile: %v", err)}
	}
	return descriptors(compiled), nil
}

func descriptors(files linker.Files) []protoreflect.FileDescriptor {
	out := make([]protoreflect.FileDescriptor, len(files))
	for i, f := range files {
		out[i] = f
	}
	return out
}

// report turns the compiler's errors into findings.
type report struct {
	opener *opener
	list   diag.List
}

func (r *report) error(err reporter.ErrorWithPos) error {
	if len(r.list) >= maxFindings {
		return err
	}
	pos := err.GetPosition()
	file := r.opener.paths[pos.Filename]
	text := err.Unwrap().Error()
	d := diag.New("NF3109", "/spec/grpc/protoFiles", "proto file does not compile: "+text)
	if errors.Is(err, errUnknownFile) {
		d.Message = "an import names a file that does not exist in the project"
		if _, rest, ok := strings.Cut(text, `"`); ok {
			if name, _, ok := strings.Cut(rest, `"`); ok {
				d.Message = fmt.Sprintf("import %q names no file of the project", name)
			}
		}
		d = d.WithHint("imports are looked for below includeDirs, then from the folder of nf.yaml")
	}
	if file != "" {
		d.File = file
		at := diag.Pos{Line: max(pos.Line, 1), Column: max(pos.Col, 1), Offset: pos.Offset}
		d.Range = diag.Range{Start: at, End: at}
	}
	r.list = append(r.list, d)
	return nil
}
