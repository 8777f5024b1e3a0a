package spec

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

//go:embed kinds/*.schema.json
var kindFiles embed.FS

// base is where the schemas live for their references to each other. Nothing is ever read from there.
const base = "https://nf.invalid/v1/"

const suffix = ".schema.json"

// Validator checks documents against the schemas of their kinds. It is immutable and safe for concurrent use.
type Validator struct {
	kinds map[schema.Kind]*jsonschema.Schema
	docs  map[string]any // raw schemas by URL, to look up what a keyword said
}

// errOutside is why a reference to another document fails.
var errOutside = errors.New("only references inside the schema (#…) are allowed")

func refuse(string) (io.ReadCloser, error) { return nil, errOutside }

// newCompiler gives a compiler that can reach nothing but what it is handed.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = refuse
	return c
}

// Compile compiles the embedded schemas, once a process. An error is a mistake in nf itself.
func Compile() (*Validator, error) {
	files, err := Files()
	if err != nil {
		return nil, err
	}
	v := &Validator{kinds: map[schema.Kind]*jsonschema.Schema{}, docs: map[string]any{}}
	c := newCompiler()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		doc, err := jsontext.Decode(files[name], jsontext.Limits{})
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		v.docs[base+name] = doc
		if err := c.AddResource(base+name, bytes.NewReader(files[name])); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	for _, kind := range schema.Kinds() {
		compiled, err := c.Compile(base + string(kind) + suffix)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", kind, err)
		}
		v.kinds[kind] = compiled
	}
	return v, nil
}

// Files gives the published schemas by file name: one a kind, and the parts that they share.
func Files() (map[string][]byte, error) {
	names, err := fs.Glob(kindFiles, "kinds/*"+suffix)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte, len(names))
	for _, name := range names {
		if files[path.Base(name)], err = kindFiles.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Kind tells which kind of object a document is. The findings are NF2001 to NF2003; with any, the kind is empty.
func (v *Validator) Kind(document any) (schema.Kind, diag.List) {
	tree, ok := document.(map[string]any)
	if !ok {
		return "", diag.List{notAManifest("a manifest is a map with apiVersion, kind, metadata and spec, not " + article(jsontext.TypeName(document)))}
	}
	apiVersion, hasVersion := tree["apiVersion"]
	kind, hasKind := tree["kind"]
	if !hasVersion && !hasKind {
		return "", diag.List{notAManifest("this is not an nf manifest: it has neither apiVersion nor kind")}
	}
	var list diag.List
	switch text, isText := apiVersion.(string); {
	case !hasVersion:
		list = append(list, diag.New("NF2001", "", "required key \"apiVersion\" is missing").WithHint("write apiVersion: "+schema.APIVersion))
	case !isText || text != schema.APIVersion:
		list = append(list, diag.Newf("NF2002", "/apiVersion", "unknown apiVersion %s", show(apiVersion)).WithHint("this nf reads "+schema.APIVersion))
	}
	text, isText := kind.(string)
	switch {
	case !hasKind:
		list = append(list, diag.New("NF2001", "", "required key \"kind\" is missing").WithHint("write kind: and one of "+strings.Join(kindNames(), ", ")))
	case !isText || !slices.Contains(kindNames(), text):
		list = append(list, unknownKind(kind))
	}
	if len(list) > 0 {
		return "", list
	}
	return schema.Kind(text), nil
}

func notAManifest(message string) diag.Diagnostic {
	return diag.New("NF2001", "", message).WithHint("move the file out of the roots, begin its name with _, or list it in .nfignore")
}

func unknownKind(kind any) diag.Diagnostic {
	d := diag.Newf("NF2003", "/kind", "unknown kind %s", show(kind))
	text, _ := kind.(string)
	switch near := diag.DidYouMean(text, kindNames()); {
	case slices.Contains(laterKinds, text):
		return d.WithHint(fmt.Sprintf("%s comes in a later release; this nf knows %s", text, strings.Join(kindNames(), ", ")))
	case near != "":
		return d.WithHint(near)
	}
	return d.WithHint("this nf knows " + strings.Join(kindNames(), ", "))
}

func kindNames() []string {
	kinds := schema.Kinds()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return names
}
