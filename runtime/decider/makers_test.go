package decider

import (
	"nf/schema"
)

// Makers of tasks.

func simple(ref string, changes ...func(*schema.Task)) *schema.Task {
	return task(ref, schema.TypeSimple, append([]func(*schema.Task){func(t *schema.Task) { t.Definition = "work" }}, changes...)...)
}

func task(ref string, typ schema.TaskType, changes ...func(*schema.Task)) *schema.Task {
	t := &schema.Task{Ref: ref, Type: typ}
	for _, change := range changes {
		change(t)
	}
	return t
}

func fork(ref string, branches ...[]*schema.Task) *schema.Task {
	return task(ref, schema.TypeForkJoin, func(t *schema.Task) { t.ForkTasks = branches })
}

func join(ref string, on ...string) *schema.Task {
	return task(ref, schema.TypeJoin, func(t *schema.Task) { t.JoinOn = on })
}

func seq(tasks ...*schema.Task) []*schema.Task { return tasks }

func choice(ref, value string, cases map[string][]*schema.Task, fallback ...*schema.Task) *schema.Task {
	return task(ref, schema.TypeSwitch, with("v", value), func(t *schema.Task) {
		t.EvaluatorType, t.Expression, t.DecisionCases, t.DefaultCase = "value-param", "v", cases, fallback
	})
}

func with(key string, value any) func(*schema.Task) {
	return func(t *schema.Task) {
		if t.InputParameters == nil {
			t.InputParameters = map[string]schema.Value{}
		}
		t.InputParameters[key] = value
	}
}

func named(definition string) func(*schema.Task) {
	return func(t *schema.Task) { t.Definition = definition }
}

func optional(t *schema.Task) { t.Optional = true }

func retries(n int) func(*schema.Task) { return func(t *schema.Task) { t.RetryCount = &n } }
