package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"nf/schema/jsontext"
)

// Scope gives the value of a part of a root: Scope("workflow", "input"), Scope("charge", "output"). What does not exist, or not
// yet, is nil.
type Scope func(root, part string) any

// Limits bounds what an evaluation builds.
type Limits struct {
	Bytes int // of the result as compact JSON; 0 = no limit
	Depth int // levels of maps and lists in the result; 0 = jsontext.MaxDepth
}

// LimitError says that a value would be larger or deeper than it may be. Evaluation has no other error.
type LimitError struct {
	Deep  bool // depth, else size
	Limit int  // bytes or levels
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.Deep {
		return fmt.Sprintf("resolved value is nested deeper than %d levels", e.Limit)
	}
	return fmt.Sprintf("resolved value is over the limit of %d bytes", e.Limit)
}

// Eval builds the value. Its only error is a *LimitError, given as soon as a limit is passed: memory stays below twice the
// limit, whatever the references hold.
func (t ValueTemplate) Eval(scope Scope, limits Limits) (any, error) {
	e := newEvaluation(scope, limits)
	return e.node(&t.root, 0)
}

// Eval builds the value of a single text: see ValueTemplate.Eval.
func (t Template) Eval(scope Scope, limits Limits) (any, error) {
	n := node{kind: textNode, text: t}
	if t.Constant() {
		n = constant(t.literal, 0)
	}
	return ValueTemplate{root: n}.Eval(scope, limits)
}

// EvalEscaped builds the text with each resolved value, a whole one too, as text passed through escape, whose error is returned
// as it is. The literal parts are the author's and stay as they are. It is for texts where a value must not act as syntax,
// such as the path of a call.
func (t Template) EvalEscaped(scope Scope, limits Limits, escape func(string) (string, error)) (string, error) {
	if t.Constant() {
		return t.literal, nil
	}
	e := newEvaluation(scope, limits)
	var buffer []byte
	for i := range t.parts {
		part := t.parts[i].text
		if ref := t.parts[i].ref; ref != nil {
			value := e.find(ref)
			if _, err := e.embeddedSize(value, e.left-len(buffer)); err != nil {
				return "", err
			}
			var err error
			if part, err = escape(string(embed(nil, value))); err != nil {
				return "", err
			}
		}
		if len(buffer)+len(part) > e.left {
			return "", &LimitError{Limit: limits.Bytes}
		}
		buffer = append(buffer, part...)
	}
	return string(buffer), nil
}

func newEvaluation(scope Scope, limits Limits) evaluation {
	e := evaluation{scope: scope, limits: limits, left: limits.Bytes}
	if limits.Bytes <= 0 {
		e.left = math.MaxInt
	}
	if limits.Depth <= 0 {
		e.limits.Depth = jsontext.MaxDepth
	}
	return e
}

type evaluation struct {
	scope  Scope
	limits Limits
	left   int // bytes
}

func (e *evaluation) spend(n int) error {
	if n > e.left {
		return &LimitError{Limit: e.limits.Bytes}
	}
	e.left -= n
	return nil
}

// measured spends the size of a value that already exists and is shared.
func (e *evaluation) measured(v any, depth int) error {
	size, err := jsontext.Measure(v, max(1, e.left), max(1, e.limits.Depth-depth))
	switch {
	case errors.Is(err, jsontext.ErrTooDeep):
		return &LimitError{Deep: true, Limit: e.limits.Depth}
	case err != nil:
		return &LimitError{Limit: e.limits.Bytes}
	}
	return e.spend(size)
}

func (e *evaluation) node(n *node, depth int) (any, error) {
	switch n.kind {
	case constantNode:
		if depth+n.depth > e.limits.Depth {
			return nil, &LimitError{Deep: true, Limit: e.limits.Depth}
		}
		return n.constant, e.spend(n.size)
	case textNode:
		if n.text.Whole() {
			v := e.find(n.text.parts[0].ref)
			return v, e.measured(v, depth)
		}
		return e.text(n.text.parts)
	case listNode:
		list := make([]any, len(n.items))
		err := e.items(n, depth, func(i int, v any) { list[i] = v })
		return list, err
	case mapNode:
		object := make(map[string]any, len(n.items))
		err := e.items(n, depth, func(i int, v any) { object[n.keys[i]] = v })
		return object, err
	}
	return nil, nil
}

func (e *evaluation) items(n *node, depth int, put func(i int, v any)) error {
	if depth+1 > e.limits.Depth {
		return &LimitError{Deep: true, Limit: e.limits.Depth}
	}
	if err := e.spend(n.size); err != nil {
		return err
	}
	for i := range n.items {
		v, err := e.node(&n.items[i], depth+1)
		if err != nil {
			return err
		}
		put(i, v)
	}
	return nil
}

func (e *evaluation) find(ref *Ref) any {
	return ref.Path.Find(e.scope(ref.Root, ref.Part))
}

// text joins literal parts and resolved references. All lengths are known before the first byte is written, so that nothing is
// built that would pass the limit; what escaping adds is spent at the end.
func (e *evaluation) text(parts []segment) (any, error) {
	values := make([]any, len(parts))
	total := 0
	for i := range parts {
		size := len(parts[i].text)
		if parts[i].ref != nil {
			var err error
			values[i] = e.find(parts[i].ref)
			if size, err = e.embeddedSize(values[i], e.left-total); err != nil {
				return nil, err
			}
		}
		if total += size; total > e.left {
			return nil, &LimitError{Limit: e.limits.Bytes}
		}
	}
	buffer := make([]byte, 0, total)
	for i := range parts {
		if parts[i].ref == nil {
			buffer = append(buffer, parts[i].text...)
		} else {
			buffer = embed(buffer, values[i])
		}
	}
	text := string(buffer)
	return text, e.spend(textSize(text))
}

func (e *evaluation) embeddedSize(v any, room int) (int, error) {
	switch v := v.(type) {
	case nil:
		return 0, nil
	case string:
		return len(v), nil
	}
	size, err := jsontext.Measure(v, max(1, room), 0)
	if err != nil {
		return 0, &LimitError{Limit: e.limits.Bytes}
	}
	return size, nil
}

// embed writes a value into a text: a text as it is, null as nothing, everything else as compact JSON.
func embed(buffer []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return buffer
	case string:
		return append(buffer, v...)
	case json.Number:
		return append(buffer, v...)
	}
	out, err := jsontext.Append(buffer, v)
	if err != nil { // a value of our own making that is not JSON
		return append(buffer, fmt.Sprint(v)...)
	}
	return out
}
