package plan

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nf/schema"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// form is an object as fields are compared: the effective tree, and the one that holds only what is not default.
type form struct{ effective, written map[string]any }

// formOf gives the form of an object's spec.
func formOf(o schema.Object) form {
	written, err := jsontext.DecodeObject(schema.Canonical(o), jsontext.Limits{})
	if err != nil {
		written = map[string]any{} // Canonical always gives an object; no flags of defaults then
	}
	return form{schema.Tree(o), written}
}

// fields compares two objects; before is nil for an add.
func fields(before, after schema.Object) []FieldChange {
	d := &differ{}
	none := form{map[string]any{}, map[string]any{}}
	old, now := none, none
	oldMeta, newMeta := schema.Metadata{}, schema.Metadata{}
	if before != nil {
		old, oldMeta = formOf(before), before.Meta()
	}
	if after != nil {
		now, newMeta = formOf(after), after.Meta()
	}
	d.maps(at{pointer: "/metadata/labels", path: "metadata.labels"}, texts(oldMeta.Labels), texts(newMeta.Labels))
	d.value(at{pointer: "/metadata/description", path: "metadata.description"}, orNil(oldMeta.Description), orNil(newMeta.Description))
	spec := at{pointer: "/spec", path: "spec", content: true, old: old.written, now: now.written}
	if before == nil {
		// of an added object only what its author wrote is worth showing
		d.maps(spec, map[string]any{}, d.only(now.effective, now.written))
	} else {
		d.maps(spec, old.effective, now.effective)
	}
	return d.out
}

// only keeps the top-level keys of the effective form that are written.
func (d *differ) only(effective, written map[string]any) map[string]any {
	kept := map[string]any{}
	for key, v := range effective {
		if _, ok := written[key]; ok {
			kept[key] = v
		}
	}
	return kept
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// at is a place in a manifest, as a pointer and for people.
type at struct {
	pointer, path string
	content       bool // in the spec, where old and now hold what stands at the place in the written forms; nil: nothing, so a default
	old, now      any
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func (a at) key(key string) at {
	path := a.path + "." + key
	if !plainKey.MatchString(key) {
		path = a.path + "[" + strconv.Quote(key) + "]"
	}
	return at{a.pointer + "/" + jsontext.EscapePointer(key), path, a.content, member(a.old, key), member(a.now, key)}
}

func member(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}

// item is the place of an item that was the j-th and is the i-th. A place that it does not have is below 0.
func (a at) item(j, i int, name string) at {
	return at{a.pointer + "/" + strconv.Itoa(max(i, 0)), a.path + "[" + name + "]", a.content, element(a.old, j), element(a.now, i)}
}

func element(v any, i int) any {
	if list, _ := v.([]any); i >= 0 && i < len(list) {
		return list[i]
	}
	return nil
}

// differ gathers differences.
type differ struct{ out []FieldChange }

// add notes a difference. A default that is there in one form only, because the other has no such field (timeoutMs of a call that now names a
// Target, whose own counts), was neither written nor removed by anybody: it is none.
func (d *differ) add(a at, op Op, before, after any) {
	c := FieldChange{Pointer: a.pointer, Path: a.path, Op: op, Before: before, After: after}
	if op == OpReplace || op == OpRemove {
		c.BeforeDefault = a.content && a.old == nil && before != nil
	}
	if op == OpReplace || op == OpAdd {
		c.AfterDefault = a.content && a.now == nil && after != nil
	}
	if op == OpRemove && c.BeforeDefault || op == OpAdd && c.AfterDefault {
		return
	}
	if sensitive(a.pointer, before) || sensitive(a.pointer, after) {
		c.Sensitive, c.Before, c.After = true, nil, nil
	}
	d.out = append(d.out, c)
}

// value compares two values; nil stands for absent.
func (d *differ) value(a at, before, after any) {
	switch {
	case jsontext.Equal(before, after):
		return
	case before == nil:
		d.add(a, OpAdd, nil, after)
		return
	case after == nil:
		d.add(a, OpRemove, before, nil)
		return
	}
	oldMap, isMap := before.(map[string]any)
	newMap, both := after.(map[string]any)
	if isMap && both && !isSecret(oldMap) && !isSecret(newMap) {
		d.maps(a, oldMap, newMap)
		return
	}
	oldList, isList := before.([]any)
	newList, both := after.([]any)
	if isList && both {
		d.lists(a, oldList, newList)
		return
	}
	d.add(a, OpReplace, before, after)
}

func (d *differ) maps(a at, before, after map[string]any) {
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, has := before[key]; !has {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		old, had := before[key]
		now, has := after[key]
		switch {
		case had && has && (old == nil) != (now == nil):
			d.add(a.key(key), OpReplace, old, now) // an explicit null is not absence
		case !had && has && now == nil:
			d.add(a.key(key), OpAdd, nil, nil)
		case had && !has && old == nil:
			d.add(a.key(key), OpRemove, nil, nil)
		default:
			d.value(a.key(key), old, now)
		}
	}
}

// lists compares lists: tasks by their reference, lists of texts as sets when their items are unique, others by place.
func (d *differ) lists(a at, before, after []any) {
	oldRefs, byRef := taskRefs(before)
	newRefs, both := taskRefs(after)
	switch {
	case byRef && both && len(before)+len(after) > 0:
		d.keyed(a, before, after, oldRefs, newRefs)
	case scalars(before) && scalars(after):
		d.add(a, OpReplace, before, after)
	default:
		d.byPlace(a, before, after)
	}
}

func (d *differ) byPlace(a at, before, after []any) {
	for i := range max(len(before), len(after)) {
		p := a.item(i, i, strconv.Itoa(i))
		switch {
		case i >= len(before):
			d.add(p, OpAdd, nil, after[i])
		case i >= len(after):
			d.add(p, OpRemove, before[i], nil)
		default:
			d.value(p, before[i], after[i])
		}
	}
}

// keyed compares two task lists.
func (d *differ) keyed(a at, before, after []any, oldRefs, newRefs []string) {
	old := map[string]int{}
	for i, ref := range oldRefs {
		old[ref] = i
	}
	var kept []string
	now := map[string]bool{}
	for i, ref := range newRefs {
		now[ref] = true
		if j, had := old[ref]; had {
			kept = append(kept, ref)
			d.value(a.item(j, i, ref), before[j], after[i])
		} else {
			d.add(a.item(-1, i, ref), OpAdd, nil, after[i])
		}
	}
	var keptBefore []string
	for i, ref := range oldRefs {
		if now[ref] {
			keptBefore = append(keptBefore, ref)
		} else {
			p := a.item(i, i, ref)
			p.now = nil
			d.add(p, OpRemove, before[i], nil)
		}
	}
	if !slices.Equal(kept, keptBefore) {
		d.add(a, OpReorder, anys(keptBefore), anys(kept))
	}
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// taskRefs gives the references of a list of tasks. It says false if the list is none.
func taskRefs(list []any) ([]string, bool) {
	refs, seen := make([]string, 0, len(list)), make(map[string]bool, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		ref, ok := m["taskReferenceName"].(string)
		if !ok || seen[ref] {
			return nil, false
		}
		seen[ref] = true
		refs = append(refs, ref)
	}
	return refs, true
}

func scalars(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool {
		k := reflect.ValueOf(v).Kind()
		return k == reflect.Map || k == reflect.Slice
	})
}

// isSecret says whether a map is a secret reference, which is compared as a whole.
func isSecret(m map[string]any) bool {
	_, ok := m["secretRef"]
	return ok
}

var secretName = regexp.MustCompile(`(?i)authori[sz]ation|cookie|secret|token|passw|api[-_]?key|credential|private`)

// sensitive says whether a value is not shown: a secret reference, or literal text in a field whose name is that of a secret.
func sensitive(pointer string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if isSecret(v) {
			return true
		}
		for key, in := range v {
			if sensitive("/"+key, in) {
				return true
			}
		}
	case []any:
		for _, in := range v {
			if sensitive("", in) {
				return true
			}
		}
	case string:
		name := pointer[strings.LastIndexByte(pointer, '/')+1:]
		return secretName.MatchString(name) && !expr.Has(v) && !strings.Contains(pointer, "Schema/")
	case json.Number, bool, nil:
	}
	return false
}
