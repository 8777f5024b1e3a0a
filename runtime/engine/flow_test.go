//go:build unix

package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine/enginetest"
	"nf/schema"
)

func TestThreeStepsRunToTheEnd(t *testing.T) {
	t.Parallel()
	w := enginetest.New(t, enginetest.Definition("work"), enginetest.Workflow("three",
		enginetest.Simple("a", "work", map[string]schema.Value{"n": "${workflow.input.n}"}),
		enginetest.Simple("b", "work", map[string]schema.Value{"from": "${a.output.x}"}),
		enginetest.Simple("c", "work", map[string]schema.Value{"all": "${b.output}"})))
	id := w.Start("three", `{"n": 12345678901234567890}`)
	x := w.Get(id)
	require.Equal(t, "RUNNING", x.Status)
	require.Equal(t, `{"n":12345678901234567890}`, string(x.Input))
	require.Equal(t, `{"n":12345678901234567890}`, string(enginetest.Task(t, x, "a").Input))
	w.Complete("work", `{"x":"one"}`)
	require.JSONEq(t, `{"from":"one"}`, string(enginetest.Task(t, w.Get(id), "b").Input))
	w.Complete("work", `{"y":[1,2]}`)
	w.Complete("work", `{"z":true}`)
	x = w.Await(id)
	require.Equal(t, "COMPLETED", x.Status)
	require.JSONEq(t, `{"z":true}`, string(x.Output))
	require.Equal(t, int64(5), x.Seq)
	require.Len(t, x.Tasks, 3)
	require.JSONEq(t, `{"all":{"y":[1,2]}}`, string(enginetest.Task(t, x, "c").Input))
}
