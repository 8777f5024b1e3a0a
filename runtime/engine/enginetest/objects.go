//go:build unix

package enginetest

import "nf/schema"

// Definition gives a task definition with the defaults of contract 1.4 and no jitter, changed by the given functions.
func Definition(name string, change ...func(*schema.TaskDefinition)) *schema.TaskDefinition {
	d := &schema.TaskDefinition{
		Metadata: schema.Metadata{Name: name, Namespace: Namespace}, Retry: schema.DefaultRetry(), RetryBudget: 0.3,
		ResponseTimeout: 3_600_000, PollTimeout: 30_000, TimeoutPolicy: schema.TimeoutWorkflow, Delivery: schema.AtLeastOnce,
	}
	d.Retry.Jitter = 0
	for _, f := range change {
		f(d)
	}
	return d
}

// Workflow gives a workflow of the given tasks.
func Workflow(name string, tasks ...*schema.Task) *schema.Workflow {
	return &schema.Workflow{Metadata: schema.Metadata{Name: name, Namespace: Namespace}, Tasks: tasks}
}

// Simple gives a task of a definition.
func Simple(ref, definition string, input map[string]schema.Value) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeSimple, Definition: definition, InputParameters: input}
}

// Wait gives a WAIT of a duration, such as "60s" or a json.Number of seconds.
func Wait(ref string, duration schema.Value) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeWait, InputParameters: map[string]schema.Value{"duration": duration}}
}

// Fork gives a FORK_JOIN and its JOIN over branches.
func Fork(ref string, branches ...[]*schema.Task) []*schema.Task {
	return []*schema.Task{{Ref: ref, Type: schema.TypeForkJoin, ForkTasks: branches}, {Ref: ref + "_join", Type: schema.TypeJoin}}
}

// Set gives a SET_VARIABLE.
func Set(ref string, input map[string]schema.Value) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeSetVariable, InputParameters: input}
}

// Terminate gives a TERMINATE.
func Terminate(ref string, input map[string]schema.Value) *schema.Task {
	return &schema.Task{Ref: ref, Type: schema.TypeTerminate, InputParameters: input}
}

// Switch gives a SWITCH over the input key "on".
func Switch(ref string, on schema.Value, cases map[string][]*schema.Task, fallback ...*schema.Task) *schema.Task {
	return &schema.Task{
		Ref: ref, Type: schema.TypeSwitch, EvaluatorType: "value-param", Expression: "on", InputParameters: map[string]schema.Value{"on": on},
		DecisionCases: cases, DefaultCase: fallback,
	}
}
