// Package source reads the strict YAML subset of nf, and JSON, into trees that know where everything stands.
//
// It is pure and the only importer of the YAML library, whose traps it hides: it sees every document of a file, refuses
// duplicate and non-text keys, ambiguous words and numbers, unknown tags and alias bombs, finds where a node ends (the
// library only says where it starts) and where a syntax error really is. It never guesses what type a field has: a plain
// `5` is a number here, and the schema says whether a number may stand there.
//
// Columns count code points from 1, offsets count bytes from 0, line ends are LF or CRLF.
package source

import (
	"fmt"
	"strings"

	"nf/schema/diag"
)

// Limits are the budgets of one file (contract 7.2). The zero value allows nothing; start from DefaultLimits.
type Limits struct {
	FileBytes        int // bytes of a file
	DocumentsPerFile int // documents in a file
	Depth            int // nested maps and lists, aliases followed
	NodesPerFile     int // maps, lists and scalars (keys not counted), aliases expanded
}

// DefaultLimits gives the defaults of contract 7.2.
func DefaultLimits() Limits {
	return Limits{FileBytes: 1 << 20, DocumentsPerFile: 200, Depth: 64, NodesPerFile: 250_000}
}

// Document is one document of a file. It is immutable.
type Document struct {
	// Index is the place among the file's documents that have content, from 0.
	Index int
	// Root is the tree, nil if a syntax error or a budget left none.
	Root *Node

	file *file
	// start and end are the offsets of the document's text.
	start, end int
}

// File gives the name that Parse was told.
func (d Document) File() string { return d.file.name }

// Parse reads all documents of a file. It returns every document that could be told apart, each with a tree unless its
// syntax is broken, and all findings, with file, range and document filled in. Documents without content are left out;
// a file without any gives none and no finding. At most MaxFindings are reported. The name's ending `.json` asks for JSON instead of YAML.
//
// Parse never panics, keeps no reference to src after the documents are dropped, and src must not change meanwhile.
func Parse(name string, src []byte, limits Limits) ([]Document, diag.List) {
	p := &parse{file: newFile(name, src), limits: limits}
	if len(src) > limits.FileBytes {
		p.errorf("NF1016", 0, 0, fmt.Sprintf("raise nothing: split the file, the limit fileBytes is %d", limits.FileBytes),
			"file has %d bytes, more than the limit fileBytes = %d", len(src), limits.FileBytes)
		p.findings[0].Hint = "split the file into several"
		return nil, p.findings
	}
	if !p.checkBytes() {
		return nil, p.findings
	}
	if strings.HasSuffix(strings.ToLower(name), ".json") {
		p.parseJSON()
	} else {
		p.parseYAML()
	}
	return p.docs, p.findings
}

// MaxFindings is how many findings one file can have: who made a thousand mistakes made one, many times.
const MaxFindings = 1000

// parse is the state of one call of Parse.
type parse struct {
	file     *file
	limits   Limits
	docs     []Document
	findings diag.List
	excess   diag.Diagnostic // takes what is over MaxFindings
	nodes    int             // counted so far in this file, aliases expanded
	over     bool
	empty    []int // offsets of documents without content
	doc      int   // index that findings get
}

// errorf adds an error over the bytes [start, end).
func (p *parse) errorf(code diag.Code, start, end int, hint, format string, args ...any) *diag.Diagnostic {
	if len(p.findings) >= MaxFindings {
		return &p.excess
	}
	p.findings = append(p.findings, diag.Diagnostic{
		Code: code, Level: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint,
		File: p.file.name, Range: p.file.span(start, end), Document: p.doc,
	})
	return &p.findings[len(p.findings)-1]
}

// related adds a related place to a finding.
func (p *parse) related(d *diag.Diagnostic, off int, message string) {
	d.Related = append(d.Related, diag.Related{File: p.file.name, Start: p.file.pos(off), Message: message})
}

// quoteFix is the edit that puts the bytes [start, end) in double quotes.
func (p *parse) quoteFix(start, end int) *diag.Fix {
	text := string(p.file.src[start:end])
	if strings.ContainsAny(text, "\n\r") {
		return nil
	}
	return &diag.Fix{Edits: []diag.Edit{{Start: start, End: end, Text: quoted(text)}}, Safe: true}
}

// quoted writes a text as a double-quoted YAML scalar, or single-quoted if that needs no escape.
func quoted(text string) string {
	if !strings.ContainsAny(text, `"\`) {
		return `"` + text + `"`
	}
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}
