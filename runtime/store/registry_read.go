package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/schema"
)

// NotifyRegistry is the payload that says that declarations have changed (B6).
const NotifyRegistry = "registry"

// Channel gives the name of the installation's notification channel: one a schema.
func (s *Store) Channel(ctx context.Context) (string, error) {
	id, err := s.InstallID(ctx)
	if err != nil {
		return "", err
	}
	return "nf_" + hex.EncodeToString(id[:6]), nil
}

// notifyRegistry wakes whoever serves the registry, in a statement of its own after the commit (B6). They poll anyway: losing it costs a second.
func (s *Store) notifyRegistry(ctx context.Context) {
	channel, err := s.Channel(ctx)
	if err != nil {
		return
	}
	_ = s.InTx(ctx, Ctl, "notify", func(ctx context.Context, t *Tx) error {
		_, err := t.exec(ctx, "notify", "", channel, []string{NotifyRegistry})
		return err
	})
}

// Projects gives the projects in force, by name: one small read, made every second by every process.
func (s *Store) Projects(ctx context.Context) ([]Project, error) {
	var all []Project
	err := s.InTx(ctx, Ctl, "generations", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "generations", "")
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Project, error) {
			var p Project
			err := row.Scan(&p.Name, &p.Generation, &p.Digest, &p.Commit, &p.Branch, &p.AppliedAt, &p.AppliedBy)
			p.AppliedAt = p.AppliedAt.UTC()
			return p, err
		})
		return err
	})
	return all, err
}

// DeclaredState is everything that is declared, in one state. Objects have no specs: those come by revision.
type DeclaredState struct {
	Projects   []Project
	Objects    []RegisteredObject // retired ones included; Versions and AppliedRevision are not filled in
	Namespaces map[int32]string   // by number; 0 is the installation
}

// Declared reads everything that is declared.
func (s *Store) Declared(ctx context.Context) (DeclaredState, error) {
	var d DeclaredState
	var err error
	// Projects first: a generation that is read is not newer than the objects, so a state that is behind is seen to be behind.
	if d.Projects, err = s.Projects(ctx); err != nil {
		return d, err
	}
	err = s.InTx(ctx, Ctl, "declared", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "snapshot_objects", "")
		if err != nil {
			return err
		}
		if d.Objects, err = pgx.CollectRows(rows, scanDeclared); err != nil {
			return fmt.Errorf("objects: %w", err)
		}
		// After the objects: a namespace is never younger than what lives in it.
		if rows, err = t.query(ctx, "snapshot_namespaces", ""); err != nil {
			return err
		}
		d.Namespaces = map[int32]string{}
		var ns int32
		var name string
		_, err = pgx.ForEachRow(rows, []any{&ns, &name}, func() error {
			d.Namespaces[ns] = name
			return nil
		})
		return err
	})
	if err != nil {
		return d, err
	}
	for i, o := range d.Objects {
		if o.NS != 0 {
			d.Objects[i].Address.Namespace = d.Namespaces[o.NS]
		}
	}
	return d, nil
}

func scanDeclared(row pgx.CollectableRow) (RegisteredObject, error) {
	var o RegisteredObject
	var kind string
	var digest, labels []byte
	var retired *time.Time
	err := row.Scan(&o.NS, &o.ObjectID, &kind, &o.Address.Name, &o.Revision, &o.RevID, &digest, &o.Version, &o.Project, &o.SourceFile, &o.SourceLine,
		&o.SourceCommit, &labels, &o.Description, &retired)
	if err != nil {
		return o, err
	}
	o.Address.Kind, o.Digest, o.RetiredAt = schema.Kind(kind), [32]byte(digest), orZero(retired)
	return o, scanLabels(labels, &o.Labels)
}

// RevisionKey names a revision by its short name.
type RevisionKey struct{ NS, RevID int32 }

// Revision is one immutable content of an object.
type Revision struct {
	RevisionKey
	ObjectID int32
	Address  schema.Address
	Number   int32
	Version  int64 // spec.version, 0 = none
	Digest   [32]byte
	Spec     []byte // canonical JSON
}

// Revisions reads contents by their short names, in no order. Those that do not exist are left out.
func (s *Store) Revisions(ctx context.Context, keys []RevisionKey) ([]Revision, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ns, ids := make([]int32, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		ns[i], ids[i] = k.NS, k.RevID
	}
	var all []Revision
	err := s.InTx(ctx, Ctl, "revisions", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "revisions_by_id", "", ns, ids)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Revision, error) {
			var r Revision
			var kind, namespace string
			var digest []byte
			if err := row.Scan(&r.NS, &r.RevID, &r.ObjectID, &kind, &namespace, &r.Address.Name, &r.Number, &r.Version, &digest, &r.Spec); err != nil {
				return r, err
			}
			r.Address.Kind, r.Digest = schema.Kind(kind), [32]byte(digest)
			if r.NS != 0 {
				r.Address.Namespace = namespace
			}
			return r, nil
		})
		return err
	})
	return all, err
}

// RevisionOfVersion gives the short name of the revision that an explicit version names; ErrNotFound where none has it.
func (s *Store) RevisionOfVersion(ctx context.Context, ns, objectID int32, version int64) (int32, error) {
	return s.oneRevision(ctx, "revision_by_version", ns, objectID, version)
}

// RevisionOfNumber gives the short name of a revision by its number; ErrNotFound where there is none.
func (s *Store) RevisionOfNumber(ctx context.Context, ns, objectID, revision int32) (int32, error) {
	return s.oneRevision(ctx, "revision_by_number", ns, objectID, revision)
}

func (s *Store) oneRevision(ctx context.Context, name string, ns, objectID int32, which any) (int32, error) {
	var revID int32
	err := s.InTx(ctx, API, "revision", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, name, "", ns, objectID, which)
		if err != nil {
			return err
		}
		revID, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int32])
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return revID, err
}

// RevisionSummary is one line of the revisions of an object.
type RevisionSummary struct {
	Number    int32
	RevID     int32
	Digest    [32]byte
	Version   int64
	Commit    string
	CreatedBy string
	CreatedAt time.Time
}

// ObjectRevisions lists the revisions of an object, newest first, below a number (0 = from the newest), at most limit.
func (s *Store) ObjectRevisions(ctx context.Context, ns, objectID, below int32, limit int) ([]RevisionSummary, error) {
	var all []RevisionSummary
	err := s.InTx(ctx, API, "object-revisions", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "object_revisions", "", ns, objectID, below, limit)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (RevisionSummary, error) {
			var r RevisionSummary
			var digest []byte
			if err := row.Scan(&r.Number, &r.RevID, &digest, &r.Version, &r.Commit, &r.CreatedBy, &r.CreatedAt); err != nil {
				return r, err
			}
			r.Digest, r.CreatedAt = [32]byte(digest), r.CreatedAt.UTC()
			return r, nil
		})
		return err
	})
	return all, err
}
