package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// pollInterval is how often the generations are read. A notification makes it sooner.
const pollInterval = time.Second

// readBatch is how many contents one statement reads.
const readBatch = 500

// Registry serves what is declared in one environment's database. Safe for concurrent use.
type Registry struct {
	store    *store.Store
	contents *contents
	current  atomic.Pointer[Snapshot]
	lastErr  atomic.Pointer[error]
	wake     chan struct{}
	refresh  sync.Mutex // one refresh at a time
}

// Open reads everything declared.
func Open(ctx context.Context, s *store.Store) (*Registry, error) {
	r := &Registry{
		store: s, contents: &contents{all: map[store.RevisionKey]*content{}}, wake: make(chan struct{}, 1),
	}
	r.current.Store(&Snapshot{contents: r.contents, superseded: make(chan struct{})})
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Snapshot gives what is in force now. It is never nil.
func (r *Registry) Snapshot() *Snapshot { return r.current.Load() }

// Wake makes Run look at once. It never blocks: a notification (B6) calls it.
func (r *Registry) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Err says why the last look failed; nil when it did not. The snapshot in force stays (P12).
func (r *Registry) Err() error {
	if err := r.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Run keeps the snapshot up to date until the context ends: it looks every second and when it is woken. A database that is away leaves
// the last snapshot in force.
func (r *Registry) Run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-r.wake:
		}
		err := r.Refresh(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.lastErr.Store(&err)
	}
}

// Refresh looks whether anything was applied and, if so, reads it and puts a new snapshot in force.
func (r *Registry) Refresh(ctx context.Context) error {
	r.refresh.Lock()
	defer r.refresh.Unlock()
	projects, err := r.store.Projects(ctx)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	old := r.current.Load()
	if old.names != nil && sameProjects(old.projects, projects) {
		return nil
	}
	next, err := r.read(ctx, old)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	r.current.Store(next)
	close(old.superseded)
	return nil
}

func sameProjects(a, b []store.Project) bool {
	return slices.EqualFunc(a, b, func(x, y store.Project) bool {
		return x.Name == y.Name && x.Generation == y.Generation && x.Commit == y.Commit && x.Branch == y.Branch && bytes.Equal(x.Digest, y.Digest)
	})
}

// read makes a snapshot of what the database says now. Contents that were read before are not read again.
func (r *Registry) read(ctx context.Context, old *Snapshot) (*Snapshot, error) {
	state, err := r.store.Declared(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]store.RevisionKey, 0, len(state.Objects))
	for _, o := range state.Objects {
		keys = append(keys, store.RevisionKey{NS: o.NS, RevID: o.RevID})
	}
	if err := r.load(ctx, keys); err != nil {
		return nil, err
	}
	next := &Snapshot{
		projects: state.Projects, names: state.Namespaces, namespaces: make(map[string]int32, len(state.Namespaces)),
		objects: make(map[schema.Address]*Object, len(state.Objects)), byID: make(map[objectKey]*Object, len(state.Objects)),
		contents: r.contents, superseded: make(chan struct{}),
	}
	for ns, name := range state.Namespaces {
		next.namespaces[name] = ns
	}
	for _, p := range state.Projects {
		next.generation += p.Generation
	}
	for i := range state.Objects {
		o := r.object(&state.Objects[i], old)
		next.objects[o.Address] = o
		next.byID[objectKey{o.NS, o.ID}] = o
	}
	return next, nil
}

// object gives the object of a row.
func (r *Registry) object(row *store.RegisteredObject, old *Snapshot) *Object {
	o := &Object{
		Address: row.Address, NS: row.NS, ID: row.ObjectID, Revision: row.Revision, RevID: row.RevID, Version: row.Version, Digest: row.Digest,
		Owner: Owner{row.Project, row.SourceFile, row.SourceLine, row.SourceCommit}, RetiredAt: row.RetiredAt,
	}
	c, ok := r.contents.get(store.RevisionKey{NS: row.NS, RevID: row.RevID})
	if !ok {
		o.Err = ErrNotLoaded
		return o
	}
	o.Spec, o.Err, o.Value = c.Spec, c.err, c.value
	if c.value == nil || (len(row.Labels) == 0 && row.Description == "") {
		return o
	}
	if before, ok := old.byID[objectKey{o.NS, o.ID}]; ok && before.RevID == o.RevID && sameMeta(before.Value, row) {
		o.Value = before.Value
		return o
	}
	// Labels and description stand beside the revision (contract 1.1), so the value in force is decoded with them.
	meta := c.value.Meta()
	meta.Labels, meta.Description = row.Labels, row.Description
	o.Value, o.Err = schema.DecodeCanonical(row.Address.Kind, meta, c.Spec)
	return o
}

func sameMeta(value schema.Object, row *store.RegisteredObject) bool {
	if value == nil {
		return false
	}
	meta := value.Meta()
	if meta.Description != row.Description || len(meta.Labels) != len(row.Labels) {
		return false
	}
	for k, v := range row.Labels {
		if have, ok := meta.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// load reads and compiles the contents that are missing.
func (r *Registry) load(ctx context.Context, keys []store.RevisionKey) error {
	for batch := range slices.Chunk(r.contents.missing(keys), readBatch) {
		revs, err := r.store.Revisions(ctx, batch)
		if err != nil {
			return err
		}
		compiled := make([]*content, 0, len(revs))
		for _, rev := range revs {
			compiled = append(compiled, compile(rev))
		}
		r.contents.put(compiled)
	}
	return nil
}

// LoadTaskRevs makes revisions of task definitions known to every snapshot, for ever. Those that do not exist are left out. Call it while
// holding no connection.
func (r *Registry) LoadTaskRevs(ctx context.Context, ns int32, defRevs []int32) error {
	keys := make([]store.RevisionKey, 0, len(defRevs))
	for _, rev := range defRevs {
		keys = append(keys, store.RevisionKey{NS: ns, RevID: rev})
	}
	if err := r.load(ctx, keys); err != nil {
		return fmt.Errorf("revisions of task definitions: %w", err)
	}
	return nil
}

// TaskRev gives a definition by its revision, reading it if need be. store.ErrNotFound where there is none. Call it while holding no connection.
func (r *Registry) TaskRev(ctx context.Context, ns, defRev int32) (execution.Pinned, error) {
	if err := r.LoadTaskRevs(ctx, ns, []int32{defRev}); err != nil {
		return execution.Pinned{}, err
	}
	pinned, ok := r.Snapshot().TaskRev(ns, defRev)
	if !ok {
		return execution.Pinned{}, fmt.Errorf("task definition revision %d: %w", defRev, store.ErrNotFound)
	}
	return pinned, nil
}

// WorkflowRev gives a pinned revision of a workflow (P6), read once and kept. store.ErrNotFound where there is none. Call it while holding no
// connection.
func (r *Registry) WorkflowRev(ctx context.Context, ns, revID int32) (WorkflowRev, error) {
	key := store.RevisionKey{NS: ns, RevID: revID}
	c, ok := r.contents.get(key)
	if !ok {
		if err := r.load(ctx, []store.RevisionKey{key}); err != nil {
			return WorkflowRev{}, fmt.Errorf("workflow revision: %w", err)
		}
		if c, ok = r.contents.get(key); !ok {
			return WorkflowRev{}, fmt.Errorf("workflow revision %d: %w", revID, store.ErrNotFound)
		}
	}
	rev, err := c.workflow()
	if o, ok := r.Snapshot().ObjectByID(ns, c.ObjectID); ok {
		rev.Retired = o.Retired()
	}
	return rev, err
}

// Workflow gives a workflow by namespace, name and version (0 = in force), as Snapshot.Workflow does, reading what is missing: a version that
// is not in force, or an apply that this process has not seen yet. Call it while holding no connection.
func (r *Registry) Workflow(ctx context.Context, namespace, name string, version int64) (WorkflowRev, error) {
	rev, err := r.workflow(ctx, namespace, name, version)
	if !errors.Is(err, store.ErrNotFound) {
		return rev, err
	}
	before := r.Snapshot()
	if err := r.Refresh(ctx); err != nil {
		return WorkflowRev{}, err
	}
	if r.Snapshot() == before {
		return rev, err
	}
	return r.workflow(ctx, namespace, name, version)
}

func (r *Registry) workflow(ctx context.Context, namespace, name string, version int64) (WorkflowRev, error) {
	snapshot := r.Snapshot()
	o, ok := snapshot.Object(schema.Address{Kind: schema.KindWorkflow, Namespace: namespace, Name: name})
	if !ok {
		return WorkflowRev{}, fmt.Errorf("workflow %s/%s: %w", namespace, name, store.ErrNotFound)
	}
	if version == 0 || version == o.Version {
		return snapshot.workflowRev(o, o.RevID)
	}
	revID, err := r.store.RevisionOfVersion(ctx, o.NS, o.ID, version)
	if err != nil {
		return WorkflowRev{}, fmt.Errorf("workflow %s/%s version %d: %w", namespace, name, version, err)
	}
	return r.WorkflowRev(ctx, o.NS, revID)
}
