package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Key is an API key as stored: never its secret (contract 4.1).
type Key struct {
	ID         string
	SecretHash []byte // SHA-256, 32 bytes
	OldHash    []byte // valid until OldUntil
	OldUntil   time.Time
	Name       string
	Scopes     []string
	AllNS      bool     // bound to every namespace
	NS         []int32  // numbers, unless AllNS
	Namespaces []string // names; filled by Keys only
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero = never
	RevokedAt  time.Time
	UsedAt     time.Time
	Now        time.Time // database time of the read; filled by KeyByID only
}

// ErrNameTaken says that a live key of this name exists.
var ErrNameTaken = errors.New("a live key of this name exists")

// KeyByID reads a key. ErrNotFound if there is none.
func (s *Store) KeyByID(ctx context.Context, id string) (Key, error) {
	k := Key{ID: id}
	err := s.InTx(ctx, API, "key", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "key_by_id", "", id)
		if err != nil {
			return err
		}
		defer rows.Close()
		if !rows.Next() {
			return errors.Join(rows.Err(), ErrNotFound)
		}
		var expires, revoked, until *time.Time
		if err := rows.Scan(&k.SecretHash, &k.Name, &k.Scopes, &k.NS, &expires, &revoked, &k.OldHash, &until, &k.Now); err != nil {
			return err
		}
		k.AllNS, k.ExpiresAt, k.RevokedAt, k.OldUntil = k.NS == nil, instant(expires), instant(revoked), instant(until)
		return nil
	})
	return k, err
}

// CreateKey stores a key and its audit row. Namespaces that do not exist yet are made. ErrNameTaken if a live key has the name.
func (s *Store) CreateKey(ctx context.Context, k Key, actor string) error {
	return s.InTx(ctx, API, "key_create", func(ctx context.Context, t *Tx) error {
		var ns []int32
		if !k.AllNS {
			var err error
			if ns, err = t.keyNamespaces(ctx, k.Namespaces); err != nil {
				return err
			}
		}
		_, err := t.exec(ctx, "key_create", "", k.ID, k.SecretHash, k.Name, k.Scopes, ns, actor)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.ConstraintName == "nf_key_name" {
			return ErrNameTaken
		}
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, "key_audit", "", actor, "create", "Key/"+k.Name, "")
		return err
	})
}

func (t *Tx) keyNamespaces(ctx context.Context, names []string) ([]int32, error) {
	for _, name := range names {
		if _, err := t.exec(ctx, "key_namespace_make", "", name); err != nil {
			return nil, err
		}
	}
	rows, err := t.query(ctx, "key_namespaces", "", names)
	if err != nil {
		return nil, err
	}
	ns := []int32{}
	var name string
	var number int32
	_, err = pgx.ForEachRow(rows, []any{&name, &number}, func() error { ns = append(ns, number); return nil })
	return ns, err
}

// Keys lists all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	var all []Key
	err := s.InTx(ctx, API, "key_list", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "key_list", "")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k Key
			var expires, revoked, used *time.Time
			if err := rows.Scan(&k.ID, &k.Name, &k.Scopes, &k.AllNS, &k.Namespaces, &k.CreatedBy, &k.CreatedAt, &expires, &revoked, &used); err != nil {
				return err
			}
			k.ExpiresAt, k.RevokedAt, k.UsedAt = instant(expires), instant(revoked), instant(used)
			all = append(all, k)
		}
		return rows.Err()
	})
	return all, err
}

// RevokeKey ends a live key by id or name. ErrNotFound if none is live.
func (s *Store) RevokeKey(ctx context.Context, idOrName, actor string) (id string, err error) {
	err = s.InTx(ctx, API, "key_revoke", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "key_revoke", "", idOrName)
		if err != nil {
			return err
		}
		var name string
		if _, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error { return nil }); err != nil {
			return err
		}
		if id == "" {
			return fmt.Errorf("key %q: %w", idOrName, ErrNotFound)
		}
		_, err = t.exec(ctx, "key_audit", "", actor, "revoke", "Key/"+name, "")
		return err
	})
	return id, err
}

// KeyUsed notes that a key was used; a row is written at most once a minute.
func (s *Store) KeyUsed(ctx context.Context, id string) error {
	return s.InTx(ctx, Ctl, "key_used", func(ctx context.Context, t *Tx) error {
		_, err := t.exec(ctx, "key_used", "", id)
		return err
	})
}

func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
