package check

import (
	"fmt"
	"strconv"
	"strings"

	"nf/schema"
	"nf/schema/diag"
)

// definitionRefs holds the `name` of tasks: NF3101, NF3103, NF3107, NF3108.
func definitionRefs(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	for _, p := range tasks {
		c.definitionRef(w, p)
	}
}

func (c *checker) definitionRef(w *schema.Workflow, p placed) {
	ns, name, at := w.Metadata.Namespace, p.task.Definition, p.pointer+"/name"
	switch {
	case name == "" && p.task.Type == schema.TypeSimple:
		c.add(diag.Newf("NF3108", p.pointer, "task %q is SIMPLE and names no task definition", p.task.Ref).
			WithHint("write name: and the TaskDefinition that its worker serves, or the type that is meant"))
		return
	case name == "":
		return
	case p.task.Type.Class() == schema.ClassImmediate:
		c.add(diag.Newf("NF3107", at, "task %q names a task definition, but %s is decided at once and never retried", p.task.Ref, p.task.Type).
			WithHint("remove name"))
		return
	}
	if other, bare, ok := strings.Cut(name, "/"); ok {
		if other != ns {
			c.add(diag.Newf("NF3103", at, "task definition %q is of another namespace; a task uses one of its workflow's namespace %q", name, ns).
				WithHint("declare it in namespace " + strconv.Quote(ns)))
			return
		}
		name = bare
	}
	a := schema.Address{Kind: schema.KindTaskDefinition, Namespace: ns, Name: name}
	if c.declared(a) {
		return
	}
	d := c.similar(diag.Newf("NF3101", at, "task definition %q does not exist in namespace %q", name, ns), a.Kind, ns, name, false)
	if d.Hint == "" {
		d = c.elsewhere(d, a)
	}
	c.add(d)
}

// elsewhere says where an object of that name is declared, if it is in another namespace.
func (c *checker) elsewhere(d diag.Diagnostic, a schema.Address) diag.Diagnostic {
	for _, name := range c.names(a.Kind, a.Namespace, true) {
		if ref := schema.ParseRef(name, a.Namespace); ref.Name == a.Name {
			d = d.WithHint(fmt.Sprintf("it exists in namespace %q, and is needed in %q", ref.Namespace, a.Namespace))
			return c.relate(d, schema.Address{Kind: a.Kind, Namespace: ref.Namespace, Name: ref.Name}, "declared here in another namespace")
		}
	}
	return d.WithHint("declare it: kind: " + string(a.Kind))
}

// semaphoreRefs holds the semaphores of task definitions: NF3102, and NF4010 for two spellings of one.
func semaphoreRefs(c *checker, o schema.Object) {
	d, ok := o.(*schema.TaskDefinition)
	if !ok {
		return
	}
	ns := d.Metadata.Namespace
	list, _ := c.written("spec", "semaphores").([]any)
	seen := map[schema.Ref]string{}
	for i, item := range list {
		text, _ := item.(string)
		ref := schema.ParseRef(text, ns)
		at := "/spec/semaphores/" + strconv.Itoa(i)
		if first, twice := seen[ref]; twice {
			c.add(diag.Newf("NF4010", at, "semaphore %q is the same as %q: a task takes one permit of each", text, first).WithHint("remove one of them"))
			continue
		}
		seen[ref] = text
		a := schema.Address{Kind: schema.KindSemaphore, Namespace: ref.Namespace, Name: ref.Name}
		if c.declared(a) {
			continue
		}
		f := c.similar(diag.Newf("NF3102", at, "semaphore %q does not exist", text), a.Kind, ns, text, true)
		if f.Hint == "" {
			f = c.crossHint(f, a)
		}
		c.add(f)
	}
}

// crossHint is elsewhere for kinds that may be named across namespaces.
func (c *checker) crossHint(d diag.Diagnostic, a schema.Address) diag.Diagnostic {
	for _, name := range c.names(a.Kind, a.Namespace, true) {
		if ref := schema.ParseRef(name, a.Namespace); ref.Name == a.Name {
			d = d.WithHint(fmt.Sprintf("did you mean %q?", name))
			return c.relate(d, schema.Address{Kind: a.Kind, Namespace: ref.Namespace, Name: ref.Name}, "declared here")
		}
	}
	return d.WithHint("declare it: kind: " + string(a.Kind))
}

// targetRefs holds the targets of tasks: NF3102, NF3103.
func targetRefs(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	for _, p := range tasks {
		if ref, ok := p.task.Target(w.Metadata.Namespace); ok {
			c.targetRef(w.Metadata.Namespace, p, ref)
		}
	}
}

func (c *checker) targetRef(ns string, p placed, ref schema.Ref) {
	at := p.pointer + "/inputParameters/target"
	a := schema.Address{Kind: schema.KindTarget, Namespace: ref.Namespace, Name: ref.Name}
	if !c.declared(a) {
		text := ref.Short(ns)
		d := c.similar(diag.Newf("NF3102", at, "target %q does not exist", text), a.Kind, ns, text, true)
		if d.Hint == "" {
			d = c.crossHint(d, a)
		}
		c.add(d)
		return
	}
	t, ok := c.objects[a].(*schema.Target)
	if !ok {
		return
	}
	if !usable(t, ns) {
		c.add(c.relate(diag.Newf("NF3103", at, "target %q may not be used from namespace %q", ref.Short(ns), ns).
			WithHint(fmt.Sprintf("add %q to its usableFrom", ns)), a, "usableFrom stands here"))
	}
	switch {
	case p.task.Type == schema.TypeHTTP && t.HTTP == nil:
		c.add(c.relate(diag.Newf("NF3102", at, "target %q is a gRPC target; an HTTP task needs one with http", ref.Short(ns)), a, "declared here"))
	case p.task.Type == schema.TypeGRPC && t.GRPC == nil:
		c.add(c.relate(diag.Newf("NF3102", at, "target %q is an HTTP target; a GRPC task needs one with grpc", ref.Short(ns)), a, "declared here"))
	}
}

// usable says whether tasks of a namespace may use a target. Its own namespace always may; without usableFrom all namespaces
// of the project may.
func usable(t *schema.Target, ns string) bool {
	if t.UsableFrom == nil || t.Metadata.Namespace == ns {
		return true
	}
	for _, from := range t.UsableFrom {
		if from == "*" || from == ns {
			return true
		}
	}
	return false
}
