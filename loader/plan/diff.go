package plan

import (
	"fmt"
	"maps"
	"slices"

	"nf/schema"
	"nf/schema/diag"
)

// Diff says what must change. Refused items stand in Refused and not in Changes, with their finding in Findings.
func Diff(in Input) Plan {
	d := &diffing{in: in, registered: make(map[schema.Address]*Object, len(in.Registered.Objects))}
	for i := range in.Registered.Objects {
		o := &in.Registered.Objects[i]
		d.registered[o.Address] = o
	}
	r := in.Registered
	d.plan = Plan{
		Format: FormatVersion, NFVersion: in.NFVersion, Project: in.Project, Environment: in.Environment, Source: in.Source,
		Base:       Base{Generation: r.Generation, Commit: r.Commit, AppliedBy: r.AppliedBy, Revisions: map[string]int64{}},
		Namespaces: []string{}, Changes: []ObjectChange{}, Refused: []Refusal{}, Held: []any{}, Drift: []any{},
		Findings: append(diag.List{}, in.Findings...), SetDigest: in.Desired.Digest(),
	}
	d.plan.Source.Set = d.plan.SetDigest.String()
	if r.Generation > 0 {
		d.plan.Base.Digest = r.Digest.String()
		if !r.AppliedAt.IsZero() {
			at := r.AppliedAt.UTC()
			d.plan.Base.AppliedAt = &at
		}
	}
	for _, o := range in.Desired.All() {
		d.desired(o)
	}
	d.retire()
	d.order()
	d.namespaces()
	d.finish()
	return d.plan
}

// diffing is the state of one Diff.
type diffing struct {
	in         Input
	registered map[schema.Address]*Object
	plan       Plan
}

// desired plans one object of the files.
func (d *diffing) desired(o schema.Object) {
	a := o.Address()
	digest := schema.DigestOf(o)
	reg := d.registered[a]
	c := ObjectChange{Action: Add, Object: objectOf(a), Address: a, Source: d.place(a), Digest: Digests{After: digest.String()}, Risk: Low, Impact: []Impact{}}
	if reg == nil {
		c.Fields = fields(nil, o)
		d.plan.Changes = append(d.plan.Changes, c)
		d.plan.Summary.Add++
		return
	}
	if digest == reg.Digest && !reg.Retired && reg.Project == d.in.Project && sameMeta(o.Meta(), reg) {
		d.plan.Summary.Unchanged++
		return
	}
	before, err := schema.DecodeCanonical(a.Kind, schema.Metadata{Name: a.Name, Namespace: a.Namespace, Labels: reg.Labels, Description: reg.Description}, reg.Spec)
	if err != nil { // content of a later nf, or a broken row: everything changes
		before = nil
	}
	c.Fields = fields(before, o)
	c.Revision.Before, c.Digest.Before = reg.Revision, reg.Digest.String()
	c.Action = Change
	if reg.Retired {
		c.Action = Unretire
	}
	if refusal, ok := d.refuse(o, reg, digest, c); ok {
		d.plan.Refused = append(d.plan.Refused, refusal)
		return
	}
	c.Impact, c.Risk = impact(reg), d.risk(c, reg, o)
	d.touch(reg)
	d.touchNamed(o)
	d.plan.Changes = append(d.plan.Changes, c)
	d.plan.Summary.Change++
}

// sameMeta says whether labels and description are what is registered; they are no part of a digest.
func sameMeta(m schema.Metadata, reg *Object) bool {
	return m.Description == reg.Description && maps.Equal(m.Labels, reg.Labels)
}

// refuse says whether a desired object may not go in: ownership, then the content of its version.
func (d *diffing) refuse(o schema.Object, reg *Object, digest schema.Digest, c ObjectChange) (Refusal, bool) {
	a := o.Address()
	switch {
	case reg.Project == "":
		return d.refusal(c, "NF6102", "",
			fmt.Sprintf("%s exists and has no owner; an apply does not take it over", a),
			"give the object in the files another name: taking one over that has no owner is not possible yet"), true
	case reg.Project != d.in.Project:
		return d.refusal(c, "NF6101", "",
			fmt.Sprintf("%s is owned by project %q, declared in %s:%d", a, reg.Project, reg.File, reg.Line),
			fmt.Sprintf("give the object another name or namespace, or declare it in project %q only: an object cannot change its project yet, not even a retired one", reg.Project)), true
	}
	w, ok := o.(*schema.Workflow)
	if !ok || w.Version == 0 {
		return Refusal{}, false
	}
	for _, v := range reg.Versions {
		if v.Version != w.Version || v.Digest == digest {
			continue
		}
		message := fmt.Sprintf("%s was applied with other content under version %d (revision %d)", a, v.Version, v.Revision)
		hint := fmt.Sprintf("write version: %d, or leave version out", highest(reg.Versions)+1)
		if d.in.Private {
			d.find("NF6109", diag.Warning, a, "/spec/version", message+"; the version moves to the new content", hint)
			return Refusal{}, false
		}
		return d.refusal(c, "NF6109", "/spec/version", message, hint), true
	}
	return Refusal{}, false
}

func highest(versions []Version) int64 {
	top := int64(0)
	for _, v := range versions {
		top = max(top, v.Version)
	}
	return top
}

// refusal makes a refusal and its finding.
func (d *diffing) refusal(c ObjectChange, code diag.Code, pointer, message, hint string) Refusal {
	d.find(code, diag.Error, c.Address, pointer, message, hint)
	return Refusal{Action: c.Action, Object: c.Object, Source: c.Source, Code: code, Message: message, Hint: hint}
}

// find adds a finding about an object.
func (d *diffing) find(code diag.Code, level diag.Level, a schema.Address, pointer, message, hint string) {
	object := objectOf(a)
	f := diag.Diagnostic{Code: code, Level: level, Message: message, Hint: hint, Object: &object, Pointer: pointer}
	at, ok := d.in.Origins[a]
	if pointer != "" && d.in.Locate != nil {
		if exact, found := d.in.Locate(a, pointer); found {
			at, ok = exact, true
		}
	}
	if ok {
		f.File, f.Document, f.Range = at.File, at.Document, at.Range
	} else if reg := d.registered[a]; reg != nil && reg.File != "" {
		f.File = reg.File
		f.Range.Start = diag.Pos{Line: reg.Line, Column: 1}
		f.Range.End = f.Range.Start
	}
	d.plan.Findings = append(d.plan.Findings, f)
}

// findProject adds a finding about the project as a whole.
func (d *diffing) findProject(code diag.Code, level diag.Level, message, hint string) {
	d.plan.Findings = append(d.plan.Findings, diag.Diagnostic{
		Code: code, Level: level, Message: message, Hint: hint, Object: &diag.Object{Kind: string(schema.KindProject), Name: d.in.Project},
	})
}

func (d *diffing) place(a schema.Address) *Place {
	at, ok := d.in.Origins[a]
	if !ok {
		return nil
	}
	return &Place{File: at.File, Line: at.Range.Start.Line}
}

func objectOf(a schema.Address) diag.Object {
	return diag.Object{Kind: string(a.Kind), Namespace: a.Namespace, Name: a.Name}
}

// touch records the revision that the plan relies on.
func (d *diffing) touch(reg *Object) { d.plan.Base.Revisions[reg.Address.String()] = reg.Revision }

// touchNamed records the revisions of what an object names.
func (d *diffing) touchNamed(o schema.Object) {
	for _, a := range named(o) {
		if reg := d.registered[a]; reg != nil {
			d.touch(reg)
		}
	}
}

// named lists what an object refers to.
func named(o schema.Object) []schema.Address {
	var out []schema.Address
	switch o := o.(type) {
	case *schema.TaskDefinition:
		for _, s := range o.Semaphores {
			out = append(out, schema.Address{Kind: schema.KindSemaphore, Namespace: s.Namespace, Name: s.Name})
		}
	case *schema.Workflow:
		o.Walk(func(t *schema.Task, _ int) bool {
			if t.Definition != "" {
				out = append(out, schema.Address{Kind: schema.KindTaskDefinition, Namespace: o.Metadata.Namespace, Name: t.Definition})
			}
			if ref, ok := t.Target(o.Metadata.Namespace); ok {
				out = append(out, schema.Address{Kind: schema.KindTarget, Namespace: ref.Namespace, Name: ref.Name})
			}
			return true
		})
	}
	return out
}

// namespaces lists the namespaces that the apply creates because a desired object lives in them.
func (d *diffing) namespaces() {
	known := maps.Clone(d.in.Registered.Namespaces)
	if known == nil {
		known = map[string]int{}
		for a := range d.registered {
			known[a.Namespace]++
		}
	}
	for _, o := range d.in.Desired.All() {
		if o.Address().Kind == schema.KindNamespace {
			known[o.Address().Name] = 1
		}
	}
	for _, o := range d.in.Desired.All() {
		ns := o.Address().Namespace
		if _, has := known[ns]; !has && ns != "" {
			known[ns] = 1
			d.plan.Namespaces = append(d.plan.Namespaces, ns)
		}
	}
	slices.Sort(d.plan.Namespaces)
}

// finish counts and orders.
func (d *diffing) finish() {
	p := &d.plan
	p.Summary.Refused = len(p.Refused)
	slices.SortStableFunc(p.Changes, func(a, b ObjectChange) int { return a.Address.Compare(b.Address) })
	slices.SortStableFunc(p.Refused, func(a, b Refusal) int { return addressOf(a.Object).Compare(addressOf(b.Object)) })
	p.Findings.Sort()
	p.Risk = Risk{Level: Low, Reasons: []string{}}
	for _, c := range p.Changes {
		if rank(c.Risk) > rank(p.Risk.Level) {
			p.Risk.Level = c.Risk
		}
		if c.Risk != Low {
			p.Risk.Reasons = append(p.Risk.Reasons, reason(c))
		}
	}
	for _, r := range p.Refused {
		if r.Action == Retire {
			p.Risk.Level = High
			p.Risk.Reasons = append(p.Risk.Reasons, "retires "+addressOf(r.Object).String())
		}
	}
}

func addressOf(o diag.Object) schema.Address {
	return schema.Address{Kind: schema.Kind(o.Kind), Namespace: o.Namespace, Name: o.Name}
}
