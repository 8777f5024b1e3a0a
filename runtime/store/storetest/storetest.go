//go:build unix

// Package storetest gives each test a store on a migrated Postgres database of its own.
//
// Tests inside package store itself cannot import this package; they use pgtest with a template of their own.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"nf/runtime/pgdev/pgtest"
	"nf/runtime/store"
)

// Environment is the name of the environment that the databases belong to.
const Environment = "test"

// New gives a store on a database of its own, closed when the test ends.
func New(t testing.TB) *store.Store {
	t.Helper()
	return Open(t, URL(t))
}

// URL gives the address of a migrated database that no other test uses.
func URL(t testing.TB) string {
	t.Helper()
	return pgtest.Database(t, pgtest.Template{Name: templateName(), Fill: migrate})
}

// Empty gives the address of a database without any table.
func Empty(t testing.TB) string {
	t.Helper()
	return pgtest.Database(t, pgtest.Template{})
}

// Open opens a further store on the database at url, as another process would; closed when the test ends.
func Open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, AppName: t.Name(), MaxConns: store.MinConns})
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// templateName changes with the migrations.
func templateName() string {
	hash := sha256.New()
	for _, m := range store.Migrations() {
		hash.Write(m.Checksum[:])
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func migrate(ctx context.Context, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, AppName: "template"})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Migrate(ctx, 1, Environment)
}
