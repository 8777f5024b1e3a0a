package systemtasks_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/systemtasks"
)

// secrets are values with everything in them that an encoding touches.
var secrets = []string{
	"s3cr3t",
	`tok"en/with\every+thing & <more> 100%`,
	"ümläut-schlüssel-€",
	"line one\nline two\tend",
	"0123456789",
	"c2VjcmV0OnZhbHVl",
	"%41%42%43%44",
	"aaaaaaaa",
	"🔑🔑🔑",
}

// encodings are the forms of contract 2.7, and mixtures of them that servers make.
var encodings = map[string]func(string) string{
	"plain":                 func(s string) string { return s },
	"percent, query":        url.QueryEscape,
	"percent, path":         url.PathEscape,
	"percent, all, upper":   func(s string) string { return everyByte(s, "%%%02X") },
	"percent, all, lower":   func(s string) string { return everyByte(s, "%%%02x") },
	"JSON":                  func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"JSON, ASCII":           jsonASCII,
	"JSON, escaped solidus": func(s string) string { b, _ := json.Marshal(s); return strings.ReplaceAll(string(b), "/", `\/`) },
	"Go quoted":             func(s string) string { return fmt.Sprintf("%q", s) },
	"base64":                func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64, raw":           func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64, URL":           func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"base64, URL, raw":      func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"base64 in a query":     func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"Basic":                 func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+s)) },
	"Basic, other offset":   func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+s)) },
	"Basic, in front":       func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s+":password")) },
	"hex":                   func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex, upper":            func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"base64, wrapped":       func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), "\r\n") },
	"base64, wrapped, JSON": func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), `\n`) },
}

func everyByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func jsonASCII(s string) string {
	b, _ := json.Marshal(s)
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r >= 0x80:
			fmt.Fprintf(&out, `\u%04X`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func wrap(s, with string) string {
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && i%5 == 0 {
			b.WriteString(with)
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestRedactorFindsEveryEncoding(t *testing.T) {
	t.Parallel()
	for _, secret := range secrets {
		for name, encode := range encodings {
			t.Run(secret+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := &systemtasks.Redactor{}
				r.Add(secret)
				encoded := encode(secret)
				for _, around := range []string{"%s", "token=%s&x=1", "[%s]", `{"a": "%s"}`, "%[1]s %[1]s", "x%sy"} {
					if strings.Contains(name, "base64") && around == "x%sy" {
						continue // that is another base64 text
					}
					text := fmt.Sprintf(around, encoded)
					masked := r.Text(text)
					require.Contains(t, masked, systemtasks.Mask, "in %q", text)
					require.NotContains(t, masked, secret)
					require.NotContains(t, masked, encoded)
				}
				if quoted := strings.Contains(encoded, `"`) || strings.HasPrefix(name, "Basic"); !quoted {
					require.Equal(t, "[***]", r.Text("["+encoded+"]"), "nothing of it may stay")
				}
			})
		}
	}
}

func TestRedactorLeavesTheRestAlone(t *testing.T) {
	t.Parallel()
	r := &systemtasks.Redactor{}
	r.Add("hunter2-password")
	r.Add("short") // 5 bytes: not replaced (contract 2.7)
	for _, text := range []string{"", "short", "hunter2-passwor", "nothing % here \\ at all \\u12", "hunter", "%", "%4", "\\", "\\u"} {
		require.Equal(t, text, r.Text(text))
	}
	require.Equal(t, "a *** b", r.Text("a hunter2-password b"))
	require.Equal(t, "***", r.Text("hunter2-passwordhunter2-password"), "neighbours become one")
	var none *systemtasks.Redactor
	require.Equal(t, "hunter2-password", none.Text("hunter2-password"))
}

func TestRedactorMasksOverlappingSecretsWhole(t *testing.T) {
	t.Parallel()
	r := &systemtasks.Redactor{}
	r.Add("abcdefgh")
	r.Add("efghijkl")
	r.Add("abcdefghijklmnop")
	require.Equal(t, "-***-", r.Text("-abcdefghijkl-"))
	require.Equal(t, "-***-", r.Text("-abcdefghijklmnop-"))
}

func TestRedactorTakesBasicApart(t *testing.T) {
	t.Parallel()
	r := &systemtasks.Redactor{}
	r.AddReferenced("Basic ", base64.StdEncoding.EncodeToString([]byte("someone:open-sesame")))
	require.Equal(t, `password=***`, r.Text(`password=open-sesame`))
	require.Equal(t, `***`, r.Text(`someone:open-sesame`))
}

func TestRedactorMasksJSONValues(t *testing.T) {
	t.Parallel()
	r := &systemtasks.Redactor{}
	r.Add("12345678")
	in := map[string]any{
		"list":       []any{"a 12345678", json.Number("12345678"), json.Number("1234567"), true, nil},
		"x-12345678": "name",
	}
	require.Equal(t, map[string]any{
		"list":  []any{"a ***", "***", json.Number("1234567"), true, nil},
		"x-***": "name",
	}, r.Value(in))
	require.Contains(t, in, "x-12345678", "the argument is not changed")
}

func TestRedactorOnRandomSecrets(t *testing.T) {
	t.Parallel()
	names := make([]string, 0, len(encodings))
	for name := range encodings {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringN(6, 40, 200).Filter(func(s string) bool {
			return len(s) >= 6 && strings.TrimSpace(s) == s && !strings.Contains(s, "*")
		}).Draw(t, "secret")
		encoded := encodings[rapid.SampledFrom(names).Draw(t, "encoding")](secret)
		r := &systemtasks.Redactor{}
		r.Add(secret)
		before, after := rapid.SampledFrom([]string{"", "a=", "\"", "\\", "%", "é"}).Draw(t, "before"), rapid.SampledFrom([]string{"", "&b", "\"", "é"}).Draw(t, "after")
		masked := r.Text(before + encoded + after)
		if strings.Contains(masked, encoded) || !strings.Contains(masked, systemtasks.Mask) {
			t.Fatalf("%q shows %q", masked, encoded)
		}
	})
}

func FuzzRedactor(f *testing.F) {
	f.Add("secret-value", `{"a":"secret-value"}`)
	f.Add("%41%41%41", "%2541")
	f.Add(strings.Repeat(`\`, 100), strings.Repeat(`\`, 1000))
	f.Fuzz(func(t *testing.T, secret, text string) {
		if len(secret) > 200 || len(text) > 2000 {
			return // the cost of a secret made of one repeated letter is the product
		}
		r := &systemtasks.Redactor{}
		r.Add(secret)
		masked := r.Text(text)
		if len(secret) >= 6 && !strings.Contains(systemtasks.Mask, secret) && strings.Contains(masked, secret) && !strings.Contains(secret, "***") {
			t.Fatalf("%q still shows %q", masked, secret)
		}
	})
}
