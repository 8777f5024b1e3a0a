//go:build unix

package queue_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/queue"
	"nf/runtime/store"
)

func TestTokenIsGoodForItsTaskAndFenceOnly(t *testing.T) {
	t.Parallel()
	old := store.InstallKey{No: 1, Key: []byte(strings.Repeat("a", 32))}
	newer := store.InstallKey{No: 2, Key: []byte(strings.Repeat("b", 32))}
	const task = "0198c7a0-0000-7000-8000-000000000001.1.1"
	token := queue.NewSigner([]store.InstallKey{old}).Sign("default", task, 42)
	require.Regexp(t, `^42\.[A-Za-z0-9_-]{22}$`, token)

	both := queue.NewSigner([]store.InstallKey{newer, old})
	fence, ok := both.Verify(token, "default", task)
	require.True(t, ok, "all keys verify")
	require.Equal(t, int64(42), fence)
	require.NotEqual(t, token, both.Sign("default", task, 42), "the newest signs")

	for name, bad := range map[string]struct{ token, ns, task string }{
		"another namespace": {token, "shop", task},
		"another attempt":   {token, "default", task[:len(task)-1] + "2"},
		"another fence":     {"43" + token[2:], "default", task},
		"padded fence":      {"0" + token, "default", task},
		"signed fence":      {"+" + token, "default", task},
		"cut":               {token[:len(token)-1], "default", task},
		"longer":            {token + "A", "default", task},
		"no dot":            {strings.Replace(token, ".", "", 1), "default", task},
		"empty":             {"", "default", task},
		"only a fence":      {"42.", "default", task},
		"NUL":               {"42.\x00", "default", task},
	} {
		_, ok := both.Verify(bad.token, bad.ns, bad.task)
		require.False(t, ok, name)
	}
	_, ok = queue.NewSigner(nil).Verify(queue.NewSigner(nil).Sign("default", task, 1), "default", task)
	require.False(t, ok, "without a key nothing is signed and nothing is good")
}

func FuzzTokenNeverPanics(f *testing.F) {
	signer := queue.NewSigner([]store.InstallKey{{No: 1, Key: []byte(strings.Repeat("k", 32))}})
	f.Add("1.AAAAAAAAAAAAAAAAAAAAAA", "default", "x")
	f.Add(signer.Sign("default", "x", 9), "default", "x")
	f.Fuzz(func(t *testing.T, token, ns, task string) {
		fence, ok := signer.Verify(token, ns, task)
		if ok && signer.Sign(ns, task, fence) != token {
			t.Fatalf("%q is taken for the token of fence %d", token, fence)
		}
	})
}
