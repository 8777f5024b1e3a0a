package check

import (
	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// methods holds the method of a GRPC task to the service of its Target (NF3109, NF3110).
func methods(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	for _, p := range tasks {
		ref, ok := p.task.Target(w.Metadata.Namespace)
		name, isText := p.task.InputParameters["method"].(string)
		if p.task.Type != schema.TypeGRPC || !ok || !isText {
			continue
		}
		a := schema.Address{Kind: schema.KindTarget, Namespace: ref.Namespace, Name: ref.Name}
		t, _ := c.objects[a].(*schema.Target)
		known, compiled := c.in.Methods[a]
		if t == nil || t.GRPC == nil || !compiled {
			continue
		}
		streams, has := known[name]
		at := p.pointer + "/inputParameters/method"
		switch {
		case !has:
			d := diag.Newf("NF3109", at, "service %s has no method %q", t.GRPC.Service, name)
			if near := diag.Nearest(name, sortedKeys(known)); len(near) > 0 {
				d = d.WithHint(diag.Suggest(near))
			}
			c.add(c.relate(d, a, "the target"))
		case streams:
			c.add(c.relate(diag.Newf("NF3110", at, "method %q of %s streams; a GRPC task calls unary methods", name, t.GRPC.Service).
				WithHint("call another method, or let a worker do it (SIMPLE)"), a, "the target"))
		}
	}
}

// acting are the fields of a definition that act on a task that is never dispatched: waiting types and JOIN.
func acting(field string) bool {
	switch field {
	case "retryCount", "retryLogic", "retryDelaySeconds", "backoffScaleFactor", "maxRetryDelaySeconds", "jitter", "retryBudget", "nonRetryableErrors",
		"timeoutSeconds", "timeoutPolicy", "inputSchema", "outputSchema":
		return true
	}
	return false
}

// actingFields refuses a definition's field that cannot act on a type that names it (NF4003). A written default is no field.
func actingFields(c *checker, o schema.Object) {
	d, ok := o.(*schema.TaskDefinition)
	if !ok {
		return
	}
	by, named := c.undispatched[d.Address()]
	if !named {
		return
	}
	spec, err := jsontext.DecodeObject(schema.Canonical(d), jsontext.Limits{})
	if err != nil {
		return // a canonical form is always an object
	}
	for _, field := range sortedKeys(spec) {
		if acting(field) {
			continue
		}
		c.add(c.relate(diag.Newf("NF4003", "/spec/"+field, "%s cannot act: task %q of workflow %s is %s, which is never dispatched", field, by.task.Ref, by.workflow, by.task.Type).
			WithHint("give that task a definition of its own with timeoutSeconds, or remove the field").OnKey(), by.workflow, "workflow that names it"))
	}
}

// undispatched is a task that names a definition and is never dispatched.
type undispatched struct {
	task     *schema.Task
	workflow schema.Address
}

// index notes, for each definition, the first task that names it and is never dispatched.
func (c *checker) index(w *schema.Workflow) {
	for _, p := range c.tasks[w] {
		class := p.task.Type.Class()
		a := schema.Address{Kind: schema.KindTaskDefinition, Namespace: w.Metadata.Namespace, Name: p.task.Definition}
		if _, has := c.undispatched[a]; !has && p.task.Definition != "" && (class == schema.ClassWaiting || class == schema.ClassSpanning) {
			c.undispatched[a] = undispatched{p.task, w.Address()}
		}
	}
}
