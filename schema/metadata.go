package schema

import (
	"fmt"

	"nf/schema/jsontext"
)

// Kinds gives the kinds of this nf, Project first, then in the order in which objects are applied.
func Kinds() []Kind {
	return []Kind{KindProject, KindNamespace, KindSemaphore, KindTarget, KindTaskDefinition, KindWorkflow}
}

// namespaced says whether objects of the kind live in a namespace.
func namespaced(kind Kind) bool { return kind != KindProject && kind != KindNamespace }

// Namespaced says whether objects of the kind live in a namespace.
func (k Kind) Namespaced() bool { return namespaced(k) }

// DecodeMetadata makes the metadata of an object from its valid manifest. A kind that lives in a namespace gets the default one
// where the manifest names none.
func DecodeMetadata(kind Kind, metadata map[string]any) (Metadata, error) {
	var m Metadata
	c := &codec{mode: reading, path: "metadata", tree: metadata, known: map[string]bool{}}
	text(c, "name", &m.Name, "")
	if namespaced(kind) {
		text(c, "namespace", &m.Namespace, DefaultNamespace)
	}
	text(c, "description", &m.Description, "")
	if raw, ok := c.take("labels"); ok {
		m.Labels = c.labels(raw)
	}
	if err := c.finish(); err != nil {
		return Metadata{}, fmt.Errorf("%s %q: %w", kind, m.Name, err)
	}
	return m, nil
}

func (c *codec) labels(raw any) map[string]string {
	tree, ok := raw.(map[string]any)
	if !ok {
		c.fail("labels", "must be a map, not %s", jsontext.TypeName(raw))
		return nil
	}
	var labels map[string]string
	for key, v := range tree {
		s, ok := v.(string)
		if !ok {
			c.fail("labels", "%q must be text, not %s", key, jsontext.TypeName(v))
			return nil
		}
		if labels == nil {
			labels = make(map[string]string, len(tree))
		}
		labels[key] = s
	}
	return labels
}
