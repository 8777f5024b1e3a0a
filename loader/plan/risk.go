package plan

import (
	"slices"
	"strings"

	"nf/schema"
)

// impact says what a change does beside itself.
func impact(reg *Object) []Impact {
	out := []Impact{}
	if reg.Use != nil && reg.Use.Open > 0 {
		out = append(out, Impact{"open_executions", reg.Use.Open})
	}
	if reg.Use != nil && reg.Use.Held > 0 {
		out = append(out, Impact{"held", reg.Use.Held})
	}
	return out
}

// risk judges a change of an object that exists. Where it is not known whether the object is in use, it counts as used.
func (d *diffing) risk(c ObjectChange, reg *Object, o schema.Object) RiskLevel {
	spec := false
	for _, f := range c.Fields {
		spec = spec || strings.HasPrefix(f.Pointer, "/spec/")
		if movesTarget(f) {
			return High
		}
	}
	if reg.Use != nil && belowHeld(o, reg.Use.Held) {
		return High
	}
	if spec && (reg.Use == nil || reg.Use.Open > 0 || reg.Use.Held > 0) {
		return Medium
	}
	return Low
}

// movesTarget says whether a field is the address of a Target.
func movesTarget(f FieldChange) bool {
	return f.Pointer == "/spec/http/baseUri" || f.Pointer == "/spec/grpc/address" || f.Pointer == "/spec/http" || f.Pointer == "/spec/grpc"
}

// belowHeld says whether permits or a cap are below what is held now.
func belowHeld(o schema.Object, held int64) bool {
	switch o := o.(type) {
	case *schema.Semaphore:
		return o.Permits < held
	case *schema.TaskDefinition:
		return o.ConcurrentExecLimit > 0 && o.ConcurrentExecLimit < held
	}
	return false
}

func rank(r RiskLevel) int {
	switch r {
	case High:
		return 2
	case Medium:
		return 1
	case Low:
	}
	return 0
}

// reason puts the risk of a change into words.
func reason(c ObjectChange) string {
	if c.Action == Change && c.Risk == High {
		if slices.ContainsFunc(c.Fields, movesTarget) {
			return "moves the address of " + c.Address.String()
		}
		return "goes below what is held of " + c.Address.String()
	}
	switch c.Action {
	case Retire:
		return "retires " + c.Address.String()
	case Unretire:
		return "brings back " + c.Address.String()
	case Add, Change:
	}
	return "changes " + c.Address.String() + ", which is or may be in use"
}
