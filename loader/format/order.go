package format

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"nf/loader/source"
)

// The keys that come first, in this order; the others keep the order in which they were written.
var (
	envelope = []string{"apiVersion", "kind", "metadata", "spec"}
	metadata = []string{"name", "namespace"}
	task     = []string{"taskReferenceName", "type", "name"}
)

// wanted gives the order for a map, nil where nothing is known of it.
func wanted(pointer string, n *source.Node) []string {
	switch {
	case pointer == "":
		return envelope
	case pointer == "/metadata":
		return metadata
	case n.Get("taskReferenceName") != nil && strings.HasPrefix(pointer, "/spec/"):
		return task
	}
	return nil
}

// ordered puts known keys in their order, one map after another, from the inside out. A map whose keys do not each begin a line of their own, and one with
// aliases or merged keys, is left alone.
func ordered(name string, src []byte) []byte {
	docs, _ := source.Parse(name, src, source.DefaultLimits())
	for i, doc := range slices.Backward(docs) {
		var maps []string
		walk(doc, doc.Root, "", func(p string, n *source.Node) {
			if n.Kind == source.Map && wanted(p, n) != nil {
				maps = append(maps, p)
			}
		})
		slices.Reverse(maps)
		for _, p := range maps {
			again, _ := source.Parse(name, src, source.DefaultLimits())
			if i >= len(again) {
				return src
			}
			src = order(again[i], p, src)
		}
	}
	return src
}

// part is one key with its value, as text.
type part struct {
	key      string
	start    int    // offset of its comments, or of the key where it has none
	at       int    // offset of the key
	comments string // whole lines right above the key, as far in as it
	body     string // from the key to the end of its last line
}

// order puts the keys of one map in order.
func order(d source.Document, pointer string, src []byte) []byte {
	n := d.Root
	for _, step := range source.Steps(pointer) {
		n = child(n, step)
	}
	if n == nil {
		return src
	}
	parts, column, end, ok := split(d, pointer, n, src)
	if !ok {
		return src
	}
	first := wanted(pointer, n)
	rank := func(p part) int {
		if i := slices.Index(first, p.key); i >= 0 {
			return i
		}
		return len(first)
	}
	sorted := slices.Clone(parts)
	slices.SortStableFunc(sorted, func(a, b part) int { return rank(a) - rank(b) })
	behindDash := !ownLine(src, parts[0].at)
	if slices.Equal(parts, sorted) || behindDash && sorted[0].comments != "" {
		return src
	}
	var b bytes.Buffer
	b.Write(src[:parts[0].start])
	for i, p := range sorted {
		if i > 0 || !behindDash {
			b.WriteString(p.comments)
			b.WriteString(strings.Repeat(" ", column-1))
		}
		b.WriteString(p.body)
		if !strings.HasSuffix(p.body, "\n") {
			b.WriteString("\n")
		}
	}
	b.Write(src[end:])
	return b.Bytes()
}

func child(n *source.Node, step string) *source.Node {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case source.Map:
		for i := range n.Entries {
			if n.Entries[i].Key == step {
				return n.Entries[i].Value
			}
		}
	case source.List:
		for i := range n.Items {
			if strconv.Itoa(i) == step {
				return n.Items[i]
			}
		}
	case source.Scalar, source.Alias:
	}
	return nil
}

// split cuts a map into its keys; end is where the last one's text ends. It fails where that cannot be done line by line.
func split(d source.Document, pointer string, n *source.Node, src []byte) (parts []part, column, end int, ok bool) {
	for i := range n.Entries {
		r, known := rangeOf(d, pointer+"/"+escape(n.Entries[i].Key))
		own := known && ownLine(src, r.Start.Offset)
		if !known || i > 0 && (!own || r.Start.Column != column || r.Start.Offset < parts[i-1].at) {
			return nil, 0, 0, false
		}
		column = r.Start.Column
		p := part{key: n.Entries[i].Key, start: r.Start.Offset, at: r.Start.Offset}
		if own {
			line := lineStart(src, p.at)
			p.start = line
			if i > 0 || pointer != "" { // what stands at the top of a document is about the document
				p.start = above(src, line, column)
			}
			p.comments = string(src[p.start:line])
		}
		parts = append(parts, p)
	}
	if len(parts) < 2 {
		return nil, 0, 0, false
	}
	last := parts[len(parts)-1]
	end = endOfLine(src, max(d.Locate(pointer+"/"+escape(last.key), false).Range.End.Offset-1, last.at))
	for i := range parts {
		to := end
		if i+1 < len(parts) {
			to = parts[i+1].start
		}
		if to <= parts[i].at {
			return nil, 0, 0, false
		}
		parts[i].body = string(src[parts[i].at:to])
	}
	return parts, column, end, true
}

// ownLine says whether only blanks stand before an offset in its line.
func ownLine(src []byte, at int) bool {
	return len(bytes.TrimLeft(src[lineStart(src, at):at], " ")) == 0
}

func lineStart(src []byte, at int) int { return bytes.LastIndexByte(src[:at], '\n') + 1 }

func endOfLine(src []byte, at int) int {
	if i := bytes.IndexByte(src[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(src)
}

// above gives where the comments begin that stand right above a line, as far in as it.
func above(src []byte, at, column int) int {
	for at > 0 {
		prev := lineStart(src, at-1)
		line := bytes.TrimRight(src[prev:at], "\r\n")
		text := bytes.TrimLeft(line, " ")
		if len(text) == 0 || text[0] != '#' || len(line)-len(text) != column-1 {
			return at
		}
		at = prev
	}
	return at
}
