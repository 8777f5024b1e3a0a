package expr_test

import (
	"testing"

	"nf/schema/expr"
)

// BenchmarkEval resolves an input of ten keys, three of them expressions.
func BenchmarkEval(b *testing.B) {
	template, _ := expr.ParseValue(decode(b, `{"a": 1, "b": "x", "c": {"d": [1, 2, 3]}, "e": "${workflow.input.id}", "f": "id ${workflow.input.name}", "g": "${charge.output.rows}",
		"h": true, "i": null, "j": "text", "k": {}}`))
	data := scope(b)
	for b.Loop() {
		if _, err := template.Eval(data, expr.Limits{Bytes: 6 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}
