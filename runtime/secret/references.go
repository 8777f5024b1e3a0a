package secret

import (
	"maps"
	"slices"

	"nf/schema"
)

// References lists the secrets that an object names, without repeats, in order: a Target's headers or metadata, and the
// headers and metadata of a Workflow's tasks, nested ones included. They are in the namespace of the object.
func References(object schema.Object) []Reference {
	found := map[Reference]bool{}
	namespace := object.Meta().Namespace
	add := func(ref schema.SecretRef) {
		found[Reference{Namespace: namespace, Name: ref.Name, Key: ref.Key}] = true
	}
	switch o := object.(type) {
	case *schema.Target:
		if o.HTTP != nil {
			addSecretables(o.HTTP.Headers, add)
		}
		if o.GRPC != nil {
			addSecretables(o.GRPC.Metadata, add)
		}
	case *schema.Workflow:
		addTasks(o.Tasks, add)
	}
	return slices.SortedFunc(maps.Keys(found), compare)
}

func addSecretables(entries map[string]schema.Secretable, add func(schema.SecretRef)) {
	for _, entry := range entries {
		if entry.Secret != nil {
			add(*entry.Secret)
		}
	}
}

func addTasks(tasks []*schema.Task, add func(schema.SecretRef)) {
	for _, task := range tasks {
		entries, _ := task.InputParameters[schema.SecretEntries(task.Type)].(map[string]any)
		for _, entry := range entries {
			if ref, ok := schema.ParseSecretRef(entry); ok {
				add(ref)
			}
		}
		for _, branch := range task.DecisionCases {
			addTasks(branch, add)
		}
		addTasks(task.DefaultCase, add)
		for _, branch := range task.ForkTasks {
			addTasks(branch, add)
		}
	}
}
