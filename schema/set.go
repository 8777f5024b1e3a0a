package schema

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"nf/schema/jsontext"
)

// ErrDuplicate says that two objects of a set have one address.
var ErrDuplicate = errors.New("declared twice")

// Set is a collection of objects with unique addresses. It is immutable; the zero value is the empty set.
type Set struct {
	objects []Object // sorted by address
	digest  Digest
}

// NewSet makes a set. Its error wraps ErrDuplicate and names the address.
func NewSet(objects ...Object) (Set, error) {
	s := Set{objects: slices.Clone(objects)}
	slices.SortFunc(s.objects, func(a, b Object) int { return a.Address().Compare(b.Address()) })
	for i := 1; i < len(s.objects); i++ {
		if a := s.objects[i].Address(); a == s.objects[i-1].Address() {
			return Set{}, fmt.Errorf("%s: %w", a, ErrDuplicate)
		}
	}
	s.digest = digestSet(s.objects)
	return s, nil
}

// Compare orders addresses by kind, namespace and name.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// All gives the objects in the order of their addresses. The slice is the caller's.
func (s Set) All() []Object { return slices.Clone(s.objects) }

// Len gives the number of objects.
func (s Set) Len() int { return len(s.objects) }

// Get gives the object at an address.
func (s Set) Get(a Address) (Object, bool) {
	i, ok := slices.BinarySearchFunc(s.objects, a, func(o Object, a Address) int { return o.Address().Compare(a) })
	if !ok {
		return nil, false
	}
	return s.objects[i], true
}

// Digest identifies all that an apply of the set would write: addresses, contents, labels and descriptions.
func (s Set) Digest() Digest {
	if len(s.objects) == 0 {
		return digestSet(nil)
	}
	return s.digest
}

func digestSet(objects []Object) Digest {
	h := sha256.New()
	for _, o := range objects {
		m := o.Meta()
		labels := map[string]any{}
		for key, value := range m.Labels {
			labels[key] = value
		}
		line, err := jsontext.Encode([]any{o.Address().String(), DigestOf(o).String(), labels, m.Description})
		if err != nil {
			panic("schema: metadata is not JSON: " + err.Error()) //nolint:forbidigo // texts only
		}
		h.Write(append(line, '\n'))
	}
	return Digest(h.Sum(nil))
}

// Address gives the address of a Project, which no database holds.
func (o *Project) Address() Address { return Address{Kind: KindProject, Name: o.Metadata.Name} }

// Meta implements Object.
func (o *Project) Meta() Metadata { return o.Metadata }
func (*Project) isObject()        {}
