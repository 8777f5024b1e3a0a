package source

import (
	"encoding/json"
	"strings"
	"testing"

	"nf/schema/diag"
)

// FuzzParse holds what no input may break: no panic, every place inside the file, every node inside its document, ends that
// fit what was read.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a: 1\n", "a: &x\n  b: [1, {c: d}]\nc: *x\nd: {<<: *x}\n", "---\n--- |\n  x\n...\n", "a: 'x'\r\nb: \"\\u0041\"\r\n", "? [a]\n: b\n",
		"a: {{ x }}\n", "cron: */5 * * * *\n", "a:\n\tb: 1\n", "a: |2+\n    x\n", "\xEF\xBB\xBFa: ü\n", "a: !!str &q\nb: *q\n", "- - - [[", "a: \"x\u2028\n",
		`{"a": [1, true, null, "\u00e9"]}`, "a: one\n  two\n\n  three # x\n", "[a: b, c]", "&a *a", "%YAML 1.2\n---\na", "a: &x [*x]\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, src []byte, asJSON bool) {
		name := "x.yaml"
		if asJSON {
			name = "x.json"
		}
		limits := DefaultLimits()
		limits.NodesPerFile = 2000
		docs, list := Parse(name, src, limits)
		for _, d := range list {
			checkRange(t, src, d.Range)
			for _, r := range d.Related {
				checkPos(t, src, r.Start)
			}
			if d.Fix != nil {
				for _, e := range d.Fix.Edits {
					if e.Start < 0 || e.End < e.Start || e.End > len(src) {
						t.Fatalf("fix outside the file: %+v", e)
					}
				}
			}
		}
		for _, d := range docs {
			if d.Root == nil {
				if !list.HasErrors() {
					t.Fatal("no tree and no error")
				}
				continue
			}
			checkNode(t, d, d.Root)
			if _, err := json.Marshal(d.Root.Value()); err != nil {
				t.Fatalf("value is no JSON: %v", err)
			}
			checkRange(t, src, d.Locate("/a/0/b", false).Range)
		}
	})
}

func checkPos(t *testing.T, src []byte, p diag.Pos) {
	t.Helper()
	if p.Line < 1 || p.Column < 1 || p.Offset < 0 || p.Offset > len(src) {
		t.Fatalf("place outside the file: %+v", p)
	}
}

func checkRange(t *testing.T, src []byte, r diag.Range) {
	t.Helper()
	checkPos(t, src, r.Start)
	checkPos(t, src, r.End)
	if r.End.Offset < r.Start.Offset {
		t.Fatalf("range ends before it starts: %+v", r)
	}
}

func checkNode(t *testing.T, d Document, n *Node) {
	t.Helper()
	if n.start < d.start || n.end < n.start || n.end > d.end {
		t.Fatalf("node outside its document: %d..%d in %d..%d", n.start, n.end, d.start, d.end)
	}
	raw := string(d.file.src[n.start:n.end])
	if n.Kind == Scalar && !n.flawed {
		switch {
		case n.Style == Plain && n.Type == Text && strings.Join(strings.Fields(raw), " ") != strings.Join(strings.Fields(n.Text), " "):
			t.Fatalf("plain text %q was cut out as %q", n.Text, raw)
		case n.Style == Quoted && (len(raw) < 2 || raw[0] != raw[len(raw)-1]):
			t.Fatalf("quoted text %q was cut out as %q", n.Text, raw)
		case n.Style == Block && raw[0] != '|' && raw[0] != '>':
			t.Fatalf("block text %q was cut out as %q", n.Text, raw)
		}
	}
	if n.Kind == Alias {
		return
	}
	for _, e := range n.Entries {
		if e.merge != nil {
			continue
		}
		if e.keyStart < d.start || e.keyEnd < e.keyStart || e.keyEnd > d.end {
			t.Fatalf("key outside its document: %d..%d", e.keyStart, e.keyEnd)
		}
		checkNode(t, d, e.Value)
		if e.Value.end > n.end {
			t.Fatalf("value %q ends after its map", e.Key)
		}
	}
	for _, i := range n.Items {
		checkNode(t, d, i)
		if i.end > n.end {
			t.Fatalf("item ends after its list")
		}
	}
}
