package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nf/schema/jsontext"
)

// graph is what a JSON Schema applies to what: the ground for bounding the cost of a check before it is made.
//
// The library evaluates naively: a schema that is reached twice at one value is evaluated twice. Inside one value that is bounded
// by the unfolding of each schema; over nested values a recursive schema that reaches itself twice doubles with each level. The
// first is refused when the schema is compiled, the second is counted on the very value before it is checked.
type graph struct {
	nodes  []node
	order  []int // nodes, those that apply others in place before those they apply
	widest int   // most evaluations that can meet at one value, saturated
}

// node is one subschema.
type node struct {
	pointer  string
	inPlace  []edge
	children []edge
}

// edge applies a schema: in place, or to some of the children of a value.
type edge struct {
	to    int
	place place
	key   string // of a property
	index int    // of a prefix item
}

type place uint8

const (
	samePlace   place = iota
	property          // the value of one key
	anyProperty       // values of keys
	prefixItem        // one item
	anyItem           // items
	propertyKey       // keys themselves: texts, which have no children
)

// saturated is where counting stops: far above every limit, far below overflow.
const saturated = 1 << 40

type graphBuilder struct {
	doc     any
	byPlace map[string]int
	anchors map[string]int
	refs    []pendingRef
	nodes   []node
}

type pendingRef struct {
	from    int
	pointer string
	ref     string
}

func newGraph(doc any) (*graph, error) {
	b := &graphBuilder{doc: doc, byPlace: map[string]int{}, anchors: map[string]int{}}
	if _, err := b.visit(doc, ""); err != nil {
		return nil, err
	}
	for len(b.refs) > 0 { // a reference may lead to a place that was not yet known to hold a schema
		next := b.refs[0]
		b.refs = b.refs[1:]
		to, err := b.target(next)
		if err != nil {
			return nil, err
		}
		b.nodes[next.from].inPlace = append(b.nodes[next.from].inPlace, edge{to: to})
	}
	g := &graph{nodes: b.nodes}
	if err := g.sort(); err != nil {
		return nil, err
	}
	if err := g.unfold(); err != nil {
		return nil, err
	}
	g.widest = g.growth()
	return g, nil
}

func (b *graphBuilder) visit(v any, pointer string) (int, error) {
	if id, ok := b.byPlace[pointer]; ok {
		return id, nil
	}
	id := len(b.nodes)
	if id >= MaxSubschemas {
		return 0, &SchemaError{Pointer: pointer, Message: fmt.Sprintf("schema has more than %d subschemas", MaxSubschemas)}
	}
	b.byPlace[pointer] = id
	b.nodes = append(b.nodes, node{pointer: pointer})
	switch v := v.(type) {
	case bool:
		return id, nil
	case map[string]any:
		return id, b.keywords(id, v, pointer)
	}
	return 0, &SchemaError{Pointer: pointer, Message: "a schema is a map, true or false, not " + article(jsontext.TypeName(v))}
}

func (b *graphBuilder) keywords(id int, m map[string]any, pointer string) error {
	for _, keyword := range slices.Sorted(maps.Keys(m)) {
		at := pointer + "/" + jsontext.EscapePointer(keyword)
		if err := b.keyword(id, keyword, m, pointer, at); err != nil {
			return err
		}
	}
	return nil
}

func (b *graphBuilder) keyword(id int, keyword string, m map[string]any, pointer, at string) error {
	value := m[keyword]
	switch keyword {
	case "$schema", "$id", "$vocabulary":
		return b.identity(keyword, value, pointer, at)
	case "$ref", "$dynamicRef":
		return b.reference(id, value, at)
	case "$anchor", "$dynamicAnchor":
		if text, ok := value.(string); ok {
			b.anchors[text] = id
		}
	case "pattern":
		return checkPattern(value, at)
	case "allOf", "anyOf", "oneOf":
		return b.list(id, value, at, func(int) edge { return edge{} })
	case "not", "if", "then", "else":
		return b.single(id, value, at, edge{})
	case "dependentSchemas", "dependencies":
		return b.byKey(id, value, at, func(string) edge { return edge{} })
	case "properties":
		return b.byKey(id, value, at, func(key string) edge { return edge{place: property, key: key} })
	case "patternProperties":
		if patterns, ok := value.(map[string]any); ok {
			for _, p := range slices.Sorted(maps.Keys(patterns)) {
				if err := checkPattern(p, at); err != nil {
					return err
				}
			}
		}
		return b.byKey(id, value, at, func(string) edge { return edge{place: anyProperty} })
	case "additionalProperties", "unevaluatedProperties":
		return b.single(id, value, at, edge{place: anyProperty})
	case "propertyNames":
		return b.single(id, value, at, edge{place: propertyKey})
	case "prefixItems":
		return b.list(id, value, at, func(i int) edge { return edge{place: prefixItem, index: i} })
	case "items", "contains", "unevaluatedItems":
		return b.single(id, value, at, edge{place: anyItem})
	case "$defs", "definitions", "contentSchema":
		return b.defs(keyword, value, at)
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains":
		m[keyword] = bounded(value)
	default:
		if !slices.Contains(keywords, keyword) {
			if near := misspelt(keyword); near != "" {
				return &SchemaError{Pointer: at, Message: fmt.Sprintf("unknown keyword %q: did you mean %q?", keyword, near)}
			}
		}
	}
	return nil
}

// bounded keeps a count inside what the library computes with: beyond an int it would come out negative.
func bounded(v any) any {
	n, ok := v.(json.Number)
	if ok && jsontext.Compare(n, "1000000000000") > 0 {
		return json.Number("1000000000000")
	}
	return v
}

func (b *graphBuilder) identity(keyword string, value any, pointer, at string) error {
	text, isText := value.(string)
	switch {
	case pointer != "":
		return &SchemaError{Pointer: at, Message: keyword + " may stand at the root of the schema only"}
	case keyword == "$schema" && (!isText || strings.TrimSuffix(text, "#") != draft):
		return &SchemaError{Pointer: at, Message: "nf reads JSON Schema 2020-12: write " + draft + ", or leave $schema out"}
	case keyword == "$vocabulary":
		return &SchemaError{Pointer: at, Message: "$vocabulary belongs to meta-schemas; remove it"}
	}
	return nil
}

func (b *graphBuilder) reference(id int, value any, at string) error {
	text, ok := value.(string)
	if !ok || !strings.HasPrefix(text, "#") {
		return &SchemaError{Pointer: at, Message: fmt.Sprintf("reference %s leads outside: only references inside the schema (#…) are allowed", show(value))}
	}
	b.refs = append(b.refs, pendingRef{from: id, pointer: at, ref: text})
	return nil
}

func (b *graphBuilder) target(r pendingRef) (int, error) {
	fragment, err := url.PathUnescape(strings.TrimPrefix(r.ref, "#"))
	missing := &SchemaError{Pointer: r.pointer, Message: fmt.Sprintf("reference %q names nothing in the schema", r.ref)}
	if err != nil {
		return 0, missing
	}
	if fragment != "" && fragment[0] != '/' {
		if id, ok := b.anchors[fragment]; ok {
			return id, nil
		}
		return 0, missing
	}
	v, ok := lookup(b.doc, plainTokens(fragment))
	if !ok {
		return 0, missing
	}
	return b.visit(v, fragment)
}

func checkPattern(value any, at string) error {
	text, ok := value.(string)
	if !ok {
		return nil // the meta-schema says so
	}
	if _, err := regexp.Compile(text); err != nil {
		return &SchemaError{Pointer: at, Message: fmt.Sprintf("pattern %s cannot be used: %v (RE2 syntax, which has no look-ahead and no back-references)", show(text), err)}
	}
	return nil
}

func (b *graphBuilder) single(id int, value any, at string, e edge) error {
	to, err := b.visit(value, at)
	if err != nil {
		return err
	}
	b.link(id, to, e)
	return nil
}

func (b *graphBuilder) link(id, to int, e edge) {
	e.to = to
	if e.place == samePlace {
		b.nodes[id].inPlace = append(b.nodes[id].inPlace, e)
	} else {
		b.nodes[id].children = append(b.nodes[id].children, e)
	}
}

func (b *graphBuilder) list(id int, value any, at string, e func(int) edge) error {
	list, ok := value.([]any)
	if !ok {
		return nil // the meta-schema says so
	}
	for i, item := range list {
		if err := b.single(id, item, at+"/"+strconv.Itoa(i), e(i)); err != nil {
			return err
		}
	}
	return nil
}

func (b *graphBuilder) byKey(id int, value any, at string, e func(string) edge) error {
	m, ok := value.(map[string]any)
	if !ok {
		return nil // the meta-schema says so
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if _, isList := m[key].([]any); isList {
			continue // dependencies as a list of keys
		}
		if err := b.single(id, m[key], at+"/"+jsontext.EscapePointer(key), e(key)); err != nil {
			return err
		}
	}
	return nil
}

func (b *graphBuilder) defs(keyword string, value any, at string) error {
	if keyword == "contentSchema" { // never asserted
		_, err := b.visit(value, at)
		return err
	}
	m, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if _, err := b.visit(m[key], at+"/"+jsontext.EscapePointer(key)); err != nil {
			return err
		}
	}
	return nil
}

// sort orders the nodes along their in-place edges; a cycle would never end.
func (g *graph) sort() error {
	const entered, left = 1, 2
	state := make([]int, len(g.nodes))
	var visit func(id int) error
	visit = func(id int) error {
		switch state[id] {
		case entered:
			return &SchemaError{Pointer: g.nodes[id].pointer, Message: "schema applies itself to the same value without end"}
		case left:
			return nil
		}
		state[id] = entered
		for _, e := range g.nodes[id].inPlace {
			if err := visit(e.to); err != nil {
				return err
			}
		}
		state[id] = left
		g.order = append(g.order, id)
		return nil
	}
	for id := range g.nodes {
		if err := visit(id); err != nil {
			return err
		}
	}
	slices.Reverse(g.order)
	return nil
}

// unfold refuses a schema that alone brings more than MaxUnfolding evaluations to one value.
func (g *graph) unfold() error {
	size := make([]int, len(g.nodes))
	for _, id := range slices.Backward(g.order) {
		size[id] = 1
		for _, e := range g.nodes[id].inPlace {
			size[id] = min(saturated, size[id]+size[e.to])
		}
		if size[id] > MaxUnfolding {
			return &SchemaError{Pointer: g.nodes[id].pointer, Message: fmt.Sprintf("more than %d schemas meet at one value when references and alternatives are unfolded", MaxUnfolding)}
		}
	}
	return nil
}

// spread adds to counts what the counted schemas apply in place, and gives the sum.
func (g *graph) spread(counts []int) int {
	total := 0
	for _, id := range g.order {
		n := counts[id]
		if n == 0 {
			continue
		}
		total = min(saturated, total+n)
		for _, e := range g.nodes[id].inPlace {
			counts[e.to] = min(saturated, counts[e.to]+n)
		}
	}
	return total
}

// growth bounds the evaluations that can meet at one value of any document: level by level, the most that any choice of key or
// item can bring, schema by schema.
func (g *graph) growth() int {
	counts := make([]int, len(g.nodes))
	counts[0] = 1
	widest := 0
	for range jsontext.MaxDepth + 1 {
		before := slices.Clone(counts)
		total := g.spread(counts)
		widest = max(widest, total)
		if total == 0 || widest >= saturated {
			break
		}
		next := g.next(counts)
		if slices.Equal(next, before) {
			break
		}
		counts = next
	}
	return widest
}

func (g *graph) next(counts []int) []int {
	keys, items := map[string][]int{}, map[int][]int{}
	everywhere := make([]int, len(g.nodes)) // what every key or item may get
	for id, n := range counts {
		if n == 0 {
			continue
		}
		for _, e := range g.nodes[id].children {
			into := everywhere
			switch e.place {
			case property:
				into = row(keys, e.key, len(g.nodes))
			case prefixItem:
				into = row(items, e.index, len(g.nodes))
			case anyProperty, anyItem, propertyKey, samePlace:
			}
			into[e.to] = min(saturated, into[e.to]+n)
		}
	}
	next := slices.Clone(everywhere)
	for _, one := range keys {
		for id, n := range one {
			next[id] = max(next[id], min(saturated, everywhere[id]+n))
		}
	}
	for _, one := range items {
		for id, n := range one {
			next[id] = max(next[id], min(saturated, everywhere[id]+n))
		}
	}
	return next
}

func row[K comparable](rows map[K][]int, key K, size int) []int {
	r, ok := rows[key]
	if !ok {
		r = make([]int, size)
		rows[key] = r
	}
	return r
}

// cost counts the evaluations that checking a value takes, up to a little more than limit. It takes schemas in bulk, so it costs
// about the size of the value times the schemas that are active there, however often each of them is reached.
func (g *graph) cost(v any, limit int) int {
	counts := make([]int, len(g.nodes))
	counts[0] = 1
	return g.costOf(v, counts, limit)
}

func (g *graph) costOf(v any, counts []int, limit int) int {
	const counted = 50 // schemas that are counted in the time that one takes to be applied
	total := g.spread(counts) + len(g.nodes)/counted
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			if total > limit {
				return total
			}
			next, keyed := g.below(counts, func(e edge) bool { return e.place == anyProperty || e.place == property && e.key == key }, propertyKey)
			total += g.costOf(item, next, limit-total) + keyed
		}
	case []any:
		for i, item := range v {
			if total > limit {
				return total
			}
			next, _ := g.below(counts, func(e edge) bool { return e.place == anyItem || e.place == prefixItem && e.index == i }, samePlace)
			total += g.costOf(item, next, limit-total)
		}
	}
	return total
}

// below gives the counts for one child of a value, and how many schemas are applied to its key.
func (g *graph) below(counts []int, applies func(edge) bool, keys place) (next []int, keyed int) {
	next = make([]int, len(g.nodes))
	for id, n := range counts {
		if n == 0 {
			continue
		}
		for _, e := range g.nodes[id].children {
			switch {
			case applies(e):
				next[e.to] = min(saturated, next[e.to]+n)
			case e.place == keys && keys != samePlace:
				keyed = min(saturated, keyed+n)
			}
		}
	}
	return next, keyed
}
