// Package auth knows API keys: how they look, what they may do, and how a presented one is checked (contract 4.1).
//
// A key is nfk_<id>_<secret>. Only the SHA-256 of the secret is stored; the secret ends in six characters of checksum, so
// noise costs no query. What was found is remembered for 10 s, unknown ids too.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"nf/runtime/clock"
	"nf/runtime/store"
)

// Scope is what a key may do.
type Scope string

// The scopes of wave 1. A scope queues:lease:<queue> names one queue, name* its prefix, or * all.
const (
	WorkflowsRead   Scope = "workflows:read"
	WorkflowsWrite  Scope = "workflows:write"
	ExecutionsRead  Scope = "executions:read"
	ExecutionsStart Scope = "executions:start"
	ExecutionsWrite Scope = "executions:write"
	TasksReport     Scope = "tasks:report"
	MetricsRead     Scope = "metrics:read"
	Admin           Scope = "admin"
	leasePrefix           = "queues:lease:"
)

// Lease is the scope that leases one queue.
func Lease(queue string) Scope { return Scope(leasePrefix + queue) }

// Errors of Check and Create.
var (
	ErrUnauthenticated = errors.New("no such key, or it has expired or was revoked")
	ErrTooMany         = errors.New("too many failed attempts from this address")
	ErrNotYours        = errors.New("a key cannot grant what its maker lacks")
)

const (
	remembered   = 10 * time.Second
	failureLimit = 20 // in `remembered`, from one address
	cacheMax     = 10_000
)

// Principal is who calls. The zero value may do nothing.
type Principal struct {
	KeyID  string
	Name   string
	scopes []Scope
	all    bool // every namespace
	ns     []int32
}

// Operator is the principal of the process's own operator, who holds the database: it may do everything.
func Operator(name string) Principal {
	return Principal{Name: name, scopes: []Scope{Admin}, all: true}
}

// AllNamespaces says whether the key covers every namespace.
func (p Principal) AllNamespaces() bool { return p.all }

// Covers says whether the key is bound to the namespace.
func (p Principal) Covers(ns int32) bool { return p.all || slices.Contains(p.ns, ns) }

// Has says whether one of the key's scopes implies the wanted one: admin implies all, write implies read of its family.
func (p Principal) Has(want Scope) bool {
	for _, have := range p.scopes {
		if implies(have, want) {
			return true
		}
	}
	return false
}

// Scopes gives the key's scopes as granted.
func (p Principal) Scopes() []Scope { return slices.Clone(p.scopes) }

func implies(have, want Scope) bool {
	if have == want || have == Admin {
		return true
	}
	if have == WorkflowsWrite && want == WorkflowsRead || have == ExecutionsWrite && want == ExecutionsRead {
		return true
	}
	pattern, isLease := strings.CutPrefix(string(have), leasePrefix)
	queue, wantsLease := strings.CutPrefix(string(want), leasePrefix)
	if !isLease || !wantsLease {
		return false
	}
	prefix, wild := strings.CutSuffix(pattern, "*")
	// A pattern is implied by a wider pattern, a queue by a pattern that matches it. Runner queues are leased by nobody.
	return wild && strings.HasPrefix(strings.TrimSuffix(queue, "*"), prefix)
}

// ParseScope reads a scope. The error names what is accepted.
func ParseScope(text string) (Scope, error) {
	switch s := Scope(text); s {
	case WorkflowsRead, WorkflowsWrite, ExecutionsRead, ExecutionsStart, ExecutionsWrite, TasksReport, MetricsRead, Admin:
		return s, nil
	}
	if queue, ok := strings.CutPrefix(text, leasePrefix); ok && queue != "" && len(queue) <= 320 &&
		!strings.Contains(strings.TrimSuffix(queue, "*"), "*") && !strings.HasPrefix(queue, "_nf.") {
		return Scope(text), nil
	}
	return "", fmt.Errorf("unknown scope %q: use workflows:read, workflows:write, executions:read, executions:start, executions:write, "+
		"queues:lease:<queue> (a name, name* or *), tasks:report, metrics:read or admin", text)
}

// Keys checks and makes keys. Safe for concurrent use.
type Keys struct {
	store *store.Store
	clock clock.Clock

	mu       sync.Mutex
	known    map[string]entry     // by id
	failures map[string]failures  // by address
	used     map[string]time.Time // last note of use, by id
}

type entry struct {
	at    time.Time
	key   store.Key
	found bool
}

type failures struct {
	since time.Time
	count int
}

// New makes the checker.
func New(s *store.Store, c clock.Clock) *Keys {
	return &Keys{store: s, clock: c, known: map[string]entry{}, failures: map[string]failures{}, used: map[string]time.Time{}}
}

// Check finds the principal of a presented key. Errors: ErrUnauthenticated, ErrTooMany, or the database's.
func (k *Keys) Check(ctx context.Context, presented, address string) (Principal, error) {
	if k.blocked(address) {
		return Principal{}, ErrTooMany
	}
	id, secret, ok := parse(presented)
	if !ok {
		k.failed(address)
		return Principal{}, ErrUnauthenticated
	}
	e, err := k.find(ctx, id)
	if err != nil {
		return Principal{}, err
	}
	if !e.found || !e.valid(hash(secret), k.clock.Now()) {
		k.failed(address)
		return Principal{}, ErrUnauthenticated
	}
	k.note(ctx, id)
	p := Principal{KeyID: id, Name: e.key.Name, all: e.key.AllNS, ns: e.key.NS}
	for _, s := range e.key.Scopes {
		p.scopes = append(p.scopes, Scope(s))
	}
	return p, nil
}

// valid compares in constant time. The database's clock judges expiry: its time at the read plus what has passed here.
func (e entry) valid(presented []byte, now time.Time) bool {
	at := e.key.Now.Add(now.Sub(e.at))
	live := e.key.RevokedAt.IsZero() && (e.key.ExpiresAt.IsZero() || at.Before(e.key.ExpiresAt))
	match := subtle.ConstantTimeCompare(presented, e.key.SecretHash) == 1
	old := len(e.key.OldHash) > 0 && at.Before(e.key.OldUntil) && subtle.ConstantTimeCompare(presented, e.key.OldHash) == 1
	return live && (match || old)
}

func (k *Keys) find(ctx context.Context, id string) (entry, error) {
	k.mu.Lock()
	e, ok := k.known[id]
	k.mu.Unlock()
	if ok && k.clock.Now().Sub(e.at) < remembered {
		return e, nil
	}
	key, err := k.store.KeyByID(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return entry{}, err
	}
	e = entry{at: k.clock.Now(), key: key, found: err == nil}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= cacheMax {
		clear(k.known)
	}
	k.known[id] = e
	return e, nil
}

func (k *Keys) blocked(address string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.failures[address]
	return ok && f.count >= failureLimit && k.clock.Now().Sub(f.since) < remembered
}

func (k *Keys) failed(address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	f := k.failures[address]
	if now.Sub(f.since) >= remembered {
		f = failures{since: now}
	}
	f.count++
	if len(k.failures) >= cacheMax {
		clear(k.failures)
	}
	k.failures[address] = f
}

// note writes used_at at most once a minute; that it fails is no reason to refuse the call.
func (k *Keys) note(ctx context.Context, id string) {
	k.mu.Lock()
	now := k.clock.Now()
	fresh := now.Sub(k.used[id]) < time.Minute
	if !fresh {
		if len(k.used) >= cacheMax {
			clear(k.used)
		}
		k.used[id] = now
	}
	k.mu.Unlock()
	if !fresh {
		_ = k.store.KeyUsed(ctx, id)
	}
}

// Forget drops what is remembered, so that a key just made or revoked counts at once in this process.
func (k *Keys) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.known)
}

// Create makes a key and gives its text, the only time it is seen. The maker must hold every scope and namespace (ErrNotYours).
// namespaces nil = all. store.ErrNameTaken if a live key has the name.
func (k *Keys) Create(ctx context.Context, maker Principal, name string, scopes []Scope, namespaces []string, covered func(string) bool) (string, error) {
	for _, s := range scopes {
		if !maker.Has(s) {
			return "", fmt.Errorf("scope %s: %w", s, ErrNotYours)
		}
	}
	if namespaces == nil && !maker.AllNamespaces() {
		return "", fmt.Errorf("namespace *: %w", ErrNotYours)
	}
	for _, ns := range namespaces {
		if !maker.AllNamespaces() && !covered(ns) {
			return "", fmt.Errorf("namespace %s: %w", ns, ErrNotYours)
		}
	}
	id, secret := newKey()
	row := store.Key{ID: id, SecretHash: hash(secret), Name: name, AllNS: namespaces == nil, Namespaces: namespaces}
	for _, s := range scopes {
		row.Scopes = append(row.Scopes, string(s))
	}
	if err := k.store.CreateKey(ctx, row, maker.Name); err != nil {
		return "", err
	}
	k.Forget()
	return "nfk_" + id + "_" + secret, nil
}

// List gives all keys without secrets.
func (k *Keys) List(ctx context.Context) ([]store.Key, error) { return k.store.Keys(ctx) }

// Revoke ends a key by id or name.
func (k *Keys) Revoke(ctx context.Context, maker Principal, idOrName string) (string, error) {
	id, err := k.store.RevokeKey(ctx, idOrName, maker.Name)
	k.Forget()
	return id, err
}

func newKey() (id, secret string) {
	var raw [42]byte
	_, _ = rand.Read(raw[:]) // crypto/rand never fails: it ends the process instead
	id = hex.EncodeToString(raw[:10])
	secret = base64.RawURLEncoding.EncodeToString(raw[10:])
	return id, secret + checksum(id, secret)
}

func checksum(id, secret string) string {
	sum := sha256.Sum256([]byte("nfk\n" + id + "\n" + secret))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))[:6]
}

func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parse splits a key and holds it to its checksum.
func parse(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, "nfk_")
	if !ok || len(text) > 128 {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	if !ok || len(id) != 20 || len(secret) != 43+6 {
		return "", "", false
	}
	body, sum := secret[:43], secret[43:]
	return id, secret, subtle.ConstantTimeCompare([]byte(checksum(id, body)), []byte(sum)) == 1
}
