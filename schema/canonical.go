package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"nf/schema/jsontext"
)

// Digest is the identity of content: SHA-256.
type Digest [sha256.Size]byte

// String gives "sha256:" and lower-case hexadecimal digits.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// ParseDigest reads what String writes.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	const prefix = "sha256:"
	if len(s) != len(prefix)+2*len(d) || s[:len(prefix)] != prefix {
		return d, fmt.Errorf("%q is no digest", s)
	}
	if _, err := hex.Decode(d[:], []byte(s[len(prefix):])); err != nil {
		return d, fmt.Errorf("%q is no digest", s)
	}
	return d, nil
}

// ErrUnknownKind says that a kind is none of this nf's.
var ErrUnknownKind = errors.New("unknown kind")

// declared is what every Object of this package can do beside its exported methods.
type declared interface {
	Object
	fields(c *codec)
}

func newObject(kind Kind, meta Metadata) (declared, error) {
	switch kind {
	case KindProject:
		return &Project{Metadata: meta}, nil
	case KindNamespace:
		return &Namespace{Metadata: meta}, nil
	case KindTaskDefinition:
		return &TaskDefinition{Metadata: meta}, nil
	case KindWorkflow:
		return &Workflow{Metadata: meta}, nil
	case KindSemaphore:
		return &Semaphore{Metadata: meta}, nil
	case KindTarget:
		return &Target{Metadata: meta}, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownKind, kind)
}

// Decode makes an object of a spec that schema/spec has found valid, as decoded with json.Number: defaults are filled in,
// references get the namespace, numbers their canonical form. The tree is not kept. An error means that the spec was not valid;
// it names the key.
func Decode(kind Kind, meta Metadata, spec map[string]any) (Object, error) {
	return decode(kind, meta, spec, false)
}

// DecodeCanonical makes an object of what Canonical gave.
func DecodeCanonical(kind Kind, meta Metadata, canonical []byte) (Object, error) {
	spec, err := jsontext.DecodeObject(canonical, jsontext.Limits{})
	if err != nil {
		return nil, fmt.Errorf("canonical form of %s: %w", Address{kind, meta.Namespace, meta.Name}, err)
	}
	return decode(kind, meta, spec, true)
}

func decode(kind Kind, meta Metadata, spec map[string]any, stored bool) (Object, error) {
	if namespaced(kind) && meta.Namespace == "" {
		meta.Namespace = DefaultNamespace
	}
	o, err := newObject(kind, meta)
	if err != nil {
		return nil, err
	}
	c := &codec{mode: reading, stored: stored, ns: meta.Namespace, tree: spec, known: map[string]bool{}}
	o.fields(c)
	if err := c.finish(); err != nil {
		return nil, fmt.Errorf("spec of %s: %w", o.Address(), err)
	}
	return o, nil
}

// Canonical gives the canonical form of an object's spec: compact JSON without values that equal their default, keys sorted,
// numbers in one form, sets sorted. It is what the database stores and what digests are taken of, so it never changes for a
// given content.
func Canonical(o Object) []byte {
	return encode(o, writing, true)
}

// Tree gives the spec with every default filled in, for comparing and showing. Fields whose absence means "none" stay
// absent. Of a gRPC Target it holds the digest of the descriptors instead of them.
func Tree(o Object) map[string]any {
	c := &codec{mode: complete, stored: true, ns: o.Meta().Namespace, tree: map[string]any{}, known: map[string]bool{}}
	if d, ok := o.(declared); ok {
		d.fields(c)
	}
	if grpc, ok := c.tree["grpc"].(map[string]any); ok {
		if t, ok := o.(*Target); ok && len(t.GRPC.Descriptors) > 0 {
			grpc["descriptors"] = Digest(sha256.Sum256(t.GRPC.Descriptors)).String()
		}
	}
	return c.tree
}

func encode(o Object, m mode, stored bool) []byte {
	c := &codec{mode: m, stored: stored, ns: o.Meta().Namespace, tree: map[string]any{}, known: map[string]bool{}}
	if d, ok := o.(declared); ok {
		d.fields(c)
	}
	text, err := jsontext.AppendCanonical(nil, c.tree)
	if err != nil {
		// Only JSON values get into an object: Decode copies them from a decoded tree.
		panic(fmt.Sprintf("schema: %s holds a value that is not JSON: %v", o.Address(), err)) //nolint:forbidigo // see above
	}
	return text
}

// DigestOf gives the digest of an object's content: its kind and canonical spec. Name, namespace, labels and description are not
// content.
func DigestOf(o Object) Digest {
	return digestOf(o.Address().Kind, Canonical(o))
}

// DigestCanonical gives the digest of a canonical form.
func DigestCanonical(kind Kind, canonical []byte) Digest { return digestOf(kind, canonical) }

func digestOf(kind Kind, canonical []byte) Digest {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{'\n'})
	h.Write(canonical)
	return Digest(h.Sum(nil))
}
