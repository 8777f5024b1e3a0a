package loader

import (
	"strings"
	"unicode/utf8"

	"nf/loader/source"
	"nf/schema/diag"
)

// located answers where a finding's pointer stands in a document.
type located struct{ doc source.Document }

// Locate implements diag.Locator.
func (l located) Locate(place diag.Place) (diag.Location, bool) {
	at := l.doc.Locate(place.Pointer, place.AtKey)
	out := diag.Location{File: l.doc.File(), Document: l.doc.Index, Range: at.Range}
	if !at.Exact {
		// what is not there is placed at the nearest key above, which is not what a fix may replace
		out.Range.End = at.Range.End
		return out, place.Pointer == ""
	}
	if place.Text != nil && len(at.Related) == 0 {
		narrow, ok := l.within(at.Range, place.Pointer, *place.Text)
		if !ok {
			return out, false
		}
		out.Range = narrow
	}
	return out, true
}

// within finds a span of a text value in what is written. The text may be quoted, folded or escaped there; the part is
// looked for as it is written, at the same turn as in the text.
func (l located) within(r diag.Range, pointer string, span diag.Span) (diag.Range, bool) {
	text, ok := l.doc.Text(pointer)
	if !ok {
		return r, false
	}
	start, end := byteAt(text, span.Start), byteAt(text, span.End)
	part := text[start:end]
	if part == "" {
		return r, false
	}
	turn := strings.Count(text[:start], part)
	raw := string(l.doc.Raw(r))
	at := 0
	for ; turn >= 0; turn-- {
		i := strings.Index(raw[at:], part)
		if i < 0 {
			return r, false
		}
		if turn == 0 {
			return l.doc.Within(r, at+i, len(part)), true
		}
		at += i + len(part)
	}
	return r, false
}

// byteAt gives the offset in bytes of a code point.
func byteAt(text string, point int) int {
	off := 0
	for ; point > 0 && off < len(text); point-- {
		_, n := utf8.DecodeRuneInString(text[off:])
		off += n
	}
	return off
}
