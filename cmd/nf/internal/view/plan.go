package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nf/loader/plan"
	"nf/schema"
	"nf/schema/diag"
)

var signs = map[plan.Action]string{plan.Add: "+", plan.Change: "~", plan.Retire: "-", plan.Unretire: "+"} //nolint:gochecknoglobals // a constant table

// Plan draws a plan (design C7). applied says how long ago the base was applied; it is part of the head only. The last line counts what stands
// above it, namespaces that are made on the way included; in the JSON form they have a list of their own.
func Plan(p *plan.Plan, applied string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nf plan   project %s   env %s\n", Safe(p.Project), Safe(p.Environment))
	fmt.Fprintf(&b, "desired   %s\n", desired(p))
	fmt.Fprintf(&b, "base      %s\n\n", base(p.Base, applied))
	for _, ns := range p.Namespaces {
		fmt.Fprintf(&b, "+ Namespace %s\n\n", Safe(ns))
	}
	for i := range p.Changes {
		change(&b, &p.Changes[i])
	}
	for _, r := range p.Refused {
		fmt.Fprintf(&b, "x %s\n    refused [%s]: %s\n", objectLine(r.Object, r.Source), r.Code, Safe(r.Message))
		if r.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", Safe(r.Hint))
		}
		b.WriteString("\n")
	}
	s := p.Summary
	if p.Empty() && len(p.Refused) == 0 {
		fmt.Fprintf(&b, "No changes: what is in force is what the files say. %d unchanged.\n", s.Unchanged)
		return b.String()
	}
	fmt.Fprintf(&b, "Plan: %d to add, %d to change, %d to retire, %d refused, %d unchanged.\n", s.Add+len(p.Namespaces), s.Change, s.Delete, s.Refused, s.Unchanged)
	fmt.Fprintf(&b, "Risk: %s%s\n", p.Risk.Level, reasons(p.Risk.Reasons))
	return b.String()
}

func reasons(list []string) string {
	if len(list) == 0 {
		return ""
	}
	safe := make([]string, len(list))
	for i, r := range list {
		safe[i] = Safe(r)
	}
	return " (" + strings.Join(safe, "; ") + ")"
}

func desired(p *plan.Plan) string {
	s := p.Source
	text := short(s.Commit)
	if text == "" {
		return content(p.SetDigest.String())
	}
	if s.Branch != "" {
		text += " " + Safe(s.Branch)
	}
	if s.Dirty {
		return text + " (uncommitted changes are not in it)"
	}
	return text + " (clean)"
}

func base(p plan.Base, applied string) string {
	if p.Generation == 0 {
		return "nothing applied yet"
	}
	text := fmt.Sprintf("generation %d", p.Generation)
	switch {
	case p.Commit != "":
		text += " = " + short(p.Commit)
	case p.Digest != "":
		text += " = " + content(p.Digest)
	}
	if applied != "" {
		text += ", applied " + applied
	}
	if p.AppliedBy != "" {
		text += " by " + Safe(p.AppliedBy)
	}
	return text
}

// content names a set of objects by its digest, which is the same wherever it is shown: what was read, what is in force, nf status.
func content(digest string) string { return "content " + short(strings.TrimPrefix(digest, "sha256:")) }

func short(hash string) string { return hash[:min(len(hash), 8)] }

func objectLine(o diag.Object, at *plan.Place) string {
	name := schema.Address{Kind: schema.Kind(o.Kind), Namespace: o.Namespace, Name: o.Name}.String()
	name = strings.Replace(name, "/", " ", 1)
	if at == nil {
		return Safe(name)
	}
	return fmt.Sprintf("%-50s %s:%d", Safe(name), Safe(at.File), at.Line)
}

func change(b *strings.Builder, c *plan.ObjectChange) {
	fmt.Fprintf(b, "%s %s\n", signs[c.Action], objectLine(c.Object, c.Source))
	if c.Action == plan.Retire {
		b.WriteString("    its file is gone: no new starts, running executions finish\n")
	}
	if c.Action == plan.Change || c.Action == plan.Unretire {
		for _, f := range c.Fields {
			b.WriteString("    " + field(f) + "\n")
		}
	}
	for _, i := range c.Impact {
		fmt.Fprintf(b, "    impact  %s\n", impact(i, c.Revision.Before))
	}
	b.WriteString("\n")
}

func impact(i plan.Impact, before int64) string {
	switch i.Kind {
	case "open_executions":
		return fmt.Sprintf("%d running executions stay on revision %d", i.Count, before)
	case "held":
		return fmt.Sprintf("%d held now: nothing is taken back, nothing new is granted until there is room", i.Count)
	}
	return fmt.Sprintf("%s %d", i.Kind, i.Count)
}

func field(f plan.FieldChange) string {
	name := fmt.Sprintf("%-30s", Safe(f.Path))
	if f.Sensitive {
		return name + " changed (not shown)"
	}
	switch f.Op {
	case plan.OpAdd:
		return name + " added: " + value(f.After, f.AfterDefault)
	case plan.OpRemove:
		return name + " removed, was " + value(f.Before, f.BeforeDefault)
	case plan.OpReorder:
		return name + " reordered: " + value(f.After, false)
	case plan.OpReplace:
	}
	return name + " " + value(f.Before, f.BeforeDefault) + " -> " + value(f.After, f.AfterDefault)
}

func value(v any, isDefault bool) string {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte("?")
	}
	shown := Safe(cutText(string(text), 160))
	if isDefault {
		shown += " (default)"
	}
	return shown
}

// Applied says what an apply came to.
func Applied(generation int64, env string) string {
	return fmt.Sprintf("Applied: generation %d is in force in environment %s.\n", generation, Safe(env))
}

// Ago says how long ago something was, in two units at most.
func Ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min ago", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h ago", int(d.Hours())/24, int(d.Hours())%24)
}
