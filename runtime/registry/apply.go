package registry

import (
	"context"
	"fmt"
	"time"

	"nf/loader/plan"
	"nf/runtime/store"
	"nf/schema"
)

// ApplyOptions says who applies.
type ApplyOptions struct {
	Actor    string
	Build    int64
	Reason   string
	LockWait time.Duration // for another change of definitions; 0 = 30 s
	DryRun   bool          // the same transaction, rolled back
}

// Result says what an apply did.
type Result struct {
	Generation int64     // in force now; of a dry run: that it would be
	Unchanged  bool      // nothing had to change, or the same apply had been committed before
	Plan       plan.Plan // as judged in the transaction
	Revisions  map[schema.Address]int32
}

// RefusedError says that a plan holds what may not be applied (NF6101–NF6103, NF6107, NF6109): nothing was written.
type RefusedError struct{ Plan plan.Plan }

func (e *RefusedError) Error() string {
	if e.Plan.Behind != "" {
		return e.Plan.Behind + ": nothing was applied"
	}
	if len(e.Plan.Refused) == 0 {
		return "the plan has errors: nothing was applied"
	}
	return fmt.Sprintf("%d changes are refused, nothing was applied: %s", len(e.Plan.Refused), e.Plan.Refused[0].Message)
}

// Plan reads what is registered into the input and makes the plan. It writes nothing and takes no lock. A database of another environment is
// a *store.EnvironmentError (NF6108) when in.Environment is set; else the plan takes the database's own name.
func Plan(ctx context.Context, s *store.Store, in plan.Input) (plan.Plan, plan.Input, error) {
	registered, err := s.Registered(ctx, in.Project, orderKey(in), addresses(in.Desired))
	if err != nil {
		return plan.Plan{}, in, fmt.Errorf("plan: %w", err)
	}
	if in, err = against(in, registered); err != nil {
		return plan.Plan{}, in, err
	}
	return plan.Diff(in), in, nil
}

// Apply puts a plan in force (S14): p is what Plan gave for in. Under the registry lock the plan is made again from what is registered then; if that is another
// plan, or the generation is another, the error is store.ErrStale (NF6106); a refusal is a *RefusedError; a lock that was not had in time a
// *store.BusyError. Registries of all processes see the change at once, or within a second.
func Apply(ctx context.Context, s *store.Store, p plan.Plan, in plan.Input, opt ApplyOptions) (Result, error) {
	if !p.OK() {
		return Result{}, &RefusedError{p}
	}
	result := Result{Plan: p}
	req := store.ApplyRequest{
		Project: in.Project, BaseGeneration: p.Base.Generation, Digest: in.Desired.Digest(), Commit: in.Source.Commit, Branch: in.Source.Branch,
		Actor: opt.Actor, Build: opt.Build, Reason: opt.Reason, LockWait: opt.LockWait, DryRun: opt.DryRun, MoveVersions: in.Private,
		Wanted: addresses(in.Desired),
	}
	if o := in.Order; o != nil {
		req.Order = &store.Commit{ID: o.Mine, CommittedAt: o.CommittedAt, Parents: o.Parents}
	}
	done, err := s.Apply(ctx, req, func(r store.Registered) ([]store.Change, error) {
		fresh, err := judge(p, in, r)
		if err != nil {
			return nil, err
		}
		result.Plan = fresh
		return changesOf(fresh, in, r)
	})
	if err != nil {
		return Result{}, err
	}
	result.Generation, result.Unchanged, result.Revisions = done.Generation, done.Unchanged, done.Revisions
	return result, nil
}

// Apply applies as the function Apply does and serves the new state at once.
func (r *Registry) Apply(ctx context.Context, p plan.Plan, in plan.Input, opt ApplyOptions) (Result, error) {
	result, err := Apply(ctx, r.store, p, in, opt)
	if err != nil || opt.DryRun {
		return result, err
	}
	if err := r.Refresh(ctx); err != nil {
		r.Wake() // it is applied; it will be seen
	}
	return result, nil
}

// judge makes the plan again from what is registered under the lock, and holds it to the one that was shown.
func judge(shown plan.Plan, in plan.Input, r store.Registered) (plan.Plan, error) {
	in, err := against(in, r)
	if err != nil {
		return plan.Plan{}, err
	}
	fresh := plan.Diff(in)
	if !fresh.OK() {
		return plan.Plan{}, &RefusedError{fresh}
	}
	if len(fresh.Changes) != len(shown.Changes) {
		return plan.Plan{}, fmt.Errorf("%w: %d changes were planned, now %d are needed", store.ErrStale, len(shown.Changes), len(fresh.Changes))
	}
	for i, c := range fresh.Changes {
		s := shown.Changes[i]
		if c.Object != s.Object || c.Action != s.Action || c.Revision != s.Revision || c.Digest != s.Digest {
			return plan.Plan{}, fmt.Errorf("%w: %s has changed since the plan was made", store.ErrStale, c.Address)
		}
	}
	return fresh, nil
}

// against fills in what is registered and holds the environment (P13).
func against(in plan.Input, r store.Registered) (plan.Input, error) {
	if in.Environment == "" {
		in.Environment = r.Environment
	}
	if in.Environment != r.Environment {
		return in, &store.EnvironmentError{Stored: r.Environment, Asked: in.Environment}
	}
	in.Registered = plan.Registered{
		Generation: r.Project.Generation, Commit: r.Project.Commit, AppliedAt: r.Project.AppliedAt, AppliedBy: r.Project.AppliedBy,
		Namespaces: make(map[string]int, len(r.Namespaces)), Objects: make([]plan.Object, 0, len(r.Objects)),
	}
	copy(in.Registered.Digest[:], r.Project.Digest)
	for name, others := range r.Namespaces {
		in.Registered.Namespaces[name] = int(others)
	}
	in.Order = order(in, r.Commits)
	for _, o := range r.Objects {
		in.Registered.Objects = append(in.Registered.Objects, planObject(o))
	}
	return in, nil
}

func orderKey(in plan.Input) string {
	if in.Order == nil {
		return ""
	}
	return in.Order.Mine
}

// order fills in what the registry and the checkout know of the commits.
func order(in plan.Input, commits []store.Commit) *plan.OrderFacts {
	if in.Order == nil {
		return nil
	}
	facts := *in.Order
	facts.InForce, facts.Seen = "", make(map[string]plan.Seen, len(commits))
	for _, c := range commits {
		facts.Seen[c.ID] = plan.Seen{Superseded: c.Superseded, Generation: c.Generation, CommittedAt: c.CommittedAt, Parents: c.Parents}
		if !c.Superseded {
			facts.InForce = c.ID
		}
	}
	if in.Ancestry != nil && facts.InForce != "" && facts.InForce != facts.Mine {
		facts.Local = in.Ancestry(facts.InForce)
	}
	return &facts
}

func planObject(o store.RegisteredObject) plan.Object {
	out := plan.Object{
		Address: o.Address, Project: o.Project, Revision: int64(o.Revision), Digest: o.Digest, Spec: o.Spec, Labels: o.Labels,
		Description: o.Description, Retired: !o.RetiredAt.IsZero(), File: o.SourceFile, Line: int(o.SourceLine), Commit: o.SourceCommit,
	}
	for _, v := range o.Versions {
		out.Versions = append(out.Versions, plan.Version{Version: v.Version, Revision: int64(v.Revision), Digest: v.Digest})
	}
	if o.Use != nil {
		out.Use = &plan.Use{Open: o.Use.Open, Held: o.Use.Held}
	}
	return out
}

// changesOf gives the changes of a plan as the store takes them.
func changesOf(p plan.Plan, in plan.Input, r store.Registered) ([]store.Change, error) {
	base := make(map[schema.Address]*store.RegisteredObject, len(r.Objects))
	for i := range r.Objects {
		base[r.Objects[i].Address] = &r.Objects[i]
	}
	changes := make([]store.Change, 0, len(p.Changes))
	for _, c := range p.Changes {
		change := store.Change{Action: action(c.Action), Base: base[c.Address]}
		if c.Action != plan.Retire {
			o, ok := in.Desired.Get(c.Address)
			if !ok {
				return nil, fmt.Errorf("%s: planned, but not in the set", c.Address)
			}
			change.Want = want(o, c.Source)
		}
		if (change.Base == nil) != (c.Action == plan.Add) {
			return nil, fmt.Errorf("%s: action %s does not fit what is registered", c.Address, c.Action)
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// action gives the store's word for a plan's action.
func action(a plan.Action) store.ChangeAction {
	switch a {
	case plan.Add:
		return store.ActionAdd
	case plan.Change:
		return store.ActionChange
	case plan.Retire:
		return store.ActionRetire
	case plan.Unretire:
		return store.ActionUnretire
	}
	return store.ChangeAction(a)
}

func want(o schema.Object, place *plan.Place) *store.Declared {
	d := &store.Declared{Object: o, Digest: schema.DigestOf(o), Spec: schema.Canonical(o), File: "-", Line: 1}
	if place != nil {
		d.File, d.Line = place.File, int32(min(max(place.Line, 1), 1<<30))
	}
	return d
}

func addresses(set schema.Set) []schema.Address {
	all := make([]schema.Address, 0, set.Len())
	for _, o := range set.All() {
		all = append(all, o.Address())
	}
	return all
}
