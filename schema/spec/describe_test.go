package spec_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/spec"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	v, err := spec.Compile()
	require.NoError(t, err)
	for path, want := range map[string]struct{ path, kind string }{
		"Semaphore":                          {"Semaphore", "object"},
		"TaskDefinition.retryCount":          {"TaskDefinition.spec.retryCount", "integer"},
		"TaskDefinition.spec.retryCount":     {"TaskDefinition.spec.retryCount", "integer"},
		"TaskDefinition.metadata.name":       {"TaskDefinition.metadata.name", "string"},
		"Workflow.tasks":                     {"Workflow.spec.tasks", "list of object"},
		"Workflow.tasks.HTTP":                {"Workflow.spec.tasks.HTTP", "object"},
		"Workflow.tasks.HTTP.uri":            {"Workflow.spec.tasks.HTTP.uri", "string"},
		"Workflow.tasks.SIMPLE.retryCount":   {"Workflow.spec.tasks.SIMPLE.retryCount", "integer"},
		"TaskDefinition.retryLogic":          {"TaskDefinition.spec.retryLogic", "FIXED | LINEAR_BACKOFF | EXPONENTIAL_BACKOFF"},
		"Workflow.tasks.FORK_JOIN.forkTasks": {"Workflow.spec.tasks.FORK_JOIN.forkTasks", "list of list of object"},
	} {
		d, _, ok := v.Describe(path)
		require.True(t, ok, path)
		require.Equal(t, want.path, d.Path)
		require.Contains(t, d.Type, want.kind, path)
		require.NotEmpty(t, d.Text, path)
	}
	for path, hint := range map[string]string{"Semafore": `did you mean "Semaphore"?`, "TaskDefinition.retryCuont": `did you mean "retryCount"?`, "Workflow.tasks.HTPP": `did you mean "HTTP"?`} {
		_, got, ok := v.Describe(path)
		require.False(t, ok, path)
		require.Equal(t, hint, got)
	}
}

// Every field of every kind can be explained, and says what it is for.
func TestEveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	v, err := spec.Compile()
	require.NoError(t, err)
	var walk func(path string, depth int)
	walk = func(path string, depth int) {
		d, _, ok := v.Describe(path)
		require.True(t, ok, path)
		require.NotEmpty(t, d.Text, path)
		if depth > 5 {
			return
		}
		for _, f := range d.Fields {
			walk(path+"."+f.Name, depth+1)
		}
	}
	for _, kind := range schema.Kinds() {
		walk(string(kind), 0)
	}
}

// The bundle stands alone and judges as the schemas do.
func TestBundleStandsAlone(t *testing.T) {
	t.Parallel()
	text, err := spec.Bundle()
	require.NoError(t, err)
	again, err := spec.Bundle()
	require.NoError(t, err)
	require.Equal(t, text, again)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("nf.json", bytes.NewReader(text)))
	compiled, err := c.Compile("nf.json")
	require.NoError(t, err)
	judge := func(text string) error {
		var v any
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		return compiled.Validate(v)
	}
	require.NoError(t, judge(`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"erp"},"spec":{"permits":2}}`))
	require.Error(t, judge(`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"erp"},"spec":{"permit":2}}`))
	require.Error(t, judge(`{"apiVersion":"nf/v1","kind":"Semafore","metadata":{"name":"erp"},"spec":{"permits":2}}`))
	require.NoError(t, judge(`{"apiVersion":"nf/v1","kind":"Workflow","metadata":{"name":"w"},"spec":{"tasks":[{"taskReferenceName":"a","type":"WAIT","inputParameters":{"duration":"1s"}}]}}`))
	one, err := spec.Bundle(schema.KindSemaphore)
	require.NoError(t, err)
	require.NotContains(t, string(one), `"Workflow"`)
}
