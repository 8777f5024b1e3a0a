package secret_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/secret"
	"nf/schema"
)

func ref(namespace, name, key string) secret.Reference {
	return secret.Reference{Namespace: namespace, Name: name, Key: key}
}

func TestVariableName(t *testing.T) {
	t.Parallel()
	for r, want := range map[secret.Reference]string{
		ref("default", "psp", "token"):           "NF_SECRET__DEFAULT__PSP__TOKEN",
		ref("Team-A", "psp.api-key", "to_ken.1"): "NF_SECRET__TEAM_A__PSP_API_KEY__TO_KEN_1",
	} {
		require.Equal(t, want, secret.VariableName(r))
	}
}

func TestCollisions(t *testing.T) {
	t.Parallel()
	got := secret.Collisions([]secret.Reference{
		ref("a", "x-y", "k"), ref("a", "x.y", "k"), ref("a", "x-y", "k"), ref("A", "x_y", "K"), ref("a", "other", "k"),
		ref("a__b", "c", "d"), ref("a", "b__c", "d"),
	})
	require.Equal(t, []secret.Collision{
		{Variable: "NF_SECRET__A__B__C__D", References: []secret.Reference{ref("a", "b__c", "d"), ref("a__b", "c", "d")}},
		{Variable: "NF_SECRET__A__X_Y__K", References: []secret.Reference{ref("A", "x_y", "K"), ref("a", "x-y", "k"), ref("a", "x.y", "k")}},
	}, got)
	require.Equal(t, "the secrets a/b__c/d and a__b/c/d map to one variable, NF_SECRET__A__B__C__D: rename one", got[0].String())
	require.Empty(t, secret.Collisions([]secret.Reference{ref("a", "b", "c"), ref("a", "b", "c"), ref("a", "b", "d")}))
	require.Empty(t, secret.Collisions(nil))
}

func TestEnv(t *testing.T) {
	t.Parallel()
	env := secret.NewEnv([]string{
		"NF_SECRET__DEFAULT__PSP__TOKEN=value", "NF_SECRET__DEFAULT__PSP__EQUALS=a=b=", "NF_SECRET__DEFAULT__PSP__EMPTY=", "NF_SECRET__DEFAULT__PSP__BREAK=\n",
		"NF_SECRET__DEFAULT__PSP__LF=v\n", "NF_SECRET__DEFAULT__PSP__CRLF=v\r\n", "NF_SECRET__DEFAULT__PSP__TWO=v\n\n", "NF_SECRET__DEFAULT__PSP__CR=v\r",
		"PATH=/bin", "odd", "NF_SECRET__DEFAULT__PSP__TWICE=1", "NF_SECRET__DEFAULT__PSP__TWICE=2",
	})
	for key, want := range map[string]string{"token": "value", "equals": "a=b=", "lf": "v", "crlf": "v", "two": "v\n", "cr": "v\r", "twice": "2"} {
		got, err := env.Lookup(t.Context(), ref("default", "psp", key))
		require.NoError(t, err, key)
		require.Equal(t, want, got, key)
	}
	for _, key := range []string{"empty", "break", "missing"} {
		_, err := env.Lookup(t.Context(), ref("default", "psp", key))
		require.ErrorIs(t, err, secret.ErrUnresolved, key)
		require.ErrorContains(t, err, "NF_SECRET__DEFAULT__PSP__"+strings.ToUpper(key))
	}
	require.Len(t, env.Values(), 9)
	require.NotContains(t, env.Values(), "PATH")
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestDir(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "secrets")
	for name, content := range map[string]string{
		"token": "value", "lf": "v\n", "crlf": "v\r\n", "two": "v\n\n", "spaces": " v ", "empty": "", "break": "\n", "fits": strings.Repeat("x", 64<<10), "large": strings.Repeat("x", 64<<10+1), "bytes": "\xff\x00",
	} {
		write(t, dir, "default/psp/"+name, content)
	}
	write(t, base, "outside", "not yours")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "default/psp/folder"), 0o700))
	require.NoError(t, os.Symlink("../../../outside", filepath.Join(dir, "default/psp/escape")))
	require.NoError(t, os.Symlink(filepath.Join(base, "outside"), filepath.Join(dir, "default/psp/absolute")))
	require.NoError(t, os.Symlink("token", filepath.Join(dir, "default/psp/link"))) // as mounted volumes do
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "default/psp/loop")))
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "default/up")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "default/psp/pipe"), 0o600))

	provider, err := secret.OpenDir(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provider.Close()) })
	for key, want := range map[string]string{"token": "value", "lf": "v", "crlf": "v", "two": "v\n", "spaces": " v ", "fits": strings.Repeat("x", 64<<10), "bytes": "\xff\x00", "link": "value"} {
		got, err := provider.Lookup(t.Context(), ref("default", "psp", key))
		require.NoError(t, err, key)
		require.Equal(t, want, got, key)
	}
	for _, key := range []string{"empty", "break", "missing"} {
		_, err := provider.Lookup(t.Context(), ref("default", "psp", key))
		require.ErrorIs(t, err, secret.ErrUnresolved, key)
		require.ErrorContains(t, err, "default/psp/"+key)
		require.NotContains(t, err.Error(), base, "the path of this machine stays out of reasons")
	}
	for _, key := range []string{"large", "folder", "escape", "absolute", "loop", "pipe"} {
		_, err := provider.Lookup(t.Context(), ref("default", "psp", key))
		require.Error(t, err, key)
		require.NotErrorIs(t, err, secret.ErrUnresolved, key)
		require.NotContains(t, err.Error(), base, key)
		require.NotContains(t, err.Error(), "not yours")
	}

	// Read at each use: a rotated value counts at once.
	write(t, dir, "default/psp/token", "new\n")
	got, err := provider.Lookup(t.Context(), ref("default", "psp", "token"))
	require.NoError(t, err)
	require.Equal(t, "new", got)
}

func TestResolverRefusesWhatNoSchemaLetsThrough(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "secrets")
	write(t, dir, "default/psp/token", "value")
	write(t, base, "x/y/z", "outside")
	provider, err := secret.OpenDir(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provider.Close()) })
	resolver := secret.NewResolver(provider)
	got, err := resolver.Resolve(t.Context(), "default", schema.SecretRef{Name: "psp", Key: "token", Prefix: "Bearer "})
	require.NoError(t, err)
	require.Equal(t, "value", got, "without the prefix")
	for _, r := range []secret.Reference{
		ref("..", "x", "y"), ref("", "psp", "token"), ref("default", "..", "token"), ref("default", "psp", "../psp/token"), ref("default", "psp/token", "x"), ref("default/psp", "token", "x"),
		ref("default", "psp", ""), ref(".", "default", "psp"), ref("default", "psp", "."), ref("default\x00", "psp", "token"), ref("default", "psp", "tok\x00en"),
	} {
		_, err := resolver.Resolve(t.Context(), r.Namespace, schema.SecretRef{Name: r.Name, Key: r.Key})
		require.Error(t, err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = resolver.Resolve(ctx, "default", schema.SecretRef{Name: "psp", Key: "token"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "env"} {
		p, err := secret.Open(secret.Settings{Provider: name, Environ: []string{"NF_SECRET__A__B__C=v"}})
		require.NoError(t, err)
		got, err := p.Lookup(t.Context(), ref("a", "b", "c"))
		require.NoError(t, err)
		require.Equal(t, "v", got)
	}
	p, err := secret.Open(secret.Settings{Provider: "file", Dir: t.TempDir()})
	require.NoError(t, err)
	require.IsType(t, &secret.Dir{}, p)
	require.NoError(t, p.(*secret.Dir).Close()) //nolint:forcetypeassert // the line above
	for setting, s := range map[string]secret.Settings{
		"NF_SECRETS_DIR":      {Provider: "file"},
		"opening the folder":  {Provider: "file", Dir: filepath.Join(t.TempDir(), "nope")},
		"NF_SECRETS_PROVIDER": {Provider: "command"},
		`"vault"`:             {Provider: "vault"},
	} {
		_, err := secret.Open(s)
		require.ErrorContains(t, err, setting)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	lit := func(name string) map[string]any {
		return map[string]any{"secretRef": map[string]any{"name": name, "key": "k"}}
	}
	http := func(name string) *schema.Task {
		return &schema.Task{Type: schema.TypeHTTP, InputParameters: map[string]any{"headers": map[string]any{"A": lit(name), "B": "text"}, "body": lit("data")}}
	}
	workflow := &schema.Workflow{Metadata: schema.Metadata{Namespace: "orders", Name: "w"}, Tasks: []*schema.Task{
		http("b"), http("a"), http("a"),
		{Type: schema.TypeGRPC, InputParameters: map[string]any{"metadata": map[string]any{"x": lit("g")}, "headers": map[string]any{"x": lit("no")}}},
		{Type: schema.TypeSwitch, DecisionCases: map[string][]*schema.Task{"x": {http("case")}}, DefaultCase: []*schema.Task{http("default")}},
		{Type: schema.TypeForkJoin, ForkTasks: [][]*schema.Task{{http("fork")}}},
		{Type: schema.TypeSimple, InputParameters: map[string]any{"headers": map[string]any{"x": lit("no")}}},
		{Type: schema.TypeHTTP, InputParameters: map[string]any{"headers": "${workflow.input.h}"}},
	}}
	require.Equal(t, []secret.Reference{
		ref("orders", "a", "k"), ref("orders", "b", "k"), ref("orders", "case", "k"), ref("orders", "default", "k"), ref("orders", "fork", "k"), ref("orders", "g", "k"),
	}, secret.References(workflow))
	secretable := map[string]schema.Secretable{"A": {Secret: &schema.SecretRef{Name: "t", Key: "k"}}, "B": {Text: "x"}}
	require.Equal(t, []secret.Reference{ref("shared", "t", "k")}, secret.References(&schema.Target{Metadata: schema.Metadata{Namespace: "shared"}, HTTP: &schema.HTTPTarget{Headers: secretable}}))
	require.Equal(t, []secret.Reference{ref("shared", "t", "k")}, secret.References(&schema.Target{Metadata: schema.Metadata{Namespace: "shared"}, GRPC: &schema.GRPCTarget{Metadata: secretable}}))
	require.Empty(t, secret.References(&schema.Semaphore{}))
}
