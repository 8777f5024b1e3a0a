package view_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
)

func order() (*api.Execution, view.Outline) {
	at := func(s string) string { return "2026-01-31T12:00:" + s + "Z" }
	task := func(ref, kind, status string, attempt int32) api.Task {
		return api.Task{TaskID: ref + string('0'+attempt), Ref: ref, Iteration: "0", Attempt: attempt, MaxAttempts: 1, Delivery: 1, Type: kind, Status: status, ScheduledAt: at("00.000")}
	}
	first := task("reserve", "HTTP", "FAILED", 1)
	first.MaxAttempts, first.LeasedAt, first.EndedAt = 3, at("00.000"), at("00.050")
	first.Cause, first.Reason = "HTTP_STATUS", "503\n\x1b[31m::error::\n"
	first.Delay = &api.Delay{PolicyMs: 500, ProviderMinimumMs: 2000, SelectedMs: 2000, Source: "retryAfter"}
	second := task("reserve", "HTTP", "COMPLETED", 2)
	second.MaxAttempts, second.LeasedAt, second.EndedAt, second.Output = 3, at("02.050"), at("02.060"), json.RawMessage(`{"id":"r-1"}`)
	skipped := task("post", "SET_VARIABLE", "SKIPPED", 1)
	skipped.Cause = "BRANCH_NOT_TAKEN"
	held := task("pack", "SIMPLE", "SCHEDULED", 1)
	limit := int64(2)
	held.Control, held.Limit, held.Current = "semaphore:table", &limit, &limit
	optional := task("points", "HTTP", "COMPLETED_WITH_ERRORS", 1)
	optional.AttemptStatus = "FAILED_WITH_TERMINAL_ERROR"
	x := &api.Execution{
		ExecutionID: "01a2", Workflow: "order", Revision: 2, Status: "RUNNING", StartedAt: at("00.000"), Input: json.RawMessage(`{"a":1}`), Variables: json.RawMessage(`{}`),
		Tasks: []api.Task{
			first, second, task("how", "SWITCH", "COMPLETED", 1), task("bike", "HTTP", "COMPLETED", 1), skipped, task("both", "FORK_JOIN", "COMPLETED", 1),
			task("charge", "HTTP", "COMPLETED", 1), held, task("unknown", "HTTP", "COMPLETED", 1), optional,
		},
	}
	node := func(ref string) view.Node { return view.Node{Ref: ref} }
	how, both := node("how"), node("both")
	how.Cases, how.Else = map[string][]view.Node{"express": {node("bike")}}, []view.Node{node("post")}
	both.Forks = [][]view.Node{{node("charge")}, {node("pack")}}
	return x, view.Outline{Tasks: []view.Node{node("reserve"), how, both, node("not_reached"), node("points")}}
}

func TestExecutionIsATree(t *testing.T) {
	t.Parallel()
	want := `order  01a2  revision 2  RUNNING
  started   2026-01-31T12:00:00.000Z
  input     {"a":1}
  ├─ reserve      HTTP         FAILED  attempt 1 of 3  50ms
  │     HTTP_STATUS: 503 \u{1b}[31m::error::
  │     next attempt after 2s (policy 500ms, Retry-After asked for 2s)
  │                            COMPLETED  attempt 2 of 3  10ms
  │     → {"id":"r-1"}
  ├─ how          SWITCH       COMPLETED
  │  ├─ case express
  │  │  └─ bike   HTTP         COMPLETED
  │  └─ default case (not taken)
  ├─ both         FORK_JOIN    COMPLETED
  │  ├─ branch 1
  │  │  └─ charge HTTP         COMPLETED
  │  └─ branch 2
  │     └─ pack   SIMPLE       SCHEDULED
  │           held by semaphore:table (2 of 2)
  ├─ points       HTTP         COMPLETED_WITH_ERRORS (FAILED_WITH_TERMINAL_ERROR, optional)
  └─ unknown      HTTP         COMPLETED
`
	x, outline := order()
	got := view.Execution(x, outline)
	require.Equal(t, squeeze(want), squeeze(got), got)
	require.NotContains(t, view.Execution(x, view.Outline{}), "branch 1", "without an outline the tree is flat")
}

// squeeze takes runs of blanks as one: the widths of columns are no matter.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

func TestChangesTellOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	before, _ := order()
	require.Len(t, view.Changes(nil, before), len(before.Tasks))
	require.Empty(t, view.Changes(before, before))
	after, _ := order()
	after.Tasks[7].Status, after.Tasks[7].Control, after.Tasks[7].LeasedAt = "IN_PROGRESS", "", "2026-01-31T12:00:03.5Z"
	after.Status, after.EndedAt = "TERMINATED", "2026-01-31T12:00:04Z"
	lines := view.Changes(before, after)
	require.Len(t, lines, 2)
	require.Regexp(t, `\+3.500s +pack +IN_PROGRESS`, lines[0])
	require.Regexp(t, `\+4.000s +TERMINATED`, lines[1])
}

// Who joins late sees what happened in the order in which it happened, however it was scheduled.
func TestChangesAreInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	at := func(s string) string { return "2026-01-31T12:00:" + s + "Z" }
	x := &api.Execution{StartedAt: at("00.000"), Status: "RUNNING", Tasks: []api.Task{
		{TaskID: "1", Ref: "slow", Status: "COMPLETED", ScheduledAt: at("00.000"), LeasedAt: at("00.100"), EndedAt: at("09.000")},
		{TaskID: "2", Ref: "fast", Status: "COMPLETED", ScheduledAt: at("00.000"), LeasedAt: at("00.100"), EndedAt: at("01.000")},
		{TaskID: "3", Ref: "next", Status: "IN_PROGRESS", ScheduledAt: at("01.000"), LeasedAt: at("02.000")},
	}}
	var order []string
	for _, line := range view.Changes(nil, x) {
		order = append(order, strings.Fields(line)[0]+" "+strings.Fields(line)[1])
	}
	require.Equal(t, []string{"+1.000s fast", "+2.000s next", "+9.000s slow"}, order)
}

// What a payload holds never reaches a terminal or a CI log as something that they act on, and stays the same JSON.
func TestPayloadStaysTheSameJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("#[vso\x1b\x7f\u0085\u2028\u202e\U000e0001\\\"")))).Draw(t, "text")
		raw, err := json.Marshal(map[string]string{"k" + text: text})
		require.NoError(t, err)
		shown := view.Payload(raw)
		for _, r := range shown {
			require.False(t, r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r >= 0x202a && r <= 0x202e), "%q", r)
		}
		require.True(t, utf8.ValidString(shown))
		for _, word := range []string{"##[", "##vso[", "##teamcity["} {
			require.NotContains(t, shown, word)
		}
		var back, want map[string]string
		require.NoError(t, json.Unmarshal([]byte(shown), &back))
		require.NoError(t, json.Unmarshal(raw, &want))
		require.Equal(t, want, back)
	})
}

// A page of HTML in place of an answer is shown as one short line, with the way to all of it.
func TestAnswersThatArePagesAreShownShort(t *testing.T) {
	t.Parallel()
	page := "<!DOCTYPE html>\n<html>\r\n\t<title>\x1b[31mNo</title>\n" + strings.Repeat("<p>not found</p>\n", 50)
	body, err := json.Marshal(map[string]string{"body": page})
	require.NoError(t, err)
	reason := "404 Not Found from http://127.0.0.1:8080/x: " + page
	x := &api.Execution{
		ExecutionID: "01a2", Workflow: "w", Status: "FAILED", Reason: "call ended FAILED_WITH_TERMINAL_ERROR, HTTP_STATUS: " + reason,
		Tasks: []api.Task{{TaskID: "1", Ref: "call", Type: "HTTP", Status: "FAILED_WITH_TERMINAL_ERROR", Cause: "HTTP_STATUS", Reason: reason, Output: body, Attempt: 1}},
	}
	text := view.Execution(x, view.Outline{})
	require.Contains(t, text, `HTTP_STATUS: 404 Not Found from http://127.0.0.1:8080/x: <!DOCTYPE html> <html> <title>\u{1b}[31mNo</title> <p>not found</p>`)
	require.NotContains(t, text, "⏎")
	require.Contains(t, text, "nf get 01a2 -o json has them whole")
	for line := range strings.SplitSeq(text, "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 330, line)
	}
	x.Reason, x.Tasks[0].Reason, x.Tasks[0].Output = "short", "short", json.RawMessage(`{"body":"short"}`)
	require.NotContains(t, view.Execution(x, view.Outline{}), "-o json")
}
