// Package expr is the references ${…} in texts of a definition: parse, list what they name, evaluate.
//
// A text is a Template: literal parts and expressions. A text that is one whole expression gives the value it names, with its
// type; an expression beside other text is written into it. $${ stands for a literal ${. A ValueTemplate is any JSON value
// whose texts are templates; the keys of its maps are literal.
//
// Parsing happens once, when a definition is loaded or compiled, and finds every mistake (NF3201, NF3202) with the place
// inside the text. Evaluation cannot fail but for size: what does not resolve is null, or nothing inside a text. It stops as
// soon as a limit is passed, so its cost and memory are bounded by the limits and not by the data.
//
// The package is pure. Templates are immutable and safe for concurrent use. Results share what they can with the data they
// were made from: values are never changed after they are made.
package expr
