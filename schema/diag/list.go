package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// New makes a finding at a pointer, with the level that the table of codes gives (Error for a code that is not in it).
func New(code Code, pointer, message string) Diagnostic {
	level := Error
	if e, ok := Explain(code); ok {
		level = e.Level
	}
	return Diagnostic{Code: code, Level: level, Message: message, Pointer: pointer}
}

// Newf is New with a formatted message.
func Newf(code Code, pointer, format string, args ...any) Diagnostic {
	return New(code, pointer, fmt.Sprintf(format, args...))
}

// WithHint gives the finding with a hint.
func (d Diagnostic) WithHint(hint string) Diagnostic {
	d.Hint = hint
	return d
}

// OnKey gives the finding moved to the key that its pointer's last step names.
func (d Diagnostic) OnKey() Diagnostic {
	d.AtKey = true
	return d
}

// RelatedAt gives the finding with a related place in its own document.
func (d Diagnostic) RelatedAt(pointer, message string) Diagnostic {
	d.Related = append(slices.Clone(d.Related), Related{Pointer: pointer, Message: message})
	return d
}

// Within gives the finding narrowed to a span of the text at its pointer.
func (d Diagnostic) Within(span Span) Diagnostic {
	d.Text = &span
	return d
}

// Replacing gives the finding with the text that mends it when put in place of what it points to. A safe replacement never
// changes meaning.
func (d Diagnostic) Replacing(text string, safe bool) Diagnostic {
	d.Replace, d.ReplaceSafe = text, safe
	return d
}

// Place is what a finding knows about where it stands.
type Place struct {
	Pointer string
	AtKey   bool
	Text    *Span // nil = the whole value
}

// Location is where that is in a file.
type Location struct {
	File     string
	Document int
	Range    Range
}

// Locator knows the places of one document. Locate answers false for a pointer that names nothing; the finding then takes
// the place of the nearest parent that exists.
type Locator interface {
	Locate(place Place) (Location, bool)
}

// In gives the findings with the file and range that a document's locator knows. Findings that already have a file stay as
// they are.
func (l List) In(locator Locator) List {
	out := slices.Clone(l)
	for i := range out {
		if out[i].File == "" {
			out[i].locate(locator)
			out[i].locateRelated(locator)
		}
	}
	return out
}

// locateRelated fills in the related places that have only a pointer.
func (d *Diagnostic) locateRelated(locator Locator) {
	related := slices.Clone(d.Related)
	for i := range related {
		if r := &related[i]; r.File == "" && r.Pointer != "" {
			if at, ok := locator.Locate(Place{Pointer: r.Pointer}); ok {
				r.File, r.Start = at.File, at.Range.Start
			}
		}
	}
	d.Related = related
}

func (d *Diagnostic) locate(locator Locator) {
	place := Place{Pointer: d.Pointer, AtKey: d.AtKey, Text: d.Text}
	for {
		if at, ok := locator.Locate(place); ok {
			d.File, d.Document, d.Range = at.File, at.Document, at.Range
			if exact := place == (Place{d.Pointer, d.AtKey, d.Text}); exact && d.Replace != "" && d.Fix == nil && at.Range.End.Offset > at.Range.Start.Offset {
				d.Fix = &Fix{Edits: []Edit{{Start: at.Range.Start.Offset, End: at.Range.End.Offset, Text: d.Replace}}, Safe: d.ReplaceSafe}
			}
			return
		}
		cut := strings.LastIndexByte(place.Pointer, '/')
		switch {
		case place.Text != nil:
			place.Text = nil
		case cut < 0:
			return
		default:
			place.Pointer, place.AtKey = place.Pointer[:cut], true
		}
	}
}

// For gives the findings with the object that they are about, where they name none.
func (l List) For(object Object) List {
	out := slices.Clone(l)
	for i := range out {
		if out[i].Object == nil {
			out[i].Object = &object
		}
	}
	return out
}

// HasErrors says whether any finding is an error.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Level == Error })
}

// Err gives an error that holds the findings if any of them is an error, else nil.
func (l List) Err() error {
	if !l.HasErrors() {
		return nil
	}
	return &Findings{List: l}
}

// Findings is a List as an error. At least one of them is an error.
type Findings struct{ List List }

// Error gives the first error and the count of the others.
func (f *Findings) Error() string {
	first, errors := Diagnostic{}, 0
	for _, d := range f.List {
		if d.Level == Error {
			if errors == 0 {
				first = d
			}
			errors++
		}
	}
	text := first.oneLine()
	if errors > 1 {
		text += fmt.Sprintf(" (and %d more)", errors-1)
	}
	return text
}

// Sort orders findings by file, line, column and code, then by what makes the order total, in place.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Range.Start.Line, b.Range.Start.Line),
			cmp.Compare(a.Range.Start.Column, b.Range.Start.Column),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Document, b.Document),
			cmp.Compare(a.Pointer, b.Pointer),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

// Compact drops findings that repeat an earlier one in code, place and message. The list must be sorted.
func (l List) Compact() List {
	return slices.CompactFunc(l, func(a, b Diagnostic) bool {
		return a.Code == b.Code && a.File == b.File && a.Document == b.Document && a.Pointer == b.Pointer && a.Message == b.Message && a.Range == b.Range
	})
}
