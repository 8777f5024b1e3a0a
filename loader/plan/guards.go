package plan

import (
	"fmt"
	"slices"

	"nf/schema"
)

// The limits of P9 that hold while no project sets its own.
const (
	maxRetirements = 10 // in one apply
	maxPercent     = 20 // of the owned objects, when more than percentFrom are owned
	percentFrom    = 20
	halfFrom       = 4 // from so many owned objects on at most half
)

// retire plans the retirement of what the project owns and the files no longer declare.
func (d *diffing) retire() {
	owned, gone := 0, []*Object{}
	for _, reg := range d.in.Registered.Objects {
		if reg.Project != d.in.Project || reg.Retired {
			continue
		}
		owned++
		if _, wanted := d.in.Desired.Get(reg.Address); wanted {
			continue
		}
		if reg.Address.Kind == schema.KindNamespace && d.inUse(reg.Address.Name) {
			d.plan.Summary.Unchanged++ // its settings go back to the defaults; it has none yet
			continue
		}
		gone = append(gone, d.registered[reg.Address])
	}
	if len(gone) == 0 {
		return
	}
	slices.SortFunc(gone, func(a, b *Object) int { return a.Address.Compare(b.Address) })
	changes := make([]ObjectChange, len(gone))
	for i, reg := range gone {
		changes[i] = ObjectChange{
			Action: Retire, Object: objectOf(reg.Address), Address: reg.Address, Source: &Place{File: reg.File, Line: reg.Line}, Fields: []FieldChange{},
			Revision: Revision{Before: reg.Revision}, Digest: Digests{Before: reg.Digest.String()}, Impact: impact(reg), Risk: High,
		}
	}
	if message, hint := d.guard(owned, len(gone)); message != "" {
		d.guarded(changes, message, hint)
		return
	}
	d.retiring(changes)
}

func (d *diffing) retiring(changes []ObjectChange) {
	for _, c := range changes {
		d.touch(d.registered[c.Address])
		d.plan.Changes = append(d.plan.Changes, c)
		d.plan.Summary.Delete++
	}
}

// inUse says whether a namespace holds any object that will be in force.
func (d *diffing) inUse(namespace string) bool {
	if d.in.Registered.Namespaces[namespace] > 0 {
		return true
	}
	for _, o := range d.in.Desired.All() {
		if o.Address().Namespace == namespace {
			return true
		}
	}
	return slices.ContainsFunc(d.in.Registered.Objects, func(o Object) bool {
		return o.Address.Namespace == namespace && !o.Retired && o.Project != d.in.Project
	})
}

// guard gives the reason why so many retirements are refused, "" if they are not.
func (d *diffing) guard(owned, gone int) (message, hint string) {
	const careful = "restore the files; to retire them all the same, remove fewer in one commit"
	switch {
	case d.in.AllowEmpty:
		return "", ""
	case d.in.Desired.Len() == 0:
		return fmt.Sprintf("the desired set is empty: all %d objects of project %q would be retired", gone, d.in.Project), "restore the files, or mend spec.roots"
	case gone == owned:
		return fmt.Sprintf("none of the %d objects of project %q would stay", owned, d.in.Project), "restore the files, or mend spec.roots or the names"
	case gone > maxRetirements:
		return fmt.Sprintf("%d objects would be retired; one apply may retire at most %d", gone, maxRetirements), careful
	case owned >= halfFrom && gone*2 > owned:
		return fmt.Sprintf("%d of %d objects would be retired; one apply may retire at most half", gone, owned), careful
	case owned > percentFrom && gone*100 > maxPercent*owned:
		return fmt.Sprintf("%d of %d objects would be retired; one apply may retire at most %d %%", gone, owned, maxPercent), careful
	}
	return "", ""
}

// guarded refuses the retirements, or only warns in the private database of `nf dev`.
func (d *diffing) guarded(changes []ObjectChange, message, hint string) {
	first := changes[0]
	if d.in.Private {
		d.find("NF6103", "warning", first.Address, "", message, "in any other database this would be refused")
		d.retiring(changes)
		return
	}
	for i, c := range changes {
		if i == 0 {
			d.find("NF6103", "error", c.Address, "", message, hint)
		}
		d.plan.Refused = append(d.plan.Refused, Refusal{Action: c.Action, Object: c.Object, Source: c.Source, Code: "NF6103", Message: message, Hint: hint})
	}
}
