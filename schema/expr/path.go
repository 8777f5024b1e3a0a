package expr

import (
	"strconv"
	"strings"
)

// Step is one step of a path: a key, or the place in a list when IsIndex. A step written .0 is both: a key in a map, a place in
// a list.
type Step struct {
	Key      string
	Index    int // from 0; negative counts from the end
	IsIndex  bool
	IsEither bool // .0: Key and Index both hold
}

// Path is the steps of a reference behind its root and part.
type Path []Step

// String writes the path as in an expression.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.IsEither, !s.IsIndex && isName(s.Key):
			b.WriteByte('.')
			b.WriteString(s.Key)
		case s.IsIndex:
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.Index))
			b.WriteByte(']')
		default:
			b.WriteString("['")
			b.WriteString(quoter.Replace(s.Key))
			b.WriteString("']")
		}
	}
	return b.String()
}

var quoter = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// Find follows the path through a value, nil where it leads nowhere.
func (p Path) Find(v any) any {
	for _, s := range p {
		switch in := v.(type) {
		case map[string]any:
			if s.IsIndex {
				return nil
			}
			v = in[s.Key]
		case []any:
			if !s.IsIndex && !s.IsEither {
				return nil
			}
			i := s.Index
			if i < 0 {
				i += len(in)
			}
			if i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}
