package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"nf/schema/diag"
)

// walker turns the library's tree of one document into nodes.
type walker struct {
	*parse
	base    int    // offset of text in the file
	text    []byte // the document, mended values blanked out
	marks   *marks
	anchors map[string]int // name → offset of its definition in text
	done    map[*yaml.Node]*Node
	patched map[int]bool // offsets in text of blanked values
	path    []string
	deep    bool // NF1013 was reported
}

// document builds a document's tree and appends it. It says false if there is no content.
func (w *walker) document(s segment, root *yaml.Node) bool {
	if root == nil {
		return false
	}
	w.marks = newMarks(w.text)
	w.done = map[*yaml.Node]*Node{}
	if root.Kind == yaml.ScalarNode && root.Style == 0 && root.Value == "" && root.Anchor == "" && len(w.patched) == 0 {
		return false
	}
	n := w.build(root, 1, -1)
	if w.over {
		n = nil
	}
	w.addDocument(s.start, s.end, n)
	return true
}

func (w *walker) pointer() string {
	var b strings.Builder
	for _, step := range w.path {
		b.WriteByte('/')
		b.WriteString(escapeStep(step))
	}
	return b.String()
}

// fail adds a finding over [start, end) of the document's text and gives it the pointer of the node being built.
func (w *walker) fail(code diag.Code, start, end int, hint, format string, args ...any) *diag.Diagnostic {
	d := w.errorf(code, w.base+start, w.base+end, hint, format, args...)
	d.Pointer = w.pointer()
	return d
}

// stub is what stands for a node that could not be built.
func (w *walker) stub(start, end int) *Node {
	return &Node{Kind: Scalar, Type: Null, flawed: true, start: w.base + start, end: w.base + end, count: 1}
}

// build makes the node for n. depth counts the collections around it, itself included; indent is the column (0-based) of
// the block collection around it.
func (w *walker) build(n *yaml.Node, depth, indent int) *Node {
	at := w.marks.offset(n.Line-1, n.Column-1)
	if w.over {
		return w.stub(at, at)
	}
	if w.nodes++; w.nodes > w.limits.NodesPerFile {
		w.overNodes(w.base+at, w.base+at, "")
		return w.stub(at, at)
	}
	if n.Kind == yaml.AliasNode {
		return w.alias(n, at, depth)
	}
	pr := w.properties(at, n)
	if n.Anchor != "" {
		w.anchor(n, at, pr)
	}
	var out *Node
	switch n.Kind {
	case yaml.MappingNode:
		out = w.mapping(n, pr, depth)
	case yaml.SequenceNode:
		out = w.sequence(n, pr, depth)
	default:
		out = w.scalar(n, pr, indent)
	}
	w.done[n] = out
	return out
}

func (w *walker) anchor(n *yaml.Node, at int, pr properties) {
	off := pr.anchor
	if off < 0 {
		off = at
	}
	if first, twice := w.anchors[n.Anchor]; twice {
		d := w.fail("NF1020", off, off+1+len(n.Anchor), "give it another name", "anchor %q is defined twice in this document", n.Anchor)
		w.related(d, w.base+first, "first defined here")
		return
	}
	w.anchors[n.Anchor] = off
}

func (w *walker) alias(n *yaml.Node, at, depth int) *Node {
	end := at + 1 + len(n.Value)
	target := w.done[n.Alias]
	if target == nil {
		d := w.fail("NF1020", at, end, "write the value out", "anchor %q contains itself", n.Value)
		if off, ok := w.anchors[n.Value]; ok {
			w.related(d, w.base+off, "the anchor")
		}
		return w.stub(at, end)
	}
	w.nodes += target.count - 1
	if w.nodes > w.limits.NodesPerFile {
		w.overNodes(w.base+at, w.base+end, n.Value)
		return w.stub(at, end)
	}
	if depth-1+target.height > w.limits.Depth {
		w.tooDeep(at, end)
		return w.stub(at, end)
	}
	return &Node{
		Kind: Alias, Target: target, start: w.base + at, end: w.base + end,
		flawed: target.flawed, count: target.count, height: target.height,
	}
}

func (w *walker) tooDeep(start, end int) {
	if !w.deep {
		w.deep = true
		w.fail("NF1013", start, end, "nest less", "nested deeper than the limit depth = %d", w.limits.Depth)
	}
}

func (w *walker) sequence(n *yaml.Node, pr properties, depth int) *Node {
	if depth > w.limits.Depth {
		w.tooDeep(pr.start, pr.start)
		return w.stub(pr.start, pr.start)
	}
	out := &Node{Kind: List, count: 1, height: 1, flawed: w.badTag(n, pr, "!!seq"), Items: make([]*Node, 0, len(n.Content))}
	last := pr.start
	for i, c := range n.Content {
		w.path = append(w.path, strconv.Itoa(i))
		item := w.build(c, depth+1, n.Column-1)
		w.path = w.path[:len(w.path)-1]
		out.Items = append(out.Items, item)
		out.add(item)
		last = max(last, item.end-w.base)
	}
	if len(n.Content) > 0 && n.Style&yaml.FlowStyle == 0 {
		pr.start = w.dash(pr.start, out.Items[0].start-w.base)
	}
	w.extent(out, n, pr.start, last, ']')
	return out
}

// dash finds the first "-" of a block list, whose own place the library gives as that of its properties.
func (w *walker) dash(from, first int) int {
	for i := from; i < first && i < len(w.text); i++ {
		if w.text[i] == '-' {
			return i
		}
	}
	return from
}

// add counts a child in.
func (n *Node) add(child *Node) {
	n.count += child.count
	n.height = max(n.height, child.height+1)
}

// extent sets start and end of a collection: a bracketed one ends after its bracket, a block one with its last child.
func (w *walker) extent(out *Node, n *yaml.Node, start, last int, closing byte) {
	end := last
	if n.Style&yaml.FlowStyle != 0 && start < len(w.text) && (w.text[start] == '[' || w.text[start] == '{') {
		end = w.closing(max(last, start+1), closing)
	}
	out.start, out.end = w.base+start, w.base+max(start, end)
}

// badTag reports a tag that nf does not know or that does not fit the node.
func (w *walker) badTag(n *yaml.Node, pr properties, fits ...string) bool {
	if pr.tag < 0 {
		return false
	}
	name := string(w.text[pr.tag:pr.tagEnd])
	if n.Style&yaml.TaggedStyle != 0 && slices.Contains(fits, n.Tag) {
		return false
	}
	w.fail("NF1005", pr.tag, pr.tagEnd, "remove the tag; to make a text of a number or word, quote it", "unknown tag %s", name)
	return true
}

// scalar makes a scalar. What an untagged plain one reads as is decided here, not by the library.
func (w *walker) scalar(n *yaml.Node, pr properties, indent int) *Node {
	out := &Node{Kind: Scalar, Text: n.Value, count: 1}
	start, end := w.scalarSpan(n, pr, indent)
	out.start, out.end = w.base+start, w.base+end
	switch {
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		out.Style = Quoted
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		out.Style = Block
	}
	if w.patchedIn(start, end) {
		out.Type, out.Text, out.flawed = Text, "", true
		return out
	}
	if pr.tag >= 0 {
		w.tagged(n, pr, out)
		return out
	}
	if out.Style == Plain {
		w.plain(out, start, end)
	}
	return out
}

// patchedIn says whether a value in [start, end] was blanked out.
func (w *walker) patchedIn(start, end int) bool {
	for off := range w.patched {
		if off == start || start < off && off < end {
			return true
		}
	}
	return false
}

// tagged reads a scalar with a tag of the core schema.
func (w *walker) tagged(n *yaml.Node, pr properties, out *Node) {
	if out.flawed = w.badTag(n, pr, "!!str", "!!int", "!!float", "!!bool", "!!null"); out.flawed || n.Tag == "!!str" {
		return
	}
	r := read(n.Value)
	ok := map[string]bool{
		"!!int": r.typ == Number && wholeText.MatchString(r.number), "!!float": r.typ == Number,
		"!!bool": r.typ == Bool, "!!null": r.typ == Null,
	}[n.Tag]
	if !ok {
		w.fail("NF1005", pr.tag, pr.tagEnd, "remove the tag", "tag %s does not fit the value %q", n.Tag, n.Value)
		out.flawed = true
		return
	}
	out.Type, out.Style = r.typ, Plain
	if r.typ != Null {
		out.Text = r.number
	}
}

// plain reads an untagged plain scalar and refuses what people and programs read differently.
func (w *walker) plain(out *Node, start, end int) {
	r := read(out.Text)
	out.Type = r.typ
	if r.typ == Bool || r.typ == Number {
		out.Text = r.number
		return
	}
	text := out.Text
	switch {
	case r.word:
		out.flawed = true
		value := "false"
		switch strings.ToLower(text) {
		case "y", "yes", "on":
			value = "true"
		}
		d := w.fail("NF1006", start, end, fmt.Sprintf("write %s, or %q if the text is meant", value, text), "ambiguous word %s: boolean or text", text)
		d.Fix = w.quoteFix(w.base+start, w.base+end)
	case r.odd:
		out.flawed = true
		d := w.fail("NF1007", start, end, fmt.Sprintf("write it in plain decimal digits, or %q if a text is meant", text), "ambiguous number %s", text)
		d.Fix = w.quoteFix(w.base+start, w.base+end)
	case r.big:
		out.flawed = true
		w.fail("NF1008", start, end, "write a smaller number, or quote it if a text is meant", "number %s is beyond 64 bits", cut(text))
	case r.nan:
		out.flawed = true
		w.fail("NF1009", start, end, "write a finite number, or quote it if a text is meant", "%s is not a number that JSON has", text)
	}
}

// cut shortens a text for a message.
func cut(text string) string {
	if len(text) <= 60 {
		return text
	}
	return text[:57] + "..."
}
