package jsontext

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// CheckNumber judges the text of a number: 0 = fine, Syntax = no JSON number, BadNumber = beyond the limits. It costs time
// proportional to the length of the text, whatever the exponent.
func CheckNumber(text string, limits Limits) Problem {
	limits = limits.filled()
	if len(text) > limits.NumberLength {
		return BadNumber
	}
	d, ok := parseDecimal(text, limits.Exponent)
	if !ok {
		return Syntax
	}
	if d.tooLarge {
		return BadNumber
	}
	return 0
}

// decimal is ±0.digits × 10^point: digits without leading and trailing zeros, empty for zero.
type decimal struct {
	negative bool
	digits   string
	point    int
	tooLarge bool // the written exponent is beyond the limit
}

func parseDecimal(text string, maxExponent int) (decimal, bool) {
	var d decimal
	rest := text
	if rest, d.negative = strings.CutPrefix(rest, "-"); rest == "" {
		return d, false
	}
	whole, rest := digits(rest)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return d, false
	}
	var fraction string
	if after, ok := strings.CutPrefix(rest, "."); ok {
		if fraction, rest = digits(after); fraction == "" {
			return d, false
		}
	}
	exponent := 0
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return d, false
		}
		var ok bool
		if exponent, d.tooLarge, ok = parseExponent(rest[1:], maxExponent); !ok {
			return d, false
		}
	}
	all := whole + fraction
	trimmed := strings.TrimLeft(all, "0")
	d.point = len(whole) - (len(all) - len(trimmed)) + exponent
	d.digits = strings.TrimRight(trimmed, "0")
	if d.digits == "" {
		d.point, d.negative = 0, false
	}
	return d, true
}

func digits(text string) (run, rest string) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	return text[:i], text[i:]
}

func parseExponent(text string, maxExponent int) (exponent int, tooLarge, ok bool) {
	negative := false
	if text != "" && (text[0] == '+' || text[0] == '-') {
		negative = text[0] == '-'
		text = text[1:]
	}
	run, rest := digits(text)
	if run == "" || rest != "" {
		return 0, false, false
	}
	run = strings.TrimLeft(run, "0")
	if len(run) > 6 {
		return 0, true, true
	}
	for i := range len(run) {
		exponent = exponent*10 + int(run[i]-'0')
	}
	if exponent > maxExponent {
		return 0, true, true
	}
	if negative {
		exponent = -exponent
	}
	return exponent, false, true
}

// CanonicalNumber writes a number in the one form that all equal numbers share, exactly: 1, 1.0 and 1e0 are 1, -0 is 0.
// Numbers from 10^-6 up to 10^21, that one not, are written without an exponent, others as 1.5e+30. A text that is no number, or is beyond
// the limits of contract 7.1, comes back as it is.
func CanonicalNumber(n json.Number) json.Number {
	text := string(n)
	if canonicalInteger(text) {
		return n
	}
	d, ok := parseDecimal(text, MaxExponent)
	if !ok || d.tooLarge {
		return n
	}
	return json.Number(d.String())
}

// canonicalInteger is the short cut for what nearly all numbers look like.
func canonicalInteger(text string) bool {
	unsigned := strings.TrimPrefix(text, "-")
	if unsigned == "" || len(unsigned) > 18 || unsigned[0] == '0' && (len(unsigned) > 1 || len(text) > 1) {
		return false
	}
	run, rest := digits(unsigned)
	return run != "" && rest == ""
}

// String gives the canonical form.
func (d decimal) String() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	n := len(d.digits)
	switch {
	case n == 0:
		return "0"
	case d.point > 21 || d.point < -5:
		mantissa := d.digits[:1]
		if n > 1 {
			mantissa += "." + d.digits[1:]
		}
		exponent := strconv.Itoa(d.point - 1)
		if d.point > 0 {
			exponent = "+" + exponent
		}
		return sign + mantissa + "e" + exponent
	case d.point <= 0:
		return sign + "0." + strings.Repeat("0", -d.point) + d.digits
	case n <= d.point:
		return sign + d.digits + strings.Repeat("0", d.point-n)
	}
	return sign + d.digits[:d.point] + "." + d.digits[d.point:]
}

// Int gives the value of a number that is whole and fits 64 bits, however it is written: 1000, 1e3 and 1000.0 are the same.
func Int(n json.Number) (int64, bool) {
	return Scaled(n, 0)
}

// Scaled gives number × 10^places if that is whole and fits 64 bits. Scaled(seconds, 3) is exact milliseconds.
func Scaled(n json.Number, places int) (int64, bool) {
	d, ok := parseDecimal(string(n), MaxExponent)
	if !ok || d.tooLarge {
		return 0, false
	}
	point := d.point + places
	if d.digits == "" {
		return 0, true
	}
	if len(d.digits) > point || point > 19 {
		return 0, false
	}
	text := d.digits + strings.Repeat("0", point-len(d.digits))
	if d.negative {
		text = "-" + text
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// Compare orders two numbers exactly: -1, 0 or 1. Texts that are no numbers within the limits count as 0.
func Compare(a, b json.Number) int {
	x, _ := parseDecimal(string(a), MaxExponent)
	y, _ := parseDecimal(string(b), MaxExponent)
	if x.tooLarge {
		x = decimal{}
	}
	if y.tooLarge {
		y = decimal{}
	}
	sx, sy := x.sign(), y.sign()
	if sx != sy || sx == 0 {
		return cmp.Compare(sx, sy)
	}
	switch {
	case x.point != y.point:
		if x.point > y.point {
			return sx
		}
		return -sx
	case x.digits == y.digits:
		return 0
	case x.digits > y.digits:
		return sx
	}
	return -sx
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}
