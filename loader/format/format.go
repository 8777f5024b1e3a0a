// Package format writes manifests the way `nf fmt` does. It is pure.
//
// It works on the text, not on a tree that it prints anew: comments, blank lines, quotes and line ends stay as they were written. What it changes: a byte order
// mark goes; blanks at the ends of lines go, outside of block scalars and quoted text; the file ends with one line end; the keys that name a thing come first, in
// one order. What it writes means the same: the values are compared before it gives them back.
package format

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"nf/loader/source"
	"nf/schema/diag"
)

// ErrBroken is the error for a file that has errors of its own: it is not touched.
var ErrBroken = errors.New("the file has errors; nf validate shows them")

// Source formats the manifests of one file. The name's ending decides between YAML and JSON, which is given back as it is. A file with findings of YAML gives
// ErrBroken. Formatting what it has given changes nothing.
func Source(name string, src []byte) ([]byte, error) {
	if strings.HasSuffix(strings.ToLower(name), ".json") {
		return src, nil
	}
	before, err := values(name, src)
	if err != nil {
		return nil, err
	}
	out := src
	for _, step := range []func(string, []byte) []byte{tidy, ordered, tidy} {
		next := step(name, out)
		after, err := values(name, next)
		if err == nil && reflect.DeepEqual(before, after) && bytes.Equal(comments(out), comments(next)) {
			out = next
		}
	}
	return out, nil
}

// values gives what the documents of a file say.
func values(name string, src []byte) ([]any, error) {
	docs, findings := source.Parse(name, src, source.DefaultLimits())
	if findings.HasErrors() {
		return nil, ErrBroken
	}
	all := make([]any, 0, len(docs))
	for _, d := range docs {
		if d.Root == nil {
			return nil, ErrBroken
		}
		all = append(all, d.Root.Value())
	}
	return all, nil
}

// comments gives the lines that are comments, sorted, without the blanks around them.
func comments(src []byte) []byte {
	var all []string
	for line := range bytes.Lines(src) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] == '#' {
			all = append(all, string(text))
		}
	}
	slices.Sort(all)
	return []byte(strings.Join(all, "\n"))
}

// tidy mends ends of lines and of the file.
func tidy(name string, src []byte) []byte {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	held := inside(name, src)
	var b bytes.Buffer
	n, lineEnd := 0, "\n"
	for line := range bytes.Lines(src) {
		n++
		text, end := bytes.TrimSuffix(line, []byte("\n")), ""
		if len(text) < len(line) {
			end = "\n"
		}
		if cut := bytes.TrimSuffix(text, []byte("\r")); len(cut) < len(text) {
			text, end, lineEnd = cut, "\r\n", "\r\n"
		}
		if !held[n] {
			text = bytes.TrimRight(text, " \t")
		}
		b.Write(text)
		b.WriteString(end)
	}
	out := b.Bytes()
	if len(out) > 0 && !held[n] {
		out = append(bytes.TrimRight(out, "\r\n"), lineEnd...)
	}
	return out
}

// inside gives the lines whose end belongs to a value: those of block scalars, and of quoted text but its last.
func inside(name string, src []byte) map[int]bool {
	held := map[int]bool{}
	docs, _ := source.Parse(name, src, source.DefaultLimits())
	for _, d := range docs {
		walk(d, d.Root, "", func(p string, n *source.Node) {
			if n.Kind != source.Scalar || n.Style == source.Plain {
				return
			}
			r := d.Locate(p, false).Range
			last := r.End.Line - 1
			if n.Style == source.Block {
				last = lineAt(src, r.End.Offset) // blank lines at its end may belong to it
			}
			for line := r.Start.Line; line <= last; line++ {
				held[line] = true
			}
		})
	}
	return held
}

// lineAt gives the line that an offset is in, and the blank lines after it.
func lineAt(src []byte, offset int) int {
	offset = min(offset, len(src))
	line := 1 + bytes.Count(src[:offset], []byte("\n"))
	rest := src[offset:]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[i+1:]
	} else {
		return line
	}
	for len(rest) > 0 {
		i := bytes.IndexByte(rest, '\n')
		if len(bytes.TrimSpace(rest[:max(i, 0)])) > 0 || i < 0 {
			break
		}
		line, rest = line+1, rest[i+1:]
	}
	return line
}

// walk calls f for each node of a document with its pointer.
func walk(d source.Document, n *source.Node, pointer string, f func(string, *source.Node)) {
	if n == nil {
		return
	}
	f(pointer, n)
	switch n.Kind {
	case source.Map:
		for i := range n.Entries {
			walk(d, n.Entries[i].Value, pointer+"/"+escape(n.Entries[i].Key), f)
		}
	case source.List:
		for i, item := range n.Items {
			walk(d, item, pointer+"/"+strconv.Itoa(i), f)
		}
	case source.Scalar, source.Alias:
	}
}

func escape(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
}

// rangeOf is where a key stands.
func rangeOf(d source.Document, pointer string) (diag.Range, bool) {
	place := d.Locate(pointer, true)
	return place.Range, place.Exact && len(place.Related) == 0
}
