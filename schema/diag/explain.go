package diag

import "slices"

// Explanation is what nf knows about a code, printed by `nf explain`.
type Explanation struct {
	Code  Code
	Title string // fixed phrase of contract 6
	Rule  string // kebab title, stable
	Level Level  // as raised by default
	// Text says why it is refused and what to do, in whole sentences.
	Text string
	Bad  string // an example that raises it; may be empty
	Good string // the example mended; empty when Bad is
}

// explanations is the table of all codes, sorted. It is never changed.
var explanations = slices.Concat(yamlCodes, schemaCodes, meaningCodes, applyCodes)

// Explain gives the explanation of a code, false for a code that no part of this nf raises.
func Explain(code Code) (Explanation, bool) {
	i, ok := slices.BinarySearchFunc(explanations, code, func(e Explanation, c Code) int {
		switch {
		case e.Code < c:
			return -1
		case e.Code > c:
			return 1
		}
		return 0
	})
	if !ok {
		return Explanation{}, false
	}
	return explanations[i], true
}

// Codes gives all explanations, in the order of their codes.
func Codes() []Explanation { return slices.Clone(explanations) }
