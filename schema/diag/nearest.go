package diag

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Nearest gives at most two of the candidates that the word was probably meant to be, best first: those at an edit distance
// of at most 2 (3 for long words), those that differ only in case or in - and _, and those that the word is the beginning of.
// Equal ones are in the order of the alphabet. The word itself is never among them.
func Nearest(word string, candidates []string) []string {
	type match struct {
		name  string
		score int
	}
	var found []match
	for _, name := range candidates {
		if name == word {
			continue
		}
		if score, ok := likeness(word, name); ok {
			found = append(found, match{name, score})
		}
	}
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	names := make([]string, 0, 2)
	for _, m := range found {
		// A second guess is only worth showing when it is about as good as the first.
		if len(names) == 2 || m.score > found[0].score+1 {
			break
		}
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// likeness scores how near two words are; lower is nearer. Names compare without regard to case, - and _.
func likeness(word, name string) (int, bool) {
	const longest = 255 // of any name; a longer word costs more to compare than it is worth
	if len(word) > longest || len(name) > longest {
		return 0, false
	}
	a, b := fold(word), fold(name)
	if a == b {
		return 0, true
	}
	limit := 2
	switch n := len([]rune(word)); {
	case n <= 2:
		limit = 1
	case n <= 4:
		limit = 2
	case n > 12:
		limit = 3
	}
	distance := levenshtein.ComputeDistance(a, b)
	if distance <= limit && distance < max(len(a), len(b))-1 {
		return distance, true
	}
	if len(a) >= 4 && strings.HasPrefix(b, a) { // a unit or a last word left out: retryDelay
		return 3, true
	}
	return 0, false
}

var folder = strings.NewReplacer("-", "", "_", "", ".", "")

func fold(s string) string { return folder.Replace(strings.ToLower(s)) }

// DidYouMean is the hint made from Nearest: "" when nothing is near.
func DidYouMean(word string, candidates []string) string {
	return Suggest(Nearest(word, candidates))
}

// Suggest words a hint for given names: "" for none.
func Suggest(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "did you mean " + strconv.Quote(names[0]) + "?"
	}
	return "did you mean " + strconv.Quote(names[0]) + " or " + strconv.Quote(names[1]) + "?"
}
