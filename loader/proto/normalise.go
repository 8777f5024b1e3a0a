package proto

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// normalise gives the bytes of a file and all that it imports, each after what it imports.
func normalise(file protoreflect.FileDescriptor) ([]byte, error) {
	n := &normaliser{names: map[string]string{}}
	if _, err := n.add(file); err != nil {
		return nil, err
	}
	slices.SortStableFunc(n.files, func(a, b leveled) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.file.GetName(), b.file.GetName()))
	})
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range n.files {
		set.File = append(set.File, f.file)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(set)
}

type normaliser struct {
	names map[string]string // old name → new
	files []leveled
}

// leveled is a file with the length of its longest chain of imports.
type leveled struct {
	file  *descriptorpb.FileDescriptorProto
	level int
}

// add adds a file after its imports and gives its level.
func (n *normaliser) add(file protoreflect.FileDescriptor) (int, error) {
	for i, f := range n.files {
		if n.names[file.Path()] == f.file.GetName() {
			return n.files[i].level, nil
		}
	}
	level := 0
	imports := file.Imports()
	for i := range imports.Len() {
		below, err := n.add(imports.Get(i).FileDescriptor)
		if err != nil {
			return 0, err
		}
		level = max(level, below+1)
	}
	f, ok := proto.Clone(protodesc.ToFileDescriptorProto(file)).(*descriptorpb.FileDescriptorProto)
	if !ok {
		return 0, fmt.Errorf("file %s has no descriptor", file.Path())
	}
	if err := n.bring(f); err != nil {
		return 0, err
	}
	n.names[file.Path()] = f.GetName()
	if !slices.ContainsFunc(n.files, func(l leveled) bool { return l.file.GetName() == f.GetName() }) {
		n.files = append(n.files, leveled{f, level})
	}
	return level, nil
}

// bring puts a file in the one form: no places, no options for generated code, default JSON names written out, imports by
// their new names in order, the name a digest of all that.
func (n *normaliser) bring(f *descriptorpb.FileDescriptorProto) error {
	f.SourceCodeInfo = nil
	if features := f.GetOptions().GetFeatures(); features != nil {
		f.Options = &descriptorpb.FileOptions{Features: features}
	} else {
		f.Options = nil
	}
	if f.GetSyntax() == "proto2" {
		f.Syntax = nil
	}
	public, weak := marks(f.Dependency, f.PublicDependency), marks(f.Dependency, f.WeakDependency)
	imports := make([]string, len(f.Dependency))
	renamed := map[string]string{}
	for i, name := range f.Dependency {
		imports[i] = n.names[name]
		renamed[n.names[name]] = name
	}
	slices.Sort(imports)
	imports = slices.Compact(imports)
	f.Dependency, f.PublicDependency, f.WeakDependency = imports, nil, nil
	for i, name := range imports {
		if public[renamed[name]] {
			f.PublicDependency = append(f.PublicDependency, int32(i))
		}
		if weak[renamed[name]] {
			f.WeakDependency = append(f.WeakDependency, int32(i))
		}
	}
	jsonNames(f.MessageType)
	for _, x := range f.Extension {
		jsonName(x)
	}
	f.Name = new("")
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(f)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	f.Name = new(hex.EncodeToString(sum[:16]) + ".proto")
	return nil
}

// marks gives the imports that a list of indexes names.
func marks(imports []string, indexes []int32) map[string]bool {
	out := map[string]bool{}
	for _, i := range indexes {
		if i >= 0 && int(i) < len(imports) {
			out[imports[i]] = true
		}
	}
	return out
}

func jsonNames(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		for _, f := range m.Field {
			jsonName(f)
		}
		for _, x := range m.Extension {
			jsonName(x)
		}
		jsonNames(m.NestedType)
	}
}

// jsonName writes the default JSON name of a field, which some compilers leave out.
func jsonName(f *descriptorpb.FieldDescriptorProto) {
	if f.JsonName != nil {
		return
	}
	var b strings.Builder
	upper := false
	for _, r := range f.GetName() {
		switch {
		case r == '_':
			upper = true
		case upper && r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
			upper = false
		default:
			b.WriteRune(r)
			upper = false
		}
	}
	f.JsonName = new(b.String())
}
