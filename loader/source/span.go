package source

import (
	"bytes"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// properties are the places of what may stand before a node's content. Offsets are in the document's text, -1 = none.
type properties struct {
	start       int // of the content
	end         int // of the last property, or where the node is said to start
	anchor      int
	tag, tagEnd int
}

// properties skips tag and anchor of a node that the library places at at.
func (w *walker) properties(at int, n *yaml.Node) properties {
	pr := properties{start: at, end: at, anchor: -1, tag: -1}
	for pr.start < len(w.text) {
		c := w.text[pr.start]
		if c != '&' && c != '!' {
			return pr
		}
		if c == '&' && n.Anchor == "" {
			return pr
		}
		end := pr.start + 1
		if c == '!' && end < len(w.text) && w.text[end] == '<' {
			if i := bytes.IndexByte(w.text[end:], '>'); i >= 0 {
				end += i + 1
			}
		}
		for c == '!' && end < len(w.text) && bytes.IndexByte([]byte(" \t\r\n,[]{}"), w.text[end]) < 0 {
			end++
		}
		if c == '&' {
			end = min(end+len(n.Anchor), len(w.text))
			if pr.anchor >= 0 {
				return pr
			}
			pr.anchor = pr.start
		} else {
			if pr.tag >= 0 {
				return pr
			}
			pr.tag, pr.tagEnd = pr.start, end
		}
		pr.end, pr.start = end, w.skipSpace(end)
	}
	return pr
}

// skipSpace skips blanks, line breaks and comments.
func (w *walker) skipSpace(off int) int {
	for off < len(w.text) {
		switch c := w.text[off]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			off++
		case c == '#' && (off == 0 || bytes.IndexByte([]byte(" \t\n\r"), w.text[off-1]) >= 0):
			off = lineEnd(w.text, off)
		default:
			return off
		}
	}
	return off
}

// closing finds the end of a bracketed collection whose last child ends at off.
func (w *walker) closing(off int, bracket byte) int {
	for off < len(w.text) {
		off = w.skipSpace(off)
		if off >= len(w.text) {
			break
		}
		switch w.text[off] {
		case bracket:
			return off + 1
		case ',', ':', '?':
			off++
		default:
			return off
		}
	}
	return len(w.text)
}

// scalarSpan finds where a scalar starts and ends. The library gives no ends, so they are read off the text again, with
// the decoded value as a guide.
func (w *walker) scalarSpan(n *yaml.Node, pr properties, indent int) (start, end int) {
	start = min(pr.start, len(w.text))
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return start, w.quotedEnd(start, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		return start, w.quotedEnd(start, '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return start, w.blockEnd(start, indent)
	case n.Value == "":
		return min(pr.end, len(w.text)), min(pr.end, len(w.text))
	}
	return start, w.plainValueEnd(start, n.Value)
}

func (w *walker) quotedEnd(start int, quote byte) int {
	for i := start + 1; i < len(w.text); i++ {
		switch {
		case w.text[i] == '\\' && quote == '"':
			i++
		case w.text[i] != quote:
		case quote == '\'' && i+1 < len(w.text) && w.text[i+1] == '\'':
			i++
		default:
			return i + 1
		}
	}
	return len(w.text)
}

// plainValueEnd walks text and value side by side: a plain scalar has no escapes, only its white space is folded.
func (w *walker) plainValueEnd(start int, value string) int {
	off, end := start, start
	for i := 0; i < len(value); {
		r, n := utf8.DecodeRuneInString(value[i:])
		if folded(r) {
			i += n
			continue
		}
		for off < len(w.text) {
			s, size := utf8.DecodeRune(w.text[off:])
			if !folded(s) {
				break
			}
			off += size
		}
		if off+n > len(w.text) {
			return len(w.text)
		}
		i += n
		off += n
		end = off
	}
	return end
}

// folded says whether r is white space that a plain scalar may fold.
func folded(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

// blockEnd finds the end of a block scalar whose indicator stands at start, in a collection of the given indent.
func (w *walker) blockEnd(start, indent int) int {
	header := lineEnd(w.text, start)
	end, content := header, -1
	for i := start; i < header && w.text[i] != '#' && content < 0; i++ {
		if c := w.text[i]; c >= '1' && c <= '9' {
			content = max(indent, 0) + int(c-'0')
		}
	}
	for off := nextLine(w.text, header); off < len(w.text); {
		stop := lineEnd(w.text, off)
		line := w.text[off:stop]
		lead := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case len(bytes.TrimSpace(line)) == 0 && (content < 0 || lead < content):
		case content < 0 && lead <= indent:
			return end
		case content < 0:
			content, end = lead, stop
		case lead < content:
			return end
		default:
			end = stop
		}
		off = nextLine(w.text, stop)
	}
	return end
}

// nextLine gives the start of the line after the line end at off.
func nextLine(text []byte, off int) int {
	if off < len(text) && text[off] == '\r' {
		off++
	}
	if off < len(text) && text[off] == '\n' {
		off++
	}
	return off
}
