package source

import (
	"bytes"
	"fmt"
)

// segment is the text of one document: from its `---` (or its first content) to before the next marker.
type segment struct {
	start, end int
	marked     bool // starts with ---
}

// split cuts a file into documents. A line that starts with `---` or `...` is a document marker wherever it stands (no
// block scalar or quoted text may hold one in its first column), so each document can be parsed on its own and a broken
// one hides no other.
func (p *parse) split() []segment {
	src := p.file.src
	var segs []segment
	open, ended := -1, false
	closeAt := func(off int) {
		if open >= 0 {
			segs[open].end = off
			open = -1
		}
	}
	stray := false
	for off := p.file.base; off < len(src); {
		next := len(src)
		if i := bytes.IndexByte(src[off:], '\n'); i >= 0 {
			next = off + i + 1
		}
		line := src[off:lineEnd(src, off)]
		switch {
		case isMarker(line, "---"):
			closeAt(off)
			segs = append(segs, segment{start: off, end: len(src), marked: true})
			open, ended, stray = len(segs)-1, false, false
		case isMarker(line, "..."):
			closeAt(off)
			if rest := bytes.TrimLeft(line[3:], " \t"); len(rest) > 0 && rest[0] != '#' {
				p.strayContent(off+len(line)-len(rest), off+len(line))
				stray = true
			}
			ended = true
		case open >= 0 || blank(line) || stray:
		case line[0] == '%':
			p.directive(off, line)
		case ended:
			p.strayContent(off, off+len(line))
			stray = true
		default:
			segs = append(segs, segment{start: off, end: len(src)})
			open = len(segs) - 1
		}
		off = next
	}
	return segs
}

// isMarker says whether a line is the given document marker.
func isMarker(line []byte, marker string) bool {
	return bytes.HasPrefix(line, []byte(marker)) && (len(line) == 3 || line[3] == ' ' || line[3] == '\t')
}

// blank says whether a line is empty or holds only a comment.
func blank(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) == 0 || line[0] == '#'
}

func (p *parse) strayContent(start, end int) {
	p.errorf("NF1018", start, end, "put a line with --- before it, or remove the line with ...",
		"content after the end of a document")
}

// directive judges a line that starts with %. Only the version line that changes nothing is let through.
func (p *parse) directive(off int, line []byte) {
	text := string(bytes.TrimSpace(line))
	switch text {
	case "%YAML 1.2", "%YAML 1.1":
		return
	}
	p.errorf("NF1002", off, off+len(line), "remove the line", "directive %q is not supported", text)
}

// parseYAML parses all documents of a YAML file.
func (p *parse) parseYAML() {
	segs := p.split()
	if n := p.limits.DocumentsPerFile; len(segs) > n {
		p.errorf("NF1016", segs[n].start, segs[n].start+3, "split the file into several",
			"file has %d documents, more than the limit documentsPerFile = %d", len(segs), n)
		segs = segs[:n]
	}
	for _, s := range segs {
		p.doc = len(p.docs)
		if !p.parseSegment(s) {
			p.empty = append(p.empty, s.start)
			continue
		}
	}
	p.reportEmpty()
}

// reportEmpty warns of documents without content that stand beside others.
func (p *parse) reportEmpty() {
	if len(p.docs) == 0 {
		return
	}
	for _, off := range p.empty {
		d := p.errorf("NF1017", off, min(off+3, len(p.file.src)), "remove the --- line, or write the document", "document is empty")
		d.Level = "warning"
		d.Document = 0
		for _, doc := range p.docs {
			if doc.start < off {
				d.Document = doc.Index
			}
		}
	}
}

// addDocument appends a document with its tree.
func (p *parse) addDocument(start, end int, root *Node) {
	p.docs = append(p.docs, Document{Index: len(p.docs), Root: root, file: p.file, start: start, end: end})
}

// overNodes reports, once a file, that the node budget is spent.
func (p *parse) overNodes(start, end int, alias string) {
	if p.over {
		return
	}
	p.over = true
	what := "file has"
	if alias != "" {
		what = fmt.Sprintf("with alias *%s the file has", alias)
	}
	p.errorf("NF1012", start, end, "split the file, or write less through aliases",
		"%s more nodes than the limit nodesPerFile = %d (aliases expanded)", what, p.limits.NodesPerFile)
}
