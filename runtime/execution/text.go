package execution

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CutReason makes a text fit to be kept as a reason or log line: bad UTF-8 and NUL become U+FFFD, and what is longer than
// limit bytes is cut on a character boundary (contract 2.3, 7.1). It never fails: a reason never stops a report.
func CutReason(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// IdempotencyKey is what nf sends downstream for a task run (X17, contract 3.5): stable over attempts and deliveries; each rerun
// makes a new one.
func IdempotencyKey(namespace, executionID, ref, iteration string, rerun int32) string {
	key := namespace + "/" + executionID + "/" + ref + "/" + iteration
	if rerun > 0 {
		key += fmt.Sprintf("/r%d", rerun)
	}
	return key
}
