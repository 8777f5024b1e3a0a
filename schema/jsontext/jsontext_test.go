package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/schema/jsontext"
)

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		problem jsontext.Problem
		pointer string
	}{
		"empty":                {"", jsontext.Syntax, ""},
		"trailing":             {"1 2", jsontext.Syntax, ""},
		"trailing comma":       {"[1,]", jsontext.Syntax, "/1"},
		"single quotes":        {"{'a':1}", jsontext.Syntax, ""},
		"NaN":                  {"NaN", jsontext.Syntax, ""},
		"leading zero":         {`{"a":01}`, jsontext.Syntax, "/a"},
		"plus":                 {"+1", jsontext.Syntax, ""},
		"dot only":             {"1.", jsontext.Syntax, ""},
		"bare exponent":        {"1e", jsontext.Syntax, ""},
		"raw control":          {"\"a\nb\"", jsontext.Syntax, ""},
		"bad escape":           {`"\x"`, jsontext.Syntax, ""},
		"duplicate":            {`{"a":{"b":1,"b":2}}`, jsontext.DuplicateKey, "/a/b"},
		"duplicate by escape":  {`{"a":1,"\u0061":2}`, jsontext.DuplicateKey, "/a"},
		"invalid UTF-8":        {"[\"\xff\"]", jsontext.BadText, "/0"},
		"raw surrogate":        {"[\"\xed\xa0\x80\"]", jsontext.BadText, "/0"},
		"invalid after escape": {"[\"\\n\xff\"]", jsontext.BadText, "/0"},
		"lone high surrogate":  {`{"x/y":["\ud800"]}`, jsontext.BadText, "/x~1y/0"},
		"lone low surrogate":   {`["\udc00x"]`, jsontext.BadText, "/0"},
		"high and no low":      {`["\ud800\u0041"]`, jsontext.BadText, "/0"},
		"surrogate in key":     {`{"a":{"k\ud800":1}}`, jsontext.BadText, "/a/k"},
		"deep":                 {strings.Repeat("[", 257) + strings.Repeat("]", 257), jsontext.TooDeep, strings.Repeat("/0", 256)},
		"long number":          {`{"n":` + strings.Repeat("1", 1001) + `}`, jsontext.BadNumber, "/n"},
		"exponent":             {`[1e401]`, jsontext.BadNumber, "/0"},
		"huge exponent":        {`[1e99999999999999999999]`, jsontext.BadNumber, "/0"},
		"small exponent":       {`[1e-401]`, jsontext.BadNumber, "/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := jsontext.Decode([]byte(c.text), jsontext.Limits{})
			var problem *jsontext.Error
			require.ErrorAs(t, err, &problem)
			require.Equal(t, c.problem, problem.Problem, err.Error())
			require.Equal(t, c.pointer, problem.Pointer)
		})
	}
}

func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		` {"a" : [ 1.50 , true, null ] } `: map[string]any{"a": []any{json.Number("1.50"), true, nil}},
		`"\ud83d\ude00 é"`:                 "😀 é",
		`"a\u0000b"`:                       "a\x00b",
		`9007199254740993`:                 json.Number("9007199254740993"),
		`1e400`:                            json.Number("1e400"),
		`-0`:                               json.Number("-0"),
		`{}`:                               map[string]any{},
		`[]`:                               []any{},
		strings.Repeat("[", 256) + strings.Repeat("]", 256): nil,
	} {
		got, err := jsontext.Decode([]byte(text), jsontext.Limits{})
		require.NoError(t, err, text)
		if want != nil {
			require.Equal(t, want, got, text)
		}
	}
	_, err := jsontext.Decode([]byte("[1,2,3]"), jsontext.Limits{Bytes: 6})
	var problem *jsontext.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, jsontext.TooLarge, problem.Problem)
	_, err = jsontext.DecodeObject([]byte("[]"), jsontext.Limits{})
	require.ErrorContains(t, err, "must be a JSON object, not list")
}

// FC-128: NUL in a text is data: kept by reading and by writing.
func TestFC_128_NULInATextIsKept(t *testing.T) {
	t.Parallel()
	value, err := jsontext.Decode([]byte(`{"out\u0000put":"a\u0000b"}`), jsontext.Limits{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"out\x00put": "a\x00b"}, value)
	text, err := jsontext.Encode(value)
	require.NoError(t, err)
	require.JSONEq(t, `{"out\u0000put":"a\u0000b"}`, string(text))
}

// BG-58: a SWITCH compares numbers in one form: 1 and 1.0 are the same case.
func TestBG_58_OneFormOfANumber(t *testing.T) {
	t.Parallel()
	require.Equal(t, jsontext.CanonicalNumber("1"), jsontext.CanonicalNumber("1.0"))
	require.Equal(t, json.Number("1"), jsontext.CanonicalNumber("10e-1"))
}

// FC-127: a reason never stops a report: it is mended where the caller says so, and nowhere else.
func TestFC_127_ReasonIsMended(t *testing.T) {
	t.Parallel()
	reason := jsontext.Limits{Mend: func(pointer string) bool { return strings.HasSuffix(pointer, "/reason") }}
	for text, want := range map[string]string{
		"{\"reason\":\"a\xffb\xc3\"}":                  "a\uFFFDb\uFFFD",
		`{"reason":"\ud800x\udc00\ud83d\ude00\ud800"}`: "\uFFFDx\uFFFD😀\uFFFD",
		"{\"reason\":\"\\n\xed\xa0\x80\\u0000\"}":      "\n\uFFFD\uFFFD\uFFFD\x00",
		`{"reason":"fine é"}`:                          "fine é",
	} {
		got, err := jsontext.DecodeObject([]byte(text), reason)
		require.NoError(t, err, text)
		require.Equal(t, want, got["reason"], text)
	}
	for _, text := range []string{"{\"output\":\"\xff\"}", `{"output":{"x":"\ud800"}}`, "{\"reason\xff\":1}", "{\"reason\":\"\xff", "{\"reason\":\"\xff\n\"}", `{"reason":"\ud800\x"}`} {
		_, err := jsontext.Decode([]byte(text), reason)
		require.Error(t, err, text)
	}
	got, err := jsontext.Decode([]byte("{\"items\":[{\"reason\":\"\xff\"},{\"reason\":\"b\"}]}"), reason)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"items": []any{map[string]any{"reason": "\uFFFD"}, map[string]any{"reason": "b"}}}, got)
}

func TestCanonicalNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[json.Number]json.Number{
		"1": "1", "1.0": "1", "1e0": "1", "1000": "1000", "1e3": "1000", "1000.0": "1000", "-0": "0", "-0.0e5": "0",
		"9007199254740993": "9007199254740993", "18446744073709551616": "18446744073709551616",
		"0.10": "0.1", "1.10": "1.1", "-12.50": "-12.5", "1e20": "100000000000000000000", "1e21": "1e+21", "1e22": "1e+22",
		"123456789012345678901234.50": "1.234567890123456789012345e+23", "0.000001": "0.000001", "0.00000012": "1.2e-7",
		"1e-400": "1e-400", "x": "x", "0": "0", "10": "10", "100e-2": "1",
	} {
		require.Equal(t, want, jsontext.CanonicalNumber(text), "%s", text)
	}
}

func TestInt(t *testing.T) {
	t.Parallel()
	for text, want := range map[json.Number]int64{
		"1e3": 1000, "1000.0": 1000, "-5": -5, "9223372036854775807": 9223372036854775807,
		"-9223372036854775808": -9223372036854775808, "0.0": 0, "12.5e1": 125,
	} {
		got, ok := jsontext.Int(text)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []json.Number{"1.5", "9223372036854775808", "1e30", "1e-1", "", "x", "1e401"} {
		_, ok := jsontext.Int(text)
		require.False(t, ok, text)
	}
	millis, ok := jsontext.Scaled("0.001", 3)
	require.True(t, ok)
	require.Equal(t, int64(1), millis)
	millis, ok = jsontext.Scaled("1.1", 3)
	require.True(t, ok)
	require.Equal(t, int64(1100), millis)
	_, ok = jsontext.Scaled("0.0001", 3)
	require.False(t, ok)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	ordered := []json.Number{"-1e400", "-2", "-1.5", "-1", "0", "1e-400", "0.5", "1", "1.0001", "2", "10", "9007199254740992", "9007199254740993", "1e400"}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			require.Equal(t, want, jsontext.Compare(a, b), "%s %s", a, b)
		}
	}
	require.Equal(t, 0, jsontext.Compare("1.0", "1"))
}

func TestEncode(t *testing.T) {
	t.Parallel()
	got, err := jsontext.Encode(map[string]any{"b": "<&>\u2028\"\\\n\x00\x1f", "a": []any{json.Number("1.50"), int64(3), 2.5, nil, true}, "c\xff": []string{"x"}})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":[1.50,3,2.5,null,true],"b":"<&>`+"\u2028"+`\"\\\n\u0000\u001f","c`+"\uFFFD"+`":["x"]}`, string(got))
	got, err = jsontext.AppendCanonical(nil, []any{json.Number("1.50"), 1e21, 3.0})
	require.NoError(t, err)
	require.Equal(t, `[1.5,1e+21,3]`, string(got))
	_, err = jsontext.Encode(json.Number("NaN"))
	require.Error(t, err)
	_, err = jsontext.Encode(struct{}{})
	require.Error(t, err)
	cycle := []any{nil}
	cycle[0] = cycle
	_, err = jsontext.Encode(cycle)
	require.ErrorIs(t, err, jsontext.ErrTooDeep)
}

func valueOf(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(i int64) any { return jsontext.Integer(i) }),
		rapid.Map(rapid.Float64Range(-1e100, 1e100), func(f float64) any { return jsontext.Float(f) }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(valueOf(depth-1), 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.String(), valueOf(depth-1), 0, 4), func(m map[string]any) any { return m }),
	)
}

// What is written can be read again, and measuring agrees with writing.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := valueOf(3).Draw(t, "value")
		text, err := jsontext.Encode(value)
		require.NoError(t, err)
		require.True(t, json.Valid(text))
		back, err := jsontext.Decode(text, jsontext.Limits{})
		require.NoError(t, err)
		require.True(t, jsontext.Equal(value, back))
		size, err := jsontext.Measure(value, len(text), 0)
		require.NoError(t, err)
		require.Len(t, text, size)
		_, err = jsontext.Measure(value, len(text)-1, 0)
		if len(text) > 1 {
			require.ErrorIs(t, err, jsontext.ErrTooLarge)
		}
	})
}

func TestMeasureDepth(t *testing.T) {
	t.Parallel()
	_, err := jsontext.Measure([]any{map[string]any{"a": []any{}}}, 0, 3)
	require.NoError(t, err)
	_, err = jsontext.Measure([]any{map[string]any{"a": []any{}}}, 0, 2)
	require.ErrorIs(t, err, jsontext.ErrTooDeep)
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00"]}`, `[-0.0,null,true,false]`, `"\ud800"`, `{"a":1,"a":2}`, "\xff", `1e999`, `{"k\ud800"`, `{"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		mended, mendErr := jsontext.Decode(text, jsontext.Limits{Mend: func(string) bool { return true }})
		if mendErr == nil { // what is mended can be written and read strictly
			out, err := jsontext.Encode(mended)
			require.NoError(t, err)
			back, err := jsontext.Decode(out, jsontext.Limits{})
			require.NoError(t, err)
			require.Equal(t, mended, back)
		}
		value, err := jsontext.Decode(text, jsontext.Limits{})
		if err != nil {
			return
		}
		require.NoError(t, mendErr)
		require.Equal(t, value, mended)
		require.True(t, json.Valid(text))
		out, err := jsontext.Encode(value)
		require.NoError(t, err)
		back, err := jsontext.Decode(out, jsontext.Limits{})
		require.NoError(t, err)
		require.Equal(t, value, back)
		canonical, err := jsontext.AppendCanonical(nil, value)
		require.NoError(t, err)
		again, err := jsontext.Decode(canonical, jsontext.Limits{NumberLength: 5000, Exponent: 2000})
		require.NoError(t, err)
		require.True(t, jsontext.Equal(value, again))
	})
}
