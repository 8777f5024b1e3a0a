// Package spec is the published JSON Schemas of nf's kinds and what checks values against JSON Schemas.
//
// The schemas in kinds/ are the one place that says which fields a kind has, with type, range, default and description. They are
// closed: what they do not name is an error. A Validator checks a document against them and speaks diag: each finding has a
// stable code, the JSON Pointer of the key or value at fault, and a hint that proposes the edit. Findings carry no positions in
// files; the loader adds them. Two things that a schema says badly stand in Go beside it: addresses of targets, names of headers
// and the size of a workflow (rules.go), and what authors probably meant (hints.go).
//
// CompileUser compiles the schemas that authors embed (inputSchema, outputSchema). They are bounded before they are compiled
// (contract 7.1), never read a file or the network, and a value whose check would cost too much is refused instead of checked.
// Keywords of format are asserted: an author who writes `format: date-time` means it.
//
// No other package imports the JSON Schema library.
package spec
