package expr

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"nf/schema/diag"
	"nf/schema/jsontext"
)

// MaxExpressions is how many expressions one value, such as the input of a task, may hold (contract 7.1).
const MaxExpressions = 1_000

// ValueTemplate is a parsed value: any JSON whose texts are templates. The zero value is null.
type ValueTemplate struct {
	root node
	refs []Ref
}

// node is one of: a constant (kind constant), a text with expressions, a list, a map with sorted keys.
type node struct {
	kind     nodeKind
	constant any
	size     int // as compact JSON: of a constant all of it, of a list or map what stands around its items
	depth    int // levels of maps and lists in a constant
	text     Template
	keys     []string
	items    []node
}

type nodeKind uint8

const (
	constantNode nodeKind = iota // the zero value is the constant null
	textNode
	listNode
	mapNode
)

// ParseValue reads a value. Findings carry the JSON Pointer inside the value and the span inside the text. With findings, all
// of them errors, the template is not to be evaluated.
func ParseValue(v any) (ValueTemplate, diag.List) {
	return ParseValueAt(v, "")
}

// ParseValueAt is ParseValue with pointers that begin with the place of the value.
func ParseValueAt(v any, pointer string) (ValueTemplate, diag.List) {
	p := valueParser{}
	t := ValueTemplate{root: p.parse(v, pointer, 0)}
	if len(p.refs) > MaxExpressions {
		p.findings = append(p.findings, diag.Newf("NF2111", pointer, "value holds %d expressions, the limit is %d", len(p.refs), MaxExpressions))
	}
	t.refs = p.refs
	return t, p.findings
}

// Constant says whether the value holds no expression.
func (t ValueTemplate) Constant() bool { return len(t.refs) == 0 }

// Refs lists the references, in the order of the sorted keys.
func (t ValueTemplate) Refs() []Ref { return slices.Clone(t.refs) }

type valueParser struct {
	refs     []Ref
	findings diag.List
}

func (p *valueParser) parse(v any, pointer string, depth int) node {
	if depth > jsontext.MaxDepth {
		p.findings = append(p.findings, diag.Newf("NF1013", pointer, "value is nested deeper than %d levels", jsontext.MaxDepth))
		return node{}
	}
	switch v := v.(type) {
	case string:
		t, findings := parse(v, pointer)
		p.findings = append(p.findings, findings...)
		if t.Constant() {
			return constant(t.literal, 0)
		}
		p.refs = t.refs(p.refs)
		return node{kind: textNode, text: t}
	case []any:
		n := node{kind: listNode, items: make([]node, len(v))}
		for i, item := range v {
			n.items[i] = p.parse(item, pointer+"/"+strconv.Itoa(i), depth+1)
		}
		return n.folded()
	case map[string]any:
		n := node{kind: mapNode, keys: slices.Sorted(maps.Keys(v)), items: make([]node, len(v))}
		for i, key := range n.keys {
			n.items[i] = p.parse(v[key], pointer+"/"+jsontext.EscapePointer(key), depth+1)
		}
		return n.folded()
	}
	return constant(v, 0)
}

func constant(v any, depth int) node {
	size, err := jsontext.Measure(v, 0, 0)
	if err != nil { // a type that is not JSON: a mistake in our own code, shown when it is written
		size = len(fmt.Sprint(v))
	}
	return node{constant: v, size: size, depth: depth}
}

// folded sizes a map or list, and turns one of constants into one constant, so that evaluating it costs nothing.
func (n node) folded() node {
	n.size = 2 + max(0, len(n.items)-1)
	for _, key := range n.keys {
		n.size += textSize(key) + 1
	}
	size, depth := n.size, 0
	for _, item := range n.items {
		if item.kind != constantNode {
			return n
		}
		size += item.size
		depth = max(depth, item.depth)
	}
	return node{constant: n.build(func(i int) any { return n.items[i].constant }), size: size, depth: depth + 1}
}

func (n node) build(item func(i int) any) any {
	if n.kind == listNode {
		list := make([]any, len(n.items))
		for i := range list {
			list[i] = item(i)
		}
		return list
	}
	object := make(map[string]any, len(n.items))
	for i, key := range n.keys {
		object[key] = item(i)
	}
	return object
}

func textSize(s string) int {
	size, _ := jsontext.Measure(s, 0, 0) // a text cannot be too deep
	return size
}
