package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"nf/schema/diag"
	"nf/schema/spec"
)

// wide is the width of a line of running text.
const wide = 100

// Explanation shows what nf knows about a code.
func Explanation(e diag.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%s, rule %s)\n\n%s", e.Code, e.Title, e.Level, e.Rule, folded(e.Text, ""))
	if e.Bad != "" {
		fmt.Fprintf(&b, "\nbad:\n%s\ngood:\n%s", indented(e.Bad), indented(e.Good))
	}
	return b.String()
}

// Description shows a kind or a field.
func Description(d spec.Description) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%s)\n\n%s", d.Path, d.Type, folded(d.Text, ""))
	if len(d.Fields) > 0 {
		b.WriteString("\nfields:\n")
	}
	for _, f := range d.Fields {
		about := f.Type
		if f.Required {
			about += ", required"
		}
		if f.Default != "" {
			about += ", default " + f.Default
		}
		fmt.Fprintf(&b, "  %s  (%s)\n%s", f.Name, about, folded(f.Text, "      "))
	}
	return b.String()
}

// Origin is a field of an object with the place that sets it.
type Origin struct {
	Pointer string `json:"pointer"`
	Value   any    `json:"value"`
	From    string `json:"from"` // file:line:column, or default
}

// Origins shows the fields of an object.
func Origins(object string, all []Origin) string {
	var b strings.Builder
	b.WriteString(Safe(object) + "\n")
	for _, o := range all {
		value, err := json.Marshal(o.Value)
		if err != nil {
			value = []byte("?")
		}
		text := string(value)
		if len([]rune(text)) > 60 {
			text = string([]rune(text)[:59]) + "…"
		}
		fmt.Fprintf(&b, "  %-50s %-40s %s\n", Safe(o.Pointer), Safe(text), Safe(o.From))
	}
	return b.String()
}

// folded breaks running text into lines.
func folded(text, indent string) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len([]rune(line))+len([]rune(word)) >= wide && strings.TrimSpace(line) != "" {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += word + " "
	}
	if strings.TrimSpace(line) != "" {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
