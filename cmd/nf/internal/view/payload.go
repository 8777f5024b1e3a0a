package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"nf/schema/diag"
)

// Payload lays out JSON that came from elsewhere. It stays the same JSON: what a terminal or a CI log would act on is written as \uXXXX.
func Payload(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}\n"
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return Safe(string(raw)) + "\n"
	}
	b.WriteByte('\n')
	return safeJSON(b.String())
}

// safeJSON escapes within the strings of a JSON text what Safe would break. Outside of strings JSON has none of it.
func safeJSON(text string) string {
	for _, word := range []string{"##[", "##vso[", "##teamcity["} {
		text = strings.ReplaceAll(text, word, `\u0023`+word[1:])
	}
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || diag.Escape(string(r)) == string(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// compact shows JSON in one line, cut where it is long.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return Safe(cutText(string(raw), longText))
	}
	return Safe(cutText(b.String(), longText))
}

// longText is how many bytes of a text one line shows.
const longText = 300

// cutMark stands at the end of a text that was cut.
const cutMark = " …"

func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + cutMark
}
