package source

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseJSON reads a file as one JSON value (RFC 8259), into the same nodes as YAML.
func (p *parse) parseJSON() {
	j := &jsonReader{parse: p, src: p.file.src, off: p.file.base}
	j.space()
	if j.off == len(j.src) {
		return
	}
	start := j.off
	root := j.value(1)
	if !j.broken {
		if j.space(); j.off < len(j.src) {
			j.broken = true
			p.errorf("NF1018", j.off, p.file.lineEnd(j.off), "keep one value in a JSON file", "content after the end of a document")
		}
	}
	if j.broken || p.over {
		root = nil
	}
	p.addDocument(start, len(j.src), root)
}

// jsonReader reads one JSON text. After a syntax error broken is set and nothing more is read.
type jsonReader struct {
	*parse
	src    []byte
	off    int
	broken bool
	path   []string
}

func (j *jsonReader) pointer() string {
	w := walker{path: j.path}
	return w.pointer()
}

func (j *jsonReader) space() {
	for j.off < len(j.src) && strings.IndexByte(" \t\r\n", j.src[j.off]) >= 0 {
		j.off++
	}
}

// bad reports the first syntax error.
func (j *jsonReader) bad(off int, hint, format string, args ...any) {
	if !j.broken {
		j.broken = true
		j.errorf("NF1002", off, min(off+1, len(j.src)), hint, format, args...)
	}
}

func (j *jsonReader) stub(start int) *Node {
	return &Node{Kind: Scalar, Type: Null, flawed: true, start: start, end: max(start, min(j.off, len(j.src))), count: 1}
}

func (j *jsonReader) value(depth int) *Node {
	start := j.off
	if j.nodes++; j.nodes > j.limits.NodesPerFile {
		j.overNodes(start, start, "")
		j.broken = true
		return j.stub(start)
	}
	if j.off >= len(j.src) {
		j.bad(j.off, "close what is open", "file ends where a value is expected")
		return j.stub(start)
	}
	switch c := j.src[j.off]; {
	case c == '{' || c == '[':
		if depth > j.limits.Depth {
			j.errorf("NF1013", start, start+1, "nest less", "nested deeper than the limit depth = %d", j.limits.Depth).Pointer = j.pointer()
			j.broken = true
			return j.stub(start)
		}
		if c == '{' {
			return j.object(depth)
		}
		return j.array(depth)
	case c == '"':
		text, ok := j.text()
		return &Node{Kind: Scalar, Text: text, Style: Quoted, flawed: !ok, start: start, end: j.off, count: 1}
	case c == '-' || c >= '0' && c <= '9':
		return j.number()
	}
	for word, typ := range map[string]Type{"true": Bool, "false": Bool, "null": Null} {
		if strings.HasPrefix(string(j.src[j.off:min(j.off+len(word), len(j.src))]), word) {
			j.off += len(word)
			return &Node{Kind: Scalar, Type: typ, Text: word, start: start, end: j.off, count: 1}
		}
	}
	j.bad(j.off, "a JSON value is an object, a list, a text in double quotes, a number, true, false or null", "a value is expected here")
	return j.stub(start)
}

// next reads the separator after an element: it says whether another element follows.
func (j *jsonReader) next(closing byte, open int) bool {
	j.space()
	switch {
	case j.broken:
		return false
	case j.off >= len(j.src):
		j.bad(open, "close the bracket", "bracket %q is not closed", j.src[open])
		return false
	case j.src[j.off] == closing:
		j.off++
		return false
	case j.src[j.off] != ',':
		j.bad(j.off, fmt.Sprintf("write , or %c", closing), "a comma or %q is expected here", closing)
		return false
	}
	comma := j.off
	j.off++
	if j.space(); j.off < len(j.src) && j.src[j.off] == closing {
		j.bad(comma, "remove the comma", "JSON allows no comma after the last element")
		return false
	}
	return true
}

func (j *jsonReader) array(depth int) *Node {
	open := j.off
	out := &Node{Kind: List, start: open, count: 1, height: 1}
	j.off++
	if j.space(); j.off < len(j.src) && j.src[j.off] == ']' {
		j.off++
		out.end = j.off
		return out
	}
	for more := true; more && !j.broken; more = j.next(']', open) {
		j.space()
		j.path = append(j.path, strconv.Itoa(len(out.Items)))
		item := j.value(depth + 1)
		j.path = j.path[:len(j.path)-1]
		out.Items = append(out.Items, item)
		out.add(item)
	}
	out.end = j.off
	return out
}

func (j *jsonReader) object(depth int) *Node {
	open := j.off
	out := &Node{Kind: Map, start: open, count: 1, height: 1}
	seen := map[string]int{}
	j.off++
	if j.space(); j.off < len(j.src) && j.src[j.off] == '}' {
		j.off++
		out.end = j.off
		return out
	}
	for more := true; more && !j.broken; more = j.next('}', open) {
		j.member(out, seen, depth)
	}
	out.end = j.off
	return out
}

func (j *jsonReader) member(out *Node, seen map[string]int, depth int) {
	j.space()
	keyStart := j.off
	if j.off >= len(j.src) || j.src[j.off] != '"' {
		j.bad(j.off, "write the key in double quotes", "a key in double quotes is expected here")
		return
	}
	key, _ := j.text()
	keyEnd := j.off
	if j.space(); !j.broken && (j.off >= len(j.src) || j.src[j.off] != ':') {
		j.bad(j.off, "write : after the key", "a colon is expected here")
	}
	if j.broken {
		return
	}
	j.off++
	j.space()
	j.path = append(j.path, key)
	value := j.value(depth + 1)
	if first, twice := seen[key]; twice {
		d := j.errorf("NF1003", keyStart, keyEnd, "remove one of the two", "duplicate key %q", cut(key))
		d.Pointer = j.pointer()
		j.related(d, first, "first written here")
	} else {
		seen[key] = keyStart
		out.Entries = append(out.Entries, Entry{Key: key, Value: value, keyStart: keyStart, keyEnd: keyEnd})
		out.add(value)
	}
	j.path = j.path[:len(j.path)-1]
}

func (j *jsonReader) number() *Node {
	start := j.off
	for j.off < len(j.src) && strings.IndexByte("+-.eE0123456789", j.src[j.off]) >= 0 {
		j.off++
	}
	text := string(j.src[start:j.off])
	out := &Node{Kind: Scalar, Type: Number, Text: text, start: start, end: j.off, count: 1}
	digits := strings.TrimPrefix(text, "-")
	if !numberText.MatchString(text) || leadingZero.MatchString(text) || digits == "" || digits[0] == '.' || strings.HasSuffix(text, ".") ||
		strings.Contains(text, ".e") || strings.Contains(text, ".E") {
		j.bad(start, "write it in plain decimal digits", "%q is no JSON number", cut(text))
		return out
	}
	if r := readNumber(text); r.big {
		out.flawed, out.Type = true, Text
		j.errorf("NF1008", start, j.off, "write a smaller number, or quote it if a text is meant", "number %s is beyond 64 bits", cut(text)).Pointer = j.pointer()
	}
	return out
}

// text reads a string that starts at off.
func (j *jsonReader) text() (string, bool) {
	start := j.off
	var b strings.Builder
	for j.off++; j.off < len(j.src); {
		switch c := j.src[j.off]; {
		case c == '"':
			j.off++
			return b.String(), true
		case c < 0x20:
			j.bad(j.off, `write \n or \t`, "line break or tab inside a text")
			return "", false
		case c == '\\':
			if !j.escape(&b) {
				return "", false
			}
		default:
			_, n := utf8.DecodeRune(j.src[j.off:])
			b.Write(j.src[j.off : j.off+n])
			j.off += n
		}
	}
	j.bad(start, "close the quotes", "quoted text does not end")
	return "", false
}

// escape reads one escape sequence.
func (j *jsonReader) escape(b *strings.Builder) bool {
	at := j.off
	if j.off+1 >= len(j.src) {
		j.bad(at, "close the quotes", "quoted text does not end")
		return false
	}
	c := j.src[j.off+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		j.off += 2
		return true
	}
	if c != 'u' {
		j.bad(at, `write \\ for a backslash`, "unknown escape")
		return false
	}
	r, ok := j.hex(at)
	if ok && utf16.IsSurrogate(r) {
		low, second := j.hex(j.off)
		r = utf16.DecodeRune(r, low)
		ok = second && r != utf8.RuneError
	}
	if !ok {
		j.bad(at, "write four hexadecimal digits, and surrogates only in pairs", "escape is no Unicode character")
		return false
	}
	b.WriteRune(r)
	return true
}

// hex reads \uXXXX at off and moves behind it.
func (j *jsonReader) hex(off int) (rune, bool) {
	if off+6 > len(j.src) || j.src[off] != '\\' || j.src[off+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(j.src[off+2:off+6]), 16, 16)
	j.off = off + 6
	return rune(v), err == nil
}
