package schema_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"nf/schema"
)

func TestEscapeSegment(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"a": "a", "A-z_0.9~": "A-z_0.9~", "a/b": "a%2Fb", "../x": "..%2Fx", "a b": "a%20b", "a+b": "a%2Bb", "?": "%3F", "#": "%23", "%": "%25", "%2e": "%252e", `\`: "%5C",
		"é": "%C3%A9", "\x00": "%00", "\n": "%0A", ";=,&@:": "%3B%3D%2C%26%40%3A", "...": "...", ".a": ".a", "\xff": "%FF", `{"a":1}`: "%7B%22a%22%3A1%7D",
	} {
		got, err := schema.EscapeSegment(value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, value := range []string{"", ".", ".."} {
		_, err := schema.EscapeSegment(value)
		require.Error(t, err, value)
	}
}

// FuzzEscapedPath: whatever a value is, a path with it either names one segment beneath the literal parts, or is refused.
func FuzzEscapedPath(f *testing.F) {
	for _, s := range []string{"a", "..", "../..", "%2e%2e", "a/b", "a?b", "a#b", `..\x`, "é", "\x00", "%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		segment, err := schema.EscapeSegment(value)
		if err != nil {
			return
		}
		require.NotContains(t, segment, "/")
		path := "/orders/" + segment + "/items"
		if schema.CheckPath(path) == nil {
			require.Equal(t, 3, strings.Count(path, "/"))
			require.NotContains(t, value, "/")
		}
		require.True(t, utf8.ValidString(path))
	})
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/", "a", "/a/b", "//a", "/a//b/", "/a.b/..c/d..", "/...", "/a%3Fb", "/%252F", "/ä/ ", "/a:b@c;d=e,f!$&'()*+", "/%00", "/a%5Cb"} {
		require.NoError(t, schema.CheckPath(path), path)
	}
	for path, want := range map[string]string{
		"?": `"?"`, "/a?b": "query", "/a#b": `"#"`, `/a\b`: `"\\"`, "/a\x00": "U+0000", "/a\n": "U+000A", "/\x7f": "U+007F", "/\u0085": "U+0085", "/\xff": "UTF-8",
		"/.": `"."`, "/..": `".."`, "..": `".."`, "/a/../b": `".."`, "/%2e": `"."`, "/%2E%2e/": `".."`, "/.%2e": `".."`, "/a%2fb": `"/"`, "/%2F": `"/"`, "/a/..%5cb": `".."`, "/%5C..": `".."`,
		"/%": "hexadecimal", "/%4": "hexadecimal", "/%zz": "hexadecimal", "/%4/1": "hexadecimal",
	} {
		require.ErrorContains(t, schema.CheckPath(path), want, path)
	}
}

func TestHeaderAndMetadataNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-A", "authorization", "Idempotency-Key", "x.y", "User-Agent", "Content-Type", "!#$"} {
		require.NoError(t, schema.CheckHeaderName(name), name)
	}
	for _, name := range []string{"", "a b", "a:", "ü", "Host", "HOST", "Content_Length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "Proxy-X", "proxy_x", "X-NF-a", "x_nf_a"} {
		require.Error(t, schema.CheckHeaderName(name), name)
	}
	for _, name := range []string{"x-a", "X-A", "a_b.c", "authorization", "x-bin"} {
		require.NoError(t, schema.CheckMetadataName(name), name)
	}
	for _, name := range []string{"", ":path", "grpc-timeout", "GRPC_x", "te", "content-type", "user-agent", "host", "a!", "x~", "x-nf-a"} {
		require.Error(t, schema.CheckMetadataName(name), name)
	}
	require.Equal(t, "x-a-b", schema.HeaderKey("X_A-b"))
}

func TestValues(t *testing.T) {
	t.Parallel()
	require.NoError(t, schema.CheckHeaderValue("a é ✓"))
	require.NoError(t, schema.CheckMetadataValue(" ~a"))
	for _, bad := range []string{"a\nb", "a\rb", "\x00", "\t", "\x7f", "\u0080", "\xff"} {
		require.Error(t, schema.CheckHeaderValue(bad))
		require.Error(t, schema.CheckMetadataValue(bad))
	}
	require.Error(t, schema.CheckMetadataValue("é"))
}

func secretRef(name, key, prefix string) map[string]any {
	inner := map[string]any{"name": name, "key": key}
	if prefix != "" {
		inner["prefix"] = prefix
	}
	return map[string]any{"secretRef": inner}
}

// TestOnlyADefinitionNamesASecret: what a start's input brings in must not choose which secret is read.
func TestOnlyADefinitionNamesASecret(t *testing.T) {
	t.Parallel()
	literal := map[string]any{"Authorization": secretRef("psp", "token", "Bearer "), "X-Whole": "${workflow.input.header}", "X-Text": "a"}
	for _, c := range []struct {
		name     string
		t        schema.TaskType
		field    string
		declared any
		resolved any
		fails    bool
	}{
		{"literal", schema.TypeHTTP, "headers", literal, map[string]any{"Authorization": secretRef("psp", "token", "Bearer "), "X-Whole": "x"}, false},
		{"brought in", schema.TypeHTTP, "headers", literal, map[string]any{"X-Whole": secretRef("other", "token", "")}, true},
		{"another prefix", schema.TypeHTTP, "headers", literal, map[string]any{"Authorization": secretRef("psp", "token", "")}, true},
		{"another place", schema.TypeHTTP, "headers", literal, map[string]any{"X-Whole": secretRef("psp", "token", "Bearer ")}, true},
		{"the whole map", schema.TypeHTTP, "headers", "${workflow.input.headers}", map[string]any{"Authorization": secretRef("psp", "token", "Bearer ")}, true},
		{"the whole map, text", schema.TypeHTTP, "headers", "${workflow.input.headers}", map[string]any{"A": "b"}, false},
		{"an object that is none", schema.TypeHTTP, "headers", literal, map[string]any{"X-Whole": map[string]any{"a": "b"}}, true},
		{"gRPC", schema.TypeGRPC, "metadata", map[string]any{}, map[string]any{"a": secretRef("psp", "token", "")}, true},
		{"gRPC, literal", schema.TypeGRPC, "metadata", map[string]any{"a": secretRef("psp", "token", "")}, map[string]any{"a": secretRef("psp", "token", "")}, false},
		{"no map", schema.TypeHTTP, "headers", literal, "text", false},
		{"not secretable", schema.TypeHTTP, "body", map[string]any{}, secretRef("psp", "token", ""), false},
		{"a type without secrets", schema.TypeSimple, "headers", map[string]any{}, map[string]any{"a": secretRef("psp", "token", "")}, false},
	} {
		task := &schema.Task{Type: c.t, InputParameters: map[string]any{c.field: c.declared}}
		err := schema.CheckSecretRefs(task, map[string]any{c.field: c.resolved})
		require.Equal(t, c.fails, err != nil, c.name)
	}
}

func TestIsSecretName(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"a", "A9", "a.b-c_d", strings.Repeat("a", 253)} {
		require.True(t, schema.IsSecretName(ok), ok)
	}
	for _, bad := range []string{"", ".", "..", "-a", "a-", "_a", "a/b", "a b", "ä", "a\x00b", strings.Repeat("a", 254)} {
		require.False(t, schema.IsSecretName(bad), bad)
	}
}
