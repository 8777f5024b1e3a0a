package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/api"
)

// TestAttemptsOf: a reference means all its attempts; ref#2 an iteration where there are some, else an attempt; an id one attempt.
func TestAttemptsOf(t *testing.T) {
	t.Parallel()
	const id = "01900000-0000-7000-8000-000000000000"
	task := func(ref, iteration string, no, attempt int32) api.Task {
		return api.Task{TaskID: id + "." + string('0'+no) + "." + string('0'+attempt), Ref: ref, Iteration: iteration, Attempt: attempt}
	}
	tasks := []api.Task{
		task("pack", "0", 1, 1), task("pack", "0", 1, 2), task("each", "1", 2, 1), task("each", "2", 3, 1), task("each", "2", 3, 2),
		{TaskID: id + ".4.1", Ref: "other", Iteration: "0", Attempt: 1},
	}
	for text, want := range map[string][]string{
		"pack": {".1.1", ".1.2"}, "pack#2": {".1.2"}, "pack#3": nil, "each": {".2.1", ".3.1", ".3.2"}, "each#2": {".3.1", ".3.2"}, "each#3": nil,
		id + ".3.2": {".3.2"}, id + ".9.1": nil, "": nil, "#1": nil, "pack#": nil,
	} {
		var got []string
		for _, a := range attemptsOf(tasks, text) {
			got = append(got, a.TaskID[len(id):])
		}
		require.Equal(t, want, got, text)
	}
	for text, hint := range map[string]string{"pack#3": "the last attempt of pack is pack#2", "nope": "it has: each, other, pack", "nope#1": "it has: each, other, pack"} {
		require.Equal(t, hint, hintOf(noSuchTask(id, tasks, text)), text)
	}
}

func hintOf(err error) string {
	if e, ok := err.(*exitError); ok { //nolint:errorlint // made by the function under test, never wrapped
		return e.hint
	}
	return ""
}
