package reload

import (
	"context"
	"errors"
	"fmt"

	"nf/loader/plan"
	"nf/runtime/registry"
	"nf/runtime/store"
)

// Terms are what a runner was told about applying.
type Terms struct {
	Manual  bool // plans are shown and not applied
	Private bool // the database is that of nf dev: its guards warn only (P9)
}

// Judge says whether a plan may be applied now. Where it may not, it gives the outcome.
func Judge(p *plan.Plan, in Loaded, t Terms) (Outcome, bool) {
	out := Outcome{Generation: p.Base.Generation, Commit: p.Base.Commit, Plan: p}
	switch {
	case p.Behind != "":
		out.Result, out.Reason = Behind, "NF6107 "+p.Behind
	case !p.OK():
		out.Result, out.Reason = Refused, p.Findings.Err().Error()
		out.Findings = p.Findings
	case p.Empty():
		return out, true
	case t.Manual:
		out.Result, out.Reason = Pending, "apply is manual: run nf apply"
	case p.Summary.Delete > 0 && !in.RetireSeen && !t.Private:
		out.Result, out.Unseen = Pending, true
		out.Reason = fmt.Sprintf("%d objects have no file any more: they are retired when a second read says so too", p.Summary.Delete)
	default:
		return out, true
	}
	return out, false
}

// Applier puts sets in force as nf apply does.
type Applier struct {
	Registry *registry.Registry
	Terms    Terms
	Actor    string
	Build    int64
	// Plan makes the plan of a set. It writes nothing.
	Plan func(context.Context, Loaded) (plan.Plan, plan.Input, error)
	// Forbid says why a sound set may not be put in force by this runner, "" if it may. May be nil.
	Forbid func(Loaded) string
}

// maxStale is how often a plan is made anew because another process was faster.
const maxStale = 5

// Apply has the signature of Options.Apply.
func (a *Applier) Apply(ctx context.Context, in Loaded) (Outcome, error) {
	if a.Forbid != nil {
		if why := a.Forbid(in); why != "" {
			return Outcome{Result: Refused, Reason: why}, nil
		}
	}
	var err error
	for range maxStale {
		var out Outcome
		if out, err = a.once(ctx, in); !errors.Is(err, store.ErrStale) {
			return out, err
		}
	}
	return Outcome{}, err
}

func (a *Applier) once(ctx context.Context, in Loaded) (Outcome, error) {
	made, filled, err := a.Plan(ctx, in)
	if err != nil {
		return Outcome{}, err
	}
	out, may := Judge(&made, in, a.Terms)
	if !may {
		return out, nil
	}
	result, err := a.Registry.Apply(ctx, made, filled, registry.ApplyOptions{Actor: a.Actor, Build: a.Build})
	if refusal, ok := errors.AsType[*registry.RefusedError](err); ok {
		out, _ = Judge(&refusal.Plan, in, a.Terms)
		return out, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	out.Result, out.Generation, out.Commit = Applied, result.Generation, filled.Source.Commit
	if result.Unchanged {
		out.Result = Unchanged
	}
	return out, nil
}
