package diag_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/schema/diag"
)

func finding() diag.Diagnostic {
	d := diag.New("NF2101", "/spec/retryDelay", `unknown key "retryDelay" in TaskDefinition spec`).WithHint(`did you mean "retryDelaySeconds"?`).OnKey()
	d.File = "namespaces/payments/tasks/charge.yaml"
	d.Range = diag.Range{Start: diag.Pos{Line: 9, Column: 3, Offset: 131}, End: diag.Pos{Line: 9, Column: 13, Offset: 141}}
	d.Object = &diag.Object{Kind: "TaskDefinition", Namespace: "payments", Name: "charge"}
	return d
}

const source = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nf: 6\nspec:\n  retryCount: 5\n  retryDelay: 2\n  jitter: 0.2\n"

// The text form of the specification, character by character.
func TestPrint(t *testing.T) {
	t.Parallel()
	require.Equal(t, `namespaces/payments/tasks/charge.yaml:9:3: error[NF2101]: unknown key "retryDelay" in TaskDefinition spec
   8 |   retryCount: 5
   9 |   retryDelay: 2
     |   ^^^^^^^^^^ did you mean "retryDelaySeconds"?
  10 |   jitter: 0.2
  object: TaskDefinition payments/charge
`, finding().Print([]byte(source)))
	require.Equal(t, `namespaces/payments/tasks/charge.yaml:9:3: error[NF2101]: unknown key "retryDelay" in TaskDefinition spec
  hint: did you mean "retryDelaySeconds"?
  object: TaskDefinition payments/charge
`, finding().Print(nil))
}

func TestSnippet(t *testing.T) {
	t.Parallel()
	at := func(line, column, endLine, endColumn int) diag.Range {
		return diag.Range{Start: diag.Pos{Line: line, Column: column}, End: diag.Pos{Line: endLine, Column: endColumn}}
	}
	for name, c := range map[string]struct {
		source string
		at     diag.Range
		want   string
	}{
		"first line":        {"a: b", at(1, 4, 1, 5), "   1 | a: b\n     |    ^ h\n"},
		"CRLF":              {"a: b\r\nc: d\r\n", at(1, 1, 1, 2), "   1 | a: b\n     | ^ h\n   2 | c: d\n"},
		"wide characters":   {"日本: x", at(1, 5, 1, 6), "   1 | 日本: x\n     |       ^ h\n"},
		"combining":         {"e\u0301: x", at(1, 5, 1, 6), "   1 | e\u0301: x\n     |    ^ h\n"},
		"tab":               {"\ta: b", at(1, 2, 1, 3), "   1 |   a: b\n     |   ^ h\n"},
		"control character": {"a: \x1b[31m", at(1, 5, 1, 6), "   1 | a: \\u{1b}[31m\n     |          ^ h\n"},
		"bidirectional":     {"a: \u202ex", at(1, 5, 1, 6), "   1 | a: \\u{202e}x\n     |            ^ h\n"},
		"over several":      {"a:\n  b: c\n", at(1, 1, 2, 3), "   1 | a:\n     | ^^ h\n   2 |   b: c\n"},
		"end of line":       {"a:", at(1, 3, 1, 3), "   1 | a:\n     |   ^ h\n"},
		"beyond the text":   {"a: b\n", at(9, 1, 9, 2), ""},
		"no place":          {"a: b\n", diag.Range{}, ""},
	} {
		require.Equal(t, c.want, diag.Snippet([]byte(c.source), c.at, "h"), name)
	}
	long := strings.Repeat("x", 400) + "HERE" + strings.Repeat("y", 400)
	for line := range strings.SplitSeq(diag.Snippet([]byte(long), at(1, 401, 1, 405), ""), "\n") {
		require.LessOrEqual(t, len(line), 130)
	}
	require.Contains(t, diag.Snippet([]byte(long), at(1, 401, 1, 405), ""), "xHEREy")
}

// Whatever the source and the place, a snippet never breaks the terminal or the program.
func TestSnippetProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "source")
		number := rapid.IntRange(-2, 30)
		r := diag.Range{
			Start: diag.Pos{Line: number.Draw(t, "line"), Column: number.Draw(t, "column")},
			End:   diag.Pos{Line: number.Draw(t, "endLine"), Column: number.Draw(t, "endColumn")},
		}
		out := diag.Snippet(text, r, rapid.String().Draw(t, "hint"))
		require.NotContains(t, strings.ReplaceAll(out, "\n", ""), "\x1b")
		require.LessOrEqual(t, strings.Count(out, "\n"), 4)
	})
}

func TestJSON(t *testing.T) {
	t.Parallel()
	d := finding()
	d.Related = []diag.Related{{File: "x.yaml", Start: diag.Pos{Line: 2, Column: 9}, Message: "similar name defined here"}}
	d.Fix = &diag.Fix{Edits: []diag.Edit{{Start: 131, End: 141, Text: "retryDelaySeconds"}}}
	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.JSONEq(t, `{"code":"NF2101","level":"error","rule":"unknown-key",
		"message":"unknown key \"retryDelay\" in TaskDefinition spec","hint":"did you mean \"retryDelaySeconds\"?",
		"file":"namespaces/payments/tasks/charge.yaml",
		"start":{"line":9,"column":3,"offset":131},"end":{"line":9,"column":13,"offset":141},
		"document":0,"pointer":"/spec/retryDelay","object":{"kind":"TaskDefinition","namespace":"payments","name":"charge"},
		"related":[{"file":"x.yaml","start":{"line":2,"column":9,"offset":0},"message":"similar name defined here"}],
		"fix":{"edits":[{"start":131,"end":141,"text":"retryDelaySeconds"}],"safe":false},
		"fingerprint":"`+d.Fingerprint()+`"}`, string(text))
	var back diag.Diagnostic
	require.NoError(t, json.Unmarshal(text, &back))
	back.AtKey = true // not part of the form
	require.Equal(t, d, back)

	text, err = json.Marshal(diag.New("NF7001", "", "no nf.yaml"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "file")
	require.NotContains(t, string(text), "start")
}

func TestReport(t *testing.T) {
	t.Parallel()
	warning := diag.New("NF1017", "", "empty")
	r := diag.NewReport(diag.List{finding(), warning, finding()}, 2, 1, 1)
	require.Equal(t, "2 files, 1 object: 2 errors, 1 warning, 0 infos (2 not shown)", r.Summary.String())
	require.Len(t, r.Findings, 1)
	require.Equal(t, diag.Code("NF1017"), r.Findings[0].Code) // without a file it sorts first
	text, err := json.Marshal(diag.NewReport(nil, 0, 0, 0))
	require.NoError(t, err)
	require.JSONEq(t, `{"format_version":1,"findings":[],"summary":{"files":0,"objects":0,"errors":0,"warnings":0,"infos":0,"suppressed":0,"shown":0}}`, string(text))
}

type places map[string]diag.Range

func (p places) Locate(place diag.Place) (diag.Location, bool) {
	key := place.Pointer
	if place.AtKey {
		key += " key"
	}
	r, ok := p[key]
	return diag.Location{File: "f.yaml", Document: 1, Range: r}, ok && place.Text == nil
}

func TestIn(t *testing.T) {
	t.Parallel()
	line := func(n int) diag.Range { return diag.Range{Start: diag.Pos{Line: n, Column: 1}} }
	p := places{"": line(1), "/spec key": line(2), "/spec": line(3), "/spec/a": line(4)}
	located := diag.New("NF2101", "", "x")
	located.File = "other.yaml"
	got := diag.List{
		diag.New("NF2102", "/spec/a", "there"),
		diag.New("NF2102", "/spec/b/c", "parent's key"),
		diag.New("NF3201", "/spec/a", "text").Within(diag.Span{Start: 1, End: 2}),
		diag.New("NF2102", "", "document"),
		located,
	}.In(p)
	require.Equal(t, []int{4, 2, 4, 1, 0}, []int{got[0].Range.Start.Line, got[1].Range.Start.Line, got[2].Range.Start.Line, got[3].Range.Start.Line, got[4].Range.Start.Line})
	require.Equal(t, "other.yaml", got[4].File)
	require.Equal(t, 1, got[0].Document)
}

func TestErrAndSort(t *testing.T) {
	t.Parallel()
	require.NoError(t, diag.List{diag.New("NF1017", "", "x")}.Err())
	require.False(t, diag.List(nil).HasErrors())
	a, b := finding(), finding()
	b.Range.Start.Line = 2
	b.Message = "earlier\nline"
	l := diag.List{a, b}
	l.Sort()
	require.Equal(t, b, l[0])
	err := l.Err()
	require.EqualError(t, err, `namespaces/payments/tasks/charge.yaml:2:3: error[NF2101]: earlier\u{a}line (and 1 more)`)
	var findings *diag.Findings
	require.ErrorAs(t, err, &findings)
	require.Len(t, diag.List{a, a, b}.Compact(), 2)
}

func TestNearest(t *testing.T) {
	t.Parallel()
	fields := []string{"retryCount", "retryLogic", "retryDelaySeconds", "jitter", "retryBudget", "maxRetryDelaySeconds", "semaphores", "timeoutSeconds"}
	for word, want := range map[string][]string{
		"retryDelay":  {"retryDelaySeconds"},
		"retryCuont":  {"retryCount"},
		"retry_count": {"retryCount"},
		"RetryCount":  {"retryCount"},
		"jiter":       {"jitter"},
		"semaphore":   {"semaphores"},
		"retryCount":  {},
		"colour":      {},
		"":            {},
	} {
		require.Equal(t, want, diag.Nearest(word, fields), word)
	}
	require.Equal(t, []string{"erp-a", "erp-b"}, diag.Nearest("erp-c", []string{"erp-b", "erp-a", "erp-d"}))
	require.Equal(t, `did you mean "erp-a" or "erp-b"?`, diag.DidYouMean("erp-c", []string{"erp-b", "erp-a"}))
	require.Empty(t, diag.DidYouMean(strings.Repeat("x", 1000), []string{strings.Repeat("x", 999)}))
}

// The table is sorted and complete: titles, rules and texts are there, rules are unique.
func TestCodes(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, e := range diag.Codes() {
		codes = append(codes, string(e.Code)[2:])
	}
	// Wave 1 of the contract, no more and no less.
	require.Equal(t, "1001 1002 1003 1004 1005 1006 1007 1008 1009 1010 1011 1012 1013 1014 1015 1016 1017 1018 1019 1020 1021 "+
		"2001 2002 2003 2101 2102 2103 2104 2105 2106 2107 2108 2109 2110 2111 2112 2113 2114 "+
		"3001 3101 3102 3103 3104 3105 3106 3107 3108 3109 3110 3201 3202 3203 3204 3205 3208 3301 4001 4002 4003 4010 "+
		"6101 6102 6103 6106 6107 6108 6109 7001 7002 7003 7004 7005 7006 7007 7008", strings.Join(codes, " "))
	rules := map[string]diag.Code{}
	last := diag.Code("")
	for _, e := range diag.Codes() {
		require.Greater(t, e.Code, last)
		last = e.Code
		require.Regexp(t, `^NF[1-9]\d{3}$`, string(e.Code))
		require.NotEmpty(t, e.Title, e.Code)
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, e.Rule, e.Code)
		require.Empty(t, rules[e.Rule], e.Rule)
		rules[e.Rule] = e.Code
		require.Regexp(t, `\.$|`+"`"+`\.$`, e.Text, e.Code)
		require.Equal(t, e.Bad == "", e.Good == "", e.Code)
		got, ok := diag.Explain(e.Code)
		require.True(t, ok)
		require.Equal(t, e, got)
	}
	_, ok := diag.Explain("NF0000")
	require.False(t, ok)
	require.Equal(t, diag.Warning, diag.New("NF1017", "", "x").Level)
}
