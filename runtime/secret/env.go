package secret

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// variablePrefix begins the name of every variable that holds a secret.
const variablePrefix = "NF_SECRET__"

// Env gives secrets from environment variables as they were at process start. Immutable.
type Env struct{ values map[string]string }

// NewEnv reads the variables NF_SECRET__… of an environment of NAME=value. Of a name that stands twice the last counts.
func NewEnv(environ []string) *Env {
	values := map[string]string{}
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if ok && strings.HasPrefix(name, variablePrefix) {
			values[name] = trim(value)
		}
	}
	return &Env{values: values}
}

// Lookup implements Provider.
func (e *Env) Lookup(_ context.Context, ref Reference) (string, error) {
	name := VariableName(ref)
	if value := e.values[name]; value != "" {
		return value, nil
	}
	return "", fmt.Errorf("variable %s: %w", name, ErrUnresolved)
}

// Values gives all secrets, for checks such as one for values too short to be masked. Never print them.
func (e *Env) Values() map[string]string { return maps.Clone(e.values) }

// VariableName gives the variable that holds a secret: NF_SECRET__<NAMESPACE>__<NAME>__<KEY>, in upper case, everything but
// letters, digits and "_" as "_".
func VariableName(r Reference) string {
	return variablePrefix + upper(r.Namespace) + "__" + upper(r.Name) + "__" + upper(r.Key)
}

func upper(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, s)
}

// Collision is two or more references that map to one variable.
type Collision struct {
	Variable   string
	References []Reference // in order, at least two
}

// String says it in one line.
func (c Collision) String() string {
	names := make([]string, len(c.References))
	for i, r := range c.References {
		names[i] = r.String()
	}
	return fmt.Sprintf("the secrets %s map to one variable, %s: rename one", strings.Join(names, " and "), c.Variable)
}

// Collisions finds different references that map to one variable; with the env provider they are refused (contract 5.4). The
// result is in order of the variables.
func Collisions(refs []Reference) []Collision {
	byVariable := map[string][]Reference{}
	for _, r := range refs {
		name := VariableName(r)
		if !slices.Contains(byVariable[name], r) {
			byVariable[name] = append(byVariable[name], r)
		}
	}
	var out []Collision
	for _, name := range slices.Sorted(maps.Keys(byVariable)) {
		if found := byVariable[name]; len(found) > 1 {
			slices.SortFunc(found, compare)
			out = append(out, Collision{Variable: name, References: found})
		}
	}
	return out
}

func compare(a, b Reference) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}
