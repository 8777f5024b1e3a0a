package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/loader/plan"
	"nf/runtime/clock"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema/diag"
)

func (sh *shell) planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "show what an apply would change",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "detailed-exitcode", Usage: "exit 2 when an apply would change something"},
			sourceFlag(),
		},
		Action: sh.action(0, 0, "", sh.plan),
	}
}

func sourceFlag() cli.Flag {
	return &cli.StringFlag{Name: "source", Usage: "what is read: git (HEAD's commit), dir (the files), or auto: git in a checkout, else dir"}
}

func (sh *shell) plan() error {
	db, err := sh.settings.database(sh.c)
	if err != nil {
		return err
	}
	p, err := sh.readForPlan(db)
	if err != nil {
		return err
	}
	s, db, err := sh.openStore(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	made, _, err := planProject(sh.ctx(), s, &p, sh.planned(sh.environmentOf(db), db, false))
	if err != nil {
		return storeError(err)
	}
	if err := sh.tellPlan(&p, &made); err != nil {
		return err
	}
	code := codeOfFindings(made.Findings)
	if sh.c.Bool("detailed-exitcode") && !made.Empty() {
		code = worst(code, exitChanges)
	}
	return quiet(code)
}

// environmentOf gives the environment that was named, "" for the database's own.
func (sh *shell) environmentOf(db setting) string {
	if db.from == fromState && sh.settings.envName.value == "" {
		return devEnvironment
	}
	return sh.settings.envName.value
}

// readForPlan reads the project as a plan sees it (P11). Findings that forbid a plan are printed and end the command.
func (sh *shell) readForPlan(db setting) (project, error) {
	from, err := sourceOf(&sh.settings, db, sh.c.String("source"))
	if err != nil {
		return project{}, err
	}
	p, err := readProject(sh.ctx(), sh.settings.folder(), from)
	if err != nil {
		return p, err
	}
	sh.warnDirty(&p)
	if p.findings.HasErrors() && !p.bundle.Empty {
		if err := sh.tellFindings(checkedOf(&p, p.findings)); err != nil {
			return p, err
		}
		sh.helpEmptyFolder(checkedOf(&p, p.findings))
		return p, quiet(codeOfFindings(p.findings))
	}
	return p, nil
}

// planned says how a plan is made.
type planned struct {
	env     string // "" = the database's own
	private bool   // the database of nf dev: no order of commits, and guards that only warn
	vars    environ
	apply   bool // a commit out of order is an error
	rewind  bool

	changedFrom string // digest of the content that was in force when the source of a runner changed (P11); "" = no change was seen
}

func (sh *shell) planned(env string, db setting, apply bool) planned {
	return planned{env: env, private: db.from == fromState, vars: sh.env, apply: apply, rewind: apply && sh.c.Bool("rewind")}
}

// planProject plans a project against the database. A project without manifests is NF7001 unless it owns something: then the guards of P9 have their say.
func planProject(ctx context.Context, s *store.Store, p *project, how planned) (plan.Plan, plan.Input, error) {
	in := p.input(how.vars)
	in.Environment, in.Private, in.ForApply = how.env, how.private, how.apply
	if !how.private {
		in = p.ordered(ctx, in, how.rewind)
		in.Order.ChangedFrom = how.changedFrom
	}
	if p.bundle.Empty {
		in.Findings = slices.DeleteFunc(slices.Clone(p.findings), func(f diag.Diagnostic) bool { return f.Code == "NF7001" })
	}
	made, filled, err := registry.Plan(ctx, s, in)
	if err == nil && p.bundle.Empty && made.Empty() {
		filled.Findings = p.findings
		made = plan.Diff(filled)
	}
	return made, filled, err
}

// tellPlan prints a plan with its findings.
func (sh *shell) tellPlan(p *project, made *plan.Plan) error {
	if sh.settings.output == "json" {
		return sh.json(made)
	}
	c := checkedOf(p, made.Findings)
	list := slices.DeleteFunc(slices.Clone(made.Findings), func(f diag.Diagnostic) bool {
		return slices.ContainsFunc(made.Refused, func(r plan.Refusal) bool { return r.Code == f.Code && r.Message == f.Message })
	})
	sh.show(findingsText(c, list))
	if p.bundle.Empty && made.Findings.HasErrors() && len(made.Refused) == 0 {
		return nil // nothing to plan
	}
	applied := ""
	if made.Base.AppliedAt != nil {
		applied = view.Ago((clock.System{}).Now().Sub(*made.Base.AppliedAt))
	}
	sh.show(view.Plan(made, applied))
	return nil
}

func (sh *shell) applyCommand() *cli.Command {
	return &cli.Command{
		Name: "apply", Usage: "put what the project says in force",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
			&cli.BoolFlag{Name: "dry-run", Usage: "do everything but commit"},
			&cli.BoolFlag{Name: "rewind", Usage: "go back to a commit that what is in force does not come from; needs --reason"},
			&cli.StringFlag{Name: "reason", Usage: "why; kept in the history"},
			sourceFlag(),
		},
		Action: sh.action(0, 0, "", sh.apply),
	}
}

// appliedForm is the JSON form of an apply.
type appliedForm struct {
	FormatVersion string    `json:"format_version"`
	Applied       bool      `json:"applied"`
	DryRun        bool      `json:"dry_run"`
	Unchanged     bool      `json:"unchanged"`
	Generation    int64     `json:"generation"`
	Plan          plan.Plan `json:"plan"`
}

func (sh *shell) apply() error {
	db, err := sh.settings.database(sh.c)
	if err != nil {
		return err
	}
	if _, err := sh.settings.needEnv(db); err != nil {
		return err
	}
	ask := !sh.c.Bool("yes") && !sh.c.Bool("dry-run") && db.from != fromState
	if ask && !sh.terminal() {
		return usage("nf apply asks before it changes a database, and there is nobody to ask").hinted("give --yes")
	}
	if sh.c.Bool("rewind") && sh.c.String("reason") == "" {
		return usage("--rewind needs --reason").hinted("say why the environment goes back: --reason TEXT")
	}
	p, err := sh.readForPlan(db)
	if err != nil {
		return err
	}
	s, db, env, err := sh.openToWrite(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	made, in, err := planProject(sh.ctx(), s, &p, sh.planned(env, db, true))
	if err != nil {
		return storeError(err)
	}
	if !made.OK() {
		return sh.notApplied(&p, &made)
	}
	text := sh.settings.output == "text"
	if text {
		if err := sh.tellPlan(&p, &made); err != nil {
			return err
		}
	}
	if ask && !made.Empty() {
		if err := sh.ask("Apply this to environment " + view.Safe(env) + "?"); err != nil {
			return err
		}
	}
	result, err := registry.Apply(sh.ctx(), s, made, in, registry.ApplyOptions{Actor: sh.settings.actor(), Build: Build, Reason: sh.c.String("reason"), DryRun: sh.c.Bool("dry-run")})
	if refusal, ok := errors.AsType[*registry.RefusedError](err); ok {
		return sh.notApplied(&p, &refusal.Plan)
	}
	if err != nil {
		return storeError(err)
	}
	if !text {
		return sh.json(appliedForm{view.FormatVersion, !sh.c.Bool("dry-run"), sh.c.Bool("dry-run"), result.Unchanged, result.Generation, result.Plan})
	}
	switch {
	case sh.c.Bool("dry-run"):
		sh.print("Dry run: nothing was changed.\n")
	case result.Unchanged:
	default:
		sh.print(view.Applied(result.Generation, env))
	}
	return nil
}

// notApplied shows a plan that may not be applied.
func (sh *shell) notApplied(p *project, made *plan.Plan) error {
	if sh.settings.output == "json" {
		if err := sh.json(appliedForm{FormatVersion: view.FormatVersion, DryRun: sh.c.Bool("dry-run"), Generation: made.Base.Generation, Plan: *made}); err != nil {
			return err
		}
		return quiet(codeOfFindings(made.Findings))
	}
	if err := sh.tellPlan(p, made); err != nil {
		return err
	}
	sh.print("Nothing was applied.\n")
	return quiet(codeOfFindings(made.Findings))
}

// timeFormat shows times to people.
const timeFormat = time.RFC3339
