package jsontext

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of any JSON that nf reads (contract 7.1).
const (
	MaxDepth        = 256   // maps and lists inside each other
	MaxNumberLength = 1_000 // characters
	MaxExponent     = 400   // absolute value of a written exponent, and of the power of ten of the first digit
)

// Limits bounds what Decode accepts. A zero field takes the bound of contract 7.1; zero Bytes means no limit.
type Limits struct {
	Bytes        int // length of the text
	Depth        int // maps and lists inside each other
	NumberLength int // characters of a number
	Exponent     int // ± exponent of a number
	// Mend says at which pointers (/reason, /items/3/reason) a text is mended instead of refused: what is not UTF-8 and halves of
	// surrogate pairs become U+FFFD. It is for texts that must never stop what carries them. Keys are never mended. Nil = never.
	Mend func(pointer string) bool
}

func (l Limits) filled() Limits {
	if l.Depth == 0 {
		l.Depth = MaxDepth
	}
	if l.NumberLength == 0 {
		l.NumberLength = MaxNumberLength
	}
	if l.Exponent == 0 {
		l.Exponent = MaxExponent
	}
	return l
}

// Problem is a class of error, for callers that answer differently to a text that is too large.
type Problem int

// The classes of errors.
const (
	Syntax       Problem = iota + 1 // not JSON
	TooLarge                        // more than Limits.Bytes
	TooDeep                         // nested deeper than Limits.Depth
	BadNumber                       // a number beyond Limits.NumberLength or Limits.Exponent
	BadText                         // invalid UTF-8 or half a surrogate pair
	DuplicateKey                    // a key that stands twice in one map
)

// Error is why a text was refused.
type Error struct {
	Problem Problem
	Offset  int    // of the offending byte
	Pointer string // JSON Pointer of the value, or of the value whose key is at fault
	Message string // lower case, without place
}

// Error implements error.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (at byte %d)", e.Message, e.Offset)
	}
	return fmt.Sprintf("%s (at %s, byte %d)", e.Message, e.Pointer, e.Offset)
}

// Decode reads exactly one JSON value. Every error is an *Error.
func Decode(text []byte, limits Limits) (any, error) {
	d := decoder{text: text, limits: limits.filled()}
	if limits.Bytes > 0 && len(text) > limits.Bytes {
		return nil, &Error{Problem: TooLarge, Offset: limits.Bytes, Message: fmt.Sprintf("JSON of %d bytes is over the limit of %d", len(text), limits.Bytes)}
	}
	value, err := d.document()
	if err != nil {
		err.Pointer = d.pointer()
		return nil, err
	}
	return value, nil
}

// DecodeObject is Decode for a text that must be a JSON object.
func DecodeObject(text []byte, limits Limits) (map[string]any, error) {
	value, err := Decode(text, limits)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, &Error{Problem: Syntax, Message: "must be a JSON object, not " + TypeName(value)}
	}
	return object, nil
}

type decoder struct {
	text   []byte
	pos    int
	depth  int
	path   []step
	limits Limits
	// mending: the text that is being read gets U+FFFD for what is bad in it.
	mending bool
}

// step is one level of the path to where the decoder stands; the pointer is only built when something is wrong.
type step struct {
	key   string
	index int // -1 = key
}

func (d *decoder) pointer() string {
	var b strings.Builder
	for _, s := range d.path {
		b.WriteByte('/')
		if s.index < 0 {
			b.WriteString(EscapePointer(s.key))
		} else {
			b.WriteString(strconv.Itoa(s.index))
		}
	}
	return b.String()
}

// EscapePointer writes a key as a token of a JSON Pointer (RFC 6901).
func EscapePointer(key string) string {
	if !strings.ContainsAny(key, "~/") {
		return key
	}
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

func (d *decoder) fail(problem Problem, at int, message string) *Error {
	return &Error{Problem: problem, Offset: at, Message: message}
}

func (d *decoder) document() (any, *Error) {
	d.space()
	value, err := d.value()
	if err != nil {
		return nil, err
	}
	d.space()
	if d.pos < len(d.text) {
		return nil, d.fail(Syntax, d.pos, "unexpected "+d.here()+" after the value")
	}
	return value, nil
}

func (d *decoder) space() {
	for d.pos < len(d.text) {
		switch d.text[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// here names the character at the current position.
func (d *decoder) here() string {
	if d.pos >= len(d.text) {
		return "end of text"
	}
	r, size := utf8.DecodeRune(d.text[d.pos:])
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("byte 0x%02x", d.text[d.pos])
	}
	return strconv.QuoteRune(r)
}

func (d *decoder) value() (any, *Error) {
	if d.pos >= len(d.text) {
		return nil, d.fail(Syntax, d.pos, "unexpected end of text")
	}
	switch c := d.text[d.pos]; {
	case c == '{':
		return d.object()
	case c == '[':
		return d.list()
	case c == '"':
		return boxed(d.textValue())
	case c == '-' || c >= '0' && c <= '9':
		return boxed(d.number())
	case c == 't':
		return true, d.word("true")
	case c == 'f':
		return false, d.word("false")
	case c == 'n':
		return nil, d.word("null")
	}
	return nil, d.fail(Syntax, d.pos, "unexpected "+d.here()+", a value is due")
}

func boxed[T any](v T, err *Error) (any, *Error) { return v, err }

func (d *decoder) word(word string) *Error {
	rest := d.text[d.pos:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return d.fail(Syntax, d.pos, "unknown word, did you mean "+word+"?")
	}
	d.pos += len(word)
	return nil
}

func (d *decoder) enter() *Error {
	d.depth++
	if d.depth > d.limits.Depth {
		return d.fail(TooDeep, d.pos, fmt.Sprintf("nested deeper than %d levels", d.limits.Depth))
	}
	d.pos++
	d.space()
	return nil
}

func (d *decoder) object() (any, *Error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	object := map[string]any{}
	if d.pos < len(d.text) && d.text[d.pos] == '}' {
		d.pos++
		d.depth--
		return object, nil
	}
	for {
		if err := d.member(object); err != nil {
			return nil, err
		}
		d.space()
		if d.pos >= len(d.text) {
			return nil, d.fail(Syntax, d.pos, "unexpected end of text inside an object")
		}
		switch d.text[d.pos] {
		case ',':
			d.pos++
			d.space()
		case '}':
			d.pos++
			d.depth--
			return object, nil
		default:
			return nil, d.fail(Syntax, d.pos, "unexpected "+d.here()+", a comma or } is due")
		}
	}
}

func (d *decoder) member(object map[string]any) *Error {
	at := d.pos
	if d.pos >= len(d.text) || d.text[d.pos] != '"' {
		return d.fail(Syntax, d.pos, "unexpected "+d.here()+", a key in double quotes is due")
	}
	key, err := d.str()
	if err != nil {
		// The key itself is at fault: name it as far as it can be read.
		d.path = append(d.path, step{key: strings.ToValidUTF8(string(d.text[at+1:max(at+1, min(d.pos, len(d.text)))]), "\uFFFD"), index: -1})
		return err
	}
	d.path = append(d.path, step{key: key, index: -1})
	if _, twice := object[key]; twice {
		return d.fail(DuplicateKey, at, "key "+strconv.Quote(key)+" stands twice")
	}
	d.space()
	if d.pos >= len(d.text) || d.text[d.pos] != ':' {
		return d.fail(Syntax, d.pos, "unexpected "+d.here()+", a colon is due")
	}
	d.pos++
	d.space()
	value, err := d.value()
	if err != nil {
		return err
	}
	object[key] = value
	d.path = d.path[:len(d.path)-1]
	return nil
}

func (d *decoder) list() (any, *Error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	list := []any{}
	if d.pos < len(d.text) && d.text[d.pos] == ']' {
		d.pos++
		d.depth--
		return list, nil
	}
	for {
		d.path = append(d.path, step{index: len(list)})
		value, err := d.value()
		if err != nil {
			return nil, err
		}
		list = append(list, value)
		d.path = d.path[:len(d.path)-1]
		d.space()
		if d.pos >= len(d.text) {
			return nil, d.fail(Syntax, d.pos, "unexpected end of text inside a list")
		}
		switch d.text[d.pos] {
		case ',':
			d.pos++
			d.space()
		case ']':
			d.pos++
			d.depth--
			return list, nil
		default:
			return nil, d.fail(Syntax, d.pos, "unexpected "+d.here()+", a comma or ] is due")
		}
	}
}

// textValue reads a text that may be mended. Only a text that is bad is read twice, so nobody pays for it else.
func (d *decoder) textValue() (string, *Error) {
	start := d.pos
	s, err := d.str()
	if err == nil || err.Problem != BadText || d.limits.Mend == nil || !d.limits.Mend(d.pointer()) {
		return s, err
	}
	d.mending = true
	defer func() { d.mending = false }()
	return d.escaped(start+1, start+1)
}

// str reads a text. The common case, no escapes, is one scan and one copy.
func (d *decoder) str() (string, *Error) {
	start := d.pos + 1
	ascii := true
	for i := start; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(d.text[start:i]) {
				d.pos = start + firstInvalid(d.text[start:i])
				return "", d.fail(BadText, d.pos, "text is not valid UTF-8")
			}
			d.pos = i + 1
			return string(d.text[start:i]), nil
		case c == '\\':
			return d.escaped(start, i)
		case c < 0x20:
			d.pos = i
			return "", d.fail(Syntax, i, fmt.Sprintf("control character 0x%02x in a text must be written as an escape", c))
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	d.pos = len(d.text)
	return "", d.fail(Syntax, d.pos, "unexpected end of text inside a text")
}

func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return len(text)
}

func (d *decoder) escaped(start, i int) (string, *Error) {
	out := append(make([]byte, 0, i-start+64), d.text[start:i]...)
	for i < len(d.text) {
		switch c := d.text[i]; {
		case c == '"':
			if !utf8.Valid(out) {
				if d.mending {
					d.pos = i + 1
					return string([]rune(string(out))), nil // each bad byte becomes U+FFFD
				}
				d.pos = start
				return "", d.fail(BadText, d.pos, "text is not valid UTF-8")
			}
			d.pos = i + 1
			return string(out), nil
		case c == '\\':
			var err *Error
			d.pos = i
			if out, i, err = d.escape(out, i); err != nil {
				return "", err
			}
		case c < 0x20:
			d.pos = i
			return "", d.fail(Syntax, i, fmt.Sprintf("control character 0x%02x in a text must be written as an escape", c))
		default:
			out = append(out, c)
			i++
		}
	}
	d.pos = len(d.text)
	return "", d.fail(Syntax, d.pos, "unexpected end of text inside a text")
}

func (d *decoder) escape(out []byte, i int) ([]byte, int, *Error) {
	if i+1 >= len(d.text) {
		return nil, 0, d.fail(Syntax, i, "unexpected end of text inside a text")
	}
	switch c := d.text[i+1]; c {
	case '"', '\\', '/':
		return append(out, c), i + 2, nil
	case 'b':
		return append(out, '\b'), i + 2, nil
	case 'f':
		return append(out, '\f'), i + 2, nil
	case 'n':
		return append(out, '\n'), i + 2, nil
	case 'r':
		return append(out, '\r'), i + 2, nil
	case 't':
		return append(out, '\t'), i + 2, nil
	case 'u':
		return d.unicode(out, i)
	}
	return nil, 0, d.fail(Syntax, i, "unknown escape in a text")
}

func (d *decoder) unicode(out []byte, i int) ([]byte, int, *Error) {
	first, ok := d.hex(i)
	if !ok {
		return nil, 0, d.fail(Syntax, i, `\u needs four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(first) {
		return utf8.AppendRune(out, first), i + 6, nil
	}
	if second, ok := d.hex(i + 6); ok {
		if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
			return utf8.AppendRune(out, r), i + 12, nil
		}
	}
	if d.mending {
		return utf8.AppendRune(out, utf8.RuneError), i + 6, nil
	}
	return nil, 0, d.fail(BadText, i, fmt.Sprintf(`\u%04x is half of a surrogate pair`, first))
}

// hex reads \uXXXX at i.
func (d *decoder) hex(i int) (rune, bool) {
	if i+6 > len(d.text) || d.text[i] != '\\' || d.text[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range d.text[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (d *decoder) number() (json.Number, *Error) {
	start := d.pos
	end := start
	for end < len(d.text) && isNumberByte(d.text[end]) {
		end++
	}
	if end-start > d.limits.NumberLength {
		return "", d.fail(BadNumber, start, fmt.Sprintf("number of %d characters is over the limit of %d", end-start, d.limits.NumberLength))
	}
	text := string(d.text[start:end])
	switch CheckNumber(text, d.limits) {
	case Syntax:
		return "", d.fail(Syntax, start, strconv.Quote(text)+" is not a JSON number")
	case BadNumber:
		return "", d.fail(BadNumber, start, fmt.Sprintf("exponent of a number is beyond ±%d", d.limits.Exponent))
	case TooLarge, TooDeep, BadText, DuplicateKey:
	}
	d.pos = end
	return json.Number(text), nil
}

func isNumberByte(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E'
}
