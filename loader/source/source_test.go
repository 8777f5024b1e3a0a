package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// findings gives "line:column-line:column code" of each finding.
func findings(t *testing.T, name, src string) []string {
	t.Helper()
	_, list := Parse(name, []byte(src), DefaultLimits())
	var out []string
	for _, d := range list {
		require.NotEmpty(t, d.Message)
		require.Equal(t, name, d.File)
		out = append(out, fmt.Sprintf("%d:%d-%d:%d %s", d.Range.Start.Line, d.Range.Start.Column, d.Range.End.Line, d.Range.End.Column, d.Code))
	}
	return out
}

func TestFindings(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, src string
		want      []string
	}{
		{"clean", "a: 1\nb: [x, z]\ny: 1\nn: 2\n", nil},
		{"duplicate key", "permits: 4\npermits: 40\n", []string{"2:1-2:8 NF1003"}},
		{"duplicate key, one quoted", "a: 1\n\"a\": 2\n", []string{"2:1-2:4 NF1003"}},
		{"duplicate number key", "x:\n  1: a\n  \"1\": b\n", []string{"2:3-2:4 NF1004", "3:3-3:6 NF1003"}},
		{"duplicate in flow", "x: {a: 1, a: 2}\n", []string{"1:11-1:12 NF1003"}},
		{"boolean key", "decisionCases: {true: []}\n", []string{"1:17-1:21 NF1004"}},
		{"null key", "~: 1\n", []string{"1:1-1:2 NF1004"}},
		{"list key", "? [a, b]\n: 1\n", []string{"1:3-1:9 NF1004"}},
		{"unknown tag", "a: !secret foo\n", []string{"1:4-1:11 NF1005"}},
		{"tag of a map", "a: !thing\n  b: 1\n", []string{"1:4-1:10 NF1005"}},
		{"lone tag mark", "a: ! 5\n", []string{"1:4-1:5 NF1005"}},
		{"tag that does not fit", "a: !!int x\n", []string{"1:4-1:9 NF1005"}},
		{"binary", "a: !!binary aGk=\n", []string{"1:4-1:12 NF1005"}},
		{"core tags", "a: !!str 5\nb: !!int 5\nc: !!map {}\nd: !!bool true\ne: !!null\nf: !!float 1\n", nil},
		{"words", "a: yes\nb: No\nc: [on, OFF]\nd: y\n", []string{"1:4-1:7 NF1006", "2:4-2:6 NF1006", "3:5-3:7 NF1006", "3:9-3:12 NF1006", "4:4-4:5 NF1006"}},
		{"word as key", "on: 1\nyes: 2\n", nil},
		{"words in quotes", "a: 'yes'\nb: \"no\"\n", nil},
		{"numbers", "a: 0755\nb: 08\nc: 1_000\nd: 190:20:30\ne: 0b11\nf: 0x1F\ng: -007\n", []string{
			"1:4-1:8 NF1007", "2:4-2:6 NF1007", "3:4-3:9 NF1007", "4:4-4:13 NF1007", "5:4-5:8 NF1007", "6:4-6:8 NF1007", "7:4-7:8 NF1007",
		}},
		{"fine numbers", "a: 0\nb: -1\nc: 1.50\nd: 1e3\ne: .5\nf: +5\ng: 2026-01-01\nh: 1.2.3\ni: 0.10\n", nil},
		{"big", "a: 18446744073709551616\nb: 18446744073709551615\nc: -9223372036854775809\nd: 1e401\n", []string{"1:4-1:24 NF1008", "3:4-3:24 NF1008", "4:4-4:9 NF1008"}},
		{"not finite", "a: .nan\nb: -.inf\nc: .Inf\n", []string{"1:4-1:8 NF1009", "2:4-2:9 NF1009", "3:4-3:8 NF1009"}},
		{"UTF-16", "\xff\xfea\x00:\x00", []string{"1:1-1:1 NF1011"}},
		{"invalid UTF-8", "a: \"\xff\"\n", []string{"1:5-1:6 NF1011"}},
		{"NUL", "a: b\x00c\n", []string{"1:5-1:6 NF1011"}},
		{"CR only", "a: 1\rb: 2\r", []string{"1:5-1:6 NF1011"}},
		{"CRLF", "a: 1\r\nb: 2\r\n", nil},
		{"BOM at the start", "\xEF\xBB\xBFa: 1\na: 2\n", []string{"2:1-2:2 NF1003"}},
		{"BOM inside", "a: 1\n---\n\xEF\xBB\xBFb: 1\n", []string{"3:1-3:2 NF1011"}},
		{"bidirectional", "a: \"x\u202Ey\"\nb: yes\n", []string{"1:6-1:7 NF1011", "2:4-2:7 NF1006"}},
		{"cron", "cron: */5 * * * *\nb: yes\n", []string{"1:7-1:18 NF1014", "2:4-2:7 NF1006"}},
		{"cron with comment", "cron: */5 * * * *  # often\n", []string{"1:7-1:18 NF1014"}},
		{"star in a list", "a: [*/5, x]\n", []string{"1:5-1:8 NF1014"}},
		{"star and words", "a: *foo bar\n", []string{"1:4-1:12 NF1014"}},
		{"ampersand", "a: & b\n", []string{"1:4-1:7 NF1014"}},
		{"at sign", "a: @home\nb: `x`\nc: %d\n", []string{"1:4-1:9 NF1014", "2:4-2:7 NF1014", "3:4-3:6 NF1014"}},
		{"braces", "a: {{ x }}\nb: yes\n", []string{"1:4-1:11 NF1014", "2:4-2:7 NF1006"}},
		{"braces and text", "a: {{ x }}-y\nb: yes\n", []string{"1:4-1:13 NF1014", "2:4-2:7 NF1006"}},
		{"braces with dots", "mode: {{ .Values.mode }}\n", []string{"1:7-1:25 NF1014"}},
		{"tab", "a:\n\tb: 1\n", []string{"2:1-2:2 NF1015"}},
		{"tab after blanks", "a:\n  b: 1\n \tc: 1\n", []string{"3:2-3:3 NF1015"}},
		{"tab in a plain text", "a: b\n\tc: d\n", []string{"2:1-2:2 NF1015"}},
		{"tab on line 1", "\ta: 1\n", []string{"1:1-1:2 NF1015"}},
		{"empty document", "a: 1\n---\n---\nb: 1\n", []string{"2:1-2:4 NF1017"}},
		{"empty document at the end", "a: 1\n---\n# nothing\n", []string{"2:1-2:4 NF1017"}},
		{"only comments", "# nothing\n", nil},
		{"nothing", "", nil},
		{"only markers", "---\n---\n", nil},
		{"after the end", "a: 1\n...\njunk\n---\nb: yes\n", []string{"3:1-3:5 NF1018", "5:4-5:7 NF1006"}},
		{"on the end's line", "a: 1\n... junk\n", []string{"2:5-2:9 NF1018"}},
		{"after a flow map", "{a: 1} b\n", []string{"1:8-1:9 NF1018"}},
		{"unknown anchor", "a: *x\nb: yes\n", []string{"1:4-1:6 NF1020", "2:4-2:7 NF1006"}},
		{"redefined anchor", "a: &x 1\nb: &x 2\n", []string{"2:4-2:6 NF1020"}},
		{"anchor of an earlier document", "a: &x 1\n---\nb: *x\n", []string{"3:4-3:6 NF1020"}},
		{"self-containing", "a: &x [1, *x]\n", []string{"1:11-1:13 NF1020"}},
		{"two merge keys", "b: &b {x: 1}\na:\n  <<: *b\n  <<: *b\n", []string{"4:3-4:5 NF1021"}},
		{"quoted merge key", "b: &b {x: 1}\na:\n  \"<<\": *b\n", []string{"3:3-3:7 NF1021"}},
		{"merge of a list", "b: &b [1]\na:\n  <<: *b\n", []string{"3:7-3:9 NF1021"}},
		{"merge of a text", "a:\n  <<: x\n", []string{"2:7-2:8 NF1021"}},
		{"merge", "b: &b {x: 1}\nc: &c {x: 2, w: 3}\na:\n  <<: [*b, *c]\n  z: 1\n", nil},

		{"v05", "a:\n  b: 1\n c: 2\n", []string{"3:2-3:3 NF1002"}},
		{"colon on line 1", "a: b: c\n", []string{"1:5-1:6 NF1002"}},
		{"open list", "a: [1, 2\nb: 3\n", []string{"2:2-2:3 NF1002"}},
		{"open list at the end", "b: 3\na: [1, 2\n", []string{"2:4-2:5 NF1002"}},
		{"open quotes", "a: \"x\nb: 1\n", []string{"1:4-1:5 NF1002"}},
		{"no key", "a: 1\nb\n", []string{"2:1-2:2 NF1002"}},
		{"bracket too many", "a: [b]]\n", []string{"1:7-1:8 NF1002"}},
		{"closing brace", "a: }\n", []string{"1:4-1:5 NF1002"}},
		{"bad escape", "a: \"\\q\"\n", []string{"1:5-1:6 NF1002"}},
		{"text after quotes", "a: \"foo\" bar\n", []string{"1:10-1:11 NF1002"}},
		{"list in line", "a: - b\n", []string{"1:4-1:5 NF1002"}},
		{"list and map", "- a\nb: 1\n", []string{"2:1-2:2 NF1002"}},
		{"block header", "a: |x\n  b\n", []string{"1:5-1:6 NF1002"}},
		{"directive", "%FOO bar\n---\na: 1\n", []string{"1:1-1:9 NF1002"}},
		{"version directive", "%YAML 1.2\n---\na: 1\n", nil},
		{"second document broken", "a: 1\n---\nb: [\n---\nc: yes\n", []string{"3:4-3:5 NF1002", "5:4-5:7 NF1006"}},
		{"column counts code points", "a: \"\U0001F600\" x\n", []string{"1:8-1:9 NF1002"}},
		{"line separator in a text", "a: \"x\u2028y\"\nb: yes\n", []string{"2:4-2:7 NF1006"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, findings(t, "x.yaml", c.src), c.src)
		})
	}
}

func TestJSONFindings(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, src string
		want      []string
	}{
		{"clean", "{\n\t\"a\": [1, -2.5e3, true, null, \"\\ud83d\\ude00\\/\"]\n}\n", nil},
		{"nothing", " \n", nil},
		{"duplicate key", `{"a": 1, "a": 2}`, []string{"1:10-1:13 NF1003"}},
		{"big", `[18446744073709551616]`, []string{"1:2-1:22 NF1008"}},
		{"trailing comma", `[1, 2,]`, []string{"1:6-1:7 NF1002"}},
		{"comment", "{} // x", []string{"1:4-1:8 NF1018"}},
		{"single quotes", `{'a': 1}`, []string{"1:2-1:3 NF1002"}},
		{"bare key", `{a: 1}`, []string{"1:2-1:3 NF1002"}},
		{"leading zero", `[01]`, []string{"1:2-1:3 NF1002"}},
		{"lone minus", `[-]`, []string{"1:2-1:3 NF1002"}},
		{"point only", `[1.]`, []string{"1:2-1:3 NF1002"}},
		{"not a number", `[NaN]`, []string{"1:2-1:3 NF1002"}},
		{"open list", "[1,\n2", []string{"1:1-1:2 NF1002"}},
		{"open text", `["a`, []string{"1:2-1:3 NF1002"}},
		{"line break in text", "[\"a\nb\"]", []string{"1:4-2:1 NF1002"}},
		{"bad escape", `["\q"]`, []string{"1:3-1:4 NF1002"}},
		{"lone surrogate", `["\ud83d"]`, []string{"1:3-1:4 NF1002"}},
		{"words stay text", `["yes", "no"]`, nil},
		{"missing value", `{"a": }`, []string{"1:7-1:8 NF1002"}},
		{"missing colon", `{"a" 1}`, []string{"1:6-1:7 NF1002"}},
		{"missing comma", `[1 2]`, []string{"1:4-1:5 NF1002"}},
		{"two values", "{}\n{}\n", []string{"2:1-2:3 NF1018"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, findings(t, "x.json", c.src), c.src)
		})
	}
}

// spans lists the raw text of every key and value in order: keys with a colon, collections with their kind.
func spans(d Document) []string {
	var out []string
	src := d.file.src
	var walk func(n *Node)
	walk = func(n *Node) {
		out = append(out, string(src[n.start:n.end]))
		if n.Kind == Alias {
			return
		}
		for _, e := range n.Entries {
			if e.merge == nil {
				out = append(out, string(src[e.keyStart:e.keyEnd])+":")
				walk(e.Value)
			}
		}
		for _, i := range n.Items {
			walk(i)
		}
	}
	walk(d.Root)
	return out
}

func TestSpans(t *testing.T) {
	t.Parallel()
	cases := []struct {
		src  string
		want []string
	}{
		{"a: one\n", []string{"a: one", "a:", "one"}},
		{"a: one\n  two   # c\nb: 1\n", []string{"a: one\n  two   # c\nb: 1", "a:", "one\n  two", "b:", "1"}},
		{"a: 'it''s'\nb: \"x\\\"y\" # c\n", []string{"a: 'it''s'\nb: \"x\\\"y\"", "a:", "'it''s'", "b:", "\"x\\\"y\""}},
		{"a: [x, {b: c}, [ ] ] # c\n", []string{"a: [x, {b: c}, [ ] ]", "a:", "[x, {b: c}, [ ] ]", "x", "{b: c}", "b:", "c", "[ ]"}},
		{"a: {b, c: , d}\n", []string{"a: {b, c: , d}", "a:", "{b, c: , d}", "b:", "", "c:", "", "d:", ""}},
		{"a: [b: c]\n", []string{"a: [b: c]", "a:", "[b: c]", "b: c", "b:", "c"}},
		{"a: |\n  x\n   y\n\nb: >-\n  z\n", []string{"a: |\n  x\n   y\n\nb: >-\n  z", "a:", "|\n  x\n   y", "b:", ">-\n  z"}},
		{"a:\n  - |\n   x\n\n   y\n  - z\n", []string{"a:\n  - |\n   x\n\n   y\n  - z", "a:", "- |\n   x\n\n   y\n  - z", "|\n   x\n\n   y", "z"}},
		{"a: |1\n  x\n y\nb: 1\n", []string{"a: |1\n  x\n y\nb: 1", "a:", "|1\n  x\n y", "b:", "1"}},
		{"a: |\nb: 1\n", []string{"a: |\nb: 1", "a:", "|", "b:", "1"}},
		{"a: &x\n  b: !!str 5\nc: *x\n", []string{"a: &x\n  b: !!str 5\nc: *x", "a:", "b: !!str 5", "b:", "5", "c:", "*x"}},
		{"a: !!seq &x\n- 1\n- 2\nb:\n", []string{"a: !!seq &x\n- 1\n- 2\nb:", "a:", "- 1\n- 2", "1", "2", "b:", ""}},
		{"- - a\n  - b\n-\n", []string{"- - a\n  - b\n-", "- a\n  - b", "a", "b", ""}},
		{"? a\n: b\n", []string{"a\n: b", "a:", "b"}},
		{"\xEF\xBB\xBFé: \U0001F600\n", []string{"é: \U0001F600", "é:", "\U0001F600"}},
		{"a: x\u2028 y\n", []string{"a: x\u2028 y", "a:", "x\u2028 y"}},
		{"a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 2\r\n", []string{"a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 2", "a:", "1", "b:", "|\r\n  x\r\n  y", "c:", "2"}},
		{"--- {a: 1} # x\n", []string{"{a: 1}", "a:", "1"}},
		{"a: http://x#y\n", []string{"a: http://x#y", "a:", "http://x#y"}},
		{"a: {\n  b: 1, # c ]\n\n  }\n", []string{"a: {\n  b: 1, # c ]\n\n  }", "a:", "{\n  b: 1, # c ]\n\n  }", "b:", "1"}},
	}
	for _, c := range cases {
		docs, list := Parse("x.yaml", []byte(c.src), DefaultLimits())
		require.Empty(t, list, c.src)
		require.Len(t, docs, 1, c.src)
		require.Equal(t, c.want, spans(docs[0]), c.src)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	docs, list := Parse("x.yaml", []byte(strings.Join([]string{
		"n: 9007199254740993", "f: [+5, .5, 5., 1e3, 1.50, -0]", "t: [2026-01-01, 1.2.3, 'yes', \"5\", !!str 5]", "z: [~, null, Null]", "b: [true, TRUE, false]",
		"base: &b {x: 1, y: 2}", "m: {<<: *b, y: 3}", "l: {<<: [{x: 9}, *b]}", "c: *b",
	}, "\n")), DefaultLimits())
	require.Empty(t, list)
	got := fmt.Sprint(docs[0].Root.Value())
	require.Equal(t, "map[b:[true true false] base:map[x:1 y:2] c:map[x:1 y:2] f:[5 0.5 5 1e3 1.50 -0] l:map[x:9 y:2] m:map[x:1 y:3] n:9007199254740993"+
		" t:[2026-01-01 1.2.3 yes 5 5] z:[<nil> <nil> <nil>]]", got)
}

func TestLocate(t *testing.T) {
	t.Parallel()
	src := "labels: {a.b: [x], \"a/b\": [w]}\nbase: &b\n  deep: {x: 1}\nuse: *b\nmerged:\n  <<: *b\n  own: 2\n"
	docs, list := Parse("x.yaml", []byte(src), DefaultLimits())
	require.Empty(t, list)
	d := docs[0]
	at := func(pointer string, key bool) string {
		p := d.Locate(pointer, key)
		s := fmt.Sprintf("%d:%d %q", p.Range.Start.Line, p.Range.Start.Column, d.Raw(p.Range))
		for _, r := range p.Related {
			s += fmt.Sprintf(" < %d:%d", r.Start.Line, r.Start.Column)
		}
		return s
	}
	require.Equal(t, `1:15 "[x]"`, at("/labels/a.b", false))
	require.Equal(t, `1:27 "[w]"`, at("/labels/a~1b", false))
	require.Equal(t, `1:20 "\"a/b\""`, at("/labels/a~1b", true))
	require.Equal(t, `1:28 "w"`, at("/labels/a~1b/0", false))
	require.Equal(t, `3:13 "1"`, at("/base/deep/x", false))
	require.Equal(t, `4:6 "*b" < 3:13`, at("/use/deep/x", false))
	require.Equal(t, `4:6 "*b" < 3:3`, at("/use", false))
	require.Equal(t, `6:7 "*b" < 3:13`, at("/merged/deep/x", false))
	require.Equal(t, `5:1 "merged"`, at("/merged/missing", false))
	require.Equal(t, `1:1 "labels"`, at("/missing", false))
	require.Equal(t, `1:1 "labels"`, at("/missing/more", false))
	require.False(t, d.Locate("/merged/missing", false).Exact)
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	parse := func(src string, change func(*Limits)) []string {
		l := DefaultLimits()
		change(&l)
		_, list := Parse("x.yaml", []byte(src), l)
		var out []string
		for _, d := range list {
			out = append(out, fmt.Sprintf("%d:%d %s %s", d.Range.Start.Line, d.Range.Start.Column, d.Code, d.Message))
		}
		return out
	}
	require.Equal(t, []string{"1:1 NF1016 file has 5 bytes, more than the limit fileBytes = 4"}, parse("a: 1\n", func(l *Limits) { l.FileBytes = 4 }))
	require.Equal(t, []string{"3:1 NF1016 file has 3 documents, more than the limit documentsPerFile = 2"},
		parse("a: 1\n--- {a: 1}\n--- {b: yes}\n", func(l *Limits) { l.DocumentsPerFile = 2 }))
	require.Equal(t, []string{"1:6 NF1013 nested deeper than the limit depth = 3"}, parse("a: [[[[1]]]]\n", func(l *Limits) { l.Depth = 3 })[:1])
	require.Equal(t, []string{"2:5 NF1013 nested deeper than the limit depth = 3"}, parse("a: &x [[1]]\nb: [*x]\n", func(l *Limits) { l.Depth = 3 }))
	require.Equal(t, []string{"1:7 NF1012 file has more nodes than the limit nodesPerFile = 3 (aliases expanded)"}, parse("a: [1,2,3]\n", func(l *Limits) { l.NodesPerFile = 3 })[:1])
}

// TestParserDepth: the library itself gives up at 10,000 levels; that is told as the same finding.
func TestParserDepth(t *testing.T) {
	t.Parallel()
	for _, src := range []string{strings.Repeat("[", 20_000), strings.Repeat("- ", 20_000) + "x", strings.Repeat("{a: ", 20_000)} {
		_, list := Parse("x.yaml", []byte(src), DefaultLimits())
		require.Len(t, list, 1)
		require.EqualValues(t, "NF1013", list[0].Code)
	}
}

func TestFindingsOfAFileAreBounded(t *testing.T) {
	t.Parallel()
	docs, list := Parse("x.yaml", []byte("a: ["+strings.Repeat("yes,", 100_000)+"é]"), DefaultLimits())
	require.Len(t, list, MaxFindings)
	require.True(t, list.HasErrors())
	require.Len(t, docs, 1)
}

func TestV08_AliasesWithinTheBudget(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("base: &base\n")
	for i := range 50 {
		fmt.Fprintf(&b, "  k%d: %d\n", i, i)
	}
	use := b.String() + "uses:\n"
	legal := use + strings.Repeat("  - *base\n", 2000)
	docs, list := Parse("x.yaml", []byte(legal), DefaultLimits())
	require.Empty(t, list)
	require.Len(t, docs[0].Root.Value().(map[string]any)["uses"], 2000)

	merged := use + strings.Repeat("  - {<<: *base, own: 1}\n", 2000)
	_, list = Parse("x.yaml", []byte(merged), DefaultLimits())
	require.Empty(t, list)

	bomb := "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	docs, list = Parse("x.yaml", []byte(bomb), DefaultLimits())
	require.Len(t, list, 1)
	require.EqualValues(t, "NF1012", list[0].Code)
	require.Contains(t, list[0].Message, "nodesPerFile = 250000")
	require.Contains(t, list[0].Message, "alias *")
	require.Equal(t, 6, list[0].Range.Start.Line)
	require.Nil(t, docs[0].Root)
}

// TestMarks holds the library's private fields, from which places of syntax errors are read, to what this package expects.
func TestMarks(t *testing.T) {
	t.Parallel()
	_, pr := decode([]byte("a: 1\nb: [1, 2\nc: 3\n"))
	require.NotNil(t, pr)
	require.Equal(t, problem{
		text: "did not find expected ',' or ']'", context: "while parsing a flow sequence", line: 2, col: 1, contextLine: 1, contextC: 3,
		eventLine: pr.eventLine, eventCol: pr.eventCol,
	}, *pr)
}

func TestEverySyntaxMessageExists(t *testing.T) {
	t.Parallel()
	for text, m := range syntaxMessages {
		require.NotEmpty(t, m.text, text)
		require.NotEmpty(t, m.hint, text)
	}
}

func TestFixesMend(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"a: yes\n", "a: 0755\n", "cron: */5 * * * *\n", "a: {{ x }}\n", "a: {true: 1}\n", "a: {{ \"x\" }}-y\n", "a: @'\"\n"} {
		_, list := Parse("x.yaml", []byte(src), DefaultLimits())
		require.Len(t, list, 1, src)
		require.NotNil(t, list[0].Fix, src)
		e := list[0].Fix.Edits[0]
		mended := src[:e.Start] + e.Text + src[e.End:]
		_, list = Parse("x.yaml", []byte(mended), DefaultLimits())
		require.Empty(t, list, mended)
	}
}
