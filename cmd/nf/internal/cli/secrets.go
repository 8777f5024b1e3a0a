package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

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

// secretsEvery is how often secrets are looked up again that may have come or gone (contract 5.4).
const secretsEvery = time.Minute

// watchSecrets tells which secrets do not resolve: at the start, after each change of what is in force, and every minute. One that is forgotten would else
// be noticed by its first failed attempt only. It stops nothing, since a secret may come later.
func (r *runner) watchSecrets(ctx context.Context) error {
	told := map[string]bool{}
	for {
		snap := r.registry.Snapshot()
		told = r.tellSecrets(snap, missingSecrets(ctx, secretUsers(snap), r.opt.secrets), told)
		timer := time.NewTimer(secretsEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-snap.Superseded():
		}
		timer.Stop()
	}
}

// tellSecrets keeps what does not resolve for health, status and metrics, and logs what is new in it. It gives what was told.
func (r *runner) tellSecrets(snap *registry.Snapshot, missing []missingSecret, told map[string]bool) map[string]bool {
	now := map[string]bool{}
	names := make([]string, 0, len(missing))
	for _, m := range missing {
		name := m.ref.String()
		now[name] = true
		names = append(names, name)
		if !told[name] {
			r.opt.log.Warn("a secret does not resolve; attempts that need it fail with SECRET_UNAVAILABLE and are retried",
				"secret", name, "neededBy", strings.Join(m.users, ", "), telemetry.KeyError, m.where.Error())
		}
	}
	for name := range told {
		if !now[name] {
			r.opt.log.Info("a secret resolves now, or nothing needs it any more", "secret", name)
		}
	}
	r.unresolved.Store(&names)
	for _, p := range snap.Projects() {
		r.metrics.SecretsUnresolved.WithLabelValues(p.Name).Set(float64(unresolvedOf(snap, p.Name, now)))
	}
	return now
}

// unresolvedOf counts the secrets of a project that are among those that do not resolve.
func unresolvedOf(snap *registry.Snapshot, project string, missing map[string]bool) int {
	seen := map[string]bool{}
	for _, kind := range []schema.Kind{schema.KindTarget, schema.KindWorkflow} {
		for _, o := range snap.Objects(kind, 0) {
			if o.Value == nil || o.Retired() || o.Owner.Project != project {
				continue
			}
			for _, ref := range secret.References(o.Value) {
				if missing[ref.String()] {
					seen[ref.String()] = true
				}
			}
		}
	}
	return len(seen)
}

// unresolvedSecrets names the secrets that did not resolve when they were looked up last.
func (r *runner) unresolvedSecrets() []string {
	if names := r.unresolved.Load(); names != nil {
		return *names
	}
	return nil
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
