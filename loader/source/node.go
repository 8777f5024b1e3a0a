package source

import (
	"encoding/json"
	"strconv"
	"strings"

	"nf/schema/diag"
)

// Kind is the shape of a node.
type Kind uint8

// The shapes of a node.
const (
	Scalar Kind = iota
	Map
	List
	Alias // stands for Target
)

// Type is what a scalar reads as.
type Type uint8

// The types of scalars.
const (
	Text Type = iota
	Null
	Bool
	Number
)

// Style is how a scalar was written.
type Style uint8

// The styles of scalars.
const (
	Plain Style = iota
	Quoted
	Block // | or >
)

// Node is one value of a document. It is immutable. Aliased nodes are shared, so a document is a graph without cycles.
type Node struct {
	Kind    Kind
	Type    Type    // of a Scalar
	Style   Style   // of a Scalar
	Text    string  // of a Scalar: decoded text; of a Number its JSON form; of a Bool true or false
	Entries []Entry // of a Map, in the order written, merged keys last
	Items   []*Node // of a List
	Target  *Node   // of an Alias

	start, end int
	// flawed nodes have a finding of their own: what the schema would say about them is noise.
	flawed bool
	count  int // nodes of the subtree, aliases expanded
	height int // nested collections below and with this one
}

// Entry is one key of a map.
type Entry struct {
	Key   string
	Value *Node

	keyStart, keyEnd int
	merge            *Node // the alias or map under `<<` that brought this entry
}

// resolve follows an alias.
func (n *Node) resolve() *Node {
	for n != nil && n.Kind == Alias {
		n = n.Target
	}
	return n
}

// Get gives the value of a key of a map, nil if n is no map or has no such key.
func (n *Node) Get(key string) *Node {
	if n = n.resolve(); n == nil || n.Kind != Map {
		return nil
	}
	for i := range n.Entries {
		if n.Entries[i].Key == key {
			return n.Entries[i].Value.resolve()
		}
	}
	return nil
}

// IsText says whether n is a text, and gives it.
func (n *Node) IsText() (string, bool) {
	if n = n.resolve(); n == nil || n.Kind != Scalar || n.Type != Text {
		return "", false
	}
	return n.Text, true
}

// Value builds the plain JSON value: nil, bool, json.Number, string, []any or map[string]any. Each call builds a new one,
// aliases expanded (the node budget bounds it).
func (n *Node) Value() any {
	n = n.resolve()
	if n == nil {
		return nil
	}
	switch n.Kind {
	case Map:
		m := make(map[string]any, len(n.Entries))
		for i := range n.Entries {
			m[n.Entries[i].Key] = n.Entries[i].Value.Value()
		}
		return m
	case List:
		l := make([]any, len(n.Items))
		for i, item := range n.Items {
			l[i] = item.Value()
		}
		return l
	case Scalar, Alias:
	}
	switch n.Type {
	case Null:
		return nil
	case Bool:
		return n.Text == "true"
	case Number:
		return json.Number(n.Text)
	case Text:
	}
	return n.Text
}

// Place is where a pointer leads.
type Place struct {
	Range diag.Range
	// Related says where an aliased or merged value was written; Range is then the place of its use.
	Related []diag.Related
	// Flawed says that this node, or one above it, already has a finding of this package.
	Flawed bool
	// Exact is false if the pointer leads to something that is not in the document: Range is then the nearest part above.
	Exact bool
}

// Locate finds the place of a JSON Pointer (RFC 6901), of the key instead of the value if atKey is set. A pointer that
// leads nowhere gives the nearest key above it, as for a required key that is missing.
func (d Document) Locate(pointer string, atKey bool) Place {
	n := d.Root
	if n == nil {
		return Place{Range: d.file.span(d.start, d.start)}
	}
	w := &walkTo{file: d.file, flawed: n.flawed}
	w.enter(n)
	steps := Steps(pointer)
	if len(steps) == 0 {
		return w.place(n, false, false).exactly()
	}
	for i, step := range steps {
		n = n.resolve()
		last := i == len(steps)-1
		child, entry := down(n, step)
		if child == nil {
			return w.place(n, false, last || atKey)
		}
		if entry != nil {
			w.enterKey(entry)
		} else {
			w.keyStart = -1
		}
		w.enter(child)
		n = child
	}
	return w.place(n, true, atKey)
}

// exactly marks a place as exact: the whole document is shown by its first key.
func (p Place) exactly() Place {
	p.Exact = true
	return p
}

// down goes one step down.
func down(n *Node, step string) (*Node, *Entry) {
	switch {
	case n == nil:
	case n.Kind == Map:
		for i := range n.Entries {
			if n.Entries[i].Key == step {
				return n.Entries[i].Value, &n.Entries[i]
			}
		}
	case n.Kind == List:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Items) {
			return n.Items[i], nil
		}
	}
	return nil, nil
}

// walkTo remembers, on the way down a pointer, the first use of an alias or merge and the last key.
type walkTo struct {
	file             *file
	flawed           bool
	use              *Node // first alias (or merged map) on the way
	keyStart, keyEnd int
	started          bool
}

func (w *walkTo) enter(n *Node) {
	if !w.started {
		w.started, w.keyStart = true, -1
	}
	if n.Kind == Alias && w.use == nil {
		w.use = n
	}
	w.flawed = w.flawed || n.flawed || n.resolve().flawed
}

func (w *walkTo) enterKey(e *Entry) {
	if e.merge != nil && w.use == nil {
		w.use = e.merge
	}
	w.keyStart, w.keyEnd = e.keyStart, e.keyEnd
}

func (w *walkTo) place(n *Node, exact, atKey bool) Place {
	target := n.resolve()
	start, end := target.start, target.end
	if (atKey || !exact) && w.keyStart >= 0 {
		start, end = w.keyStart, w.keyEnd
	} else if !exact && target.Kind != Scalar {
		end = start // the root map: all of it would be the whole file
		if len(target.Entries) > 0 {
			start, end = target.Entries[0].keyStart, target.Entries[0].keyEnd
		}
	}
	p := Place{Exact: exact, Flawed: w.flawed, Range: w.file.span(start, end)}
	if w.use != nil {
		if start != w.use.start {
			p.Related = []diag.Related{{File: w.file.name, Start: w.file.pos(start), Message: "the value is written here"}}
		}
		if w.use.resolve() != target || !atKey {
			p.Range = w.file.span(w.use.start, w.use.end)
		}
	}
	return p
}

// Raw gives the bytes of a range of the document's file as they are written. They must not be changed.
func (d Document) Raw(r diag.Range) []byte {
	start := min(max(r.Start.Offset, 0), len(d.file.src))
	return d.file.src[start:min(max(r.End.Offset, start), len(d.file.src))]
}

// Within narrows a range to n bytes from offset at, counted from the range's start.
func (d Document) Within(r diag.Range, at, n int) diag.Range {
	return d.file.span(r.Start.Offset+at, r.Start.Offset+at+n)
}

// Start gives the place of the document's first key, or of its first byte if it has none.
func (d Document) Start() diag.Range { return d.Locate("", false).Range }

// Steps splits a JSON Pointer into its unescaped steps.
func Steps(pointer string) []string {
	if pointer == "" {
		return nil
	}
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, s := range steps {
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return steps
}

// escapeStep escapes one step of a JSON Pointer.
func escapeStep(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
}

// Text gives the text value at a pointer.
func (d Document) Text(pointer string) (string, bool) {
	n := d.Root
	for _, step := range Steps(pointer) {
		if n, _ = down(n.resolve(), step); n == nil {
			return "", false
		}
	}
	return n.IsText()
}
