// Package secret resolves references to secrets at dispatch, never earlier and never into storage (contract 1.8, 5.4; design D6).
//
// A Provider gives the value behind a reference: Env from variables read at process start, Dir from a folder of files read at
// each use. Which one is used is the process's choice alone, never that of a file in a repository. Masking what a call gives
// back is done where the call is made, by systemtasks.Redactor.
package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nf/schema"
)

// ErrUnresolved says that a reference has no value: the variable or file is missing or empty. It is retryable (SECRET_UNAVAILABLE).
var ErrUnresolved = errors.New("it is not set")

// Provider gives the value of a reference. Errors name the place that was looked at, never a value. Implementations are safe
// for concurrent use.
type Provider interface {
	Lookup(ctx context.Context, ref Reference) (string, error)
}

// Reference is a secret's full name: the namespace of the object that holds the secretRef, its name and its key.
type Reference struct {
	Namespace string
	Name      string
	Key       string
}

// String gives namespace/name/key.
func (r Reference) String() string { return r.Namespace + "/" + r.Name + "/" + r.Key }

// check refuses a reference that no schema would have let through: it must never reach a file system.
func (r Reference) check() error {
	if r.Namespace == "" || strings.ContainsAny(r.Namespace, "/\\\x00") || r.Namespace == "." || r.Namespace == ".." {
		return fmt.Errorf("%q is not a namespace", r.Namespace)
	}
	if !schema.IsSecretName(r.Name) || !schema.IsSecretName(r.Key) {
		return errors.New("its name or key is not one that a secret can have")
	}
	return nil
}

// Settings choose a provider (contract 5.4).
type Settings struct {
	Provider string   // NF_SECRETS_PROVIDER: env ("" too) or file
	Dir      string   // NF_SECRETS_DIR, for file
	Environ  []string // the process's environment, NAME=value
}

// Open makes the provider that the settings choose. The error names the setting. The provider must be closed if it is an io.Closer.
func Open(s Settings) (Provider, error) {
	switch s.Provider {
	case "", "env":
		return NewEnv(s.Environ), nil
	case "file":
		if s.Dir == "" {
			return nil, errors.New("NF_SECRETS_PROVIDER is file, so NF_SECRETS_DIR must name the folder of the secrets")
		}
		dir, err := OpenDir(s.Dir)
		if err != nil {
			return nil, fmt.Errorf("NF_SECRETS_DIR: %w", err)
		}
		return dir, nil
	}
	return nil, fmt.Errorf("NF_SECRETS_PROVIDER must be env or file, not %q", s.Provider)
}

// Resolver puts a provider into the form that system tasks call.
type Resolver struct{ provider Provider }

// NewResolver makes a resolver over a provider.
func NewResolver(p Provider) *Resolver { return &Resolver{provider: p} }

// Resolve gives the value of a secretRef in a namespace, without its prefix. It has the signature of systemtasks.Call.Secrets.
func (r *Resolver) Resolve(ctx context.Context, namespace string, ref schema.SecretRef) (string, error) {
	full := Reference{Namespace: namespace, Name: ref.Name, Key: ref.Key}
	if err := full.check(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("resolving secret %s: %w", full, err)
	}
	return r.provider.Lookup(ctx, full)
}

// trim drops one line break at the end of a value, LF or CRLF: editors and `echo` leave it (contract 1.8).
func trim(value string) string {
	if rest, ok := strings.CutSuffix(value, "\n"); ok {
		return strings.TrimSuffix(rest, "\r")
	}
	return value
}
