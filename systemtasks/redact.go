package systemtasks

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Mask is what stands for a secret.
const Mask = "***"

// minSecret is the shortest value, in bytes, that is looked for: shorter ones would mask half of every answer (contract 2.7).
const minSecret = 6

// Redactor replaces the secrets of one call by Mask in whatever leaves the call: as they are, percent-encoded, JSON-escaped, in
// base64 (both alphabets, at every offset, so inside Basic too) and in hex. It reads encodings byte by byte, so partly encoded
// values and either case of hex digits are found as well. Values under 6 bytes are not replaced (contract 2.7).
//
// The zero value masks nothing and a nil *Redactor is one of those. Not safe for concurrent use while values are added.
type Redactor struct {
	patterns []pattern
	first    [256]bool // bytes at which a match may begin
	seen     map[string]bool
}

// kind says how the bytes of a text are compared with those of a pattern.
type kind int

const (
	kindPlain kind = iota
	kindBase64
	kindHex
)

// pattern is one form of a secret. A base64 form leaves out the characters that depend on the neighbours; lead and trail say
// that such a character stands before and after, and goes too.
type pattern struct {
	kind        kind
	want        []byte
	lead, trail bool
}

// Add registers a value that was resolved for the call.
func (r *Redactor) Add(value string) {
	r.add(value)
	// Header values travel without the white space around them.
	r.add(strings.TrimSpace(value))
}

// AddReferenced registers a value that stands behind a prefix. Behind "Basic " the value is itself base64 of user and
// password, and servers answer with what they decoded.
func (r *Redactor) AddReferenced(prefix, value string) {
	r.Add(value)
	if !strings.EqualFold(strings.TrimSpace(prefix), "basic") {
		return
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(value), "="))
	if err != nil {
		return
	}
	r.Add(string(decoded))
	if _, password, ok := strings.Cut(string(decoded), ":"); ok {
		r.Add(password)
	}
}

func (r *Redactor) add(value string) {
	if len(value) < minSecret || r.seen[value] {
		return
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[value] = true
	r.patterns = append(r.patterns, pattern{kind: kindPlain, want: []byte(value)})
	r.patterns = append(r.patterns, pattern{kind: kindHex, want: []byte(hex.EncodeToString([]byte(value)))})
	for offset := range 3 {
		r.patterns = append(r.patterns, base64Pattern(value, offset))
	}
	r.first['%'], r.first['\\'] = true, true
	for _, p := range r.patterns[len(r.patterns)-5:] {
		for c := range 256 {
			r.first[c] = r.first[c] || p.same(byte(c), p.want[0])
		}
		if p.want[0] == ' ' {
			r.first['+'] = true
		}
	}
}

// base64Pattern gives the characters that base64 makes of a value when offset bytes (modulo 3) stand before it, without those
// that depend on its neighbours. The URL alphabet is folded into the standard one.
func base64Pattern(value string, offset int) pattern {
	padded := make([]byte, offset, offset+len(value)+3)
	padded = append(padded, value...)
	bits := len(padded) * 8
	padded = append(padded, 0, 0, 0)
	all := base64.StdEncoding.EncodeToString(padded)
	from := (offset*8 + 5) / 6
	return pattern{kind: kindBase64, want: []byte(all[from : bits/6]), lead: offset > 0, trail: bits%6 != 0}
}

// same compares a decoded byte of a text with one of the pattern.
func (p pattern) same(got, want byte) bool {
	switch p.kind {
	case kindPlain:
		return got == want
	case kindBase64:
		switch got {
		case '-':
			got = '+'
		case '_':
			got = '/'
		}
		return got == want
	case kindHex:
		if 'A' <= got && got <= 'F' {
			got += 'a' - 'A'
		}
		return got == want
	}
	return false
}

// Text masks the secrets in a text, which need not be valid UTF-8.
func (r *Redactor) Text(s string) string {
	if r == nil || len(r.patterns) == 0 {
		return s
	}
	var b strings.Builder
	done, from, to := 0, -1, -1 // written up to; the interval to mask, if from >= 0
	flush := func() {
		if from >= 0 {
			b.WriteString(s[done:from])
			b.WriteString(Mask)
			done, from = to, -1
		}
	}
	for i := range len(s) {
		if !r.first[s[i]] {
			continue
		}
		start, end := r.match(s, i)
		switch {
		case end < 0:
		case from >= 0 && start <= to:
			from, to = min(from, start), max(to, end)
		default:
			flush()
			from, to = max(start, done), end
		}
	}
	flush()
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// match gives the widest interval of s that a secret beginning at i takes; end is -1 if there is none.
func (r *Redactor) match(s string, i int) (start, end int) {
	start, end = i, -1
	for _, p := range r.patterns {
		e := p.matchAt(s, i)
		if e < 0 {
			continue
		}
		if p.kind == kindBase64 {
			start, e = min(start, p.before(s, i)), p.after(s, e)
		}
		end = max(end, e)
	}
	return start, end
}

// before gives where the character begins that a base64 form shares with what stands in front of the secret.
func (p pattern) before(s string, i int) int {
	if !p.lead {
		return i
	}
	j := i
	for j > 0 && (s[j-1] == '\n' || s[j-1] == '\r') {
		j--
	}
	if j > 0 && isBase64(s[j-1]) {
		if j >= 3 && s[j-3] == '%' { // "%2F"
			return j - 3
		}
		return j - 1
	}
	return i
}

// after gives where a base64 form ends together with the character it shares with what follows, and its padding.
func (p pattern) after(s string, e int) int {
	if p.trail {
		j := skipLineBreaks(s, e)
		if decoded, count, width := decodeAt(s, j); width > 0 && count == 1 && isBase64(decoded[0]) {
			e = j + width
		} else if j < len(s) && isBase64(s[j]) {
			e = j + 1
		}
	}
	for {
		j := skipLineBreaks(s, e)
		decoded, count, width := decodeAt(s, j)
		switch {
		case j < len(s) && s[j] == '=':
			e = j + 1
		case width > 0 && count == 1 && decoded[0] == '=':
			e = j + width
		default:
			return e
		}
	}
}

// isBase64 says that a byte is of either alphabet.
func isBase64(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("+/-_", c) >= 0
}

// place is a place in a text while it is matched: at byte i, of whose decoded form the first used bytes are taken.
type place struct{ i, used int }

// matchAt gives the end of the pattern's match that begins at byte i of s, -1 if it does not match there. All readings of an
// ambiguous text ("%41" is itself, or "A") are followed side by side, each place once, so that no text is read exponentially often.
func (p pattern) matchAt(s string, i int) int {
	var one, two [8]place // enough for all but texts made to be ambiguous
	places, next := append(one[:0], place{i: i}), two[:0]
	for n, want := range p.want {
		next = next[:0]
		for _, at := range places {
			if n > 0 && at.used == 0 && p.kind != kindPlain {
				at.i = skipLineBreaks(s, at.i)
			}
			next = p.step(next, s, at, want)
		}
		if len(next) == 0 {
			return -1
		}
		places, next = next, places
	}
	end := -1
	for _, at := range places {
		if at.used == 0 {
			end = max(end, at.i)
		}
	}
	return end
}

// step adds the places that follow at when the next byte is want.
func (p pattern) step(next []place, s string, at place, want byte) []place {
	if at.i >= len(s) {
		return next
	}
	c := s[at.i]
	if at.used == 0 && (p.same(c, want) || c == '+' && want == ' ' && p.kind == kindPlain) {
		next = reach(next, place{i: at.i + 1})
	}
	if c != '%' && c != '\\' {
		return next
	}
	decoded, count, width := decodeAt(s, at.i)
	if width > 0 && at.used < count && p.same(decoded[at.used], want) {
		if at.used+1 == count {
			return reach(next, place{i: at.i + width})
		}
		next = reach(next, place{i: at.i, used: at.used + 1})
	}
	return next
}

// maxPlaces bounds the readings that are followed side by side. Only runs of "%" or "\" in a secret have more; of those the one
// where every byte is itself always comes first.
const maxPlaces = 16

// reach adds a place that is not there yet.
func reach(places []place, p place) []place {
	if len(places) == maxPlaces || slices.Contains(places, p) {
		return places
	}
	return append(places, p)
}

// skipLineBreaks passes over the line breaks that some encoders put into base64 and hex, escaped ones included.
func skipLineBreaks(s string, i int) int {
	for i < len(s) {
		switch {
		case s[i] == '\n' || s[i] == '\r':
			i++
		case strings.HasPrefix(s[i:], `\n`) || strings.HasPrefix(s[i:], `\r`):
			i += 2
		default:
			return i
		}
	}
	return i
}

// decodeAt reads the escape at byte i: %XX, \xXX, \uXXXX (pairs too), \UXXXXXXXX or a short escape of JSON or Go. It gives the bytes
// it stands for and its width, 0 if there is none.
func decodeAt(s string, i int) (decoded [utf8.UTFMax]byte, count, width int) {
	if i+1 >= len(s) || s[i] != '%' && s[i] != '\\' {
		return decoded, 0, 0
	}
	if s[i] == '%' {
		if b, ok := hexByte(s, i+1); ok {
			decoded[0] = b
			return decoded, 1, 3
		}
		return decoded, 0, 0
	}
	switch c := s[i+1]; c {
	case '"', '\\', '/', '\'':
		decoded[0] = c
	case 'a':
		decoded[0] = '\a'
	case 'b':
		decoded[0] = '\b'
	case 'f':
		decoded[0] = '\f'
	case 'n':
		decoded[0] = '\n'
	case 'r':
		decoded[0] = '\r'
	case 't':
		decoded[0] = '\t'
	case 'v':
		decoded[0] = '\v'
	case 'U':
		high, okHigh := hexUnit(s, i+2)
		low, okLow := hexUnit(s, i+6)
		if !okHigh || !okLow || high > 0x10 {
			return decoded, 0, 0
		}
		return decoded, utf8.EncodeRune(decoded[:], high<<16|low), 10
	case 'x':
		b, ok := hexByte(s, i+2)
		if !ok {
			return decoded, 0, 0
		}
		decoded[0] = b
		return decoded, 1, 4
	case 'u':
		unit, ok := hexUnit(s, i+2)
		if !ok {
			return decoded, 0, 0
		}
		char, w := unit, 6
		if utf16.IsSurrogate(unit) && strings.HasPrefix(s[i+6:], `\u`) {
			if low, ok := hexUnit(s, i+8); ok {
				char, w = utf16.DecodeRune(unit, low), 12
			}
		}
		return decoded, utf8.EncodeRune(decoded[:], char), w
	default:
		return decoded, 0, 0
	}
	return decoded, 1, 2
}

// hexByte reads two hexadecimal digits.
func hexByte(s string, i int) (byte, bool) {
	if i+2 > len(s) {
		return 0, false
	}
	var b [1]byte
	_, err := hex.Decode(b[:], []byte(s[i:i+2]))
	return b[0], err == nil
}

// hexUnit reads four hexadecimal digits.
func hexUnit(s string, i int) (rune, bool) {
	high, okHigh := hexByte(s, i)
	low, okLow := hexByte(s, i+2)
	return rune(high)<<8 | rune(low), okHigh && okLow
}

// Value masks the secrets in a JSON value: in texts, in the names of members, and in numbers (which then become text). The
// argument is not changed.
func (r *Redactor) Value(v any) any {
	if r == nil || len(r.patterns) == 0 {
		return v
	}
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case json.Number:
		if masked := r.Text(v.String()); masked != v.String() {
			return masked
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = r.Value(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		// In order, so that two names that both become Mask give the same result each time.
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[r.Text(name)] = r.Value(v[name])
		}
		return out
	default:
		return v
	}
}
