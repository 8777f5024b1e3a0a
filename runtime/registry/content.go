package registry

import (
	"fmt"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
	"nf/schema/spec"
)

// content is one revision, decoded and compiled once a process. Immutable.
type content struct {
	store.Revision
	value       schema.Object
	checkInput  func(any) error
	checkOutput func(any) error
	err         error // this build cannot read it
}

// compile decodes a revision. What cannot be read is kept with its error: one object of a newer nf must not blind this one to the rest (P4).
func compile(rev store.Revision) *content {
	c := &content{Revision: rev}
	meta := schema.Metadata{Name: rev.Address.Name, Namespace: rev.Address.Namespace}
	value, err := schema.DecodeCanonical(rev.Address.Kind, meta, rev.Spec)
	if err != nil {
		c.err = fmt.Errorf("%s revision %d: %w", rev.Address, rev.Number, err)
		return c
	}
	switch o := value.(type) {
	case *schema.TaskDefinition:
		if c.checkInput, err = check(o.InputSchema); err == nil {
			c.checkOutput, err = check(o.OutputSchema)
		}
	case *schema.Workflow:
		c.checkInput, err = check(o.InputSchema)
	}
	if err != nil {
		c.err = fmt.Errorf("%s revision %d: schema: %w", rev.Address, rev.Number, err)
		return c
	}
	c.value = value
	return c
}

// check compiles an embedded schema; nil gives nil.
func check(doc schema.Value) (func(any) error, error) {
	if doc == nil {
		return nil, nil //nolint:nilnil // no schema, no check
	}
	user, err := spec.CompileUser(doc)
	if err != nil {
		return nil, err
	}
	return user.Check, nil
}

func (c *content) pinned() (execution.Pinned, bool) {
	def, ok := c.value.(*schema.TaskDefinition)
	if !ok {
		return execution.Pinned{}, false
	}
	return execution.Pinned{DefID: c.ObjectID, DefRev: c.RevID, Def: def, CheckInput: c.checkInput, CheckOutput: c.checkOutput}, true
}

func (c *content) workflow() (WorkflowRev, error) {
	if c.err != nil {
		return WorkflowRev{}, c.err
	}
	workflow, ok := c.value.(*schema.Workflow)
	if !ok {
		return WorkflowRev{}, fmt.Errorf("revision %d is %s, no workflow: %w", c.RevID, c.Address, store.ErrNotFound)
	}
	return WorkflowRev{
		NS: c.NS, DefID: c.ObjectID, RevID: c.RevID, Revision: c.Number, Version: workflow.Version, Workflow: workflow, CheckInput: c.checkInput,
	}, nil
}
