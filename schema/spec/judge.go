package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"nf/schema/diag"
	"nf/schema/jsontext"
)

// judge says what a keyword's failure means.
func (t *translator) judge(f fault) {
	switch f.keyword {
	case "type":
		t.wrongType(f)
	case "enum", "const":
		t.notInList(f)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		t.outOfRange(f)
	case "multipleOf":
		t.tooFine(f)
	case "pattern":
		t.badText(f)
	case "minLength", "maxLength":
		t.badLength(f)
	case "minItems", "minProperties":
		t.tooFew(f)
	case "maxItems", "maxProperties":
		t.tooMany(f)
	case "uniqueItems":
		t.duplicate(f)
	case "required":
		t.missing(f)
	case "additionalProperties":
		t.unknownKeys(f)
	case "dependentRequired":
		t.needsKey(f)
	case "oneOf":
		t.oneOfKeys(f)
	case "anyOf":
		t.branch(f)
	case "not":
		t.excluded(f)
	default: // a keyword that our own schemas do not use; a test holds them to these
		t.add(diag.Newf("NF2103", f.pointer, "%s breaks %q of the schema", name(f.pointer), f.keyword))
	}
}

func (t *translator) wrongType(f fault) {
	wanted := schemaTypes(f.node)
	t.typeFinding(f, wanted)
}

func (t *translator) typeFinding(f fault, wanted []string) {
	words := make([]string, len(wanted))
	for i, w := range wanted {
		words[i] = article(w)
	}
	due := strings.Join(words, " or ")
	if f.value == nil {
		t.add(diag.Newf("NF1010", f.pointer, "%s has no value", name(f.pointer)).
			WithHint("remove the key, or write " + due).OnKey())
		return
	}
	n, isNumber := f.value.(json.Number)
	_, isBool := f.value.(bool)
	if slices.Contains(wanted, "text") && (isNumber || isBool) {
		text := show(f.value)
		t.add(diag.Newf("NF1019", f.pointer, "%s is text, but %s is %s", name(f.pointer), text, article(jsontext.TypeName(f.value))).
			WithHint("put it in quotes: "+strconv.Quote(text)).Replacing(strconv.Quote(text), false))
		return
	}
	is := article(jsontext.TypeName(f.value))
	if isNumber && slices.Contains(wanted, "integer") {
		t.add(diag.Newf("NF2103", f.pointer, "%s must be a whole number, not %s", name(f.pointer), n))
		return
	}
	d := diag.Newf("NF2103", f.pointer, "%s must be %s, not %s", name(f.pointer), due, is)
	if text, ok := f.value.(string); ok {
		if hint, literal := meantByText(lastToken(f.pointer), text, wanted); hint != "" {
			d = d.WithHint(hint).Replacing(literal, false)
		}
	}
	if _, isList := f.value.([]any); !isList && slices.Contains(wanted, "list") {
		d = d.WithHint("write a list, also for a single item: [" + show(f.value) + "]")
	}
	t.add(d)
}

func (t *translator) notInList(f fault) {
	var words []string
	if c, ok := f.node["const"]; ok {
		words = []string{strings.Trim(show(c), `"`)}
	}
	list, _ := f.node["enum"].([]any)
	for _, item := range list {
		words = append(words, strings.Trim(show(item), `"`))
	}
	text, isText := f.value.(string)
	if !isText {
		t.typeFinding(f, []string{"text"})
		return
	}
	if f.def == "taskType" {
		t.add(unknownTaskType(f.pointer, text, words))
		return
	}
	d := diag.Newf("NF2105", f.pointer, "%s is %q; it is one of %s", name(f.pointer), text, strings.Join(words, ", "))
	if len(words) == 1 {
		d = diag.Newf("NF2105", f.pointer, "%s is %q; it must be %s", name(f.pointer), text, words[0])
	}
	near := diag.Nearest(text, words)
	switch later := laterWords[lastToken(f.pointer)+"="+text]; {
	case later != "":
		d = d.WithHint(later)
	case lastToken(f.pointer) == "usableFrom":
		d = d.WithHint("write a list of namespaces, or * for all of them")
	case len(near) > 0:
		d = d.WithHint(diag.Suggest(near))
		if len(near) == 1 {
			d = d.Replacing(near[0], false)
		}
	}
	t.add(d)
}

func lastToken(pointer string) string {
	tokens := plainTokens(pointer)
	if len(tokens) == 0 {
		return ""
	}
	return tokens[len(tokens)-1]
}

func (t *translator) outOfRange(f fault) {
	limit, _ := f.node[f.keyword].(json.Number)
	value, _ := f.value.(json.Number)
	low := f.keyword == "minimum" || f.keyword == "exclusiveMinimum"
	if low && f.def == "cap" {
		d := diag.Newf("NF2112", f.pointer, "%s is %s; a cap is at least 1", name(f.pointer), value)
		if lastToken(f.pointer) == "permits" {
			d = d.WithHint("a semaphore has at least 1 permit; for no limit leave it out of the task definitions")
		} else {
			d = d.WithHint("leave it out for no limit")
		}
		t.add(d)
		return
	}
	word := "greatest"
	if low {
		word = "least"
	}
	t.add(diag.Newf("NF2104", f.pointer, "%s is %s; the %s value is %s%s", name(f.pointer), value, word, limit, inWords(f, limit)))
}

// inWords says what a limit of seconds amounts to.
func inWords(f fault, limit json.Number) string {
	if f.keyword != "maximum" {
		return ""
	}
	switch limit {
	case "31622400":
		return " (366 days)"
	case "86400":
		return " (24 h)"
	case "600000":
		return " (10 minutes)"
	}
	return ""
}

func (t *translator) tooFine(f fault) {
	t.add(diag.Newf("NF2104", f.pointer, "%s is %s; a duration has at most three decimals", name(f.pointer), show(f.value)))
}

// nameDefs are definitions of names; whatever they refuse is a bad name.
var nameDefs = map[string]bool{"name": true, "ref": true, "secretName": true, "taskReferenceName": true, "protobufName": true}

func (t *translator) badText(f fault) {
	if f.def == "expression" {
		t.add(diag.Newf("NF2103", f.pointer, "%s must be one expression ${…}", name(f.pointer)))
		return
	}
	code := diag.Code("NF2107")
	if nameDefs[f.def] || lastToken(f.pointer) == "method" {
		code = "NF2106"
	}
	what := map[diag.Code]string{"NF2107": "is not in the right form", "NF2106": "is no valid name"}[code]
	hint, _ := f.node["description"].(string)
	t.add(diag.Newf(code, f.pointer, "%s: %s %s", name(f.pointer), show(f.value), what).WithHint(hint))
}

func (t *translator) badLength(f fault) {
	limit, _ := f.node[f.keyword].(json.Number)
	text, _ := f.value.(string)
	about := name(f.pointer)
	onKey := slices.Contains(f.tokens, "propertyNames")
	if onKey {
		text = lastToken(f.pointer)
		about = "key " + about
	}
	d := diag.Newf("NF2104", f.pointer, "%s has %d characters; the limit is %s", about, utf8.RuneCountInString(text), limit)
	if f.keyword == "minLength" {
		d = diag.Newf("NF2104", f.pointer, "%s is empty", about)
	}
	d.AtKey = onKey
	t.add(d)
}

func (t *translator) tooFew(f fault) {
	t.add(diag.Newf("NF2104", f.pointer, "%s is empty; it needs at least %s", name(f.pointer), show(f.node[f.keyword])))
}

func (t *translator) tooMany(f fault) {
	count := 0
	switch v := f.value.(type) {
	case []any:
		count = len(v)
	case map[string]any:
		count = len(v)
	}
	t.add(diag.Newf("NF2111", f.pointer, "%s has %d items; the limit is %s", name(f.pointer), count, show(f.node[f.keyword])))
}

func (t *translator) duplicate(f fault) {
	list, _ := f.value.([]any)
	code := diag.Code("NF2110")
	if lastToken(f.pointer) == "semaphores" {
		code = "NF4010"
	}
	for i := range list {
		for j := range i {
			if jsontext.Equal(list[i], list[j]) {
				t.add(diag.Newf(code, f.pointer+"/"+strconv.Itoa(i), "%s stands twice in %s", show(list[i]), name(f.pointer)).WithHint("remove one of them"))
				break
			}
		}
	}
}

func (t *translator) missing(f fault) {
	object, _ := f.value.(map[string]any)
	for _, key := range texts(f.node["required"]) {
		if _, ok := object[key]; ok {
			continue
		}
		d := diag.Newf("NF2102", f.pointer, "required key %q is missing%s", key, t.in(f)).OnKey()
		if hint := missingHints[key]; hint != "" {
			d = d.WithHint(hint)
		}
		t.add(d)
	}
}

// in names the place of a fault: " in Semaphore spec".
func (t *translator) in(f fault) string {
	title, _ := f.node["title"].(string)
	if title == "" || len(f.tokens) == 0 {
		return ""
	}
	return " in " + title
}

func texts(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, _ := item.(string)
		out = append(out, s)
	}
	return out
}

func (t *translator) unknownKeys(f fault) {
	object, _ := f.value.(map[string]any)
	properties, _ := f.node["properties"].(map[string]any)
	allowed := slices.Sorted(maps.Keys(properties))
	free := make([]string, 0, len(allowed)) // what is already there was not meant by the misspelt key
	for _, key := range allowed {
		if _, ok := object[key]; !ok {
			free = append(free, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if _, ok := properties[key]; !ok {
			t.add(t.unknownKey(f, key, allowed, free))
		}
	}
}

func (t *translator) needsKey(f fault) {
	object, _ := f.value.(map[string]any)
	rules, _ := f.node["dependentRequired"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		if _, ok := object[key]; !ok {
			continue
		}
		for _, needed := range texts(rules[key]) {
			if _, ok := object[needed]; !ok {
				t.add(diag.Newf("NF2109", f.pointer+"/"+jsontext.EscapePointer(key), "%q needs %q beside it", key, needed).OnKey())
			}
		}
	}
}

// oneOfKeys judges `oneOf: [{required: [a]}, {required: [b]}]`, the only form of oneOf in nf's schemas.
func (t *translator) oneOfKeys(f fault) {
	object, _ := f.value.(map[string]any)
	branches, _ := f.node["oneOf"].([]any)
	var all, present []string
	for _, branch := range branches {
		node, _ := branch.(map[string]any)
		for _, key := range texts(node["required"]) {
			all = append(all, key)
			if _, ok := object[key]; ok {
				present = append(present, key)
			}
		}
	}
	if len(present) == 0 {
		t.add(diag.Newf("NF2102", f.pointer, "one of %s is required%s", strings.Join(all, ", "), t.in(f)).OnKey())
		return
	}
	for _, key := range present[1:] {
		t.add(diag.Newf("NF2108", f.pointer+"/"+jsontext.EscapePointer(key), "%q and %q exclude each other", present[0], key).
			WithHint("keep one of them").OnKey())
	}
}

// branch judges anyOf: the branch that the value's type fits is the one that was meant.
func (t *translator) branch(f fault) {
	branches, _ := f.node["anyOf"].([]any)
	var wanted []string
	for i, raw := range branches {
		node := t.resolve(raw)
		if isExpression(raw) {
			continue // a text that is an expression would have passed
		}
		if accepts(node, f.value) && i < len(f.causes) {
			t.walk(f.causes[i])
			return
		}
		wanted = append(wanted, schemaTypes(node)...)
	}
	t.typeFinding(f, wanted)
}

func isExpression(raw any) bool {
	node, _ := raw.(map[string]any)
	ref, _ := node["$ref"].(string)
	return strings.HasSuffix(ref, "#/$defs/expression")
}

// excluded judges not: in a definition of names a reserved name, `heartbeat` the gap between 0 and 1, and `not: {}` a key that has
// no meaning here, whose description says why.
func (t *translator) excluded(f fault) {
	description, _ := f.node["description"].(string)
	switch {
	case nameDefs[f.def]:
		t.add(diag.Newf("NF2106", f.pointer, "%s: %s is reserved", name(f.pointer), show(f.value)).WithHint(description))
	case f.def == "heartbeat":
		t.add(diag.Newf("NF2104", f.pointer, "%s is %s; it is 0 or at least 1", name(f.pointer), show(f.value)))
	default:
		t.add(diag.Newf("NF2108", f.pointer, "%s may not stand here: %s", name(f.pointer), description).WithHint(fmt.Sprintf("remove %s", name(f.pointer))).OnKey())
	}
}
