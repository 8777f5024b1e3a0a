package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/secret"
	"nf/schema"
)

// TestMissingSecrets: each secret that does not resolve is told once, with the place that was looked at and everything that needs it.
func TestMissingSecrets(t *testing.T) {
	t.Parallel()
	target := func(name, key string) schema.Object {
		return &schema.Target{Metadata: schema.Metadata{Namespace: "shop", Name: name}, HTTP: &schema.HTTPTarget{
			BaseURI: "https://x.example", Headers: map[string]schema.Secretable{"authorization": {Secret: &schema.SecretRef{Name: "psp", Key: key}}},
		}}
	}
	objects := []schema.Object{target("a", "token"), target("b", "token"), target("c", "other"), target("d", "set")}

	got := missingSecrets(t.Context(), objects, secret.NewEnv([]string{"NF_SECRET__SHOP__PSP__SET=x", "NF_SECRET__SHOP__PSP__OTHER="}))
	require.Len(t, got, 2)
	require.Equal(t, "shop/psp/token", got[0].ref.String())
	require.Equal(t, []string{"Target/shop/a", "Target/shop/b"}, got[0].users)
	require.ErrorContains(t, got[0].where, "variable NF_SECRET__SHOP__PSP__TOKEN")
	require.ErrorContains(t, got[1].where, "variable NF_SECRET__SHOP__PSP__OTHER")

	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "shop", "psp"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "shop", "psp", "token"), []byte("x"), 0o600))
	dir, err := secret.OpenDir(folder)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	got = missingSecrets(t.Context(), objects, dir)
	require.Len(t, got, 2)
	require.ErrorContains(t, got[0].where, "file shop/psp/other")
}
