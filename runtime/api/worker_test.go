//go:build unix

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/auth"
	"nf/runtime/engine/enginetest"
	"nf/schema"
)

func packing() []schema.Object {
	return []schema.Object{
		enginetest.Definition("pack"), enginetest.Definition("charge"),
		enginetest.Workflow("order", enginetest.Simple("pack", "pack", map[string]schema.Value{"order": "${workflow.input.order}"})),
		enginetest.Workflow("bill", enginetest.Simple("charge", "charge", nil)),
	}
}

func TestAWorkerLeasesBeatsLogsAndReports(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	id := d.start("order", map[string]any{"order": json.Number("9007199254740993")})
	task := d.lease(d.admin, "pack", 1)[0]
	require.Equal(t, id, task["executionId"])
	require.Equal(t, "order", task["workflow"])
	require.Equal(t, "pack", task["taskReferenceName"])
	require.Equal(t, json.Number("9007199254740993"), task["input"].(map[string]any)["order"], "integers keep their digits")
	require.Equal(t, fmt.Sprintf("%s/%s/pack/0", d.ns, id), task["idempotencyKey"])

	token := map[string]any{"leaseToken": task["leaseToken"]}
	beat := d.call(d.admin, http.MethodPost, path(task, "heartbeat"), token)
	require.Equal(t, http.StatusOK, beat.status, beat.text)
	require.Equal(t, false, beat.body["cancel"])

	logs := d.call(d.admin, http.MethodPost, path(task, "logs"), map[string]any{
		"leaseToken": task["leaseToken"], "logs": []any{map[string]any{"message": "hello \x00 world", "level": "warn"}},
	})
	require.Equal(t, http.StatusAccepted, logs.status, logs.text)
	read := d.call(d.admin, http.MethodGet, fmt.Sprintf("{ns}/executions/%s/tasks/%s/logs", id, task["taskId"]), nil)
	require.Equal(t, "hello \ufffd world", read.body["items"].([]any)[0].(map[string]any)["message"])
	require.Equal(t, "warn", read.body["items"].([]any)[0].(map[string]any)["level"])

	report := map[string]any{"leaseToken": task["leaseToken"], "status": "COMPLETED", "output": map[string]any{"parcel": "p1"}}
	first := d.call(d.admin, http.MethodPost, path(task, "report"), report)
	require.Equal(t, http.StatusOK, first.status, first.text)
	require.Equal(t, false, first.body["replayed"])
	again := d.call(d.admin, http.MethodPost, path(task, "report"), report)
	require.Equal(t, true, again.body["replayed"])
	report["status"] = "FAILED"
	other := d.call(d.admin, http.MethodPost, path(task, "report"), report)
	d.requireError(other, http.StatusConflict, "TERMINAL_STATE")
	require.Equal(t, "COMPLETED", other.body["details"].(map[string]any)["status"])

	x := d.call(d.admin, http.MethodGet, "{ns}/executions/"+id, nil)
	require.Equal(t, "COMPLETED", x.body["status"], x.text)
	require.Equal(t, map[string]any{"parcel": "p1"}, x.body["output"])
}

// Must show 5: a key for one queue can neither lease nor report another's task.
func TestAKeyForOneQueueSeesNoOther(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	packer := d.key("packer", []string{d.ns}, auth.Lease("pack"), auth.TasksReport)
	d.start("bill", nil)
	d.requireError(d.call(packer, http.MethodPost, "{ns}/queues/charge/lease", map[string]any{"workerId": "w"}), http.StatusForbidden, "INSUFFICIENT_SCOPE")
	d.requireError(d.call(packer, http.MethodPost, "{ns}/lease", map[string]any{"workerId": "w", "queues": []any{map[string]any{"queue": "pack"}, map[string]any{"queue": "charge"}}}),
		http.StatusForbidden, "INSUFFICIENT_SCOPE")
	task := d.lease(d.admin, "charge", 1)[0]
	for verb, body := range map[string]map[string]any{
		"report": {"status": "COMPLETED"}, "heartbeat": {}, "release": {}, "logs": {"logs": []any{map[string]any{"message": "x"}}},
	} {
		body["leaseToken"] = task["leaseToken"]
		d.requireError(d.call(packer, http.MethodPost, path(task, verb), body), http.StatusNotFound, "NOT_FOUND")
	}
	d.requireError(d.call(packer, http.MethodGet, "{ns}/executions", nil), http.StatusForbidden, "INSUFFICIENT_SCOPE")
	d.requireError(d.call(d.admin, http.MethodPost, "{ns}/queues/_nf.HTTP/lease", map[string]any{"workerId": "w"}), http.StatusForbidden, "INSUFFICIENT_SCOPE")

	elsewhere := d.key("elsewhere", []string{"other"}, auth.Admin)
	d.requireError(d.call(elsewhere, http.MethodPost, "{ns}/queues/pack/lease", map[string]any{"workerId": "w"}), http.StatusForbidden, "INSUFFICIENT_SCOPE")
	d.requireError(d.call(elsewhere, http.MethodPost, path(task, "report"), map[string]any{"leaseToken": task["leaseToken"], "status": "COMPLETED"}),
		http.StatusForbidden, "INSUFFICIENT_SCOPE")
}

// Must show 5: worker misuse gets its stated answer.
func TestWorkerMisuse(t *testing.T) { //nolint:tparallel // its parts go in order
	t.Parallel()
	d := open(t, packing()...)
	first, second := d.start("order", nil), d.start("order", nil)
	tasks := d.lease(d.admin, "pack", 2)
	require.Len(t, tasks, 2)
	a, b := tasks[0], tasks[1]
	report := func(task map[string]any, token any, more map[string]any) answer {
		body := map[string]any{"leaseToken": token, "status": "COMPLETED"}
		maps.Copy(body, more)
		return d.call(d.admin, http.MethodPost, path(task, "report"), body)
	}
	t.Run("foreign token", func(t *testing.T) { //nolint:paralleltest // in order
		d.requireError(report(a, b["leaseToken"], nil), http.StatusConflict, "LEASE_EXPIRED")
	})
	t.Run("guessed token", func(t *testing.T) { //nolint:paralleltest // in order
		fence, _, _ := strings.Cut(a["leaseToken"].(string), ".")
		for _, guess := range []string{fence, fence + ".", fence + "." + strings.Repeat("A", 22), "1.AAAA", "x"} {
			refused := report(a, guess, nil)
			d.requireError(refused, http.StatusConflict, "LEASE_EXPIRED")
			require.Nil(t, refused.body["details"], "a false token learns nothing")
		}
	})
	t.Run("unknown task", func(t *testing.T) { //nolint:paralleltest // in order
		for _, id := range []string{"x", "0198c7a0-0000-7000-8000-000000000001.1.1", first + ".99.1", strings.Repeat("9", 300)} {
			d.requireError(d.call(d.admin, http.MethodPost, "{ns}/tasks/"+id+"/report", map[string]any{"leaseToken": a["leaseToken"], "status": "COMPLETED"}), http.StatusNotFound, "NOT_FOUND")
		}
	})
	t.Run("counts", func(t *testing.T) { //nolint:paralleltest // in order
		for _, body := range []string{`{"workerId":"w","count":1000000000}`, `{"workerId":"w","count":0}`, `{"workerId":"w","count":101}`, `{"workerId":"w","waitSeconds":31}`, `{"workerId":"w","count":1.5}`} {
			d.requireError(d.call(d.admin, http.MethodPost, "{ns}/queues/pack/lease", body), http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		d.requireError(d.call(d.admin, http.MethodPost, "{ns}/queues/nope/lease", `{"workerId":"w"}`), http.StatusNotFound, "NOT_FOUND")
	})
	t.Run("bodies", func(t *testing.T) { //nolint:paralleltest // in order
		huge := `{"leaseToken":"x","status":"COMPLETED","output":{"a":"` + strings.Repeat("a", 7<<20) + `"}}`
		d.requireError(d.call(d.admin, http.MethodPost, path(a, "report"), huge), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
		deep := `{"leaseToken":"x","status":"COMPLETED","output":{"a":` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}}`
		d.requireError(d.call(d.admin, http.MethodPost, path(a, "report"), deep), http.StatusBadRequest, "INVALID_JSON")
		for _, body := range []string{`{`, `[]`, `{"a":1,"a":2}`, "{\"status\":\"\xff\"}", `{"output":{"x":"\ud800"}}`, `{"output":{"x":1e999999}}`, `{"leaseToken":"x","status":"COMPLETED"} x`} {
			d.requireError(d.call(d.admin, http.MethodPost, path(a, "report"), body), http.StatusBadRequest, "INVALID_JSON")
		}
		for _, body := range []string{
			`{"leaseToken":"x","status":"DONE"}`, `{"status":"COMPLETED"}`, `{"leaseToken":"x","status":"COMPLETED","outptu":{}}`,
			`{"leaseToken":"x","status":"COMPLETED","output":[]}`, `{"leaseToken":"x","status":"COMPLETED","retryAfterMs":5}`, `{"leaseToken":"x","status":null}`,
		} {
			d.requireError(d.call(d.admin, http.MethodPost, path(a, "report"), body), http.StatusBadRequest, "INVALID_ARGUMENT")
		}
	})
	t.Run("NUL and lone surrogates", func(t *testing.T) { //nolint:paralleltest // in order
		kept := d.call(d.admin, http.MethodPost, path(a, "report"), fmt.Sprintf(`{"leaseToken":%q,"status":"COMPLETED","output":{"x":"a\u0000b"}}`, a["leaseToken"]))
		require.Equal(t, http.StatusOK, kept.status, kept.text)
		mended := d.call(d.admin, http.MethodPost, path(b, "report"), fmt.Sprintf(`{"leaseToken":%q,"status":"FAILED_WITH_TERMINAL_ERROR","reason":"a\u0000b\ud800c"}`, b["leaseToken"]))
		require.Equal(t, http.StatusOK, mended.status, mended.text)
		outputs := map[string]any{}
		for _, id := range []string{first, second} {
			x := d.call(d.admin, http.MethodGet, "{ns}/executions/"+id, nil)
			outputs[x.body["status"].(string)] = x.body
		}
		require.Equal(t, map[string]any{"x": "a\x00b"}, outputs["COMPLETED"].(map[string]any)["output"], "NUL inside data is kept")
		require.Contains(t, outputs["FAILED"].(map[string]any)["reasonForIncompletion"], "a\ufffdb\ufffdc")
	})
	t.Run("late report", func(t *testing.T) { //nolint:paralleltest // in order
		id := d.start("order", nil)
		task := d.lease(d.admin, "pack", 1)[0]
		ended := d.call(d.admin, http.MethodPost, "{ns}/executions/"+id+"/terminate", map[string]any{"reason": "enough"})
		require.Equal(t, "TERMINATED", ended.body["status"], ended.text)
		late := report(task, task["leaseToken"], nil)
		d.requireError(late, http.StatusConflict, "LEASE_EXPIRED")
		require.Equal(t, "CANCELED", late.body["details"].(map[string]any)["status"])
	})
}

func TestABatchJudgesEachItemByItself(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	starts := d.call(d.admin, http.MethodPost, "{ns}/executions", map[string]any{"items": []any{
		map[string]any{"workflow": "order"}, map[string]any{"workflow": "nope"}, map[string]any{"workflow": "order", "x": 1}, "what", map[string]any{"workflow": "order"},
	}})
	require.Equal(t, http.StatusOK, starts.status, starts.text)
	results := starts.body["results"].([]any)
	require.Equal(t, true, results[0].(map[string]any)["created"])
	require.Equal(t, "NOT_FOUND", results[1].(map[string]any)["error"])
	require.Equal(t, "INVALID_ARGUMENT", results[2].(map[string]any)["error"])
	require.Equal(t, "INVALID_ARGUMENT", results[3].(map[string]any)["error"])
	require.Equal(t, true, results[4].(map[string]any)["created"])

	tasks := d.lease(d.admin, "pack", 2)
	require.Len(t, tasks, 2)
	reports := d.call(d.admin, http.MethodPost, "{ns}/tasks/report", map[string]any{"items": []any{
		map[string]any{"taskId": tasks[0]["taskId"], "leaseToken": tasks[0]["leaseToken"], "status": "COMPLETED"},
		map[string]any{"taskId": tasks[1]["taskId"], "leaseToken": "1.AAAA", "status": "COMPLETED"},
		map[string]any{"taskId": "x", "leaseToken": "1.AAAA", "status": "COMPLETED"},
		map[string]any{"taskId": tasks[1]["taskId"], "leaseToken": tasks[1]["leaseToken"], "status": "COMPLETED"},
	}})
	results = reports.body["results"].([]any)
	require.Equal(t, false, results[0].(map[string]any)["replayed"], reports.text)
	require.Equal(t, "LEASE_EXPIRED", results[1].(map[string]any)["error"])
	require.Equal(t, "NOT_FOUND", results[2].(map[string]any)["error"])
	require.Equal(t, false, results[3].(map[string]any)["replayed"])
	many := make([]any, 101)
	for i := range many {
		many[i] = map[string]any{}
	}
	d.requireError(d.call(d.admin, http.MethodPost, "{ns}/tasks/report", map[string]any{"items": many}), http.StatusBadRequest, "INVALID_ARGUMENT")
}

// BG-95: fifty parallel starts with one key are one run.
func TestBG_95_OneKeyOneRunOverTheAPI(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	var mu sync.Mutex
	ids, created := map[any]int{}, 0
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			a := d.call(d.admin, http.MethodPost, "{ns}/executions/order", map[string]any{"idempotencyKey": "k1", "input": map[string]any{"n": 1}})
			mu.Lock()
			defer mu.Unlock()
			ids[a.body["executionId"]]++
			if a.status == http.StatusCreated && a.body["created"] == true {
				created++
			}
		})
	}
	all.Wait()
	require.Len(t, ids, 1)
	require.Equal(t, 1, created)
	d.requireError(d.call(d.admin, http.MethodPost, "{ns}/executions/order", map[string]any{"idempotencyKey": "k1", "input": map[string]any{"n": 2}}), http.StatusConflict, "IDEMPOTENCY_MISMATCH")
}
