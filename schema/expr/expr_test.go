package expr_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/schema/diag"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

func decode(t require.TestingT, text string) any {
	v, err := jsontext.Decode([]byte(text), jsontext.Limits{})
	require.NoError(t, err)
	return v
}

func scope(t require.TestingT) expr.Scope {
	data := decode(t, `{
		"workflow": {
			"input": {"id": 9007199254740993, "name": "A \"b\"", "list": [1, 2.50, {"k": "v"}], "a b": {"x.y": true, "it's": 1, "}": "brace"},
				"0": "key zero", "none": null, "deep": {"z": 1, "a": [null]}, "müller-straße": 7},
			"variables": {"n": 1.0}, "executionId": "0190", "name": "orders", "version": 3, "revision": 12, "correlationId": "c"},
		"charge": {"output": {"amount": 12.50, "rows": [[1, 2], [3]]}, "input": {"q": "x"}, "status": "COMPLETED"},
		"get-order_2": {"output": {"ok": false}}}`).(map[string]any)
	return func(root, part string) any {
		parts, _ := data[root].(map[string]any)
		return parts[part]
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                                       `""`,
		"plain":                                                  `"plain"`,
		"a $ b { } $":                                            `"a $ b { } $"`,
		"${workflow.input.id}":                                   `9007199254740993`,
		"id=${workflow.input.id}":                                `"id=9007199254740993"`,
		"${workflow.variables.n}":                                `1.0`,
		"n=${workflow.variables.n}":                              `"n=1.0"`,
		"${workflow.input.name}":                                 `"A \"b\""`,
		"${workflow.executionId}":                                `"0190"`,
		"${workflow.version}":                                    `3`,
		"${workflow.input.list[0]}":                              `1`,
		"${workflow.input.list[-1].k}":                           `"v"`,
		"${workflow.input.list.1}":                               `2.50`,
		"${workflow.input.0}":                                    `"key zero"`,
		"${workflow.input['0']}":                                 `"key zero"`,
		"${workflow.input[0]}":                                   `null`, // a place in a list, not a key
		"${workflow.input.list.k}":                               `null`,
		"${workflow.input.list['0']}":                            `null`, // a key, not a place in a list
		"${workflow.input.list[3]}":                              `null`,
		"${workflow.input.list[-4]}":                             `null`,
		"${workflow.input['a b']['x.y']}":                        `true`,
		`${workflow.input['a b']['it\'s']}`:                      `1`,
		"${workflow.input['a b']['}']}":                          `"brace"`,
		"${workflow.input.müller-straße}":                        `7`,
		"${workflow.input.none}":                                 `null`,
		"${workflow.input.missing.x}":                            `null`,
		"${workflow.input.name.x}":                               `null`,
		"<${workflow.input.none}${workflow.input.missing}>":      `"<>"`,
		"${workflow.output}":                                     `null`,
		"${workflow.input.deep}":                                 `{"a":[null],"z":1}`,
		"deep: ${workflow.input.deep}!":                          `"deep: {\"a\":[null],\"z\":1}!"`,
		"${charge.output.rows[0][1]}${charge.output.rows[1][0]}": `"23"`,
		"${charge.status}/${charge.input.q}":                     `"COMPLETED/x"`,
		"${get-order_2.output.ok}":                               `false`,
		"is ${get-order_2.output.ok}":                            `"is false"`,
		"${other.output.x}":                                      `null`,
		"$${HOME}":                                               `"${HOME}"`,
		"$$${HOME}":                                              `"$${HOME}"`,
		"a $${x} ${workflow.name} $${y":                          `"a ${x} orders ${y"`,
		" ${workflow.version}":                                   `" 3"`,
	} {
		template, findings := expr.Parse(text)
		require.Empty(t, findings, text)
		got, err := template.Eval(scope(t), expr.Limits{Bytes: 1 << 20})
		require.NoError(t, err, text)
		encoded, err := jsontext.Encode(got)
		require.NoError(t, err)
		require.Equal(t, want, string(encoded), text)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		code     diag.Code
		from, to int // code points
		message  string
	}{
		"${HOME}":                           {"NF3201", 0, 7, `unknown root "HOME"`},
		"é ${HOME}":                         {"NF3201", 2, 9, `unknown root "HOME"`},
		"${workflow}":                       {"NF3201", 0, 11, `unknown root "workflow"`},
		"${env.HOME}":                       {"NF3201", 0, 11, `unknown root "env"`},
		"${secrets.psp}":                    {"NF3201", 0, 14, `unknown root "secrets"`},
		"${param.region}":                   {"NF3201", 0, 15, `unknown root "param"`},
		"${event.payload}":                  {"NF3201", 0, 16, `unknown root "event"`},
		"${item.id}":                        {"NF3201", 0, 10, `unknown root "item"`},
		"${itemIndex}":                      {"NF3201", 0, 12, `unknown root "itemIndex"`},
		"${workflow.inputs.x}":              {"NF3201", 11, 17, `"workflow" has no part "inputs"`},
		"${charge.ouput}":                   {"NF3201", 9, 14, `"charge" has no part "ouput"`},
		"${charge.result}":                  {"NF3201", 0, 16, `unknown root "charge.result"`},
		"${}":                               {"NF3202", 0, 3, `empty`},
		"${":                                {"NF3202", 0, 2, `not closed by }`},
		"${workflow.input":                  {"NF3202", 0, 16, `not closed by }`},
		"x ${workflow.input.a b} y":         {"NF3202", 20, 21, `unexpected ' '`},
		"${ workflow.input}":                {"NF3202", 2, 3, `unexpected ' '`},
		"${workflow.input..a}":              {"NF3202", 16, 18, `later release`},
		"${workflow.input[*]}":              {"NF3202", 16, 19, `later release`},
		"${workflow.input[?(@.a == 1)]}":    {"NF3202", 16, 29, `later release`},
		"${workflow.input[1:2]}":            {"NF3202", 16, 21, `later release`},
		"${workflow.input.a.length()}":      {"NF3202", 25, 26, `unexpected '('`},
		"${workflow.input[01]}":             {"NF3202", 16, 20, `is no step`},
		"${workflow.input[-0]}":             {"NF3202", 16, 20, `is no step`},
		"${workflow.input[9999999999]}":     {"NF3202", 16, 28, `is no step`},
		"${workflow.input[a]}":              {"NF3202", 16, 19, `is no step`},
		`${workflow.input["a"]}`:            {"NF3202", 16, 21, `is no step`},
		"${workflow.input['a]}":             {"NF3202", 17, 21, `quote is not closed`},
		`${workflow.input['\n']}`:           {"NF3202", 18, 19, `escapes`},
		"${workflow.input['a'x]}":           {"NF3202", 20, 21, `unexpected 'x'`},
		"${workflow.input[0}":               {"NF3202", 16, 19, `not closed by ]`},
		"${workflow.input.}":                {"NF3202", 17, 18, `unexpected '}'`},
		"${workflow.input.${charge.input}}": {"NF3202", 17, 18, `unexpected '$'`},
		"${workflow.name.x}":                {"NF3202", 0, 18, `plain value`},
		"${charge.status[0]}":               {"NF3202", 0, 19, `plain value`},
		"${workflow.input." + strings.Repeat("a", 5000) + "}": {"NF3202", 0, 5018, `over the limit of 4096`},
	} {
		_, findings := expr.Parse(text)
		require.Len(t, findings, 1, text)
		got := findings[0]
		require.Equal(t, want.code, got.Code, text)
		require.Contains(t, got.Message, want.message, text)
		require.Equal(t, diag.Span{Start: want.from, End: want.to}, *got.Text, text)
		require.Equal(t, diag.Error, got.Level)
		if want.code == "NF3201" {
			require.Contains(t, got.Hint, "$${", text)
		}
	}
}

// Every mistake of a text is found in one go.
func TestParseFindsAll(t *testing.T) {
	t.Parallel()
	_, findings := expr.Parse("${a.b} ${workflow.input.x} ${workflow.name.y} ${HOME} ${")
	require.Len(t, findings, 4)
}

func TestParseValue(t *testing.T) {
	t.Parallel()
	template, findings := expr.ParseValueAt(decode(t, `{"b/c": ["${HOME}", {"d": "${workflow.input"}], "a": 1}`), "/spec/variables")
	require.Len(t, findings, 2)
	require.Equal(t, "/spec/variables/b~1c/0", findings[0].Pointer)
	require.Equal(t, "/spec/variables/b~1c/1/d", findings[1].Pointer)
	require.True(t, template.Constant())

	template, findings = expr.ParseValue(decode(t, `{"z": "${charge.output.amount}", "a": ["x ${workflow.input.id}", "$${x}", {"k": null, "${not}": true}]}`))
	require.Empty(t, findings)
	refs := template.Refs()
	require.Len(t, refs, 2)
	require.Equal(t, expr.Ref{Root: "workflow", Part: "input", Path: expr.Path{{Key: "id"}}, Pointer: "/a/0", Span: diag.Span{Start: 2, End: 22}, Source: "workflow.input.id"}, refs[0])
	require.Equal(t, "charge.output.amount", refs[1].String())
	got, err := template.Eval(scope(t), expr.Limits{Bytes: 1000})
	require.NoError(t, err)
	encoded, err := jsontext.Encode(got)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":["x 9007199254740993","${x}",{"${not}":true,"k":null}],"z":12.50}`, string(encoded))

	list := make([]any, 1001)
	for i := range list {
		list[i] = "${workflow.name}"
	}
	_, findings = expr.ParseValue(list)
	require.Len(t, findings, 1)
	require.Equal(t, diag.Code("NF2111"), findings[0].Code)
	_, findings = expr.ParseValue(list[:1000])
	require.Empty(t, findings)
}

func TestEvalEscaped(t *testing.T) {
	t.Parallel()
	escape := func(s string) (string, error) {
		if s == "" {
			return "", errors.New("empty")
		}
		return "<" + s + ">", nil
	}
	for text, want := range map[string]string{
		"/a/$${b}":            "/a/${b}",
		"${workflow.version}": "<3>",
		"/o/${workflow.input.name}/${charge.output.rows}": `/o/<A "b">/<[[1,2],[3]]>`,
	} {
		template, findings := expr.Parse(text)
		require.Empty(t, findings)
		got, err := template.EvalEscaped(scope(t), expr.Limits{}, escape)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	template, _ := expr.Parse("/o/${workflow.input.missing}")
	_, err := template.EvalEscaped(scope(t), expr.Limits{}, escape)
	require.EqualError(t, err, "empty")
	template, _ = expr.Parse("/o/${workflow.input.name}")
	_, err = template.EvalEscaped(scope(t), expr.Limits{Bytes: 6}, escape)
	var limit *expr.LimitError
	require.ErrorAs(t, err, &limit)
}

// Evaluation stops at the limit: 1,000 references to one large value neither copy nor write it.
func TestEvalLimits(t *testing.T) { // not parallel: it measures what it allocates
	large := strings.Repeat("x", 1<<20)
	data := func(string, string) any { return map[string]any{"large": large, "n": json.Number("1")} }
	list := make([]any, 1000)
	for i := range list {
		list[i] = "${workflow.input.large}"
	}
	for name, value := range map[string]any{
		"shared":   list,
		"embedded": strings.Repeat("a ${workflow.input.large}", 900),
		"objects":  strings.Repeat("a ${workflow.input}", 900),
	} {
		template, findings := expr.ParseValue(value)
		require.Empty(t, findings)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := template.Eval(data, expr.Limits{Bytes: 6 << 20})
		runtime.ReadMemStats(&after)
		var limit *expr.LimitError
		require.ErrorAs(t, err, &limit, name)
		require.False(t, limit.Deep)
		require.EqualError(t, err, "resolved value is over the limit of 6291456 bytes")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
	template, _ := expr.ParseValue("${workflow.input.large}${workflow.input.large}${workflow.input.large}${workflow.input.large}${workflow.input.large}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := template.Eval(data, expr.Limits{Bytes: 6 << 20})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(12<<20))

	nested := any("x")
	for range 250 {
		nested = []any{nested}
	}
	deep := func(string, string) any { return nested }
	template, _ = expr.ParseValue([]any{[]any{[]any{"${workflow.input}"}}})
	_, err = template.Eval(deep, expr.Limits{})
	require.NoError(t, err)
	template, _ = expr.ParseValue([]any{[]any{[]any{[]any{[]any{[]any{[]any{"${workflow.input}"}}}}}}})
	_, err = template.Eval(deep, expr.Limits{})
	var limit *expr.LimitError
	require.ErrorAs(t, err, &limit)
	require.True(t, limit.Deep)
}

// The result's size counts exactly: a limit of its own length passes, one byte less does not.
func TestEvalSizeIsExact(t *testing.T) {
	t.Parallel()
	texts := rapid.SampledFrom([]string{
		"", "a\"b", "${workflow.input}", "x${workflow.input.name}\n", "$${", "${charge.output.rows} ${charge.output}", "${none.output}", "é\x00",
	})
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{}
		for i := range rapid.IntRange(0, 4).Draw(t, "n") {
			list := []any{json.Number("1.5"), true}
			for _, s := range rapid.SliceOfN(texts, 0, 3).Draw(t, "texts") {
				list = append(list, s)
			}
			value[strings.Repeat("\"k", i)] = list
		}
		template, findings := expr.ParseValue(value)
		require.Empty(t, findings)
		got, err := template.Eval(scope(t), expr.Limits{})
		require.NoError(t, err)
		encoded, err := jsontext.Encode(got)
		require.NoError(t, err)
		_, err = template.Eval(scope(t), expr.Limits{Bytes: len(encoded)})
		require.NoError(t, err)
		if len(encoded) > 1 {
			_, err = template.Eval(scope(t), expr.Limits{Bytes: len(encoded) - 1})
			require.Error(t, err)
		}
	})
}

func TestPathString(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"workflow.input.a.0['x y']['it\\'s'][-1][3]", "charge.output", "workflow.name"} {
		template, findings := expr.Parse("${" + text + "}")
		require.Empty(t, findings)
		require.Equal(t, text, template.Refs()[0].String())
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"${workflow.input.a['b c'][0][-1].0}", "$${x} ${HOME}", "${", "${a.output[", "${a.output['\\", "é${ü.input.日本}", "${workflow.input.${a.output}}", "\xff${\xff}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, findings := expr.Parse(text)
		for _, d := range findings {
			require.LessOrEqual(t, d.Text.Start, d.Text.End)
			require.LessOrEqual(t, d.Text.End, len([]rune(text)))
			require.NotEmpty(t, d.Message)
		}
		if len(findings) > 0 {
			return
		}
		_, err := template.Eval(scope(t), expr.Limits{Bytes: 1 << 20})
		require.NoError(t, err)
		for _, ref := range template.Refs() {
			again, findings := expr.Parse("${" + ref.String() + "}")
			require.Empty(t, findings)
			require.Equal(t, ref.Path, again.Refs()[0].Path)
		}
	})
}
