package spec_test

import (
	"testing"

	"nf/schema"
	"nf/schema/spec"
)

// BenchmarkCompile is what a process pays once.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := spec.Compile(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidate checks a workflow of three tasks.
func BenchmarkValidate(b *testing.B) {
	v := compile(b)
	doc := document(b, schema.KindWorkflow, `{"tasks": [
		{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "x", "headers": {"a": {"secretRef": {"name": "n", "key": "k"}}}}},
		{"taskReferenceName": "b", "type": "SWITCH", "expression": "k", "decisionCases": {"x": [{"taskReferenceName": "c"}]}}]}`)
	for b.Loop() {
		if list := v.Validate(schema.KindWorkflow, doc); len(list) > 0 {
			b.Fatal(list)
		}
	}
}
