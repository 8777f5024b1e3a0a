package source

import (
	"bytes"
	"unicode/utf8"
)

// maxByteFindings bounds what one file reports about its bytes: a binary file is told once, not a thousand times.
const maxByteFindings = 10

// checkBytes judges the bytes before any parser sees them (NF1011). It says whether the file can be parsed.
func (p *parse) checkBytes() bool {
	src := p.file.src
	if bytes.HasPrefix(src, []byte{0xFE, 0xFF}) || bytes.HasPrefix(src, []byte{0xFF, 0xFE}) {
		p.errorf("NF1011", 0, 0, "save the file as UTF-8", "file is UTF-16")
		return false
	}
	usable, found := true, 0
	for i := p.file.base; i < len(src) && found < maxByteFindings; {
		r, n := utf8.DecodeRune(src[i:])
		if what, hint, fatal := badRune(src, i, r, n); what != "" {
			found++
			p.errorf("NF1011", i, i+n, hint, "%s", what)
			usable = usable && !fatal
			if r == '\r' || r == 0 {
				break // the rest of the file would say the same again
			}
		}
		i += n
	}
	return usable
}

// badRune says what is wrong with the rune at i, and whether the text cannot be parsed because of it.
func badRune(src []byte, i int, r rune, n int) (what, hint string, fatal bool) {
	switch {
	case r == utf8.RuneError && n <= 1:
		return "byte is not valid UTF-8", "save the file as UTF-8", true
	case r == 0:
		return "NUL byte in the text", "save the file as UTF-8 text (UTF-16 without a byte order mark looks like this)", true
	case r == '\r':
		if i+1 < len(src) && src[i+1] == '\n' {
			return "", "", false
		}
		return "line ends with CR only", "save the file with LF or CRLF line ends", true
	case r == 0xFEFF:
		return "byte order mark inside the file", "remove it: files that were joined together often have one", true
	case bidiControl(r):
		return "bidirectional control character U+" + hex4(r) + " can hide what the text says",
			`remove it, or write it as "\u` + hex4(r) + `" in double quotes`, false
	case r < 0x20 && r != '\t' && r != '\n', r == 0x7F, r >= 0x80 && r < 0xA0 && r != 0x85, r == 0xFFFE, r == 0xFFFF:
		return "control character U+" + hex4(r) + " in the text", `remove it, or write it as "\u` + hex4(r) + `" in double quotes`, true
	}
	return "", "", false
}

// bidiControl says whether r has the Unicode property Bidi_Control.
func bidiControl(r rune) bool {
	return r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}

func hex4(r rune) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}
