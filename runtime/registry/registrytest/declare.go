// Package registrytest puts declarations in force for tests of other packages, without files.
package registrytest

import (
	"bytes"
	"context"
	"testing"

	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema"
)

// Project owns what Declare declares.
const Project = "test"

// New declares objects and gives a registry that serves them.
func New(t testing.TB, s *store.Store, objects ...schema.Object) *registry.Registry {
	t.Helper()
	Declare(t, s, objects...)
	r, err := registry.Open(t.Context(), s)
	if err != nil {
		t.Fatalf("opening the registry: %v", err)
	}
	return r
}

// Declare makes the objects the whole set of the project Project: what is new is added, what differs changed, what is missing retired. A
// registry that is open sees it at its next Refresh.
func Declare(t testing.TB, s *store.Store, objects ...schema.Object) {
	t.Helper()
	if err := declare(t.Context(), s, objects); err != nil {
		t.Fatalf("declaring: %v", err)
	}
}

func declare(ctx context.Context, s *store.Store, objects []schema.Object) error {
	set, err := schema.NewSet(objects...)
	if err != nil {
		return err
	}
	req := store.ApplyRequest{Project: Project, Digest: set.Digest(), Actor: "test", Build: 1}
	for _, o := range set.All() {
		req.Wanted = append(req.Wanted, o.Address())
	}
	registered, err := s.Registered(ctx, Project, "", req.Wanted)
	if err != nil {
		return err
	}
	req.BaseGeneration = registered.Project.Generation
	_, err = s.Apply(ctx, req, func(r store.Registered) ([]store.Change, error) { return changes(r, set), nil })
	return err
}

// changes is the simplest plan there is.
func changes(r store.Registered, set schema.Set) []store.Change {
	var all []store.Change
	seen := map[schema.Address]bool{}
	for i := range r.Objects {
		base := &r.Objects[i]
		seen[base.Address] = true
		o, ok := set.Get(base.Address)
		switch {
		case !ok && base.RetiredAt.IsZero():
			all = append(all, store.Change{Action: store.ActionRetire, Base: base})
		case ok && !base.RetiredAt.IsZero():
			all = append(all, store.Change{Action: store.ActionUnretire, Base: base, Want: declared(o)})
		case ok && !bytes.Equal(base.Spec, schema.Canonical(o)):
			all = append(all, store.Change{Action: store.ActionChange, Base: base, Want: declared(o)})
		}
	}
	for _, o := range set.All() {
		if !seen[o.Address()] {
			all = append(all, store.Change{Action: store.ActionAdd, Want: declared(o)})
		}
	}
	return all
}

func declared(o schema.Object) *store.Declared {
	return &store.Declared{Object: o, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), File: "test.yaml", Line: 1}
}
