package diag

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Print renders a finding for a person, like a compiler does: place, level, code, message, then the line with a caret and the
// hint, then the object. source is the text of the finding's file; without it there is no snippet. It ends with a newline.
func (d Diagnostic) Print(source []byte) string {
	var b strings.Builder
	b.WriteString(d.oneLine())
	b.WriteByte('\n')
	snippet := Snippet(source, d.Range, d.Hint)
	b.WriteString(snippet)
	if snippet == "" && d.Hint != "" {
		b.WriteString("  hint: " + Escape(d.Hint) + "\n")
	}
	for _, r := range d.Related {
		fmt.Fprintf(&b, "  see: %s:%d:%d: %s\n", Escape(r.File), r.Start.Line, r.Start.Column, Escape(r.Message))
	}
	if d.Object != nil {
		fmt.Fprintf(&b, "  object: %s\n", Escape(d.Object.String()))
	}
	return b.String()
}

func (d Diagnostic) oneLine() string {
	place := ""
	switch {
	case d.File != "" && d.Range.Start.Line > 0:
		place = fmt.Sprintf("%s:%d:%d: ", Escape(d.File), d.Range.Start.Line, d.Range.Start.Column)
	case d.File != "":
		place = Escape(d.File) + ": "
	}
	return fmt.Sprintf("%s%s[%s]: %s", place, d.Level, d.Code, Escape(d.Message))
}

// Lines longer than this many columns are cut around the caret.
const snippetWidth = 120

// Snippet shows the lines around the start of a range with carets under the range and the hint behind them. It is empty when
// the range is not inside the source.
func Snippet(source []byte, r Range, hint string) string {
	line := r.Start.Line
	if line < 1 || len(source) == 0 {
		return ""
	}
	lines := around(source, line)
	if lines[1] == nil {
		return ""
	}
	var b strings.Builder
	at := visible(string(*lines[1]))
	first := at.column(r.Start.Column - 1)
	last := len(at.text)
	if r.End.Line == line || r.End.Line == 0 {
		last = at.column(max(r.End.Column-1, r.Start.Column))
	}
	last = max(min(last, len(at.text)), first+1)
	cut := 0
	if len(at.text) > snippetWidth && first > snippetWidth/2 {
		cut = first - snippetWidth/2
	}
	for i, content := range lines {
		if content == nil {
			continue
		}
		if text := visible(string(*content)).slice(cut, cut+snippetWidth); text != "" || i == 1 {
			fmt.Fprintf(&b, "%4d | %s\n", line-1+i, text)
		}
		if i == 1 {
			carets := min(last, cut+snippetWidth) - first
			fmt.Fprintf(&b, "     | %s%s", strings.Repeat(" ", first-cut), strings.Repeat("^", max(1, carets)))
			if hint != "" {
				b.WriteString(" " + Escape(hint))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// around gives the line before, the line itself and the line after, nil where there is none.
func around(source []byte, line int) [3]*[]byte {
	var out [3]*[]byte
	for n := 1; n <= line+1 && source != nil; n++ {
		content, rest, more := bytes.Cut(source, []byte("\n"))
		content = bytes.TrimSuffix(content, []byte("\r"))
		if i := n - line + 1; i >= 0 {
			out[i] = &content
		}
		source = rest
		if !more {
			source = nil
		}
	}
	return out
}

// cells is a line as a terminal shows it: one entry a column. A wide character fills two, the second of them empty.
type cells struct {
	text    []string
	columns []int // cell of each code point, and the end
}

func visible(line string) cells {
	var c cells
	for i, r := range line {
		if i == 0 && r == '\uFEFF' {
			c.columns = append(c.columns, 0)
			continue
		}
		c.columns = append(c.columns, len(c.text))
		switch shown := escapeRune(r, line[i:]); {
		case r == '\t':
			c.text = append(c.text, " ", " ")
		case shown != "":
			for _, s := range shown {
				c.text = append(c.text, string(s))
			}
		case unicode.In(r, unicode.Mn, unicode.Me) && len(c.text) > 0:
			c.text[len(c.text)-1] += string(r)
		default:
			c.text = append(c.text, string(r))
			if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
				c.text = append(c.text, "")
			}
		}
	}
	c.columns = append(c.columns, len(c.text))
	return c
}

func (c cells) column(codePoint int) int {
	return c.columns[max(0, min(codePoint, len(c.columns)-1))]
}

func (c cells) slice(from, to int) string {
	from, to = min(from, len(c.text)), min(to, len(c.text))
	return strings.TrimRight(strings.Join(c.text[from:to], ""), " ")
}

// Escape makes a text safe to print in one line of a terminal: control characters, bidirectional and other invisible
// characters and bytes that are no UTF-8 are written as escapes.
func Escape(text string) string {
	clean := true
	for i, r := range text {
		if escapeRune(r, text[i:]) != "" {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if shown := escapeRune(r, text[i:]); shown != "" {
			b.WriteString(shown)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeRune gives the escape of the first rune of rest, "" if it may be printed.
func escapeRune(r rune, rest string) string {
	switch {
	case r == utf8.RuneError:
		if _, size := utf8.DecodeRuneInString(rest); size == 1 {
			return fmt.Sprintf(`\x%02x`, rest[0])
		}
		return ""
	case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.In(r, unicode.Zl, unicode.Zp):
		return fmt.Sprintf(`\u{%x}`, r)
	}
	return ""
}
