package cli

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
	"nf/schema/spec"
)

func (sh *shell) explainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "explain a finding's code, a kind or field, or where an object's fields come from",
		ArgsUsage: "CODE | KIND[.field] | KIND/namespace/name", Action: sh.action(1, 1, "a code such as NF2101, a kind or field such as TaskDefinition.retryCount, or KIND/name", sh.explain),
	}
}

var codeForm = regexp.MustCompile(`^(?i:nf)\d{4}$`)

func (sh *shell) explain() error {
	what := sh.c.Args().First()
	switch {
	case codeForm.MatchString(what):
		return sh.explainCode(diag.Code(strings.ToUpper(what)))
	case strings.Contains(what, "/"):
		return sh.explainObject(what)
	}
	return sh.explainField(what)
}

func (sh *shell) explainCode(code diag.Code) error {
	e, ok := diag.Explain(code)
	if !ok {
		var codes []string
		for _, known := range diag.Codes() {
			codes = append(codes, string(known.Code))
		}
		return fail("this nf has no finding %s", code).hinted("%s", cmp.Or(diag.DidYouMean(string(code), codes), "nf "+Version+" raises "+codes[0]+" to "+codes[len(codes)-1]+", with gaps"))
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{
			"format_version": view.FormatVersion, "code": e.Code, "title": e.Title, "rule": e.Rule, "level": e.Level, "text": e.Text, "bad": e.Bad, "good": e.Good,
		})
	}
	sh.print(view.Explanation(e))
	return nil
}

func (sh *shell) explainField(what string) error {
	validator, err := spec.Compile()
	if err != nil {
		return fail("schemas: %w", err)
	}
	d, hint, ok := validator.Describe(what)
	if !ok {
		var kinds []string
		for _, k := range schema.Kinds() {
			kinds = append(kinds, string(k))
		}
		return fail("there is no kind or field %q", what).hinted("%s", cmp.Or(hint, "kinds are "+strings.Join(kinds, ", ")+"; a field is KIND.field, such as TaskDefinition.retryCount"))
	}
	if sh.settings.output == "json" {
		fields := []map[string]any{}
		for _, f := range d.Fields {
			fields = append(fields, map[string]any{"name": f.Name, "type": f.Type, "default": f.Default, "required": f.Required, "text": f.Text})
		}
		return sh.json(map[string]any{"format_version": view.FormatVersion, "path": d.Path, "text": d.Text, "type": d.Type, "fields": fields})
	}
	sh.print(view.Description(d))
	return nil
}

// explainObject prints each field of an object of the files with the place that sets it.
func (sh *shell) explainObject(ref string) error {
	address, err := sh.address(ref)
	if err != nil {
		return err
	}
	p, err := readProject(sh.ctx(), sh.settings.folder(), fromFiles)
	if err != nil {
		return err
	}
	object, ok := p.bundle.Set.Get(address)
	if !ok {
		var known []string
		for _, o := range p.bundle.Set.All() {
			known = append(known, o.Address().String())
		}
		return fail("no file declares %s", address).hinted("%s", cmp.Or(diag.DidYouMean(address.String(), known), "nf validate counts what is there"))
	}
	text, err := jsontext.AppendCanonical(nil, schema.Tree(object))
	if err != nil {
		return fail("%s: %w", address, err)
	}
	tree, err := jsontext.Decode(text, jsontext.Limits{})
	if err != nil {
		return fail("%s: %w", address, err)
	}
	all := leaves("/spec", tree)
	lines := []view.Origin{}
	for _, pointer := range slices.Sorted(maps.Keys(all)) {
		origin := view.Origin{Pointer: pointer, Value: all[pointer], From: "default"}
		if at, exact := p.bundle.Locate(address, pointer); exact {
			origin.From = at.File + ":" + strconv.Itoa(at.Range.Start.Line) + ":" + strconv.Itoa(at.Range.Start.Column)
		}
		lines = append(lines, origin)
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{"format_version": view.FormatVersion, "object": address.String(), "fields": lines})
	}
	sh.print(view.Origins(address.String(), lines))
	return nil
}

// address reads a REF: KIND/name or KIND/namespace/name.
func (sh *shell) address(ref string) (schema.Address, error) {
	parts := strings.Split(ref, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return schema.Address{}, usage("%q is no reference to an object", ref).hinted("write KIND/name or KIND/namespace/name, such as TaskDefinition/payments/charge")
	}
	a := schema.Address{Kind: schema.Kind(parts[0]), Namespace: sh.settings.namespace.value, Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		a.Namespace = parts[1]
	}
	if a.Kind == schema.KindNamespace {
		a.Namespace = ""
	}
	if !slices.Contains(schema.Kinds(), a.Kind) {
		var kinds []string
		for _, k := range schema.Kinds() {
			kinds = append(kinds, string(k))
		}
		return a, usage("unknown kind %q", parts[0]).hinted("%s", cmp.Or(diag.DidYouMean(parts[0], kinds), "kinds are "+strings.Join(kinds, ", ")))
	}
	return a, nil
}

// leaves flattens a value: pointers to what is no filled map or list.
func leaves(at string, value any) map[string]any {
	out := map[string]any{}
	add := func(key string, inner any) {
		maps.Copy(out, leaves(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), inner))
	}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			add(key, inner)
		}
	case []any:
		for i, inner := range v {
			add(strconv.Itoa(i), inner)
		}
	}
	if len(out) == 0 {
		out[at] = value
	}
	return out
}
