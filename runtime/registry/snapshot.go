package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// ErrNotLoaded says that a content exists and must be read first: Registry.Workflow, Registry.WorkflowRev or Registry.LoadTaskRevs does it.
var ErrNotLoaded = errors.New("revision not loaded")

// Object is a declared object at its revision in force. Immutable.
type Object struct {
	Address   schema.Address
	NS        int32 // 0 for kind Namespace
	ID        int32
	Revision  int32
	RevID     int32
	Version   int64 // spec.version, 0 = none
	Digest    [32]byte
	Owner     Owner
	RetiredAt time.Time     // zero = in force (P9)
	Value     schema.Object // nil when Err is set
	Spec      []byte        // canonical JSON, without default values
	Err       error         // this build cannot read the content: one of a newer nf (P4)
}

// Retired says whether the object's file is gone: running executions finish, nothing new starts.
func (o *Object) Retired() bool { return !o.RetiredAt.IsZero() }

// Owner says which file of which project an object comes from. Project is empty for an unowned object (P5).
type Owner struct {
	Project string
	File    string
	Line    int32
	Commit  string
}

// WorkflowRev is one revision of a workflow. Immutable.
type WorkflowRev struct {
	NS       int32
	DefID    int32
	RevID    int32
	Revision int32
	Version  int64 // spec.version, 0 = none
	Workflow *schema.Workflow
	Retired  bool // of the workflow, when it was looked up by name
	// CheckInput holds a decoded input to the workflow's inputSchema. nil = no schema. It never panics.
	CheckInput func(any) error
}

type objectKey struct{ ns, id int32 }

// Snapshot is one immutable state of everything declared. All methods are safe for concurrent use and do no I/O.
type Snapshot struct {
	generation int64
	projects   []store.Project
	namespaces map[string]int32
	names      map[int32]string
	objects    map[schema.Address]*Object
	byID       map[objectKey]*Object
	contents   *contents
	superseded chan struct{}
}

// Generation rises with every apply of any project. It is 0 while nothing is declared.
func (s *Snapshot) Generation() int64 { return s.generation }

// Projects gives the projects that have a generation in force, by name. The caller does not change the slice.
func (s *Snapshot) Projects() []store.Project { return s.projects }

// Superseded is closed when a newer snapshot is in force.
func (s *Snapshot) Superseded() <-chan struct{} { return s.superseded }

// Namespace gives the number of a namespace.
func (s *Snapshot) Namespace(name string) (int32, bool) {
	ns, ok := s.namespaces[name]
	return ns, ok && ns > 0
}

// NamespaceName gives the name of a namespace by its number.
func (s *Snapshot) NamespaceName(ns int32) (string, bool) {
	name, ok := s.names[ns]
	return name, ok
}

// Namespaces gives every namespace by name, the installation's own left out.
func (s *Snapshot) Namespaces() map[string]int32 {
	all := make(map[string]int32, len(s.namespaces))
	for name, ns := range s.namespaces {
		if ns > 0 {
			all[name] = ns
		}
	}
	return all
}

// Object gives an object by its address, retired ones too.
func (s *Snapshot) Object(address schema.Address) (*Object, bool) {
	o, ok := s.objects[address]
	return o, ok
}

// ObjectByID gives an object by its numbers, retired ones too.
func (s *Snapshot) ObjectByID(ns, id int32) (*Object, bool) {
	o, ok := s.byID[objectKey{ns, id}]
	return o, ok
}

// Objects gives the objects of a kind in a namespace (any number: 0 means all), by namespace and name, retired ones too.
func (s *Snapshot) Objects(kind schema.Kind, ns int32) []*Object {
	var all []*Object
	for _, o := range s.byID {
		if o.Address.Kind == kind && (ns == 0 || o.NS == ns) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *Object) int { return strings.Compare(a.Address.String(), b.Address.String()) })
	return all
}

// Workflow gives a workflow by name: the revision in force, or with a version above 0 the one that has it (N3). store.ErrNotFound where there is none,
// ErrNotLoaded where the version is not the one in force and was not needed before; Registry.Workflow then reads it.
func (s *Snapshot) Workflow(ns int32, name string, version int64) (WorkflowRev, error) {
	o, ok := s.lookup(ns, schema.KindWorkflow, name)
	if !ok {
		return WorkflowRev{}, fmt.Errorf("workflow %s: %w", name, store.ErrNotFound)
	}
	if version != 0 && version != o.Version {
		return WorkflowRev{}, fmt.Errorf("workflow %s version %d: %w", name, version, ErrNotLoaded)
	}
	return s.workflowRev(o, o.RevID)
}

func (s *Snapshot) workflowRev(o *Object, revID int32) (WorkflowRev, error) {
	c, ok := s.contents.get(store.RevisionKey{NS: o.NS, RevID: revID})
	if !ok {
		return WorkflowRev{}, fmt.Errorf("%s: %w", o.Address, ErrNotLoaded)
	}
	rev, err := c.workflow()
	rev.Retired = o.Retired()
	return rev, err
}

func (s *Snapshot) lookup(ns int32, kind schema.Kind, name string) (*Object, bool) {
	namespace, ok := s.names[ns]
	if !ok {
		return nil, false
	}
	return s.Object(schema.Address{Kind: kind, Namespace: namespace, Name: name})
}

// Task implements execution.Definitions. A retired definition still serves the executions that name it (P9).
func (s *Snapshot) Task(ns int32, name string) (execution.Pinned, bool) {
	o, ok := s.lookup(ns, schema.KindTaskDefinition, name)
	if !ok {
		return execution.Pinned{}, false
	}
	return s.TaskRev(ns, o.RevID)
}

// TaskRev implements execution.Definitions: any revision in force now, or loaded before.
func (s *Snapshot) TaskRev(ns, defRev int32) (execution.Pinned, bool) {
	c, ok := s.contents.get(store.RevisionKey{NS: ns, RevID: defRev})
	if !ok {
		return execution.Pinned{}, false
	}
	return c.pinned()
}

// TaskByID gives the definition in force by its object number, retired ones too.
func (s *Snapshot) TaskByID(ns, defID int32) (execution.Pinned, bool) {
	o, ok := s.ObjectByID(ns, defID)
	if !ok || o.Address.Kind != schema.KindTaskDefinition {
		return execution.Pinned{}, false
	}
	return s.TaskRev(ns, o.RevID)
}

// Target implements execution.Definitions.
func (s *Snapshot) Target(ref schema.Ref) (execution.TargetRef, bool) {
	o, ok := s.objects[schema.Address{Kind: schema.KindTarget, Namespace: ref.Namespace, Name: ref.Name}]
	if !ok {
		return execution.TargetRef{}, false
	}
	return execution.TargetRef{NS: o.NS, ID: o.ID}, true
}

// TargetByID gives the Target in force by its numbers, retired ones too.
func (s *Snapshot) TargetByID(ns, id int32) (*schema.Target, bool) {
	o, ok := s.ObjectByID(ns, id)
	if !ok {
		return nil, false
	}
	target, ok := o.Value.(*schema.Target)
	return target, ok
}

// contents keeps every revision that was read, for ever: revisions never change. Safe for concurrent use.
type contents struct {
	mu  sync.RWMutex
	all map[store.RevisionKey]*content
}

func (c *contents) get(key store.RevisionKey) (*content, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.all[key]
	return found, ok
}

func (c *contents) put(all []*content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range all {
		if _, ok := c.all[one.RevisionKey]; !ok {
			c.all[one.RevisionKey] = one
		}
	}
}

// missing gives those of the keys that were not read yet, each once.
func (c *contents) missing(keys []store.RevisionKey) []store.RevisionKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen := map[store.RevisionKey]bool{}
	var out []store.RevisionKey
	for _, k := range keys {
		if _, ok := c.all[k]; !ok && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

var _ execution.Definitions = (*Snapshot)(nil)
