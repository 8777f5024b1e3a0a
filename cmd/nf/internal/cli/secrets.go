package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"nf/runtime/registry"
	"nf/runtime/secret"
	"nf/runtime/telemetry"
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
	for _, o := range secretUsers(snap) {
		all = append(all, secret.References(o)...)
	}
	return all
}

// secretUsers gives the objects in force that may name secrets.
func secretUsers(snap *registry.Snapshot) []schema.Object {
	var all []schema.Object
	for _, kind := range []schema.Kind{schema.KindTarget, schema.KindWorkflow} {
		for _, o := range snap.Objects(kind, 0) {
			if o.Value != nil && !o.Retired() {
				all = append(all, o.Value)
			}
		}
	}
	return all
}

// missingSecret is a secret that does not resolve now.
type missingSecret struct {
	ref   secret.Reference
	where error    // the variable or file that was looked for, and what is wrong with it
	users []string // addresses of the objects that need it
}

// missingSecrets looks each secret up once. The result is in the order in which they are first named.
func missingSecrets(ctx context.Context, objects []schema.Object, p secret.Provider) []missingSecret {
	var missing []missingSecret
	at := map[secret.Reference]int{} // of missing; -1: it resolves
	for _, o := range objects {
		for _, ref := range secret.References(o) {
			i, seen := at[ref]
			if !seen {
				i = -1
				if _, err := p.Lookup(ctx, ref); err != nil {
					i = len(missing)
					missing = append(missing, missingSecret{ref: ref, where: err})
				}
				at[ref] = i
			}
			if i >= 0 {
				missing[i].users = append(missing[i].users, o.Address().String())
			}
		}
	}
	return missing
}

// warnSecrets tells at the start which secrets do not resolve: one that is forgotten would else be noticed by its first failed attempt only. It
// stops nothing, since a secret may come later.
func (r *runner) warnSecrets(ctx context.Context) {
	for _, m := range missingSecrets(ctx, secretUsers(r.registry.Snapshot()), r.opt.secrets) {
		r.opt.log.Warn("a secret does not resolve; attempts that need it fail with SECRET_UNAVAILABLE and are retried",
			"secret", m.ref.String(), "neededBy", strings.Join(m.users, ", "), telemetry.KeyError, m.where.Error())
	}
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
