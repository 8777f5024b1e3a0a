// Package schema says what each kind of object is: immutable Go values with a canonical form.
//
// The package is pure. YAML, positions and JSON Schemas live elsewhere: the loader turns a checked tree into these
// values, the registry stores their canonical bytes, the engine reads them.
package schema

import "fmt"

// Kind names a kind of object, as in the manifest's `kind`.
type Kind string

// The kinds of wave 1.
const (
	KindProject        Kind = "Project" // nf.yaml; never stored in the database
	KindNamespace      Kind = "Namespace"
	KindTaskDefinition Kind = "TaskDefinition"
	KindWorkflow       Kind = "Workflow"
	KindSemaphore      Kind = "Semaphore"
	KindTarget         Kind = "Target"
)

// APIVersion is the only accepted `apiVersion`.
const APIVersion = "nf/v1"

// DefaultNamespace is the namespace of an object that names none.
const DefaultNamespace = "default"

// Address is the identity of an object (contract 1.1): kind, namespace, name. A Namespace has an empty Namespace.
type Address struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String gives Kind/namespace/name, or Kind/name where the kind has no namespace.
func (a Address) String() string {
	if a.Namespace == "" {
		return fmt.Sprintf("%s/%s", a.Kind, a.Name)
	}
	return fmt.Sprintf("%s/%s/%s", a.Kind, a.Namespace, a.Name)
}

// Ref names another object, its namespace filled in (N2).
type Ref struct {
	Namespace string
	Name      string
}

// String gives namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Metadata is what every kind carries beside its spec. Only Name and Namespace are identity.
type Metadata struct {
	Name        string
	Namespace   string
	Labels      map[string]string
	Description string
}

// Object is one declared thing. The set of implementations is closed.
type Object interface {
	Address() Address
	Meta() Metadata
	isObject()
}

// Millis is a duration in whole milliseconds (A0.3). In files and on the wire it is seconds with at most 3 decimals.
type Millis int64

// MaxDuration is the longest duration of any field: 366 days.
const MaxDuration Millis = 31_622_400_000

// Value is any JSON value as decoded with json.Number: nil, bool, json.Number, string, []any, map[string]any.
// Values in definitions are never changed after loading.
type Value = any

// Project is nf.yaml (contract 1.2).
type Project struct {
	Metadata Metadata
	Roots    []string
}

// Namespace is a declared namespace. It has no fields in wave 1.
type Namespace struct {
	Metadata Metadata
}

// Semaphore is a named pool of permits (A8).
type Semaphore struct {
	Metadata Metadata
	Permits  int64
}

// Address implements Object.
func (o *Namespace) Address() Address { return Address{Kind: KindNamespace, Name: o.Metadata.Name} }

// Meta implements Object.
func (o *Namespace) Meta() Metadata { return o.Metadata }
func (*Namespace) isObject()        {}

// Address implements Object.
func (o *Semaphore) Address() Address {
	return Address{KindSemaphore, o.Metadata.Namespace, o.Metadata.Name}
}

// Meta implements Object.
func (o *Semaphore) Meta() Metadata { return o.Metadata }
func (*Semaphore) isObject()        {}
