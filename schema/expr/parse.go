package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"nf/schema/diag"
)

// MaxExpression is the longest expression in bytes, ${ and } included (contract 7.2).
const MaxExpression = 4 << 10

// Codes of this package's findings.
const (
	codeRoot   diag.Code = "NF3201"
	codeSyntax diag.Code = "NF3202"
)

var workflowParts = []string{
	PartInput, PartVariables, PartOutput, PartExecutionID, PartName, PartVersion, PartRevision, PartCorrelationID,
}

var taskParts = []string{PartOutput, PartInput, PartStatus}

// structured parts may be followed by a path.
func structured(part string) bool {
	return part == PartInput || part == PartOutput || part == PartVariables
}

// Parse reads a text. With findings, all of them errors, the template is not to be evaluated.
func Parse(text string) (Template, diag.List) {
	t, findings := parse(text, "")
	return t, findings
}

func parse(text, pointer string) (Template, diag.List) {
	if !Has(text) {
		return Template{literal: text}, nil
	}
	p := parser{text: text, pointer: pointer}
	t := p.template()
	return t, p.findings
}

type parser struct {
	text     string
	pos      int
	pointer  string
	findings diag.List
	literal  []byte
	parts    []segment
}

func (p *parser) template() Template {
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		switch {
		case strings.HasPrefix(rest, "$${"):
			p.literal = append(p.literal, "${"...)
			p.pos += 3
		case strings.HasPrefix(rest, "${"):
			p.expression()
		default:
			next := strings.IndexByte(rest[1:], '$') + 1
			if next == 0 {
				next = len(rest)
			}
			p.literal = append(p.literal, rest[:next]...)
			p.pos += next
		}
	}
	if len(p.parts) == 0 {
		return Template{literal: string(p.literal)}
	}
	p.flush()
	return Template{parts: slices.Clip(p.parts)}
}

func (p *parser) flush() {
	if len(p.literal) > 0 {
		p.parts = append(p.parts, segment{text: string(p.literal)})
		p.literal = p.literal[:0]
	}
}

// expression reads ${…} at pos. After a mistake it goes on behind the closing brace, to find the next one.
func (p *parser) expression() {
	start := p.pos
	p.pos += 2
	ref, ok := p.reference(start)
	if !ok {
		p.skip(start)
		return
	}
	if p.pos-start > MaxExpression {
		p.fail(codeSyntax, start, p.pos, fmt.Sprintf("expression of %d bytes is over the limit of %d", p.pos-start, MaxExpression), "")
		return
	}
	ref.Pointer = p.pointer
	ref.Span = p.span(start, p.pos)
	ref.Source = p.text[start+2 : p.pos-1]
	p.flush()
	p.parts = append(p.parts, segment{ref: &ref})
}

// skip moves behind the brace that ends a broken expression, or to the end of the text.
func (p *parser) skip(start int) {
	p.pos = max(p.pos, start+2)
	if end := strings.IndexByte(p.text[p.pos:], '}'); end >= 0 {
		p.pos += end + 1
		return
	}
	p.pos = len(p.text)
}

func (p *parser) reference(start int) (Ref, bool) {
	var ref Ref
	root := p.name()
	switch {
	case root == "" && p.peek() == '}':
		p.fail(codeSyntax, start, p.pos+1, "expression is empty", literalHint)
		return ref, false
	case root == "":
		p.unexpected(start, "a root is due")
		return ref, false
	case p.peek() == 0:
		p.unexpected(start, "")
		return ref, false
	case p.peek() != '.':
		if p.peek() != '}' {
			p.unexpected(start, "")
			return ref, false
		}
		p.badRoot(start, root, "")
		return ref, false
	}
	ref.Root = root
	p.pos++
	from := p.pos
	if ref.Part = p.name(); ref.Part == "" {
		p.unexpected(start, "a name is due")
		return ref, false
	}
	if !p.part(start, from, ref) {
		return ref, false
	}
	for p.peek() != '}' {
		step, ok := p.step(start)
		if !ok {
			return ref, false
		}
		ref.Path = append(ref.Path, step)
	}
	p.pos++
	if len(ref.Path) > 0 && !structured(ref.Part) {
		p.fail(codeSyntax, start, p.pos, fmt.Sprintf("%s.%s is a plain value, so nothing can follow it", ref.Root, ref.Part), "")
		p.pos--
		return ref, false
	}
	return ref, true
}

const (
	literalHint = "write $${ for a literal ${"
	rootsHint   = "roots are workflow.input, workflow.variables, workflow.output, workflow.executionId, workflow.name, workflow.version, " +
		"workflow.revision, workflow.correlationId, and a task reference with .output, .input or .status; " + literalHint
)

// later are roots that exist elsewhere or from a later release on, or that people look for.
var later = map[string]string{
	"param":     "parameters of environments come in a later release",
	"event":     "event exists in an EventHandler only, which comes in a later release",
	"item":      "item exists inside forkTask only, which comes in a later release",
	"itemIndex": "itemIndex exists inside forkTask only, which comes in a later release",
	"env":       "there is no root for the environment",
	"secret":    "a secret is named by {secretRef: {name, key}} where a field is secretable",
	"secrets":   "a secret is named by {secretRef: {name, key}} where a field is secretable",
	"target":    "a target is named by target beside path",
}

func (p *parser) badRoot(start int, root, part string) {
	what, end := root, p.end(start)
	hint := rootsHint
	switch {
	case later[root] != "":
		hint = later[root] + "; " + rootsHint
	case part != "":
		what += "." + part
	case root == Workflow:
		hint = "write " + Workflow + ".input, or another part; " + rootsHint
	}
	p.fail(codeRoot, start, end, "unknown root "+strconv.Quote(what)+" in "+quoteShort(p.text[start:end]), hint)
}

// part checks the part of a root that was read between from and pos.
func (p *parser) part(start, from int, ref Ref) bool {
	parts := taskParts
	if ref.Root == Workflow {
		parts = workflowParts
	}
	if later[ref.Root] == "" && slices.Contains(parts, ref.Part) {
		return true
	}
	end := p.end(start)
	if near := diag.DidYouMean(ref.Part, parts); near != "" && later[ref.Root] == "" {
		p.fail(codeRoot, from, p.pos, fmt.Sprintf("%q has no part %q in %s", ref.Root, ref.Part, quoteShort(p.text[start:end])), near+" "+literalHint)
		return false
	}
	p.badRoot(start, ref.Root, ref.Part)
	return false
}

// end is behind the brace that closes the expression at start.
func (p *parser) end(start int) int {
	if i := strings.IndexByte(p.text[start:], '}'); i >= 0 {
		return start + i + 1
	}
	return len(p.text)
}

func (p *parser) step(start int) (Step, bool) {
	switch p.peek() {
	case '.':
		p.pos++
		if p.peek() == '.' {
			p.fail(codeSyntax, p.pos-1, p.pos+1, "steps that search (..) come in a later release", "")
			return Step{}, false
		}
		name := p.name()
		if name == "" {
			p.unexpected(start, "a name is due")
			return Step{}, false
		}
		if i, err := strconv.Atoi(name); err == nil && isIndex(name) {
			return Step{Key: name, Index: i, IsEither: true}, true
		}
		return Step{Key: name}, true
	case '[':
		return p.bracket(start)
	}
	p.unexpected(start, "")
	return Step{}, false
}

func (p *parser) bracket(start int) (Step, bool) {
	open := p.pos
	p.pos++
	if p.peek() == '\'' {
		key, ok := p.quoted(start)
		if !ok {
			return Step{}, false
		}
		if p.peek() != ']' {
			p.unexpected(start, "] is due")
			return Step{}, false
		}
		p.pos++
		return Step{Key: key}, true
	}
	end := strings.IndexAny(p.text[p.pos:], "]}")
	if end < 0 || p.text[p.pos+end] != ']' {
		p.fail(codeSyntax, open, p.end(start), "[ is not closed by ]", "")
		return Step{}, false
	}
	inside := p.text[p.pos : p.pos+end]
	i, err := strconv.Atoi(inside)
	if err != nil || !isIndex(strings.TrimPrefix(inside, "-")) || inside == "-0" {
		hint := "write [0] or [-1] for a place in a list, ['key'] for a key"
		message := quoteShort("["+inside+"]") + " is no step of a path"
		if inside == "*" || strings.HasPrefix(inside, "?") || strings.Contains(inside, ":") {
			message, hint = "steps that select several values come in a later release", ""
		}
		p.fail(codeSyntax, open, p.pos+end+1, message, hint)
		p.pos += end + 1
		return Step{}, false
	}
	p.pos += end + 1
	return Step{Index: i, IsIndex: true}, true
}

// quoted reads '…' with \' and \\ as escapes.
func (p *parser) quoted(start int) (string, bool) {
	open := p.pos
	var key []byte
	for i := p.pos + 1; i < len(p.text); i++ {
		switch c := p.text[i]; c {
		case '\'':
			p.pos = i + 1
			return string(key), true
		case '\\':
			if i+1 >= len(p.text) || p.text[i+1] != '\'' && p.text[i+1] != '\\' {
				p.fail(codeSyntax, i, i+1, `inside quotes only \' and \\ are escapes`, "")
				return "", false
			}
			i++
			key = append(key, p.text[i])
		default:
			key = append(key, c)
		}
	}
	p.fail(codeSyntax, open, p.end(start), "quote is not closed", "")
	return "", false
}

// isIndex says whether a text is the decimal number of a place: no sign, no leading zero, at most nine digits.
func isIndex(s string) bool {
	if s == "" || len(s) > 9 || s[0] == '0' && len(s) > 1 {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func isNameRune(r rune) bool {
	return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r)
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !isNameRune(r) || r == utf8.RuneError })
}

// name reads letters, digits, _ and -.
func (p *parser) name() string {
	start := p.pos
	for p.pos < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[p.pos:])
		if r == utf8.RuneError || !isNameRune(r) {
			break
		}
		p.pos += size
	}
	return p.text[start:p.pos]
}

// peek gives the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.pos >= len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

func (p *parser) unexpected(start int, due string) {
	if due != "" {
		due = ", " + due
	}
	if p.pos >= len(p.text) || strings.IndexByte(p.text[p.pos:], '}') < 0 {
		p.fail(codeSyntax, start, len(p.text), "expression "+quoteShort(p.text[start:])+" is not closed by }", literalHint)
		p.pos = len(p.text)
		return
	}
	r, size := utf8.DecodeRuneInString(p.text[p.pos:])
	hint := "a key with other characters is written ['" + "key" + "']; " + literalHint
	switch {
	case unicode.IsSpace(r):
		hint = "there are no blanks inside ${…}; " + hint
	case r == '"':
		hint = "a key is put in single quotes: ['key']"
	case strings.HasPrefix(p.text[p.pos:], "${"):
		hint = "expressions do not stand inside each other; " + literalHint
	}
	if r == '.' || r == '}' {
		hint = literalHint
	}
	p.fail(codeSyntax, p.pos, p.pos+size, fmt.Sprintf("unexpected %q in %s%s", r, quoteShort(p.text[start:p.end(start)]), due), hint)
}

func (p *parser) fail(code diag.Code, from, to int, message, hint string) {
	p.findings = append(p.findings, diag.New(code, p.pointer, message).WithHint(hint).Within(p.span(from, min(to, len(p.text)))))
}

// span counts code points, as the positions of a finding do.
func (p *parser) span(from, to int) diag.Span {
	start := utf8.RuneCountInString(p.text[:from])
	return diag.Span{Start: start, End: start + utf8.RuneCountInString(p.text[from:to])}
}

// quoteShort quotes a piece of a text for a message.
func quoteShort(s string) string {
	const longest = 60
	if len(s) > longest {
		cut := longest
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		return strconv.Quote(s[:cut] + "…")
	}
	return strconv.Quote(s)
}
