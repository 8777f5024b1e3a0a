package source

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	numberText = regexp.MustCompile(`^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$`)
	wholeText  = regexp.MustCompile(`^[-+]?[0-9]+$`)
	// ambiguous numbers: other YAML readers, or people, read them differently.
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9]`)
	radix       = regexp.MustCompile(`^[-+]?0(?:b[01_]+|o[0-7_]+|x[0-9a-fA-F_]+)$`)
	underscores = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?$`)
	sexagesimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$`)
	notFinite   = regexp.MustCompile(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

// reading is what a plain scalar reads as.
type reading struct {
	typ    Type
	number string // JSON form of a Number
	word   bool   // ambiguous boolean word: NF1006
	odd    bool   // ambiguous number: NF1007
	big    bool   // integer beyond 64 bits, or a number beyond any use: NF1008
	nan    bool   // NF1009
}

// maxNumber and maxExponent are the limits of a number (contract 7.1).
const (
	maxNumber   = 1000
	maxExponent = 400
)

// read says what an untagged plain scalar reads as.
func read(text string) reading {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return reading{typ: Null}
	case "true", "True", "TRUE":
		return reading{typ: Bool, number: "true"}
	case "false", "False", "FALSE":
		return reading{typ: Bool, number: "false"}
	}
	if len(text) <= 3 {
		switch strings.ToLower(text) {
		case "y", "n", "yes", "no", "on", "off":
			return reading{word: true}
		}
	}
	if c := text[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return reading{}
	}
	if text[0] != '0' && strings.Trim(text, "0123456789") == "" {
		return readNumber(text) // by far the most numbers
	}
	switch {
	case notFinite.MatchString(text):
		return reading{nan: true}
	case radix.MatchString(text), sexagesimal.MatchString(text):
		return reading{odd: true}
	case underscores.MatchString(text) && (strings.Contains(text, "_") || leadingZero.MatchString(text)):
		return reading{odd: true}
	case numberText.MatchString(text):
		return readNumber(text)
	}
	return reading{}
}

// readNumber judges the size of a number and gives its JSON form.
func readNumber(text string) reading {
	if len(text) > maxNumber {
		return reading{big: true}
	}
	if wholeText.MatchString(text) {
		if strings.HasPrefix(text, "-") {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return reading{big: true}
			}
		} else if _, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 64); err != nil {
			return reading{big: true}
		}
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return reading{big: true}
		}
	}
	return reading{typ: Number, number: jsonNumber(text)}
}

// jsonNumber writes a YAML number as JSON does: no plus sign, a digit on both sides of the point.
func jsonNumber(text string) string {
	sign := ""
	if text[0] == '-' {
		sign = "-"
	}
	text = strings.TrimLeft(text, "+-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i:]
	}
	if strings.HasPrefix(mantissa, ".") {
		mantissa = "0" + mantissa
	}
	return sign + strings.TrimSuffix(mantissa, ".") + exponent
}
