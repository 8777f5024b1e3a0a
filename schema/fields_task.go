package schema

import (
	"maps"
	"slices"
	"strconv"

	"nf/schema/jsontext"
)

// tasks is a list of tasks.
func (c *codec) tasks(key string, v *[]*Task) {
	if c.mode == reading {
		if raw, ok := c.take(key); ok {
			if *v = c.readTasks(key, raw); len(*v) == 0 {
				*v = nil
			}
		}
		return
	}
	c.put(key, c.writeTasks(key, *v), len(*v) == 0)
}

func (c *codec) readTasks(key string, raw any) []*Task {
	list, ok := raw.([]any)
	if !ok {
		c.fail(key, "must be a list of tasks, not %s", jsontext.TypeName(raw))
		return nil
	}
	tasks := make([]*Task, 0, len(list))
	for i, item := range list {
		tree, ok := item.(map[string]any)
		if !ok {
			c.fail(key, "item %d must be a map, not %s", i, jsontext.TypeName(item))
			return nil
		}
		t := &Task{}
		in := c.inner(key+"["+strconv.Itoa(i)+"]", tree)
		t.fields(in)
		c.adopt(in)
		tasks = append(tasks, t)
	}
	return tasks
}

func (c *codec) writeTasks(key string, tasks []*Task) []any {
	list := make([]any, len(tasks))
	for i, t := range tasks {
		in := c.inner(key, map[string]any{})
		t.fields(in)
		list[i] = in.tree
	}
	return list
}

// fields are those of every task, then those of its type.
func (t *Task) fields(c *codec) {
	text(c, "taskReferenceName", &t.Ref, "")
	text(c, "type", &t.Type, TypeSimple)
	c.definition(&t.Definition)
	c.input(t)
	c.flag("optional", &t.Optional, false)
	if t.Type.Class() != ClassImmediate {
		c.count("retryCount", &t.RetryCount)
	}
	c.seconds("startDelaySeconds", &t.StartDelay, 0)
	text(c, "description", &t.Description, "")
	switch t.Type {
	case TypeWait:
		if t.Definition != "" && t.Timeout == 0 && c.mode == complete {
			break // the definition's counts, and both may not be given
		}
		c.seconds("timeoutSeconds", &t.Timeout, 0)
	case TypeSwitch:
		text(c, "evaluatorType", &t.EvaluatorType, "value-param")
		text(c, "expression", &t.Expression, "")
		c.cases(&t.DecisionCases)
		c.tasks("defaultCase", &t.DefaultCase)
	case TypeForkJoin:
		c.branches(&t.ForkTasks)
	case TypeJoin:
		c.texts("joinOn", &t.JoinOn, false)
	case TypeSimple, TypeHTTP, TypeGRPC, TypeSetVariable, TypeTerminate:
	}
}

// definition is the name of a TaskDefinition of the workflow's own namespace. One of another namespace stays as written, so that
// the loader's check can refuse it.
func (c *codec) definition(v *string) {
	text(c, "name", v, "")
	if c.mode == reading && *v != "" {
		*v = ParseRef(*v, c.ns).Short(c.ns)
	}
	if *v == "" && c.mode == complete {
		delete(c.tree, "name")
	}
}

// count is a whole number or nothing.
func (c *codec) count(key string, v **int) {
	if c.mode != reading {
		c.known[key] = true
		if *v != nil {
			c.put(key, jsontext.Integer(int64(**v)), false)
		}
		return
	}
	*v = nil
	if _, ok := c.take(key); ok {
		n := 0
		whole(c, key, &n, 0)
		*v = &n
	}
}

func (c *codec) cases(v *map[string][]*Task) {
	const key = "decisionCases"
	if c.mode != reading {
		out := make(map[string]any, len(*v))
		for _, name := range slices.Sorted(maps.Keys(*v)) {
			out[name] = c.writeTasks(key, (*v)[name])
		}
		c.put(key, out, len(out) == 0)
		return
	}
	raw, ok := c.take(key)
	if !ok {
		return
	}
	m, ok := raw.(map[string]any)
	if !ok {
		c.fail(key, "must be a map, not %s", jsontext.TypeName(raw))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if *v == nil {
			*v = make(map[string][]*Task, len(m))
		}
		(*v)[name] = c.readTasks(key+"["+strconv.Quote(name)+"]", m[name])
	}
}

func (c *codec) branches(v *[][]*Task) {
	const key = "forkTasks"
	if c.mode != reading {
		out := make([]any, len(*v))
		for i, branch := range *v {
			out[i] = c.writeTasks(key, branch)
		}
		c.put(key, out, len(out) == 0)
		return
	}
	raw, ok := c.take(key)
	if !ok {
		return
	}
	list, ok := raw.([]any)
	if !ok {
		c.fail(key, "must be a list, not %s", jsontext.TypeName(raw))
		return
	}
	for i, branch := range list {
		*v = append(*v, c.readTasks(key+"["+strconv.Itoa(i)+"]", branch))
	}
}

// input is inputParameters. Keys that equal the default of their type are left out, so that writing `method: GET` changes
// nothing, and a target of the own namespace is named without it.
func (c *codec) input(t *Task) {
	const key = "inputParameters"
	if c.mode == reading {
		c.values(key, &t.InputParameters, true)
		t.normalInput(c.ns)
		return
	}
	if c.mode == complete {
		c.put(key, t.completeInput(), false)
		return
	}
	c.values(key, &t.InputParameters, true)
}

// inputDefaults are the defaults of the keys of inputParameters that do not depend on another object.
func (t *Task) inputDefaults() map[string]any {
	switch t.Type {
	case TypeHTTP:
		defaults := map[string]any{"method": "GET", "query": map[string]any{}, "headers": map[string]any{}}
		if _, ok := t.InputParameters["target"]; ok {
			defaults["path"] = "" // and timeoutMs is the Target's
		} else {
			defaults["timeoutMs"] = jsontext.Integer(30_000)
		}
		return defaults
	case TypeGRPC:
		return map[string]any{"request": map[string]any{}, "metadata": map[string]any{}}
	case TypeTerminate:
		return map[string]any{"terminationStatus": "COMPLETED"}
	case TypeSimple, TypeSwitch, TypeForkJoin, TypeJoin, TypeSetVariable, TypeWait:
	}
	return nil
}

func (t *Task) normalInput(ns string) {
	if len(t.InputParameters) == 0 {
		return
	}
	for key, def := range t.inputDefaults() {
		if v, ok := t.InputParameters[key]; ok && jsontext.Equal(v, def) {
			delete(t.InputParameters, key)
		}
	}
	if target, ok := t.Target(ns); ok {
		t.InputParameters["target"] = target.Short(ns)
		for _, key := range []string{"headers", "metadata"} {
			entries, _ := t.InputParameters[key].(map[string]any)
			for name, v := range entries {
				if ref, ok := ParseSecretRef(v); ok {
					entries[name] = Secretable{Secret: &ref}.tree(writing)
				}
			}
		}
	}
	if len(t.InputParameters) == 0 {
		t.InputParameters = nil
	}
}

func (t *Task) completeInput() map[string]any {
	all := maps.Clone(t.inputDefaults())
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, t.InputParameters)
	return all
}

// Target gives the Target that an HTTP or GRPC task names, false if it names none. The namespace is that of its workflow.
func (t *Task) Target(namespace string) (Ref, bool) {
	if t.Type != TypeHTTP && t.Type != TypeGRPC {
		return Ref{}, false
	}
	name, ok := t.InputParameters["target"].(string)
	if !ok || name == "" {
		return Ref{}, false
	}
	return ParseRef(name, namespace), true
}

// Walk calls visit for each task in definition order, nested ones behind the task that holds them: cases by name, then the
// default case; branches in order. depth is 1 for the tasks of the workflow itself. It stops when visit answers false.
func (o *Workflow) Walk(visit func(t *Task, depth int) bool) {
	walk(o.Tasks, 1, visit)
}

func walk(tasks []*Task, depth int, visit func(*Task, int) bool) bool {
	for _, t := range tasks {
		if !visit(t, depth) {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(t.DecisionCases)) {
			if !walk(t.DecisionCases[name], depth+1, visit) {
				return false
			}
		}
		if !walk(t.DefaultCase, depth+1, visit) {
			return false
		}
		for _, branch := range t.ForkTasks {
			if !walk(branch, depth+1, visit) {
				return false
			}
		}
	}
	return true
}
