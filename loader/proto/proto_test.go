package proto_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	gproto "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"nf/loader/proto"
	"nf/schema/diag"
)

const (
	money   = "syntax = \"proto3\";\npackage common;\nmessage Money { int64 minor_units = 1; string currency = 2; }\n"
	billing = "syntax = \"proto3\";\npackage billing.v1;\nimport \"common/money.proto\";\nimport \"google/protobuf/timestamp.proto\";\n" +
		"message Charge { common.Money amount = 1; google.protobuf.Timestamp at = 2; }\nmessage Receipt { string receipt_id = 1; }\n" +
		"service Billing { rpc Pay(Charge) returns (Receipt); rpc Watch(Charge) returns (stream Receipt); }\n"
)

func compile(t *testing.T, files map[string]string, src proto.Sources) ([]byte, []string) {
	t.Helper()
	if src.Service == "" {
		src.Service = "billing.v1.Billing"
	}
	src.File = func(path string) ([]byte, bool) {
		text, ok := files[path]
		return []byte(text), ok
	}
	out, list := proto.Compile(t.Context(), src)
	var found []string
	for _, d := range list {
		require.Equal(t, diag.Error, d.Level)
		found = append(found, fmt.Sprintf("%s %s%s:%d:%d %s", d.Code, d.File, d.Pointer, d.Range.Start.Line, d.Range.Start.Column, d.Message))
	}
	return out, found
}

func TestSameServiceSameBytes(t *testing.T) {
	t.Parallel()
	plain, found := compile(t, map[string]string{"proto/billing.proto": billing, "proto/common/money.proto": money},
		proto.Sources{ProtoFiles: []string{"proto/billing.proto"}, IncludeDirs: []string{"proto"}})
	require.Empty(t, found)

	atRoot, found := compile(t, map[string]string{"b.proto": "// a comment\n\n" + billing, "common/money.proto": money + "\n// more\n"},
		proto.Sources{ProtoFiles: []string{"b.proto"}})
	require.Empty(t, found)
	require.Equal(t, plain, atRoot, "file names and comments do not count")

	renamed, found := compile(t, map[string]string{"b.proto": strings.ReplaceAll(billing, "common/money", "x/y"), "x/y.proto": money},
		proto.Sources{ProtoFiles: []string{"b.proto"}})
	require.Empty(t, found)
	require.Equal(t, plain, renamed)

	withOptions, found := compile(t, map[string]string{
		"b.proto": strings.Replace(billing, "import", "option go_package = \"x\";\nimport", 1), "common/money.proto": money, "other.proto": "syntax = \"proto3\";\nmessage Unused {}\n",
	}, proto.Sources{ProtoFiles: []string{"./b.proto", "other.proto"}})
	require.Empty(t, found)
	require.Equal(t, plain, withOptions, "options for generated code and files that the service does not need do not count")

	set, found := compile(t, map[string]string{"x.binpb": string(descriptorSet(t, billing, money))}, proto.Sources{DescriptorSet: "x.binpb"})
	require.Empty(t, found)
	require.Equal(t, plain, set, "a descriptor set is as good as its files")

	changed, found := compile(t, map[string]string{"b.proto": billing, "common/money.proto": strings.Replace(money, "currency", "code", 1)}, proto.Sources{ProtoFiles: []string{"b.proto"}})
	require.Empty(t, found)
	require.NotEqual(t, plain, changed)

	var out descriptorpb.FileDescriptorSet
	require.NoError(t, gproto.Unmarshal(plain, &out))
	_, err := protodesc.NewFiles(&out)
	require.NoError(t, err)

	methods, err := proto.Methods(plain, "billing.v1.Billing")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"Pay": false, "Watch": true}, methods)
	_, err = proto.Methods(plain, "billing.v1.Other")
	require.Error(t, err)
}

// descriptorSet does what protoc does: names, places, syntax written out.
func descriptorSet(t *testing.T, billing, money string) []byte {
	t.Helper()
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{
			"billing.proto": billing, "common/money.proto": money,
		})}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(t.Context(), "common/money.proto", "google/protobuf/timestamp.proto", "billing.proto")
	require.NoError(t, err)
	var set descriptorpb.FileDescriptorSet
	for _, f := range files {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	data, err := gproto.Marshal(&set)
	require.NoError(t, err)
	return data
}

func TestFindings(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		files map[string]string
		src   proto.Sources
		want  []string
	}{
		{
			"missing file",
			map[string]string{},
			proto.Sources{ProtoFiles: []string{"a.proto", "b.proto"}},
			[]string{
				`NF3109 /spec/grpc/protoFiles/0:0:0 file "a.proto" does not exist in the project`,
				`NF3109 /spec/grpc/protoFiles/1:0:0 file "b.proto" does not exist in the project`,
			},
		},
		{
			"missing import",
			map[string]string{"p/b.proto": billing},
			proto.Sources{ProtoFiles: []string{"p/b.proto"}},
			[]string{`NF3109 p/b.proto/spec/grpc/protoFiles:3:8 import "common/money.proto" names no file of the project`},
		},
		{
			"syntax",
			map[string]string{"b.proto": "syntax = \"proto3\";\nmessage {\n"},
			proto.Sources{ProtoFiles: []string{"b.proto"}},
			[]string{`NF3109 b.proto/spec/grpc/protoFiles:2:9 proto file does not compile: syntax error: unexpected '{'`},
		},
		{
			"unknown type",
			map[string]string{"b.proto": "syntax = \"proto3\";\nmessage A { B b = 1; }\n"},
			proto.Sources{ProtoFiles: []string{"b.proto"}},
			[]string{`NF3109 b.proto/spec/grpc/protoFiles:2:13 proto file does not compile: field A.b: unknown type B`},
		},
		{
			"service",
			map[string]string{"b.proto": billing, "common/money.proto": money},
			proto.Sources{ProtoFiles: []string{"b.proto"}, Service: "billing.v1.Biling"},
			[]string{`NF3109 /spec/grpc/service:0:0 the proto files declare no service "billing.v1.Biling"`},
		},
		{
			"cycle",
			map[string]string{"a.proto": "syntax = \"proto3\";\nimport \"a.proto\";\n"},
			proto.Sources{ProtoFiles: []string{"a.proto"}},
			[]string{`NF3109 a.proto/spec/grpc/protoFiles:2:8 proto file does not compile: cycle found in imports: "a.proto" -> "a.proto"`},
		},
		{
			"missing set",
			map[string]string{},
			proto.Sources{DescriptorSet: "x.binpb"},
			[]string{`NF3109 /spec/grpc/descriptorSet:0:0 file "x.binpb" does not exist in the project`},
		},
		{
			"no set",
			map[string]string{"x.binpb": "text"},
			proto.Sources{DescriptorSet: "x.binpb"},
			[]string{`NF3109 /spec/grpc/descriptorSet:0:0 file "x.binpb" is no descriptor set`},
		},
		{
			"too large",
			map[string]string{"x.binpb": strings.Repeat("x", proto.MaxBytes+1)},
			proto.Sources{DescriptorSet: "x.binpb"},
			[]string{`NF1016 /spec/grpc/descriptorSet:0:0 proto files have 8388609 bytes, more than the limit descriptorBytes = 8388608`},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, found := compile(t, c.files, c.src)
			require.Nil(t, out)
			require.Equal(t, c.want, found)
		})
	}
}

func TestIncompleteSet(t *testing.T) {
	t.Parallel()
	var set descriptorpb.FileDescriptorSet
	require.NoError(t, gproto.Unmarshal(descriptorSet(t, billing, money), &set))
	set.File = set.File[2:]
	data, err := gproto.Marshal(&set)
	require.NoError(t, err)
	_, found := compile(t, map[string]string{"x.binpb": string(data)}, proto.Sources{DescriptorSet: "x.binpb"})
	require.Len(t, found, 1)
	require.Contains(t, found[0], "is not complete")
}

// TestDeterministic compiles many times: the compiler works concurrently, its answer does not.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	files := map[string]string{"b.proto": billing, "common/money.proto": money}
	first, _ := compile(t, files, proto.Sources{ProtoFiles: []string{"b.proto", "common/money.proto"}})
	for range 50 {
		again, _ := compile(t, files, proto.Sources{ProtoFiles: []string{"common/money.proto", "b.proto"}})
		require.Equal(t, first, again)
	}
}
