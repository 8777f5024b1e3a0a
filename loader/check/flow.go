package check

import (
	"fmt"
	"strconv"

	"nf/schema"
	"nf/schema/diag"
)

// places holds the references of tasks: unique in the whole workflow (NF3104).
func places(c *checker, o schema.Object) {
	w, tasks := c.workflow(o)
	first := map[string]string{}
	for _, p := range tasks {
		pointer, twice := first[p.task.Ref]
		if !twice {
			first[p.task.Ref] = p.pointer + "/taskReferenceName"
			continue
		}
		d := diag.Newf("NF3104", p.pointer+"/taskReferenceName", "taskReferenceName %q stands twice in workflow %q", p.task.Ref, w.Metadata.Name).
			WithHint("references are unique in the whole workflow, nested tasks included; give it another name")
		c.add(d.RelatedAt(pointer, "first used here"))
	}
}

// forks holds FORK_JOIN and JOIN together (NF3106), and joinOn to the tasks of the fork (NF3105).
func forks(c *checker, o schema.Object) {
	_, tasks := c.workflow(o)
	for _, p := range tasks {
		switch p.task.Type {
		case schema.TypeForkJoin:
			if p.index+1 >= len(p.list.tasks) || p.list.tasks[p.index+1].Type != schema.TypeJoin {
				c.add(diag.Newf("NF3106", p.pointer+"/type", "fork %q has no JOIN right after it", p.task.Ref).
					WithHint("write a task with type: JOIN as the next one in the same list"))
			}
		case schema.TypeJoin:
			if p.index == 0 || p.list.tasks[p.index-1].Type != schema.TypeForkJoin {
				c.add(diag.Newf("NF3106", p.pointer+"/type", "join %q has no FORK_JOIN right before it", p.task.Ref).
					WithHint("put it right after the fork whose branches it waits for"))
				continue
			}
			c.joinOn(p, p.list.tasks[p.index-1])
		case schema.TypeSimple, schema.TypeHTTP, schema.TypeGRPC, schema.TypeSwitch, schema.TypeSetVariable, schema.TypeTerminate, schema.TypeWait:
		}
	}
}

func (c *checker) joinOn(p placed, fork *schema.Task) {
	if len(p.task.JoinOn) == 0 {
		return
	}
	var refs []string
	known := map[string]bool{}
	inside(fork, func(t *schema.Task) {
		refs = append(refs, t.Ref)
		known[t.Ref] = true
	})
	for i, ref := range p.task.JoinOn {
		if known[ref] {
			continue
		}
		d := diag.Newf("NF3105", p.pointer+"/joinOn/"+strconv.Itoa(i), "joinOn names %q, which is no task inside fork %q", ref, fork.Ref)
		if near := diag.Nearest(ref, refs); len(near) > 0 {
			d = d.WithHint(diag.Suggest(near))
		} else {
			d = d.WithHint("name tasks of the branches, or leave joinOn out to wait for the end of every branch")
		}
		c.add(d)
	}
}

// switches holds the expression of a SWITCH to its input keys (NF3205).
func switches(c *checker, o schema.Object) {
	_, tasks := c.workflow(o)
	for _, p := range tasks {
		if p.task.Type != schema.TypeSwitch || p.task.EvaluatorType != "value-param" {
			continue
		}
		if _, ok := p.task.InputParameters[p.task.Expression]; ok {
			continue
		}
		d := diag.Newf("NF3205", p.pointer+"/expression", "switch %q chooses by input key %q, which its inputParameters do not have", p.task.Ref, p.task.Expression)
		keys := sortedKeys(p.task.InputParameters)
		if near := diag.Nearest(p.task.Expression, keys); len(near) > 0 {
			d = d.WithHint(diag.Suggest(near))
		} else {
			d = d.WithHint(fmt.Sprintf("write inputParameters: {%s: …}", keyHint(p.task.Expression)))
		}
		c.add(d)
	}
}

// keyHint gives a key for an example.
func keyHint(text string) string {
	for _, r := range text {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return "how"
		}
	}
	return text
}
