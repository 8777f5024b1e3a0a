package decider

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"nf/runtime/execution"
	"nf/schema"
)

// evaluate starts everything whose turn has come, in rounds, until nothing changes.
func (o *oracle) evaluate() {
	for !o.ending && o.runs[""] != nil {
		var turn []*schema.Task
		done, last := o.walk(o.w.Tasks, &turn)
		if len(turn) == 0 {
			if done && o.loose() == 0 {
				o.complete(last)
			}
			return
		}
		if joins := slices.DeleteFunc(slices.Clone(turn), func(t *schema.Task) bool { return t.Type != schema.TypeJoin }); len(joins) > 0 {
			turn = joins // a join fires in the round that satisfies it
		}
		for _, t := range turn {
			if !o.ending {
				o.begin(t)
			}
		}
	}
}

// walk follows a list: done says that its sequence has ended, last is the task that ended it. What lies in turn must start now.
func (o *oracle) walk(tasks []*schema.Task, turn *[]*schema.Task) (done bool, last string) {
	for i, t := range tasks {
		r := o.runs[t.Ref]
		switch {
		case t.Type == schema.TypeJoin:
			fork := tasks[i-1]
			done := true
			for _, branch := range fork.ForkTasks {
				ended, _ := o.walk(branch, turn)
				done = done && ended
			}
			if r.live && !r.held && o.joinMayFire(fork, t, done) {
				*turn = append(*turn, t)
			}
			if !r.over() {
				return false, ""
			}
		case r == nil:
			*turn = append(*turn, t)
			return false, ""
		case !r.over():
			return false, ""
		}
		last = t.Ref
		if t.Type == schema.TypeSwitch {
			inner := o.taken(t)
			ended, deeper := o.walk(inner, turn)
			if !ended {
				return false, ""
			}
			if deeper != "" {
				last = deeper
			}
		}
	}
	return true, last
}

// taken gives the list that a SWITCH took.
func (o *oracle) taken(t *schema.Task) []*schema.Task {
	row := o.runs[t.Ref].last()
	if row.Status != execution.Completed {
		return nil
	}
	var out struct {
		CaseValue *string `json:"caseValue"`
	}
	if err := json.Unmarshal(row.Output, &out); err != nil {
		panic(err)
	}
	if out.CaseValue != nil {
		if list, ok := t.DecisionCases[*out.CaseValue]; ok {
			return list
		}
	}
	return t.DefaultCase
}

func (o *oracle) joinMayFire(fork, join *schema.Task, branchesDone bool) bool {
	if join.JoinOn == nil {
		return branchesDone
	}
	return o.waitingFor(fork, join) == 0
}

// waitingFor counts what a JOIN still waits for.
func (o *oracle) waitingFor(fork, join *schema.Task) int {
	n := 0
	if join.JoinOn == nil {
		for _, branch := range fork.ForkTasks {
			if done, _ := o.walk(branch, new([]*schema.Task)); !done {
				n++
			}
		}
		return n
	}
	seen := map[string]bool{}
	for _, ref := range join.JoinOn {
		if !seen[ref] && !o.runs[ref].ok() && !o.impossible(fork, ref) {
			n++
		}
		seen[ref] = true
	}
	return n
}

// impossible says that a task lies in a case that was not taken.
func (o *oracle) impossible(fork *schema.Task, ref string) bool {
	var find func(tasks []*schema.Task, dead bool) (found, isDead bool)
	find = func(tasks []*schema.Task, dead bool) (bool, bool) {
		for _, t := range tasks {
			if t.Ref == ref {
				return true, dead
			}
			var lists [][]*schema.Task
			lists = append(lists, t.ForkTasks...)
			for _, list := range lists {
				if found, is := find(list, dead); found {
					return true, is
				}
			}
			decided := t.Type == schema.TypeSwitch && o.runs[t.Ref].over()
			for _, list := range append(slices.Collect(maps.Values(t.DecisionCases)), t.DefaultCase) {
				untaken := decided && len(list) > 0 && (len(o.taken(t)) == 0 || o.taken(t)[0] != list[0])
				if found, is := find(list, dead || untaken); found {
					return true, is
				}
			}
		}
		return false, false
	}
	for _, branch := range fork.ForkTasks {
		if found, dead := find(branch, false); found {
			return dead
		}
	}
	return false
}

func (o *oracle) resolveAll(in map[string]schema.Value) map[string]any {
	out := map[string]any{}
	for key, v := range in {
		out[key] = o.resolve(v)
	}
	return out
}

// resolve reads a literal, or a text that is one expression.
func (o *oracle) resolve(v any) any {
	text, ok := v.(string)
	if !ok || !strings.HasPrefix(text, "${") {
		return v
	}
	steps := strings.Split(strings.Trim(text, "${}"), ".")
	var value any
	switch {
	case steps[0] == "workflow" && steps[1] == "input":
		value = o.input
	case steps[0] == "workflow":
		value = o.vars
	default:
		r := o.runs[steps[0]]
		if !r.over() || r.last().Status == execution.Skipped {
			return nil
		}
		if steps[1] == "status" {
			return r.last().Status.RunName(r.last().Absorbed)
		}
		output := r.last().Output
		if len(output) == 0 {
			output = []byte("{}")
		}
		if err := json.Unmarshal(output, &value); err != nil {
			panic(err)
		}
	}
	for _, step := range steps[2:] {
		object, _ := value.(map[string]any)
		value = object[step]
	}
	return value
}

// loose counts the scopes whose join has ended while branches still run.
func (o *oracle) loose() int32 {
	n := int32(0)
	for _, s := range o.scopes() {
		if s.Fired && s.Open > 0 {
			n++
		}
	}
	return n
}

// scopes computes the scope rows that must exist.
func (o *oracle) scopes() map[int32]execution.Scope {
	all := map[int32]execution.Scope{}
	for i, t := range o.nodes {
		if t.Type != schema.TypeForkJoin || !o.runs[t.Ref].over() || o.runs[t.Ref].last().Status == execution.Skipped {
			continue
		}
		join := o.joinOf(t.Ref)
		r := o.runs[join.Ref]
		s := execution.Scope{
			ScopeNo: int32(i + 1), ParentNo: o.no[o.parent[t.Ref]], Slot: int32(i), Kind: 1, BaseNo: 1, Width: int32(len(t.ForkTasks)),
			Cursor: int32(len(t.ForkTasks)), Fired: r.over(), Pending: int32(o.waitingFor(t, join)),
		}
		if r.held {
			s.Pending++
		}
		for _, branch := range t.ForkTasks {
			if done, _ := o.walk(branch, new([]*schema.Task)); !done {
				s.Open++
			}
		}
		if !s.Fired || s.Open > 0 {
			all[s.ScopeNo] = s
		}
	}
	return all
}

func (o *oracle) complete(last string) {
	o.finish(execution.Completed, "", "")
	o.output(last)
}

func (o *oracle) output(last string) {
	if o.w.OutputParameters == nil {
		o.closed.Output = o.runs[last].last().Output
		return
	}
	text, err := json.Marshal(o.resolveAll(o.w.OutputParameters))
	if err != nil {
		panic(err)
	}
	o.closed.Output = text
}
