package source

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// mapping makes a map: keys are unique texts, merge keys are laid under the keys written out.
func (w *walker) mapping(n *yaml.Node, pr properties, depth int) *Node {
	if depth > w.limits.Depth {
		w.tooDeep(pr.start, pr.start)
		return w.stub(pr.start, pr.start)
	}
	if w.bracesNode(n, pr) {
		_, end := w.skipBraces(pr.start)
		return w.stub(pr.start, end)
	}
	out := &Node{Kind: Map, count: 1, height: 1, flawed: w.badTag(n, pr, "!!map"), Entries: make([]Entry, 0, len(n.Content)/2)}
	m := &mapBuilder{walker: w, out: out, seen: make(map[string]int, len(n.Content)/2), last: pr.start, indent: n.Column - 1}
	if first := n.Content; len(first) > 0 && n.Style&yaml.FlowStyle == 0 {
		pr.start = w.marks.offset(first[0].Line-1, first[0].Column-1)
		m.indent = first[0].Column - 1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		m.entry(n.Content[i], n.Content[i+1], depth)
	}
	m.merge()
	w.extent(out, n, pr.start, m.last, '}')
	return out
}

// mapBuilder gathers the entries of one map.
type mapBuilder struct {
	*walker
	out    *Node
	seen   map[string]int // key → offset in the file of its first place
	merges []*Node
	mergeK [2]int // first `<<`: start and end in the file
	last   int    // end of what was read so far, in the text
	indent int
}

func (m *mapBuilder) entry(k, v *yaml.Node, depth int) {
	w := m.walker
	keyAt := w.marks.offset(k.Line-1, k.Column-1)
	if k.Kind == yaml.ScalarNode && k.Style == 0 && k.Value == "<<" {
		m.mergeEntry(keyAt, v, depth)
		return
	}
	key, start, end, ok := m.key(k, keyAt)
	w.path = append(w.path, key)
	value := w.build(v, depth+1, m.indent)
	m.last = max(m.last, end, value.end-w.base)
	if first, twice := m.seen[key]; ok && twice {
		d := w.fail("NF1003", start, end, "remove one of the two", "duplicate key %q", cut(key))
		w.related(d, first, "first written here")
		ok = false
	}
	w.path = w.path[:len(w.path)-1]
	if !ok {
		return
	}
	m.seen[key] = w.base + start
	m.out.Entries = append(m.out.Entries, Entry{Key: key, Value: value, keyStart: w.base + start, keyEnd: w.base + end})
	m.out.add(value)
}

// key reads a key. It says false if the key is no text at all; a number or word as a key is reported and taken as text.
func (m *mapBuilder) key(k *yaml.Node, at int) (key string, start, end int, ok bool) {
	w := m.walker
	if k.Kind != yaml.ScalarNode {
		what := "map or list"
		if k.Kind == yaml.AliasNode {
			what = "alias"
		}
		before := len(w.findings)
		built := w.build(k, 1, m.indent)
		w.findings = w.findings[:before] // what is wrong inside such a key does not matter
		start, end = at, max(at+1, built.end-w.base)
		w.fail("NF1004", start, end, "write a text as the key", "key is no text but %s", what)
		return "", start, end, false
	}
	pr := w.properties(at, k)
	if k.Anchor != "" {
		w.anchor(k, at, pr)
	}
	start, end = w.scalarSpan(k, pr, m.indent)
	w.done[k] = &Node{Kind: Scalar, Text: k.Value, count: 1, start: w.base + start, end: w.base + end}
	switch {
	case w.patched[pr.start]:
		return k.Value, start, end, false
	case pr.tag >= 0:
		return k.Value, start, end, !w.badTag(k, pr, "!!str")
	case k.Value == "<<":
		w.fail("NF1021", start, end, "write << without quotes to merge, or take another key", "merge key is quoted")
		return k.Value, start, end, false
	case k.Style != 0:
		return k.Value, start, end, true
	}
	switch r := read(k.Value); { // an ambiguous word is none as a key: keys are always text
	case r.typ != Text || r.odd || r.big || r.nan:
		what := map[Type]string{Null: "null", Bool: "a boolean"}[r.typ]
		if what == "" {
			what = "a number"
		}
		if start == end {
			w.fail("NF1004", start, end, "write a key before the colon", "key is empty")
			return k.Value, start, end, false
		}
		d := w.fail("NF1004", start, end, fmt.Sprintf("quote it: %q", k.Value), "key %s is not text but %s", cut(k.Value), what)
		d.Fix = w.quoteFix(w.base+start, w.base+end)
	}
	return k.Value, start, end, true
}

// mergeEntry takes a `<<` key.
func (m *mapBuilder) mergeEntry(at int, v *yaml.Node, depth int) {
	w := m.walker
	counted := w.nodes
	w.path = append(w.path, "<<")
	value := w.build(v, depth+1, m.indent)
	w.path = w.path[:len(w.path)-1]
	if !w.over {
		w.nodes = counted // its entries are counted when they are laid in
	}
	m.last = max(m.last, at+2, value.end-w.base)
	if m.mergeK[1] > 0 {
		d := w.fail("NF1021", at, at+2, "merge several maps with one key: <<: [*a, *b]", "merge key << stands twice in one map")
		w.related(d, m.mergeK[0], "first written here")
		return
	}
	m.mergeK = [2]int{w.base + at, w.base + at + 2}
	maps := []*Node{value}
	if l := value.resolve(); l.Kind == List {
		maps = l.Items
	}
	for _, n := range maps {
		if n.resolve().Kind != Map {
			if !n.flawed {
				w.errorf("NF1021", value.start, value.end, "write an alias of a map, or a list of such aliases",
					"merge key << needs a map or a list of maps").Pointer = w.pointer()
			}
			return
		}
	}
	m.merges = maps
}

// merge lays the merged maps under the keys written out: explicit keys win, then the first map that has the key.
func (m *mapBuilder) merge() {
	w := m.walker
	for _, n := range m.merges {
		for _, e := range n.resolve().Entries {
			if _, has := m.seen[e.Key]; has {
				continue
			}
			w.nodes += e.Value.count
			if w.nodes > w.limits.NodesPerFile {
				w.overNodes(n.start, n.end, string(w.file.src[min(n.start+1, n.end):n.end]))
				return
			}
			m.seen[e.Key] = e.keyStart
			m.out.Entries = append(m.out.Entries, Entry{Key: e.Key, Value: e.Value, keyStart: e.keyStart, keyEnd: e.keyEnd, merge: n})
			m.out.add(e.Value)
		}
	}
}

// bracesNode reports an unquoted `{{ x }}`, which YAML reads as a map with a map as its key.
func (w *walker) bracesNode(n *yaml.Node, pr properties) bool {
	if n.Style&yaml.FlowStyle == 0 || len(n.Content) != 2 || n.Content[0].Kind != yaml.MappingNode ||
		n.Content[0].Style&yaml.FlowStyle == 0 || pr.start+1 >= len(w.text) || w.text[pr.start+1] != '{' {
		return false
	}
	_, end := w.skipBraces(pr.start)
	w.mustQuote(pr.start, end, "{{ as a map inside a map")
	return true
}

// skipBraces gives the span of a bracketed text that starts at off.
func (w *walker) skipBraces(off int) (start, end int) {
	level := 0
	for i := off; i < len(w.text); i++ {
		switch w.text[i] {
		case '{':
			level++
		case '}':
			if level--; level == 0 {
				return off, i + 1
			}
		}
	}
	return off, len(w.text)
}
