package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The rules of what a call may carry (contract 2.7). They are pure and shared: the loader applies them to literals, the
// decider when it resolves an input, the system tasks before they send.

// The errors of EscapeSegment.
var (
	errEmptySegment = errors.New(`an expression in "path" gave nothing: it must give one non-empty segment`)
	errDotSegment   = errors.New(`an expression in "path" gave "." or "..": it must give one segment that names something`)
)

// EscapeSegment gives the percent-encoded form of a value that an expression puts into the `path` of a call: one segment,
// whatever it holds. Everything but letters, digits and "-._~" is encoded byte by byte. Empty values, "." and ".." are errors
// (INVALID_REQUEST): they would name another path than the author wrote.
func EscapeSegment(value string) (string, error) {
	switch value {
	case "":
		return "", errEmptySegment
	case ".", "..":
		return "", errDotSegment
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(value))
	for i := range len(value) {
		c := value[i]
		if isUnreserved(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String(), nil
}

// isUnreserved says that a byte stands for itself in every part of a URI (RFC 3986).
func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~", c) >= 0
}

// CheckPath holds a whole `path`, its expressions resolved, to contract 2.7: it may not leave the base, and is refused rather
// than normalised. Refused are "?", "#", "\" and controls anywhere, bad percent-encoding, and, after one decoding, a segment
// "." or ".." and a "/" inside a segment. A decoded "\" counts as a separator when dot segments are looked for, since some
// servers take it for one.
func CheckPath(path string) error {
	if !utf8.ValidString(path) {
		return errors.New(`"path" is not valid UTF-8`)
	}
	for _, r := range path {
		switch {
		case r == '?', r == '#', r == '\\':
			return fmt.Errorf(`"path" may not contain %q: use "query" for a query, and percent-encode the character where it belongs to a name`, string(r))
		case isControl(r):
			return fmt.Errorf(`"path" may not contain the control character U+%04X`, r)
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		decoded, ok := unescape(segment)
		if !ok {
			return errors.New(`"path" has a "%" that is not followed by two hexadecimal digits (write %25 for the character itself)`)
		}
		if strings.Contains(decoded, "/") {
			return errors.New(`"path" has a segment that contains "/" once decoded: a segment names one thing`)
		}
		for part := range strings.SplitSeq(decoded, `\`) {
			if part == "." || part == ".." {
				return fmt.Errorf(`"path" has the segment %q: it may not climb`, part)
			}
		}
	}
	return nil
}

// unescape decodes %XX once. It is false if a "%" is not followed by two hexadecimal digits.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, okHi := hexValue(s[i+1])
		lo, okLo := hexValue(s[i+2])
		if !okHi || !okLo {
			return "", false
		}
		b.WriteByte(hi<<4 | lo)
		i += 2
	}
	return b.String(), true
}

// hexValue gives the value of a hexadecimal digit.
func hexValue(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// isControl covers C0, DEL and C1.
func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }

// HeaderKey gives the form in which header and metadata names are compared: lower case, "_" as "-", since gateways take the
// two for one.
func HeaderKey(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// CheckHeaderName holds the name of an HTTP header, of a task or of a Target, to contract 2.7.
func CheckHeaderName(name string) error {
	if !isToken(name) {
		return fmt.Errorf("%q is not a header name", name)
	}
	key := HeaderKey(name)
	switch key {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect":
		return fmt.Errorf("the header %q is set by nf and may not be given", name)
	}
	if strings.HasPrefix(key, "proxy-") || strings.HasPrefix(key, "x-nf-") {
		return fmt.Errorf("the header %q may not be given: names that start with Proxy- or x-nf- are refused", name)
	}
	return nil
}

// CheckMetadataName holds the name of a gRPC metadata entry, of a task or of a Target, to contract 2.7.
func CheckMetadataName(name string) error {
	if strings.HasPrefix(name, ":") {
		return fmt.Errorf("the metadata name %q may not be given: names that start with \":\" are refused", name)
	}
	if err := CheckHeaderName(name); err != nil {
		return err
	}
	for i := range len(name) {
		if c := name[i]; !isUnreserved(c) || c == '~' {
			return fmt.Errorf("%q is not a metadata name: letters, digits, \"-\", \"_\" and \".\" only", name)
		}
	}
	key := HeaderKey(name)
	if key == "content-type" || key == "user-agent" || strings.HasPrefix(key, "grpc-") {
		return fmt.Errorf("the metadata name %q is set by gRPC and may not be given", name)
	}
	return nil
}

// isToken says that a text is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// CheckHeaderValue holds the value of an HTTP header to contract 2.7: no control character.
func CheckHeaderValue(value string) error {
	if !utf8.ValidString(value) {
		return errors.New("the value is not valid UTF-8")
	}
	if strings.ContainsFunc(value, isControl) {
		return errors.New("the value contains a control character")
	}
	return nil
}

// CheckMetadataValue holds the value of a gRPC metadata entry to contract 2.7: printable ASCII.
func CheckMetadataValue(value string) error {
	for i := range len(value) {
		if value[i] < 0x20 || value[i] > 0x7e {
			return errors.New("the value contains a character outside printable ASCII")
		}
	}
	return nil
}

// SecretEntries names the key of a task's input whose entries may be references to secrets, "" for types that have none.
func SecretEntries(t TaskType) string {
	switch t {
	case TypeHTTP:
		return "headers"
	case TypeGRPC:
		return "metadata"
	case TypeSimple, TypeSwitch, TypeForkJoin, TypeJoin, TypeSetVariable, TypeTerminate, TypeWait:
	}
	return ""
}

// CheckSecretRefs holds the resolved input of a task to the rule that only a definition may name a secret: at the entries that
// are secretable, a map must be the one that stands literally in inputParameters. What an expression brings in, from a start's
// input or another task's output, must not choose which secret is read. An error means INPUT_INVALID.
func CheckSecretRefs(task *Task, resolved map[string]Value) error {
	field := SecretEntries(task.Type)
	if field == "" {
		return nil
	}
	entries, ok := resolved[field].(map[string]any)
	if !ok {
		return nil
	}
	literal, _ := task.InputParameters[field].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if _, isMap := entries[name].(map[string]any); !isMap {
			continue
		}
		given, isRef := ParseSecretRef(entries[name])
		declared, isDeclared := ParseSecretRef(literal[name])
		if !isRef || !isDeclared || given != declared {
			return fmt.Errorf("%s.%s: an expression may not give an object here; a secretRef must stand in the definition itself", field, name)
		}
	}
	return nil
}

// IsSecretName says that a text may name a secret or a key of one.
func IsSecretName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '_' || c == '.' || c == '-') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}
