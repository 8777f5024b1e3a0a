package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxPatches bounds how often a document is parsed again after a mended value (see mend).
const maxPatches = 20

// parseSegment parses the text of one document. It says false if the document has no content.
//
// A value that YAML reads as an alias, an anchor or a reserved character (`cron: */5 * * * *`) is a finding of its own: it
// is overwritten, at equal length, by a null and the text is parsed again, so that one such value does not hide the rest.
func (p *parse) parseSegment(s segment) bool {
	text := p.file.src[s.start:s.end]
	w := &walker{parse: p, base: s.start, text: text, anchors: map[string]int{}, patched: map[int]bool{}}
	for range maxPatches {
		root, problem := decode(w.text)
		if problem == nil {
			return w.document(s, root)
		}
		w.marks = newMarks(w.text)
		if !w.mend(problem) {
			w.syntaxError(problem)
			break
		}
	}
	p.addDocument(s.start, s.end, nil)
	return true
}

// problem is a syntax error of the library with the place that its text form leaves out or gets wrong.
type problem struct {
	text, context         string
	line, col             int // 0-based, of the problem
	contextLine, contextC int // 0-based, of the construct around it
	eventLine, eventCol   int // 0-based, of the event that was being read
}

// decode parses one document into the library's tree, nil if the text has none.
func decode(text []byte) (root *yaml.Node, pr *problem) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	defer func() {
		if r := recover(); r != nil { // the library panics on states that it calls impossible
			root, pr = nil, &problem{text: fmt.Sprint(r)}
		}
	}()
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, placeOf(dec, err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); err != nil && !errors.Is(err, io.EOF) {
		return nil, placeOf(dec, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// placeOf reads the marks out of the library's parser. Its error text has no column, no line for the first line, and
// often the line of the enclosing block. The fields are read, never written; a test holds them to the fixed version, and
// without them the place is the document's start.
func placeOf(dec *yaml.Decoder, err error) *problem {
	pr := &problem{text: strings.TrimPrefix(err.Error(), "yaml: ")}
	outer := reflect.ValueOf(dec).Elem().FieldByName("parser")
	if !outer.IsValid() || outer.Kind() != reflect.Pointer || outer.IsNil() {
		return pr
	}
	outer = outer.Elem()
	inner := outer.FieldByName("parser")
	if !inner.IsValid() {
		return pr
	}
	if s := inner.FieldByName("problem"); s.IsValid() && s.String() != "" {
		pr.text = s.String()
	}
	if s := inner.FieldByName("context"); s.IsValid() {
		pr.context = s.String()
	}
	pr.line, pr.col = mark(inner, "problem_mark")
	pr.contextLine, pr.contextC = mark(inner, "context_mark")
	if e := outer.FieldByName("event"); e.IsValid() {
		pr.eventLine, pr.eventCol = mark(e, "start_mark")
	}
	return pr
}

func mark(v reflect.Value, name string) (line, col int) {
	m := v.FieldByName(name)
	if !m.IsValid() || m.Kind() != reflect.Struct {
		return 0, 0
	}
	l, c := m.FieldByName("line"), m.FieldByName("column")
	if !l.IsValid() || !c.IsValid() || !l.CanInt() || !c.CanInt() {
		return 0, 0
	}
	return int(l.Int()), int(c.Int())
}

var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	// braces finds an unquoted {{ that begins a value.
	braces = regexp.MustCompile(`(?:^[ \t]*|^[^"'#]*?(?:: |- |\[|, ))(\{\{)`)
)

// mend reports a problem that lies in a single value and overwrites that value. It says false for any other problem.
func (w *walker) mend(pr *problem) bool {
	if m := unknownAnchor.FindStringSubmatch(pr.text); m != nil {
		start := w.marks.offset(pr.eventLine, pr.eventCol)
		end := start + 1 + len(m[1])
		if rest := w.plainEnd(end, w.inBrackets(start)); rest > end {
			w.mustQuote(start, rest, "a leading * as an alias")
			return w.blankOut(start, rest)
		}
		w.errorf("NF1020", w.base+start, w.base+end,
			fmt.Sprintf("define it above with &%s in this document, or quote the value if no alias is meant", m[1]),
			"anchor %q is not defined in this document", m[1])
		return w.blankOut(start, end)
	}
	off := w.marks.offset(pr.line, pr.col)
	context := w.marks.offset(pr.contextLine, pr.contextC)
	switch {
	case pr.context == "while scanning an alias":
		end := w.plainEnd(context, w.inBrackets(context))
		w.mustQuote(context, end, "a leading * as an alias")
		return w.blankOut(context, end)
	case pr.context == "while scanning an anchor":
		end := w.plainEnd(context, w.inBrackets(context))
		w.mustQuote(context, end, "a leading & as an anchor")
		return w.blankOut(context, end)
	case pr.text == "found character that cannot start any token" && off < len(w.text) && strings.IndexByte("@`%", w.text[off]) >= 0:
		end := w.plainEnd(off, w.inBrackets(off))
		w.mustQuote(off, end, fmt.Sprintf("a leading %c as reserved", w.text[off]))
		return w.blankOut(off, end)
	}
	line := lineStart(w.text, off)
	if m := braces.FindSubmatchIndex(w.text[line:lineEnd(w.text, off)]); m != nil {
		start := line + m[2]
		end := w.plainEnd(start, false)
		w.mustQuote(start, end, "{{ as a map inside a map")
		return w.blankOut(start, end)
	}
	return false
}

// mustQuote reports NF1014 over [start, end) of the document's text.
func (w *walker) mustQuote(start, end int, reads string) {
	start, end = w.base+start, w.base+end
	text := string(w.file.src[start:end])
	what := "value"
	if strings.HasPrefix(text, "*/") {
		what = "value (a cron expression?)"
	}
	d := w.errorf("NF1014", start, end, fmt.Sprintf("YAML reads %s; write: %s", reads, quoted(text)), "%s must be quoted", what)
	d.Fix = w.quoteFix(start, end)
}

// inBrackets says whether an offset of the document's text stands inside [ ] or { }.
func (w *walker) inBrackets(off int) bool {
	return openBracket(w.text[:min(off, len(w.text))], -1) >= 0
}

// plainEnd gives the end of the text that an author meant as one plain value: to the end of the line without a comment,
// inside brackets to the next comma or bracket.
func (w *walker) plainEnd(off int, flow bool) int {
	end := lineEnd(w.text, off)
	for i := off; i < end; i++ {
		c := w.text[i]
		if c == '#' && i > off && (w.text[i-1] == ' ' || w.text[i-1] == '\t') || flow && strings.IndexByte(",]}", c) >= 0 {
			end = i
			break
		}
	}
	for end > off && (w.text[end-1] == ' ' || w.text[end-1] == '\t') {
		end--
	}
	return end
}

// blankOut replaces [start, end) by a null of equal length and remembers that the value there is flawed.
func (w *walker) blankOut(start, end int) bool {
	if end <= start {
		return false
	}
	w.text = bytes.Clone(w.text)
	w.text[start] = '~'
	for i := start + 1; i < end; i++ {
		w.text[i] = ' '
	}
	w.patched[start] = true
	return true
}

// syntaxError reports what keeps a document from being parsed.
func (w *walker) syntaxError(pr *problem) {
	off := w.marks.offset(pr.line, pr.col)
	context := w.marks.offset(pr.contextLine, pr.contextC)
	at := func(off int) int { return w.base + min(off, len(w.text)) }
	start := lineStart(w.text, off)
	if tab := bytes.IndexByte(w.text[start:lineEnd(w.text, start)], '\t'); tab >= 0 &&
		(pr.text == "found a tab character that violates indentation" || off < len(w.text) && w.text[off] == '\t') &&
		len(bytes.Trim(w.text[start:start+tab], " -?:")) == 0 {
		w.errorf("NF1015", at(start+tab), at(start+tab+1), "indent with spaces", "tab used for indentation")
		return
	}
	msg, hint := pr.text, ""
	if m := syntaxMessages[pr.text]; m.text != "" {
		msg, hint = m.text, m.hint
	}
	switch {
	case pr.text == "did not find expected <document start>":
		w.errorf("NF1018", at(off), at(w.plainEnd(off, false)), "put a line with --- before it, or mend what is above",
			"content after the end of a document")
	case strings.HasPrefix(pr.text, "exceeded max depth"):
		w.errorf("NF1013", at(off), at(off), "", "nested deeper than the limit depth = %d", w.limits.Depth)
	case pr.context == "while scanning a simple key" && pr.text == "could not find expected ':'":
		w.errorf("NF1002", at(context), at(lineEnd(w.text, context)), "write: key: value", "line is no key with a value")
	case pr.context == "while scanning a quoted scalar":
		w.errorf("NF1002", at(context), at(context+1), "close the quotes, and indent its further lines", "quoted text does not end")
	case off >= len(bytes.TrimRight(w.text, " \t\r\n")) && strings.Contains(pr.context, "flow"):
		open := openBracket(w.text, context)
		w.errorf("NF1002", at(open), at(open+1), "close the bracket", "bracket %q is not closed", w.text[open:min(open+1, len(w.text))])
	case strings.Contains(pr.context, "parsing a flow") && w.text[min(context, len(w.text)-1)] != w.text[min(off, len(w.text)-1)]:
		d := w.errorf("NF1002", at(off), at(off+1), hint, "%s", msg)
		w.related(d, at(context), "the bracket opens here")
	default:
		w.errorf("NF1002", at(off), at(min(off+1, lineEnd(w.text, off))), hint, "%s", msg)
	}
}

// openBracket finds the last bracket that nothing closes, for a text that ends inside brackets; fallback, but no more than the
// text's length, if it finds none.
func openBracket(text []byte, fallback int) int {
	var open []int
	before := byte('\n')
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '#' && bytes.IndexByte([]byte(" \t\n"), text[max(i-1, 0)]) >= 0:
			i = lineEnd(text, i) - 1
			continue
		case (c == '"' || c == '\'') && bytes.IndexByte([]byte(":-[{,\n"), before) >= 0:
			w := walker{text: text}
			i = w.quotedEnd(i, c) - 1
		case (c == '[' || c == '{') && (len(open) > 0 || bytes.IndexByte([]byte(":-\n"), before) >= 0):
			open = append(open, i)
		case (c == ']' || c == '}') && len(open) > 0:
			open = open[:len(open)-1]
		}
		if c != ' ' && c != '\t' && c != '\r' {
			before = c
		}
	}
	if len(open) == 0 {
		return min(fallback, len(text))
	}
	return open[len(open)-1]
}

type syntaxMessage struct{ text, hint string }

// syntaxMessages puts the library's messages into words for authors.
var syntaxMessages = map[string]syntaxMessage{
	"mapping values are not allowed in this context": {
		`":" cannot stand here`, "quote a value that holds \": \", or check the indentation",
	},
	"did not find expected key": {"line is not indented as the map it belongs to, or something follows a value", "check the indentation, quotes and brackets"},
	"did not find expected '-' indicator": {
		"line is indented as the list above but does not start with \"- \"", "check the indentation",
	},
	"did not find expected ',' or ']'":                             {"list in [ ] goes on without a comma or ]", "write , between items and close the list with ]"},
	"did not find expected ',' or '}'":                             {"map in { } goes on without a comma or }", "write , between entries and close the map with }"},
	"block sequence entries are not allowed in this context":       {"\"- \" cannot start a list here", "put the list on the next line, or quote the value"},
	"did not find expected node content":                           {"a value is expected here", "remove a bracket or comma too many, or quote the value"},
	"found unknown escape character":                               {"unknown escape in double quotes", `write \\ for a backslash, or use single quotes`},
	"did not find expected comment or line break":                  {"text may not follow | or > on its line", "start the text on the next line"},
	"found invalid Unicode character escape code":                  {"escape is no Unicode character", `write the character itself, or \U and eight digits`},
	"found character that cannot start any token":                  {"character cannot start a value", "quote the value"},
	"found undefined tag handle":                                   {"tag is not known", "remove the tag"},
	"did not find URI escaped octet":                               {"tag is malformed", "remove the tag"},
	"did not find expected whitespace or line break":               {"a space is missing here", "write a space, or quote the value"},
	"did not find expected hexdecimal number":                      {"escape needs hexadecimal digits", `write \\ for a backslash`},
	"found unexpected document indicator":                          {"document ends inside a quoted text", "close the quotes above"},
	"found unexpected end of stream":                               {"file ends in the middle of a value", "close what is open"},
	"found an indentation indicator equal to 0":                    {"indentation indicator 0 is not allowed", "write 1 to 9, or leave it out"},
	"block mapping entries are not allowed in this context":        {"\"? \" cannot stand here", "quote the value"},
	"mapping keys are not allowed in this context":                 {"\"? \" cannot stand here", "quote the value"},
	"found a tab character where an indentation space is expected": {"tab used for indentation", "indent with spaces"},
}
