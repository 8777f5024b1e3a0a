package expr

import "nf/schema/diag"

// The parts of the root `workflow` (contract 1.8).
const (
	Workflow = "workflow" // the root itself

	PartInput         = "input"
	PartVariables     = "variables"
	PartOutput        = "output"
	PartExecutionID   = "executionId"
	PartName          = "name"
	PartVersion       = "version"
	PartRevision      = "revision"
	PartCorrelationID = "correlationId"
	PartStatus        = "status" // of a task; its other parts are input and output
)

// Ref is one reference: the root (Workflow or a task reference), the part of it, and the path inside that part.
type Ref struct {
	Root string
	Part string
	Path Path
	// Pointer is where the text stands in the value that was parsed ("" for Parse), Span where the expression stands in it,
	// Source what is written between ${ and }.
	Pointer string
	Span    diag.Span
	Source  string
}

// String writes the reference as in an expression, without ${}.
func (r Ref) String() string { return r.Root + "." + r.Part + r.Path.String() }

// Template is a parsed text. The zero value is the empty text.
type Template struct {
	literal string    // the whole text when there is no expression
	parts   []segment // nil when there is none
}

// segment is a literal text, or a reference.
type segment struct {
	text string
	ref  *Ref // nil = text
}

// Constant says whether the text holds no expression.
func (t Template) Constant() bool { return t.parts == nil }

// Whole says whether the text is exactly one expression, so that it gives a value with its type.
func (t Template) Whole() bool { return len(t.parts) == 1 && t.parts[0].ref != nil }

// Refs lists the references, in order.
func (t Template) Refs() []Ref { return t.refs(nil) }

func (t Template) refs(dst []Ref) []Ref {
	for _, s := range t.parts {
		if s.ref != nil {
			dst = append(dst, *s.ref)
		}
	}
	return dst
}

// Has says whether a text holds an expression or the escape of one, without parsing it.
func Has(text string) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == '$' && text[i+1] == '{' {
			return true
		}
	}
	return false
}
