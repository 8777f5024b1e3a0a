// Package check finds what the schemas cannot see: what objects and tasks mean to each other.
//
// It is pure: one function a rule, the rules in a table. Findings name the object and a JSON Pointer into its manifest; the
// loader knows where that stands. What an object's own schema refused is not looked at, but its address counts as declared,
// so one mistake does not make ten.
package check

import (
	"maps"
	"slices"

	"nf/schema"
	"nf/schema/diag"
)

// Input is what is checked.
type Input struct {
	// Objects are the objects whose manifests are well-formed. Addresses are unique.
	Objects []schema.Object
	// Broken are addresses that are declared but whose content could not be read.
	Broken []schema.Address
	// Written gives the manifest of an object as plain JSON, as it was written: places in lists that an object keeps sorted
	// come from it.
	Written func(schema.Address) map[string]any
	// Origins says where objects are declared, for related places.
	Origins map[schema.Address]diag.Location
	// Methods are the methods of gRPC Targets whose descriptors are known: true for one that streams.
	Methods map[schema.Address]map[string]bool
}

// rule is one check of an object.
type rule func(*checker, schema.Object)

// rules are applied to each object in order.
func rules() []rule {
	return []rule{definitionRefs, semaphoreRefs, targetRefs, places, forks, switches, expressions, secrets, literals, methods, actingFields}
}

// All gives every finding about the objects, in the order of objects and rules.
func All(in Input) diag.List {
	c := &checker{in: in, objects: make(map[schema.Address]schema.Object, len(in.Objects)), broken: map[schema.Address]bool{}, tasks: map[*schema.Workflow][]placed{}, undispatched: map[schema.Address]undispatched{}}
	for _, o := range in.Objects {
		c.objects[o.Address()] = o
		if w, ok := o.(*schema.Workflow); ok {
			c.tasks[w] = place(w)
			c.index(w)
		}
	}
	for _, a := range in.Broken {
		c.broken[a] = true
	}
	for _, o := range in.Objects {
		c.current = o.Address()
		for _, r := range rules() {
			r(c, o)
		}
	}
	return c.list
}

// checker is the state of one call of All.
type checker struct {
	in           Input
	objects      map[schema.Address]schema.Object
	broken       map[schema.Address]bool
	tasks        map[*schema.Workflow][]placed
	undispatched map[schema.Address]undispatched
	current      schema.Address
	list         diag.List
}

// add adds a finding about the current object.
func (c *checker) add(d diag.Diagnostic) *diag.Diagnostic {
	a := c.current
	d.Object = &diag.Object{Kind: string(a.Kind), Namespace: a.Namespace, Name: a.Name}
	c.list = append(c.list, d)
	return &c.list[len(c.list)-1]
}

// declared says whether an address is declared, with readable content or not.
func (c *checker) declared(a schema.Address) bool {
	return c.objects[a] != nil || c.broken[a]
}

// names lists the declared objects of a kind as an object of the namespace would write them.
func (c *checker) names(kind schema.Kind, namespace string, across bool) []string {
	var out []string
	take := func(a schema.Address) {
		if a.Kind == kind && (across || a.Namespace == namespace) {
			out = append(out, schema.Ref{Namespace: a.Namespace, Name: a.Name}.Short(namespace))
		}
	}
	for a := range c.objects {
		take(a)
	}
	for a := range c.broken {
		take(a)
	}
	slices.Sort(out)
	return out
}

// maxSuggestions is after how many findings no more suggestions are looked for: each is compared with every name.
const maxSuggestions = 500

// similar adds a did-you-mean hint and the place of what may be meant.
func (c *checker) similar(d diag.Diagnostic, kind schema.Kind, namespace, text string, across bool) diag.Diagnostic {
	if len(c.list) > maxSuggestions {
		return d
	}
	near := diag.Nearest(text, c.names(kind, namespace, across))
	if len(near) == 0 {
		return d
	}
	d = d.WithHint(diag.Suggest(near))
	if len(near) == 1 {
		d = d.Replacing(near[0], false)
	}
	for _, name := range near {
		ref := schema.ParseRef(name, namespace)
		d = c.relate(d, schema.Address{Kind: kind, Namespace: ref.Namespace, Name: ref.Name}, "similar name defined here")
	}
	return d
}

// relate adds the place of another object.
func (c *checker) relate(d diag.Diagnostic, a schema.Address, message string) diag.Diagnostic {
	if at, ok := c.in.Origins[a]; ok {
		d.Related = append(d.Related, diag.Related{File: at.File, Start: at.Range.Start, Message: message})
	}
	return d
}

// workflow gives the tasks of an object if it is a workflow.
func (c *checker) workflow(o schema.Object) (*schema.Workflow, []placed) {
	w, ok := o.(*schema.Workflow)
	if !ok {
		return nil, nil
	}
	return w, c.tasks[w]
}

// written gives a value of the current object's manifest by keys.
func (c *checker) written(keys ...string) any {
	if c.in.Written == nil {
		return nil
	}
	var v any = c.in.Written(c.current)
	for _, key := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// sortedKeys gives the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
