// Package plan says what must change in the registry so that it equals the files, and what is refused.
//
// It is pure: both sides are values, the same input gives the same bytes. Nothing is half-applied: a plan with a refused item
// is not applied at all, and still shows the rest as what would go in once that is mended.
//
// Fields are compared in their effective form (defaults filled in, numbers in one form, sets without order), so comments,
// order of keys, line ends and written defaults never make a change. The tasks of a workflow are told apart by their
// reference, not by their place. File, line and commit of an object alone are no change.
package plan

import (
	"time"

	"nf/schema"
	"nf/schema/diag"
)

// FormatVersion is the version of the JSON form. Fields are added, never removed within a version.
const FormatVersion = "1.0"

// Action is what an apply does to an object.
type Action string

// The actions.
const (
	Add      Action = "add"
	Change   Action = "change"
	Retire   Action = "retire"   // its file disappeared (P9)
	Unretire Action = "unretire" // it reappeared, changed or not
)

// Input is all that a plan is made of.
type Input struct {
	Project     string
	Environment string
	NFVersion   string
	// Private says that the database is the private one of `nf dev`: the guards of P9 warn and do not refuse, and an
	// explicit version moves to the newest content.
	Private bool
	// AllowEmpty lifts the guards of P9.
	AllowEmpty bool

	Desired    schema.Set
	Origins    map[schema.Address]diag.Location // where each desired object is declared
	Locate     func(a schema.Address, pointer string) (diag.Location, bool)
	Source     Source
	Findings   diag.List // of the load; they are shown with the plan
	Registered Registered

	// Order holds what the order of commits is decided from; nil = there is none (`nf dev`). InForce, Seen and Local are filled in from the registry and Ancestry.
	Order *OrderFacts
	// Ancestry asks the checkout how my commit stands to the one in force. Nil = nothing is known.
	Ancestry func(inForce string) Ancestry
	// ForApply says that the plan is to be applied: a commit out of order is then an error, not a warning.
	ForApply bool
}

// Source says where the desired set came from.
type Source struct {
	Commit string `json:"commit,omitempty"`
	Branch string `json:"branch,omitempty"`
	Dirty  bool   `json:"dirty"`
	Digest string `json:"digest"` // of the bytes that were read
	Set    string `json:"set"`    // of the desired set
}

// Registered is what the registry holds, read in one state.
type Registered struct {
	Generation int64 // of the project, 0 = nothing applied yet
	Digest     schema.Digest
	Commit     string
	AppliedAt  time.Time
	AppliedBy  string
	// Namespaces holds every namespace that exists, with the number of objects in force in it that this project does not
	// own. Nil = unknown.
	Namespaces map[string]int
	// Objects are all objects of the project, retired ones too, and those of others that have a desired address.
	Objects []Object
}

// Object is an object as the registry holds it.
type Object struct {
	Address     schema.Address
	Project     string // owner, "" = unowned (P5)
	Revision    int64  // in force
	Digest      schema.Digest
	Spec        []byte // canonical form
	Labels      map[string]string
	Description string
	Retired     bool
	File        string
	Line        int
	Commit      string
	Versions    []Version // explicit versions of a Workflow that were applied once
	Use         *Use      // nil = unknown
}

// Version is an explicit version that was applied once (N3).
type Version struct {
	Version  int64
	Revision int64
	Digest   schema.Digest
}

// Use says how an object is used now.
type Use struct {
	Open int64 // open executions that name it
	Held int64 // permits or leases held of it
}

// Plan is the result of Diff. Its JSON form is fixed.
type Plan struct {
	Format      string `json:"format_version"`
	NFVersion   string `json:"nf_version,omitempty"`
	Project     string `json:"project"`
	Environment string `json:"environment"`
	Source      Source `json:"source"`
	Base        Base   `json:"base"`

	Summary    Summary        `json:"summary"`
	Risk       Risk           `json:"risk"`
	Namespaces []string       `json:"namespaces"` // that the apply creates because objects name them: no objects themselves
	Changes    []ObjectChange `json:"changes"`
	Refused    []Refusal      `json:"refused"`
	Held       []any          `json:"held"`  // always empty before rollbacks exist
	Drift      []any          `json:"drift"` // always empty before drift is looked for
	Findings   diag.List      `json:"findings"`

	// Behind says why the commit is out of order (NF6107), "" if it is not.
	Behind string `json:"behind,omitempty"`

	// SetDigest is the digest of the desired set, for the registry.
	SetDigest schema.Digest `json:"-"`
}

// Base is the state that a plan was made against. An apply compares it with what is in force then.
type Base struct {
	Generation int64            `json:"generation"`
	Commit     string           `json:"commit,omitempty"`
	Digest     string           `json:"digest,omitempty"`
	AppliedAt  *time.Time       `json:"applied_at,omitempty"`
	AppliedBy  string           `json:"applied_by,omitempty"`
	Revisions  map[string]int64 `json:"revisions"` // of the objects that the plan touches and of those that these name, by address
}

// Summary counts. Delete counts retirements.
type Summary struct {
	Add       int `json:"add"`
	Change    int `json:"change"` // un-retired ones included
	Move      int `json:"move"`
	Adopt     int `json:"adopt"`
	Delete    int `json:"delete"`
	Refused   int `json:"refused"`
	Held      int `json:"held"`
	Unchanged int `json:"unchanged"`
	Drift     int `json:"drift"`
}

// RiskLevel says how much care a change needs (contract 5.2).
type RiskLevel string

// The levels of risk.
const (
	Low    RiskLevel = "low"
	Medium RiskLevel = "medium" // another change of an object in use
	High   RiskLevel = "high"   // a retirement, the address of a Target, a cap or permits below what is held
)

// Risk is the highest risk of a plan with its reasons.
type Risk struct {
	Level   RiskLevel `json:"level"`
	Reasons []string  `json:"reasons"`
}

// Place is where an object is declared.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// ObjectChange is what happens to one object.
type ObjectChange struct {
	Action   Action        `json:"action"`
	Object   diag.Object   `json:"object"`
	Source   *Place        `json:"source,omitempty"` // where it is declared, of a retired one where it was
	Fields   []FieldChange `json:"fields"`
	Revision Revision      `json:"revision"`
	Digest   Digests       `json:"digest"`
	Impact   []Impact      `json:"impact"`
	Risk     RiskLevel     `json:"risk"`

	// Address is Object as the registry speaks of it.
	Address schema.Address `json:"-"`
}

// Revision is the revision in force before; what comes after is the database's to give.
type Revision struct {
	Before int64 `json:"before,omitempty"`
}

// Digests are the contents before and after; "" = none.
type Digests struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Impact is a consequence beside the change.
type Impact struct {
	Kind  string `json:"kind"` // open_executions, held
	Count int64  `json:"count"`
}

// Refusal is a change that may not be made, with the finding that says why.
type Refusal struct {
	Action  Action      `json:"action"`
	Object  diag.Object `json:"object"`
	Source  *Place      `json:"source,omitempty"`
	Code    diag.Code   `json:"code"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
}

// Op is what happened to a field.
type Op string

// The operations on a field.
const (
	OpAdd     Op = "add"
	OpRemove  Op = "remove"
	OpReplace Op = "replace"
	OpReorder Op = "reorder" // the same tasks in another order; before and after hold their references
)

// FieldChange is one difference.
type FieldChange struct {
	Pointer string `json:"pointer"` // JSON Pointer into the manifest: of the new one, of a removed field of the old one
	Path    string `json:"path"`    // the same for people: spec.tasks[charge].inputParameters.path
	Op      Op     `json:"op"`
	Before  any    `json:"before,omitempty"`
	After   any    `json:"after,omitempty"`
	// BeforeDefault and AfterDefault say that the value is the field's default, not written out.
	BeforeDefault bool `json:"before_default,omitempty"`
	AfterDefault  bool `json:"after_default,omitempty"`
	// Sensitive values are left out.
	Sensitive bool `json:"sensitive"`
}

// Empty says whether an apply would write nothing.
func (p Plan) Empty() bool { return len(p.Changes) == 0 && len(p.Refused) == 0 }

// OK says whether the plan may be applied.
func (p Plan) OK() bool { return len(p.Refused) == 0 && !p.Findings.HasErrors() }
