package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/loader/plan"
	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// object makes an object of a JSON spec. The address is Kind/namespace/name or Namespace/name.
func object(t testing.TB, address, spec string) schema.Object {
	t.Helper()
	parts := strings.Split(address, "/")
	meta := schema.Metadata{Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		meta.Namespace = parts[1]
	}
	tree, err := jsontext.DecodeObject([]byte(spec), jsontext.Limits{})
	require.NoError(t, err)
	o, err := schema.Decode(schema.Kind(parts[0]), meta, tree)
	require.NoError(t, err)
	return o
}

func set(t testing.TB, objects ...schema.Object) schema.Set {
	t.Helper()
	s, err := schema.NewSet(objects...)
	require.NoError(t, err)
	return s
}

// registered gives what the registry holds after an apply of the objects by a project.
func registered(project string, objects ...schema.Object) plan.Registered {
	r := plan.Registered{Generation: 7, Namespaces: map[string]int{}}
	for i, o := range objects {
		reg := plan.Object{
			Address: o.Address(), Project: project, Revision: int64(i + 1), Digest: schema.DigestOf(o), Spec: schema.Canonical(o), Labels: o.Meta().Labels,
			Description: o.Meta().Description, File: "old.yaml", Line: 3,
		}
		if w, ok := o.(*schema.Workflow); ok && w.Version > 0 {
			reg.Versions = []plan.Version{{Version: w.Version, Revision: reg.Revision, Digest: reg.Digest}}
		}
		if ns := o.Address().Namespace; ns != "" {
			r.Namespaces[ns] = 0
		}
		r.Objects = append(r.Objects, reg)
	}
	return r
}

func diff(t testing.TB, r plan.Registered, objects ...schema.Object) plan.Plan {
	t.Helper()
	return plan.Diff(input(t, r, objects...))
}

func input(t testing.TB, r plan.Registered, objects ...schema.Object) plan.Input {
	t.Helper()
	in := plan.Input{Project: "p", Environment: "e", Desired: set(t, objects...), Registered: r, Origins: map[schema.Address]diag.Location{}}
	for i, o := range objects {
		at := diag.Pos{Line: 10 * (i + 1), Column: 1}
		in.Origins[o.Address()] = diag.Location{File: "new.yaml", Range: diag.Range{Start: at, End: at}}
	}
	return in
}

// lines gives a plan in short.
func lines(p plan.Plan) []string {
	out := []string{}
	for _, n := range p.Namespaces {
		out = append(out, "+ Namespace "+n)
	}
	for _, c := range p.Changes {
		out = append(out, fmt.Sprintf("%s %s", c.Action, c.Address))
	}
	for _, r := range p.Refused {
		out = append(out, fmt.Sprintf("refused %s %s/%s %s", r.Action, r.Object.Kind, r.Object.Name, r.Code))
	}
	return out
}

func semaphores(t testing.TB, n int) []schema.Object {
	t.Helper()
	var out []schema.Object
	for i := range n {
		out = append(out, object(t, fmt.Sprintf("Semaphore/a/s%02d", i), `{"permits": 4}`))
	}
	return out
}

func TestAddChangeUnchanged(t *testing.T) {
	t.Parallel()
	old := []schema.Object{object(t, "Semaphore/a/x", `{"permits": 4}`), object(t, "TaskDefinition/a/charge", `{"retryCount": 3}`), object(t, "Semaphore/a/same", `{"permits": 1}`)}
	p := diff(t, registered("p", old...),
		object(t, "Semaphore/a/x", `{"permits": 5}`), object(t, "Semaphore/a/same", `{"permits": 1}`), object(t, "Semaphore/b/new", `{"permits": 1}`),
		object(t, "TaskDefinition/a/charge", `{"retryCount": 5, "maxRetryDelaySeconds": 300, "jitter": 0.2}`), object(t, "Namespace/a", `{}`))
	require.Equal(t, []string{"+ Namespace b", "add Namespace/a", "change Semaphore/a/x", "add Semaphore/b/new", "change TaskDefinition/a/charge"}, lines(p))
	require.Equal(t, plan.Summary{Add: 2, Change: 2, Unchanged: 1}, p.Summary)
	require.True(t, p.OK())
	charge := p.Changes[len(p.Changes)-1]
	require.Equal(t, []plan.FieldChange{
		{Pointer: "/spec/maxRetryDelaySeconds", Path: "spec.maxRetryDelaySeconds", Op: plan.OpReplace, Before: json.Number("3600"), After: json.Number("300"), BeforeDefault: true},
		{Pointer: "/spec/retryCount", Path: "spec.retryCount", Op: plan.OpReplace, Before: json.Number("3"), After: json.Number("5"), BeforeDefault: true},
	}, charge.Fields)
	require.Equal(t, int64(2), charge.Revision.Before)
	require.Equal(t, &plan.Place{File: "new.yaml", Line: 40}, charge.Source)
	require.Equal(t, map[string]int64{"Semaphore/a/x": 1, "TaskDefinition/a/charge": 2}, p.Base.Revisions)
	require.Equal(t, int64(7), p.Base.Generation)
}

func TestLabelsAndDescriptionAreChanges(t *testing.T) {
	t.Parallel()
	o := object(t, "Semaphore/a/x", `{"permits": 4}`).(*schema.Semaphore)
	r := registered("p", o)
	labelled := *o
	labelled.Metadata.Labels = map[string]string{"team.x": "pay"}
	labelled.Metadata.Description = "new"
	p := diff(t, r, &labelled)
	require.Equal(t, []string{"change Semaphore/a/x"}, lines(p))
	require.Equal(t, []plan.FieldChange{
		{Pointer: "/metadata/labels/team.x", Path: `metadata.labels["team.x"]`, Op: plan.OpAdd, After: "pay"},
		{Pointer: "/metadata/description", Path: "metadata.description", Op: plan.OpAdd, After: "new"},
	}, p.Changes[0].Fields)
	require.Equal(t, plan.Low, p.Risk.Level)
	require.Equal(t, p.Changes[0].Digest.Before, p.Changes[0].Digest.After, "labels are no part of a revision")
}

func TestTasksAreComparedByReference(t *testing.T) {
	t.Parallel()
	task := func(ref, path string) string {
		return fmt.Sprintf(`{"taskReferenceName": %q, "type": "HTTP", "inputParameters": {"uri": %q}}`, ref, path)
	}
	before := object(t, "Workflow/a/w", `{"tasks": [`+task("one", "/1")+`,`+task("two", "/2")+`,`+task("three", "/3")+`]}`)
	after := object(t, "Workflow/a/w", `{"tasks": [`+task("new", "/n")+`,`+task("three", "/3")+`,`+task("one", "/1")+`,`+
		`{"taskReferenceName": "how", "type": "SWITCH", "expression": "x", "inputParameters": {"x": 1}, "decisionCases": {"a": [`+task("deep", "/d")+`]}}]}`)
	p := diff(t, registered("p", before), after)
	var got []string
	for _, f := range p.Changes[0].Fields {
		got = append(got, fmt.Sprintf("%s %s %s", f.Op, f.Path, f.Pointer))
	}
	require.Equal(t, []string{
		"add spec.tasks[new] /spec/tasks/0", "add spec.tasks[how] /spec/tasks/3", "remove spec.tasks[two] /spec/tasks/1", "reorder spec.tasks /spec/tasks",
	}, got)
	require.Equal(t, []any{"one", "three"}, p.Changes[0].Fields[3].Before)

	deeper := object(t, "Workflow/a/w", `{"tasks": [`+task("new", "/n")+`,`+task("three", "/3")+`,`+task("one", "/1")+`,`+
		`{"taskReferenceName": "how", "type": "SWITCH", "expression": "x", "inputParameters": {"x": 1}, "decisionCases": {"a": [`+task("deep", "/changed")+`]}}]}`)
	p = diff(t, registered("p", after), deeper)
	require.Len(t, p.Changes[0].Fields, 1)
	require.Equal(t, "spec.tasks[how].decisionCases.a[deep].inputParameters.uri", p.Changes[0].Fields[0].Path)
	require.Equal(t, "/spec/tasks/3/decisionCases/a/0/inputParameters/uri", p.Changes[0].Fields[0].Pointer)
}

func TestSemaphoresAreASet(t *testing.T) {
	t.Parallel()
	before := object(t, "TaskDefinition/a/d", `{"semaphores": ["b", "x/a"]}`)
	after := object(t, "TaskDefinition/a/d", `{"semaphores": ["x/a", "b"]}`)
	require.True(t, diff(t, registered("p", before), after).Empty())
}

func TestRetireAndUnretire(t *testing.T) {
	t.Parallel()
	old := semaphores(t, 4)
	r := registered("p", old...)
	p := diff(t, r, old[:2]...)
	require.Equal(t, []string{"retire Semaphore/a/s02", "retire Semaphore/a/s03"}, lines(p))
	require.Equal(t, plan.Risk{Level: plan.High, Reasons: []string{"retires Semaphore/a/s02", "retires Semaphore/a/s03"}}, p.Risk)
	require.Equal(t, &plan.Place{File: "old.yaml", Line: 3}, p.Changes[0].Source)
	require.Equal(t, plan.Summary{Delete: 2, Unchanged: 2}, p.Summary)

	for i := range r.Objects[2:] {
		r.Objects[2+i].Retired = true
	}
	require.True(t, diff(t, r, old[:2]...).Empty(), "retired already")
	p = diff(t, r, old[0], old[1], old[2], object(t, "Semaphore/a/s03", `{"permits": 9}`))
	require.Equal(t, []string{"unretire Semaphore/a/s02", "unretire Semaphore/a/s03"}, lines(p))
	require.Empty(t, p.Changes[0].Fields)
	require.Len(t, p.Changes[1].Fields, 1)
}

func TestGuards(t *testing.T) {
	t.Parallel()
	cases := []struct {
		owned, kept, added int
		refused            string
	}{
		{1, 1, 0, ""},
		{1, 0, 0, "empty"},
		{3, 0, 0, "empty"},
		{3, 0, 2, "none of the 3 objects"},
		{3, 1, 0, ""}, // below 4 only the last one is guarded
		{4, 2, 0, ""},
		{4, 1, 0, "at most half"},
		{5, 3, 0, ""},
		{5, 2, 0, "at most half"},
		{20, 10, 0, ""},
		{20, 9, 9, "at most 10"},
		{21, 17, 0, ""}, // 4 of 21 are 19 %
		{21, 16, 0, "at most 20 %"},
		{25, 20, 0, ""}, // exactly 20 %
		{25, 19, 0, "at most 20 %"},
		{60, 50, 0, ""},
		{60, 49, 0, "at most 10"},
		{100, 89, 0, "at most 10"},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d of %d", c.owned-c.kept, c.owned), func(t *testing.T) {
			t.Parallel()
			old := semaphores(t, c.owned)
			want := append([]schema.Object{}, old[:c.kept]...)
			for i := range c.added {
				want = append(want, object(t, fmt.Sprintf("Semaphore/b/n%d", i), `{"permits": 1}`))
			}
			in := input(t, registered("p", old...), want...)
			p := plan.Diff(in)
			gone := c.owned - c.kept
			if c.refused == "" {
				require.True(t, p.OK())
				require.Equal(t, gone, p.Summary.Delete)
				return
			}
			require.False(t, p.OK())
			require.Len(t, p.Refused, gone)
			require.Len(t, p.Findings, 1)
			require.EqualValues(t, "NF6103", p.Findings[0].Code)
			require.Contains(t, p.Findings[0].Message, c.refused)
			require.Equal(t, "old.yaml", p.Findings[0].File)
			require.Equal(t, c.added, p.Summary.Add, "the rest is still shown")
			require.Equal(t, plan.High, p.Risk.Level)

			in.Private = true
			p = plan.Diff(in)
			require.True(t, p.OK(), "the private database of nf dev only warns")
			require.Equal(t, gone, p.Summary.Delete)
			require.Equal(t, diag.Warning, p.Findings[0].Level)

			in.Private, in.AllowEmpty = false, true
			p = plan.Diff(in)
			require.True(t, p.OK())
			require.Empty(t, p.Findings)
		})
	}
}

func TestOthersObjects(t *testing.T) {
	t.Parallel()
	mine := object(t, "Semaphore/a/x", `{"permits": 4}`)
	other := object(t, "Semaphore/a/y", `{"permits": 4}`)
	p := diff(t, registered("q", mine, other), mine, object(t, "Semaphore/a/new", `{"permits": 1}`))
	require.Equal(t, []string{"add Semaphore/a/new", "refused change Semaphore/x NF6101"}, lines(p))
	require.Contains(t, p.Refused[0].Message, `owned by project "q", declared in old.yaml:3`)
	require.Equal(t, "new.yaml", p.Findings[0].File)
	require.Equal(t, 10, p.Findings[0].Range.Start.Line)
	require.Equal(t, 0, p.Summary.Delete, "what others own is never retired")
	require.Equal(t, `give the object another name or namespace, or declare it in project "q" only: an object cannot change its project yet, not even a retired one`,
		p.Refused[0].Hint, "no command that does not exist")

	p = diff(t, registered("", mine), mine)
	require.Equal(t, []string{"refused change Semaphore/x NF6102"}, lines(p))
	require.NotContains(t, p.Refused[0].Hint, "adopt")
	require.Equal(t, []string{"add Semaphore/a/x"}, lines(diff(t, plan.Registered{}, mine))[1:])
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	ns, x := object(t, "Namespace/a", `{}`), object(t, "Semaphore/a/x", `{"permits": 4}`)
	require.Equal(t, []string{"+ Namespace a", "add Semaphore/a/x"}, lines(diff(t, plan.Registered{}, x)))
	require.Equal(t, []string{"add Namespace/a", "add Semaphore/a/x"}, lines(diff(t, plan.Registered{}, ns, x)))
	require.True(t, diff(t, registered("p", ns, x), x).Empty(), "a namespace that holds objects is not retired")
	y := object(t, "Semaphore/b/y", `{"permits": 4}`)
	r := registered("p", ns, y)
	require.Equal(t, []string{"retire Namespace/a"}, lines(diff(t, r, y)))
	r.Namespaces["a"] = 1
	require.True(t, diff(t, r, y).Empty(), "it holds an object of another project")
	require.Equal(t, []string{"add Namespace/b"}, lines(diff(t, registered("p", y), y, object(t, "Namespace/b", `{}`))), "declaring an implicit one is an add")
}

func TestBG_97_OtherContentUnderAnAppliedVersion(t *testing.T) {
	t.Parallel()
	workflow := func(version int, uri string) schema.Object {
		v := ""
		if version > 0 {
			v = fmt.Sprintf(`"version": %d, `, version)
		}
		return object(t, "Workflow/a/w", fmt.Sprintf(`{%s"tasks": [{"taskReferenceName": "t", "type": "HTTP", "inputParameters": {"uri": %q}}]}`, v, uri))
	}
	r := registered("p", workflow(2, "http://old"))
	in := input(t, r, workflow(2, "http://new"))
	in.Locate = func(_ schema.Address, pointer string) (diag.Location, bool) {
		require.Equal(t, "/spec/version", pointer)
		at := diag.Pos{Line: 5, Column: 12}
		return diag.Location{File: "w.yaml", Range: diag.Range{Start: at, End: at}}, true
	}
	p := plan.Diff(in)
	require.Equal(t, []string{"refused change Workflow/w NF6109"}, lines(p))
	require.Equal(t, "w.yaml", p.Findings[0].File)
	require.Equal(t, 5, p.Findings[0].Range.Start.Line)
	require.Equal(t, "write version: 3, or leave version out", p.Findings[0].Hint)

	in.Private = true
	p = plan.Diff(in)
	require.Equal(t, []string{"change Workflow/a/w"}, lines(p))
	require.Equal(t, diag.Warning, p.Findings[0].Level)

	require.Equal(t, []string{"change Workflow/a/w"}, lines(diff(t, r, workflow(0, "http://new"))), "without a version: a new revision")
	require.Equal(t, []string{"change Workflow/a/w"}, lines(diff(t, r, workflow(3, "http://new"))))
	r.Objects[0].Versions = append(r.Objects[0].Versions, plan.Version{Version: 1, Revision: 1, Digest: schema.DigestOf(workflow(1, "http://first"))})
	require.Equal(t, []string{"change Workflow/a/w"}, lines(diff(t, r, workflow(1, "http://first"))), "back to what the version was")
	require.Equal(t, []string{"refused change Workflow/w NF6109"}, lines(diff(t, r, workflow(1, "http://new"))))
}

func TestRisk(t *testing.T) {
	t.Parallel()
	target := func(uri, timeout string) schema.Object {
		return object(t, "Target/a/t", `{"http": {"baseUri": "`+uri+`"}, "defaultTimeoutMs": `+timeout+`}`)
	}
	require.Equal(t, plan.Risk{Level: plan.High, Reasons: []string{"moves the address of Target/a/t"}},
		diff(t, registered("p", target("http://a", "10")), target("http://b", "10")).Risk)
	r := registered("p", target("http://a", "10"))
	require.Equal(t, plan.Medium, diff(t, r, target("http://a", "20")).Risk.Level, "unknown use counts as use")
	r.Objects[0].Use = &plan.Use{}
	require.Equal(t, plan.Risk{Level: plan.Low, Reasons: []string{}}, diff(t, r, target("http://a", "20")).Risk)
	r.Objects[0].Use = &plan.Use{Open: 3}
	p := diff(t, r, target("http://a", "20"))
	require.Equal(t, plan.Medium, p.Risk.Level)
	require.Equal(t, []plan.Impact{{Kind: "open_executions", Count: 3}}, p.Changes[0].Impact)

	r = registered("p", object(t, "Semaphore/a/s", `{"permits": 9}`))
	r.Objects[0].Use = &plan.Use{Held: 5}
	require.Equal(t, plan.High, diff(t, r, object(t, "Semaphore/a/s", `{"permits": 4}`)).Risk.Level)
	require.Equal(t, plan.Medium, diff(t, r, object(t, "Semaphore/a/s", `{"permits": 5}`)).Risk.Level)
	require.Equal(t, plan.Low, diff(t, plan.Registered{}, object(t, "Semaphore/a/s", `{"permits": 4}`)).Risk.Level)
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	target := func(key, literal string) schema.Object {
		return object(t, "Target/a/t", `{"http": {"baseUri": "http://a", "headers": {"authorization": {"secretRef": {"name": "canary-`+key+
			`", "key": "k", "prefix": "Bearer "}}, "x-api-key": "`+literal+`", "x-plain": "`+key+`"}}}`)
	}
	p := diff(t, registered("p", target("one", "canary-1")), target("two", "canary-2"))
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.NotContains(t, string(text), "canary")
	require.Contains(t, string(text), `"before":"one"`)
	require.Len(t, p.Changes[0].Fields, 3)
	added, err := json.Marshal(diff(t, plan.Registered{}, target("one", "canary-1")))
	require.NoError(t, err)
	require.NotContains(t, string(added), "canary")
}

func TestJSONForm(t *testing.T) {
	t.Parallel()
	in := input(t, registered("p", object(t, "TaskDefinition/a/charge", `{}`)), object(t, "TaskDefinition/a/charge", `{"retryCount": 5}`))
	in.Source = plan.Source{Commit: "91d0", Branch: "main", Digest: "sha256:00"}
	in.NFVersion = "1.2"
	text, err := json.Marshal(plan.Diff(in))
	require.NoError(t, err)
	again, err := json.Marshal(plan.Diff(in))
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	for _, key := range []string{
		"format_version", "nf_version", "project", "environment", "source", "base", "summary", "risk", "changes", "refused", "held", "drift", "findings",
	} {
		require.Contains(t, got, key)
	}
	require.Equal(t, map[string]any{
		"add": 0.0, "change": 1.0, "move": 0.0, "adopt": 0.0, "delete": 0.0, "refused": 0.0, "held": 0.0, "unchanged": 0.0, "drift": 0.0,
	}, got["summary"])
	change := got["changes"].([]any)[0].(map[string]any)
	require.Equal(t, "change", change["action"])
	require.Equal(t, map[string]any{"kind": "TaskDefinition", "namespace": "a", "name": "charge"}, change["object"])
	require.Equal(t, map[string]any{"file": "new.yaml", "line": 10.0}, change["source"])
	require.Equal(t, map[string]any{
		"pointer": "/spec/retryCount", "path": "spec.retryCount", "op": "replace", "before": 3.0, "after": 5.0, "before_default": true, "sensitive": false,
	}, change["fields"].([]any)[0])
}

func TestContentOfALaterNF(t *testing.T) {
	t.Parallel()
	o := object(t, "Semaphore/a/x", `{"permits": 4}`)
	r := registered("p", o)
	r.Objects[0].Spec = []byte(`{"permits": 4, "fromTheFuture": true}`)
	r.Objects[0].Digest = schema.Digest{1}
	require.Equal(t, []string{"change Semaphore/a/x"}, lines(diff(t, r, o)))
}

func TestP03_EmptyDesiredSet(t *testing.T) {
	t.Parallel()
	p := diff(t, registered("p", semaphores(t, 2)...))
	require.Len(t, p.Refused, 2)
	require.Empty(t, p.Changes)
	require.Contains(t, p.Findings[0].Message, "desired set is empty")
	require.True(t, diff(t, registered("q", semaphores(t, 2)...)).Empty(), "others' objects are not looked at")
}

func TestP09_AllowEmpty(t *testing.T) {
	t.Parallel()
	old := semaphores(t, 3)
	in := input(t, registered("p", old...))
	in.AllowEmpty = true
	require.Equal(t, 3, plan.Diff(in).Summary.Delete)
	target := object(t, "Target/a/t", `{"http": {"baseUri": "http://a"}}`)
	other := object(t, "Target/a/u", `{"http": {"baseUri": "http://a"}}`)
	require.True(t, diff(t, registered("p", old[0], target, other), target, other).OK(), "the last Semaphore beside other objects")
}

func TestP12_RemovedFileRetires(t *testing.T) {
	t.Parallel()
	old := semaphores(t, 3)
	require.Equal(t, []string{"retire Semaphore/a/s02"}, lines(diff(t, registered("p", old...), old[:2]...)))
}

func TestP14_UndeclaredNamespaceIsShown(t *testing.T) {
	t.Parallel()
	p := diff(t, plan.Registered{Namespaces: map[string]int{}}, semaphores(t, 1)...)
	require.Equal(t, []string{"a"}, p.Namespaces)
	require.Equal(t, 1, p.Summary.Add, "an implicit namespace is no object")
}

func TestO01_TwoOwners(t *testing.T) {
	t.Parallel()
	p := diff(t, registered("first", semaphores(t, 1)...), semaphores(t, 1)...)
	require.False(t, p.OK())
	require.EqualValues(t, "NF6101", p.Refused[0].Code)
	require.Contains(t, p.Refused[0].Message, "old.yaml")
	require.Equal(t, "new.yaml", p.Findings[0].File)
}

func TestO07_OneOwnerWhateverProcess(t *testing.T) {
	t.Parallel()
	r := registered("p", semaphores(t, 1)...)
	r.AppliedBy = "ci"
	require.True(t, diff(t, r, semaphores(t, 1)...).Empty())
}

// A call that moves to a Target loses the default timeoutMs of calls by uri, since the Target's counts: nobody removed it. What was written
// and is gone is shown, and defaults are named as such at any depth.
func TestDefaultsOfOneFormOnlyAreNoChange(t *testing.T) {
	t.Parallel()
	call := func(inputs string) schema.Object {
		return object(t, "Workflow/a/w", `{"tasks": [{"taskReferenceName": "x", "type": "SET_VARIABLE", "inputParameters": {"a": 1}},
			{"taskReferenceName": "call", "type": "HTTP", "inputParameters": `+inputs+`}]}`)
	}
	fieldsOf := func(before, after schema.Object) []string {
		t.Helper()
		p := diff(t, registered("p", before), after)
		require.Len(t, p.Changes, 1)
		var out []string
		for _, f := range p.Changes[0].Fields {
			out = append(out, fmt.Sprintf("%s %s %v %v %v %v", f.Op, strings.TrimPrefix(f.Path, "spec.tasks[call].inputParameters."), f.Before, f.BeforeDefault, f.After, f.AfterDefault))
		}
		return out
	}
	uri, target := call(`{"uri": "https://x.example/a"}`), call(`{"target": "t"}`)
	require.Equal(t, []string{"add target <nil> false t false", "remove uri https://x.example/a false <nil> false"}, fieldsOf(uri, target))
	require.Equal(t, []string{"remove target t false <nil> false", "add uri <nil> false https://x.example/a false"}, fieldsOf(target, uri))
	require.Equal(t, []string{"replace timeoutMs 30000 true 500 false"}, fieldsOf(uri, call(`{"uri": "https://x.example/a", "timeoutMs": 500}`)))
	require.Equal(t, []string{"add target <nil> false t false", "remove timeoutMs 500 false <nil> false", "remove uri https://x.example/a false <nil> false"},
		fieldsOf(call(`{"uri": "https://x.example/a", "timeoutMs": 500}`), target))

	// a task that stands at another place is compared with itself
	moved := object(t, "Workflow/a/w", `{"tasks": [{"taskReferenceName": "call", "type": "HTTP", "inputParameters": {"uri": "https://x.example/a", "method": "POST"}},
		{"taskReferenceName": "x", "type": "SET_VARIABLE", "inputParameters": {"a": 1}}]}`)
	require.Equal(t, []string{"replace method GET true POST false", "reorder spec.tasks [x call] false [call x] false"}, fieldsOf(uri, moved))
}
