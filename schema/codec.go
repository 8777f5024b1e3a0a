package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nf/schema/jsontext"
)

// codec walks the fields of an object, each described once: its key, where it lives in Go and its default. The same walk reads a
// tree into Go, writes Go into a tree without defaults (the canonical form) or with them (the effective form).
type codec struct {
	mode   mode
	stored bool           // the canonical form: what files were compiled to stands in place of their names
	ns     string         // namespace of the object, filled into references
	path   string         // of the map, for errors
	tree   map[string]any // read from, or written to
	known  map[string]bool
	err    error
}

type mode int

const (
	reading  mode = iota + 1
	writing       // without values that equal their default
	complete      // writing with them
)

func (c *codec) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %s", strings.TrimPrefix(c.path+"."+key, "."), fmt.Sprintf(format, args...))
	}
}

// take gives the value of a key when reading.
func (c *codec) take(key string) (any, bool) {
	c.known[key] = true
	v, ok := c.tree[key]
	return v, ok
}

// put writes a value unless it is a default that the form leaves out.
func (c *codec) put(key string, v any, isDefault bool) {
	c.known[key] = true
	if c.mode == complete || !isDefault {
		c.tree[key] = v
	}
}

// finish refuses keys that no field took: the schemas and the Go types would disagree.
func (c *codec) finish() error {
	if c.err != nil || c.mode != reading {
		return c.err
	}
	for _, key := range slices.Sorted(maps.Keys(c.tree)) {
		if !c.known[key] {
			c.fail(key, "unknown key")
		}
	}
	return c.err
}

// inner makes the codec of a nested map.
func (c *codec) inner(key string, tree map[string]any) *codec {
	return &codec{mode: c.mode, stored: c.stored, ns: c.ns, path: strings.TrimPrefix(c.path+"."+key, "."), tree: tree, known: map[string]bool{}}
}

func (c *codec) adopt(in *codec) {
	if err := in.finish(); err != nil && c.err == nil {
		c.err = err
	}
}

// text is a field that holds text, or a word of a closed list.
func text[T ~string](c *codec, key string, v *T, def T) {
	if c.mode != reading {
		c.put(key, string(*v), *v == def)
		return
	}
	*v = def
	if raw, ok := c.take(key); ok {
		s, isText := raw.(string)
		if !isText {
			c.fail(key, "must be text, not %s", jsontext.TypeName(raw))
			return
		}
		*v = T(s)
	}
}

// whole is a whole number. In a field whose absence means "no limit", 0 is the default and never written.
func whole[T ~int | ~int64](c *codec, key string, v *T, def T) {
	if c.mode != reading {
		if c.mode == complete && def == 0 && *v == 0 { // absent, not zero
			c.known[key] = true
			return
		}
		c.put(key, jsontext.Integer(int64(*v)), *v == def)
		return
	}
	*v = def
	if raw, ok := c.take(key); ok {
		n, isNumber := raw.(json.Number)
		i, fits := jsontext.Int(n)
		if !isNumber || !fits || int64(T(i)) != i {
			c.fail(key, "must be a whole number, not %v", raw)
			return
		}
		*v = T(i)
	}
}

// zeroable is a whole number whose 0 means something, with a default of its own.
func zeroable[T ~int | ~int64](c *codec, key string, v *T, def T) {
	if c.mode == complete {
		c.put(key, jsontext.Integer(int64(*v)), false)
		return
	}
	whole(c, key, v, def)
}

func (c *codec) float(key string, v *float64, def float64) {
	if c.mode != reading {
		c.put(key, jsontext.Float(*v), *v == def)
		return
	}
	*v = def
	if raw, ok := c.take(key); ok {
		n, isNumber := raw.(json.Number)
		f, err := strconv.ParseFloat(string(n), 64)
		if !isNumber || err != nil {
			c.fail(key, "must be a number, not %v", raw)
			return
		}
		*v = f
	}
}

// seconds is a duration that is written as seconds with at most three decimals.
func (c *codec) seconds(key string, v *Millis, def Millis) {
	if c.mode != reading {
		c.put(key, Seconds(*v), *v == def)
		return
	}
	*v = def
	if raw, ok := c.take(key); ok {
		n, _ := raw.(json.Number)
		ms, err := ParseSeconds(n)
		if err != nil {
			c.fail(key, "%v", err)
			return
		}
		*v = ms
	}
}

// Seconds writes a duration as a number of seconds: 1500 ms is 1.5.
func Seconds(d Millis) json.Number {
	return jsontext.CanonicalNumber(json.Number(strconv.FormatInt(int64(d), 10) + "e-3"))
}

// ParseSeconds reads a duration from a number of seconds, exactly. It may be negative; a fraction of a millisecond and a number
// beyond 64 bits of milliseconds are errors.
func ParseSeconds(n json.Number) (Millis, error) {
	ms, ok := jsontext.Scaled(n, 3)
	if !ok {
		return 0, fmt.Errorf("%q is no number of seconds with at most three decimals", string(n))
	}
	return Millis(ms), nil
}

func (c *codec) flag(key string, v *bool, def bool) {
	if c.mode != reading {
		c.put(key, *v, *v == def)
		return
	}
	*v = def
	if raw, ok := c.take(key); ok {
		b, isBool := raw.(bool)
		if !isBool {
			c.fail(key, "must be true or false, not %v", raw)
			return
		}
		*v = b
	}
}

// value is any JSON. Absent is nil.
func (c *codec) value(key string, v *Value) {
	if c.mode != reading {
		if *v != nil {
			c.put(key, *v, false)
		}
		c.known[key] = true
		return
	}
	*v = nil
	if raw, ok := c.take(key); ok {
		*v = exact(raw)
	}
}

// values is a map of any JSON. When empty is nil-able, an empty map differs from an absent one.
func (c *codec) values(key string, v *map[string]Value, emptyIsAbsent bool) {
	if c.mode != reading {
		switch {
		case *v == nil && !emptyIsAbsent:
			c.known[key] = true
		default:
			c.put(key, treeOf(*v), len(*v) == 0 && emptyIsAbsent)
		}
		return
	}
	*v = nil
	raw, ok := c.take(key)
	if !ok {
		return
	}
	m, isMap := raw.(map[string]any)
	if !isMap {
		c.fail(key, "must be a map, not %s", jsontext.TypeName(raw))
		return
	}
	if len(m) > 0 || !emptyIsAbsent {
		*v, _ = exact(m).(map[string]any)
	}
}

func treeOf(m map[string]Value) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// exact copies a value with each number in its canonical form, so that the value read from a file is the one that the database
// gives back.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		return jsontext.CanonicalNumber(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = exact(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, in := range v {
			m[key] = exact(in)
		}
		return m
	}
	return v
}

// texts is a list of texts; a set is sorted, so that its order does not matter. Empty is absent.
func (c *codec) texts(key string, v *[]string, set bool, def ...string) {
	if c.mode != reading {
		list := *v
		if set {
			list = slices.Sorted(slices.Values(list))
		}
		out := make([]any, len(list))
		for i, s := range list {
			out[i] = s
		}
		isDefault := slices.Equal(list, def)
		if c.mode == complete && len(list) == 0 {
			c.known[key] = true
			return
		}
		c.put(key, out, isDefault)
		return
	}
	*v = slices.Clone(def)
	raw, ok := c.take(key)
	if !ok {
		return
	}
	list, isList := raw.([]any)
	if !isList {
		c.fail(key, "must be a list, not %s", jsontext.TypeName(raw))
		return
	}
	*v = nil
	for i, item := range list {
		s, isText := item.(string)
		if !isText {
			c.fail(key, "item %d must be text, not %s", i, jsontext.TypeName(item))
			return
		}
		*v = append(*v, s)
	}
	if set {
		slices.Sort(*v)
	}
}

// refs is a set of references. Own ones are written without their namespace.
func (c *codec) refs(key string, v *[]Ref) {
	var names []string
	for _, r := range *v {
		names = append(names, c.short(r))
	}
	if c.mode != reading {
		c.texts(key, &names, true)
		return
	}
	c.texts(key, &names, true)
	*v = nil
	for _, name := range names {
		*v = append(*v, ParseRef(name, c.ns))
	}
	slices.SortFunc(*v, func(a, b Ref) int { return strings.Compare(c.short(a), c.short(b)) })
}

func (c *codec) short(r Ref) string { return r.Short(c.ns) }

// ParseRef reads `name` or `namespace/name`; the namespace given is that of the object that holds the reference.
func ParseRef(text, namespace string) Ref {
	if ns, name, ok := strings.Cut(text, "/"); ok {
		return Ref{Namespace: ns, Name: name}
	}
	return Ref{Namespace: namespace, Name: text}
}

// Short writes a reference as an object of the given namespace may: without the namespace where it is its own.
func (r Ref) Short(namespace string) string {
	if r.Namespace == namespace {
		return r.Name
	}
	return r.String()
}

// object is a nested map of fields. Absent and empty are the same unless the pointer tells them apart.
func (c *codec) object(key string, fields func(*codec)) {
	if c.mode == reading {
		raw, ok := c.take(key)
		tree, isMap := raw.(map[string]any)
		if ok && !isMap {
			c.fail(key, "must be a map, not %s", jsontext.TypeName(raw))
			return
		}
		in := c.inner(key, tree)
		fields(in)
		c.adopt(in)
		return
	}
	in := c.inner(key, map[string]any{})
	fields(in)
	c.put(key, in.tree, len(in.tree) == 0)
}

// secretables is a map of text or secret references.
func (c *codec) secretables(key string, v *map[string]Secretable) {
	if c.mode != reading {
		out := make(map[string]any, len(*v))
		for name, s := range *v {
			out[name] = s.tree(c.mode)
		}
		c.put(key, out, len(out) == 0)
		return
	}
	*v = nil
	raw, ok := c.take(key)
	if !ok {
		return
	}
	m, isMap := raw.(map[string]any)
	if !isMap {
		c.fail(key, "must be a map, not %s", jsontext.TypeName(raw))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, ok := ParseSecretable(m[name])
		if !ok {
			c.fail(key, "%q must be text or a secretRef", name)
			return
		}
		if *v == nil {
			*v = make(map[string]Secretable, len(m))
		}
		(*v)[name] = s
	}
}

// ParseSecretable reads text, or {secretRef: {name, key, prefix}}. Numbers, as a header of a task may have, are read as text.
func ParseSecretable(v any) (Secretable, bool) {
	switch v := v.(type) {
	case string:
		return Secretable{Text: v}, true
	case json.Number:
		return Secretable{Text: string(v)}, true
	}
	if ref, ok := ParseSecretRef(v); ok {
		return Secretable{Secret: &ref}, true
	}
	return Secretable{}, false
}

// ParseSecretRef reads {secretRef: {name, key, prefix}}. Anything else, more keys too, is no secret reference.
func ParseSecretRef(v any) (SecretRef, bool) {
	outer, _ := v.(map[string]any)
	in, ok := outer["secretRef"].(map[string]any)
	if !ok || len(outer) != 1 {
		return SecretRef{}, false
	}
	var ref SecretRef
	for key, value := range in {
		s, isText := value.(string)
		switch {
		case !isText:
			return SecretRef{}, false
		case key == "name":
			ref.Name = s
		case key == "key":
			ref.Key = s
		case key == "prefix":
			ref.Prefix = s
		default:
			return SecretRef{}, false
		}
	}
	return ref, ref.Name != "" && ref.Key != ""
}

func (s Secretable) tree(m mode) any {
	if s.Secret == nil {
		return s.Text
	}
	ref := map[string]any{"name": s.Secret.Name, "key": s.Secret.Key}
	if s.Secret.Prefix != "" || m == complete {
		ref["prefix"] = s.Secret.Prefix
	}
	return map[string]any{"secretRef": ref}
}

// bytes is binary content that only the canonical form has.
func (c *codec) bytes(key string, v *[]byte) {
	if c.mode != reading {
		if len(*v) > 0 {
			c.put(key, base64.StdEncoding.EncodeToString(*v), false)
		}
		return
	}
	var s string
	text(c, key, &s, "")
	decoded, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		c.fail(key, "is not base64")
	}
	if *v = nil; len(decoded) > 0 {
		*v = decoded
	}
}
