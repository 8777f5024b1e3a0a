package source

import (
	"bytes"
	"sort"
	"unicode/utf8"

	"nf/schema/diag"
)

// file is the text of a file with its lines.
type file struct {
	name  string
	src   []byte
	base  int   // bytes of a byte order mark at the start
	lines []int // offset of the first byte of each line
	ascii bool  // columns are bytes
}

// bom is the byte order mark in UTF-8.
var bom = []byte("\xEF\xBB\xBF")

func newFile(name string, src []byte) *file {
	f := &file{name: name, src: src, ascii: true}
	if bytes.HasPrefix(src, bom) {
		f.base = len(bom)
	}
	f.lines = append(f.lines, f.base)
	for i, b := range src {
		if b == '\n' {
			f.lines = append(f.lines, i+1)
		}
		f.ascii = f.ascii && (b < utf8.RuneSelf || i < f.base)
	}
	return f
}

// pos gives the place of an offset; one outside the file is moved to its nearest end.
func (f *file) pos(off int) diag.Pos {
	off = min(max(off, f.base), len(f.src))
	line := sort.SearchInts(f.lines, off+1) - 1
	column := off - f.lines[line] + 1
	if !f.ascii {
		column = utf8.RuneCount(f.src[f.lines[line]:off]) + 1
	}
	return diag.Pos{Line: line + 1, Column: column, Offset: off}
}

// span gives the range of the bytes [start, end).
func (f *file) span(start, end int) diag.Range {
	return diag.Range{Start: f.pos(start), End: f.pos(max(start, end))}
}

// lineEnd gives the offset of the line end (without CR, LF) at or after off.
func (f *file) lineEnd(off int) int { return lineEnd(f.src, off) }

func lineEnd(src []byte, off int) int {
	if off >= len(src) {
		return len(src)
	}
	i := bytes.IndexByte(src[off:], '\n')
	if i < 0 {
		return len(src)
	}
	end := off + i
	if end > off && src[end-1] == '\r' {
		end--
	}
	return end
}

// lineStart gives the offset of the first byte of the line that holds off.
func lineStart(src []byte, off int) int {
	return bytes.LastIndexByte(src[:min(off, len(src))], '\n') + 1
}

// marks turns the library's line and column (0-based, lines also broken by NEL, LS, PS and lone CR) into offsets. It
// remembers the last answer, so asking in rising order costs one pass over the text.
type marks struct {
	src   []byte
	lines []int
	line  int
	col   int
	off   int
}

func newMarks(src []byte) *marks {
	m := &marks{src: src, lines: []int{0}}
	for i := 0; i < len(src); i++ {
		n := breakAt(src, i)
		if n == 0 {
			continue
		}
		i += n - 1
		m.lines = append(m.lines, i+1)
	}
	return m
}

// breakAt gives the length of the line break at i as the library sees it, 0 if there is none.
func breakAt(src []byte, i int) int {
	switch src[i] {
	case '\n':
		return 1
	case '\r':
		if i+1 < len(src) && src[i+1] == '\n' {
			return 2
		}
		return 1
	case 0xC2:
		if i+1 < len(src) && src[i+1] == 0x85 {
			return 2
		}
	case 0xE2:
		if i+2 < len(src) && src[i+1] == 0x80 && (src[i+2] == 0xA8 || src[i+2] == 0xA9) {
			return 3
		}
	}
	return 0
}

func (m *marks) offset(line, col int) int {
	line = min(max(line, 0), len(m.lines)-1)
	if line != m.line || col < m.col {
		m.line, m.col, m.off = line, 0, m.lines[line]
	}
	for m.col < col && m.off < len(m.src) {
		_, n := utf8.DecodeRune(m.src[m.off:])
		m.off += n
		m.col++
	}
	return m.off
}
