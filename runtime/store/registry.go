package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/schema"
)

// installationNS is the name of namespace 0: objects without a namespace (kind Namespace) live there.
const installationNS = "_nf"

// Project is a project's row: the set in force.
type Project struct {
	Name       string
	Generation int64 // 0 = nothing applied yet
	Digest     []byte
	Commit     string
	Branch     string
	AppliedAt  time.Time
	AppliedBy  string
}

// RegisteredObject is an object as the registry has it, at its revision in force. Kind, namespace and name are its address; a Namespace has
// an empty namespace.
type RegisteredObject struct {
	NS       int32
	ObjectID int32
	Address  schema.Address

	Revision    int32
	RevID       int32 // short name of the revision, per namespace
	Digest      [32]byte
	Version     int64  // spec.version, 0 = none
	Spec        []byte // canonical JSON
	Labels      map[string]string
	Description string

	Project         string // owner, "" = unowned (P5)
	SourceFile      string
	SourceLine      int32
	SourceCommit    string
	AppliedRevision int32     // last one that files asked for
	RetiredAt       time.Time // zero = in force (P9)
	Versions        []RegisteredVersion
	Use             *Use // filled in by Store.Registered only
}

// Use is how much of what is open uses an object, each figure of at most some 10,000.
type Use struct {
	Open int64 // Workflow: open executions; TaskDefinition: executions with an open attempt of it
	Held int64 // TaskDefinition: leases; Semaphore: permits
}

// RegisteredVersion is an explicit version that was applied once (N3).
type RegisteredVersion struct {
	Version  int64
	Revision int32
	Digest   [32]byte
}

// Commit is a commit that was in force, or is (P11). In a source without commits the digest of its bytes stands for one.
type Commit struct {
	ID          string
	Generation  int64     // in force when it was applied first
	CommittedAt time.Time // zero = unknown
	Parents     []string
	Superseded  bool // another one took its place since
}

// Registered is what a plan is made against: a project, all its objects, and the objects of others that have a wanted name.
type Registered struct {
	Project     Project
	Objects     []RegisteredObject
	Environment string
	Commits     []Commit         // the one in force first; the newest 5,000, and the asked for one
	Namespaces  map[string]int64 // every namespace, with the objects in force there that are not the project's
}

// Registered reads what a plan of the project needs, in one state. A project that was never applied has generation 0.
// Mine is the commit, or the digest for it, that is to be applied; "" = none.
func (s *Store) Registered(ctx context.Context, project, mine string, wanted []schema.Address) (Registered, error) {
	var r Registered
	err := s.InTx(ctx, API, "registered", func(ctx context.Context, t *Tx) (err error) {
		if err := t.oneState(ctx); err != nil {
			return err
		}
		if r, err = t.registered(ctx, project, mine, wanted); err != nil {
			return err
		}
		return t.registeredUse(ctx, r.Objects)
	})
	return r, err
}

// oneState makes every later statement of the transaction see what the first one sees. Reads only.
func (t *Tx) oneState(ctx context.Context) error {
	_, err := t.exec(ctx, "one_state", "")
	return err
}

func (t *Tx) registered(ctx context.Context, project, mine string, wanted []schema.Address) (Registered, error) {
	in, err := t.readInstall(ctx)
	if err != nil {
		return Registered{}, err
	}
	r := Registered{Environment: in.Environment, Project: Project{Name: project}}
	if r.Project, err = t.project(ctx, project, "project_read"); err != nil {
		return Registered{}, err
	}
	if r.Commits, err = t.commits(ctx, project, mine); err != nil {
		return Registered{}, err
	}
	rows, err := t.query(ctx, "registered_owned", "", project)
	if err != nil {
		return Registered{}, err
	}
	if r.Objects, err = pgx.CollectRows(rows, scanRegistered); err != nil {
		return Registered{}, fmt.Errorf("registered objects: %w", err)
	}
	namespaces, kinds, names := addressColumns(wanted)
	if rows, err = t.query(ctx, "registered_named", "", namespaces, kinds, names, project); err != nil {
		return Registered{}, err
	}
	others, err := pgx.CollectRows(rows, scanRegistered)
	if err != nil {
		return Registered{}, fmt.Errorf("objects of others: %w", err)
	}
	r.Objects = append(r.Objects, others...)
	if r.Namespaces, err = t.registeredNamespaces(ctx, project); err != nil {
		return Registered{}, err
	}
	return r, t.registeredVersions(ctx, r.Objects)
}

// commits reads what is known of the project's commits, and of one more.
func (t *Tx) commits(ctx context.Context, project, mine string) ([]Commit, error) {
	rows, err := t.query(ctx, "commits_read", "", project)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanCommit)
	if err != nil {
		return nil, fmt.Errorf("commits: %w", err)
	}
	if rows, err = t.query(ctx, "commit_seen", "", project, mine); err != nil {
		return nil, err
	}
	seen, err := pgx.CollectRows(rows, scanCommit)
	if err != nil {
		return nil, fmt.Errorf("commits: %w", err)
	}
	return append(all, seen...), nil
}

func scanCommit(row pgx.CollectableRow) (Commit, error) {
	var c Commit
	var at *time.Time
	err := row.Scan(&c.ID, &c.Generation, &at, &c.Parents, &c.Superseded)
	c.CommittedAt = orZero(at).UTC()
	if at == nil {
		c.CommittedAt = time.Time{}
	}
	return c, err
}

func (t *Tx) registeredNamespaces(ctx context.Context, project string) (map[string]int64, error) {
	rows, err := t.query(ctx, "registered_namespaces", "", project)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	var name string
	var others int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &others}, func() error {
		all[name] = others
		return nil
	}); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	return all, nil
}

// registeredUse counts what uses the objects.
func (t *Tx) registeredUse(ctx context.Context, objects []RegisteredObject) error {
	place := map[[2]int32]int{}
	for i, o := range objects {
		switch o.Address.Kind {
		case schema.KindWorkflow, schema.KindTaskDefinition, schema.KindSemaphore:
			place[[2]int32{o.NS, o.ObjectID}] = i
		case schema.KindProject, schema.KindNamespace, schema.KindTarget:
		}
	}
	ns, ids := columns(sortedKeys(place))
	rows, err := t.query(ctx, "registered_use", "", ns, ids)
	if err != nil {
		return err
	}
	var key [2]int32
	var u Use
	if _, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &u.Open, &u.Held}, func() error {
		use := u
		objects[place[key]].Use = &use
		return nil
	}); err != nil {
		return fmt.Errorf("use: %w", err)
	}
	return nil
}

func (t *Tx) project(ctx context.Context, project, statement string) (Project, error) {
	rows, err := t.query(ctx, statement, "", project)
	if err != nil {
		return Project{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Project, error) {
		p := Project{Name: project}
		var commit, branch, by *string
		var at *time.Time
		err := row.Scan(&p.Generation, &p.Digest, &commit, &branch, &at, &by)
		p.Commit, p.Branch, p.AppliedBy, p.AppliedAt = orZero(commit), orZero(branch), orZero(by), orZero(at).UTC()
		return p, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Project{Name: project}, nil
	}
	if err != nil {
		return Project{}, fmt.Errorf("project %s: %w", project, err)
	}
	return p, nil
}

// registeredVersions fills in the explicit versions of workflows.
func (t *Tx) registeredVersions(ctx context.Context, objects []RegisteredObject) error {
	place := map[[2]int32]int{}
	var ns, ids []int32
	for i, o := range objects {
		if o.Address.Kind == schema.KindWorkflow {
			place[[2]int32{o.NS, o.ObjectID}] = i
			ns, ids = append(ns, o.NS), append(ids, o.ObjectID)
		}
	}
	rows, err := t.query(ctx, "registered_versions", "", ns, ids)
	if err != nil {
		return err
	}
	var key [2]int32
	var v RegisteredVersion
	var digest []byte
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &v.Revision, &v.Version, &digest}, func() error {
		v.Digest = [32]byte(digest)
		o := &objects[place[key]]
		o.Versions = append(o.Versions, v)
		return nil
	})
	if err != nil {
		return fmt.Errorf("versions: %w", err)
	}
	return nil
}

func scanRegistered(row pgx.CollectableRow) (RegisteredObject, error) {
	var o RegisteredObject
	var namespace, kind string
	var digest, labels []byte
	var version *int64
	var project, file, commit *string
	var line, applied *int32
	var retired *time.Time
	err := row.Scan(&o.NS, &o.ObjectID, &namespace, &kind, &o.Address.Name, &o.Revision, &o.RevID, &digest, &version, &o.Spec, &labels,
		&o.Description, &project, &file, &line, &commit, &applied, &retired)
	if err != nil {
		return o, err
	}
	o.Address.Kind = schema.Kind(kind)
	if o.NS != 0 {
		o.Address.Namespace = namespace
	}
	o.Digest, o.Version = [32]byte(digest), orZero(version)
	o.Project, o.SourceFile, o.SourceCommit, o.SourceLine = orZero(project), orZero(file), orZero(commit), orZero(line)
	o.AppliedRevision, o.RetiredAt = orZero(applied), orZero(retired)
	return o, scanLabels(labels, &o.Labels)
}

func scanLabels(text []byte, into *map[string]string) error {
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	return nil
}

// addressColumns gives addresses as three columns; the namespace of what has none is the installation's.
func addressColumns(addresses []schema.Address) (namespaces, kinds, names []string) {
	namespaces, kinds, names = []string{}, []string{}, []string{}
	for _, a := range addresses {
		namespaces = append(namespaces, namespaceOf(a))
		kinds = append(kinds, string(a.Kind))
		names = append(names, a.Name)
	}
	return namespaces, kinds, names
}

func namespaceOf(a schema.Address) string {
	if a.Namespace == "" {
		return installationNS
	}
	return a.Namespace
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
