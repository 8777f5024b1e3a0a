package auth_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/auth"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
)

// handClock is a clock that a test moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func keys(t *testing.T) (*auth.Keys, *handClock) {
	t.Helper()
	c := &handClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return auth.New(storetest.New(t), c), c
}

func none(string) bool { return false }

func TestKeysAreCheckedWhole(t *testing.T) {
	t.Parallel()
	k, c := keys(t)
	ctx := t.Context()
	text, err := k.Create(ctx, auth.Operator("op"), "ci", []auth.Scope{auth.ExecutionsWrite, auth.Lease("pack*")}, []string{"shop"}, none)
	require.NoError(t, err)
	require.Regexp(t, `^nfk_[0-9a-f]{20}_[A-Za-z0-9_-]{43}[a-z2-7]{6}$`, text)

	p, err := k.Check(ctx, text, "a")
	require.NoError(t, err)
	require.True(t, p.Has(auth.ExecutionsRead), "write implies read of its family")
	require.False(t, p.Has(auth.ExecutionsStart))
	require.False(t, p.AllNamespaces())
	require.True(t, p.Has(auth.Lease("pack-heavy")))
	require.False(t, p.Has(auth.Lease("charge")))

	for _, wrong := range []string{"", "nfk_", text[:len(text)-1], text + "x", strings.ToUpper(text), "nfk_" + strings.Repeat("0", 20) + text[24:]} {
		_, err := k.Check(ctx, wrong, "b")
		require.ErrorIs(t, err, auth.ErrUnauthenticated, wrong)
	}

	_, err = k.Revoke(ctx, auth.Operator("op"), "ci")
	require.NoError(t, err)
	_, err = k.Check(ctx, text, "a")
	require.ErrorIs(t, err, auth.ErrUnauthenticated)
	c.Add(time.Minute)
	_, err = k.Check(ctx, text, "a")
	require.ErrorIs(t, err, auth.ErrUnauthenticated)
}

func TestNobodyGrantsWhatTheyLack(t *testing.T) {
	t.Parallel()
	k, _ := keys(t)
	ctx := t.Context()
	text, err := k.Create(ctx, auth.Operator("op"), "small", []auth.Scope{auth.WorkflowsWrite, auth.Lease("a*")}, []string{"shop"}, none)
	require.NoError(t, err)
	small, err := k.Check(ctx, text, "a")
	require.NoError(t, err)
	shop := func(ns string) bool { return ns == "shop" }

	for _, s := range []auth.Scope{auth.Admin, auth.ExecutionsRead, auth.Lease("b"), auth.Lease("*")} {
		_, err := k.Create(ctx, small, "x", []auth.Scope{s}, []string{"shop"}, shop)
		require.ErrorIs(t, err, auth.ErrNotYours, string(s))
	}
	_, err = k.Create(ctx, small, "x", []auth.Scope{auth.WorkflowsRead}, nil, shop)
	require.ErrorIs(t, err, auth.ErrNotYours)
	_, err = k.Create(ctx, small, "x", []auth.Scope{auth.WorkflowsRead}, []string{"other"}, shop)
	require.ErrorIs(t, err, auth.ErrNotYours)
	_, err = k.Create(ctx, small, "y", []auth.Scope{auth.WorkflowsRead, auth.Lease("ab*"), auth.Lease("ac")}, []string{"shop"}, shop)
	require.NoError(t, err)
	_, err = k.Create(ctx, small, "y", []auth.Scope{auth.WorkflowsRead}, []string{"shop"}, shop)
	require.ErrorIs(t, err, store.ErrNameTaken)
}

func TestFailuresFromOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	k, c := keys(t)
	ctx := t.Context()
	text, err := k.Create(ctx, auth.Operator("op"), "good", []auth.Scope{auth.Admin}, nil, none)
	require.NoError(t, err)
	for range 20 {
		_, err := k.Check(ctx, "nfk_noise", "bad")
		require.ErrorIs(t, err, auth.ErrUnauthenticated)
	}
	_, err = k.Check(ctx, text, "bad")
	require.ErrorIs(t, err, auth.ErrTooMany)
	_, err = k.Check(ctx, text, "elsewhere")
	require.NoError(t, err)
	c.Add(10 * time.Second)
	_, err = k.Check(ctx, text, "bad")
	require.NoError(t, err)
}

func TestSecretsAreNotListed(t *testing.T) {
	t.Parallel()
	k, _ := keys(t)
	text, err := k.Create(t.Context(), auth.Operator("op"), "secret", []auth.Scope{auth.Admin}, nil, none)
	require.NoError(t, err)
	all, err := k.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NotContains(t, all[0].ID+all[0].Name, text[25:])
	require.Nil(t, all[0].SecretHash)
	require.True(t, all[0].AllNS)
}

func TestScopesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"admin", "executions:start", "queues:lease:*", "queues:lease:pack", "queues:lease:pack*", "queues:lease:pack:eu"} {
		_, err := auth.ParseScope(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"", "root", "queues:lease:", "queues:lease:a*b", "queues:lease:_nf.HTTP", "plans:approve", "executions:*"} {
		_, err := auth.ParseScope(bad)
		require.Error(t, err, bad)
	}
}
