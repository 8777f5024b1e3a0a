// Package jsontext reads and writes JSON values exactly: numbers keep their digits, and what is ambiguous is refused.
//
// It is the one door for JSON that somebody else wrote: request bodies, worker reports, answers of endpoints, stored
// payloads. A value is nil, bool, json.Number, string, []any or map[string]any, nothing else.
//
// Decode refuses what other readers silently mend or lose: a key that stands twice, text that is not UTF-8, half of a
// surrogate pair, a number whose size would make arithmetic expensive, nesting that would exhaust a stack. NUL inside a
// text is legal and kept. Append and Encode write compact JSON with sorted keys, so that equal values are equal bytes.
//
// The package is pure. All functions are safe for concurrent use as long as nobody changes the values passed in.
package jsontext
