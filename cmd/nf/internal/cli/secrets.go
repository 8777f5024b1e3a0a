package cli

import (
	"context"
	"fmt"
	"sync"

	"nf/runtime/registry"
	"nf/runtime/secret"
	"nf/schema"
)

// secrets resolves references, and refuses those that share a variable with another reference in force: one of the two would get the other's secret.
type secrets struct {
	resolver *secret.Resolver
	byName   bool // values are found by a variable's name, so that names may collide
	registry *registry.Registry

	mu         sync.Mutex
	of         *registry.Snapshot
	collisions map[secret.Reference]secret.Collision
}

func newSecrets(p secret.Provider, r *registry.Registry) *secrets {
	_, byName := p.(*secret.Env)
	return &secrets{resolver: secret.NewResolver(p), byName: byName, registry: r}
}

// resolve gives a secret's value. It has the signature of worker.Options.Secrets.
func (s *secrets) resolve(ctx context.Context, namespace string, ref schema.SecretRef) (string, error) {
	if c, ok := s.collision(secret.Reference{Namespace: namespace, Name: ref.Name, Key: ref.Key}); ok {
		return "", fmt.Errorf("refused: %s", c)
	}
	return s.resolver.Resolve(ctx, namespace, ref)
}

func (s *secrets) collision(ref secret.Reference) (secret.Collision, bool) {
	if !s.byName {
		return secret.Collision{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.registry.Snapshot(); now != s.of {
		s.of, s.collisions = now, map[secret.Reference]secret.Collision{}
		for _, c := range secret.Collisions(referencesInForce(now)) {
			for _, r := range c.References {
				s.collisions[r] = c
			}
		}
	}
	c, ok := s.collisions[ref]
	return c, ok
}

func referencesInForce(snap *registry.Snapshot) []secret.Reference {
	var all []secret.Reference
	for _, kind := range []schema.Kind{schema.KindTarget, schema.KindWorkflow} {
		for _, o := range snap.Objects(kind, 0) {
			if o.Value != nil && !o.Retired() {
				all = append(all, secret.References(o.Value)...)
			}
		}
	}
	return all
}

// collisionsOf checks a set before it is put in force.
func collisionsOf(set schema.Set, p secret.Provider) []secret.Collision {
	if _, byName := p.(*secret.Env); !byName {
		return nil
	}
	var all []secret.Reference
	for _, o := range set.All() {
		all = append(all, secret.References(o)...)
	}
	return secret.Collisions(all)
}
