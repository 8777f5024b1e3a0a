//go:build unix

package api_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/auth"
	"nf/runtime/engine/enginetest"
	"nf/schema"
)

// wave1 is contract 4.2–4.6, row by row: what a route is called and which scope it asks for. The document that the server makes of
// its own table must say the same, both ways.
var wave1 = map[string]string{
	"POST /v1/ns/{ns}/executions/{workflow}":                      "executions:start",
	"POST /v1/ns/{ns}/executions":                                 "executions:start",
	"GET /v1/ns/{ns}/executions":                                  "executions:read",
	"GET /v1/ns/{ns}/executions/{id}":                             "executions:read",
	"GET /v1/ns/{ns}/executions/{id}/tasks":                       "executions:read",
	"GET /v1/ns/{ns}/executions/{id}/tasks/{taskId}/logs":         "executions:read",
	"POST /v1/ns/{ns}/executions/{id}/terminate":                  "executions:write",
	"POST /v1/ns/{ns}/queues/{queue}/lease":                       "queues:lease:<queue>",
	"POST /v1/ns/{ns}/lease":                                      "queues:lease:<queue>",
	"POST /v1/ns/{ns}/tasks/{taskId}/heartbeat":                   "tasks:report",
	"POST /v1/ns/{ns}/tasks/{taskId}/report":                      "tasks:report",
	"POST /v1/ns/{ns}/tasks/{taskId}/release":                     "tasks:report",
	"POST /v1/ns/{ns}/tasks/{taskId}/logs":                        "tasks:report",
	"POST /v1/ns/{ns}/tasks/heartbeat":                            "tasks:report",
	"POST /v1/ns/{ns}/tasks/report":                               "tasks:report",
	"GET /v1/ns/{ns}/queues":                                      "executions:read",
	"GET /v1/ns/{ns}/queues/{queue}/depth":                        "executions:read",
	"GET /v1/ns/{ns}/queues/workers":                              "executions:read",
	"GET /v1/ns/{ns}/semaphores":                                  "workflows:read",
	"GET /v1/ns/{ns}/metadata/{kind}":                             "workflows:read",
	"GET /v1/ns/{ns}/metadata/{kind}/{name}":                      "workflows:read",
	"GET /v1/ns/{ns}/metadata/{kind}/{name}/revisions/{revision}": "workflows:read",
	"GET /v1/health/live":                                         "",
	"GET /v1/health/ready":                                        "",
	"GET /v1/health":                                              "metrics:read",
	"GET /v1/status":                                              "workflows:read",
	"POST /-/reload":                                              "admin",
	"GET /v1/metrics":                                             "metrics:read",
	"GET /v1/openapi.json":                                        "",
	"GET /v1/docs":                                                "",
	"GET /v1/docs/{file}":                                         "",
}

func TestTheDocumentIsTheContract(t *testing.T) {
	t.Parallel()
	d := open(t)
	doc := d.call("", http.MethodGet, "/v1/openapi.json", nil)
	require.Equal(t, "3.1.0", doc.body["openapi"])
	found := map[string]string{}
	for path, item := range doc.body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			scope := ""
			if list := op.(map[string]any)["security"].([]any); len(list) > 0 {
				scope = list[0].(map[string]any)["key"].([]any)[0].(string)
			}
			found[strings.ToUpper(method)+" "+path] = scope
		}
	}
	require.Equal(t, wave1, found)
}

func TestEveryRouteAsksForItsScope(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	nothing := d.key("nothing", nil, auth.Lease("unused"))
	for row, scope := range wave1 {
		method, path, _ := strings.Cut(row, " ")
		path = strings.NewReplacer("/v1/ns/{ns}", "{ns}", "{workflow}", "order", "{id}", "0198c7a0-0000-7000-8000-000000000001", "{taskId}", "x",
			"{queue}", "pack", "{kind}", "workflows", "{name}", "order", "{revision}", "1", "{file}", "docs.css").Replace(path)
		var body any
		if method == http.MethodPost {
			body = `{"workerId":"w","queues":[{"queue":"pack"}]}`
		}
		if scope == "" {
			require.NotContains(t, []int{401, 403}, d.call("", method, path, body).status, row)
			continue
		}
		d.requireError(d.call("", method, path, body), http.StatusUnauthorized, "UNAUTHENTICATED")
		d.requireError(d.call(nothing, method, path, body), http.StatusForbidden, "INSUFFICIENT_SCOPE")
	}
}

func TestUnknownThingsAreNamed(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	a := d.call(d.admin, http.MethodGet, "{ns}/executions?statsu=FAILED", nil)
	d.requireError(a, http.StatusBadRequest, "INVALID_ARGUMENT")
	require.Contains(t, a.body["message"], `did you mean "status"?`)
	a = d.call(d.admin, http.MethodPost, "{ns}/executions/order", `{"inputs":{}}`)
	d.requireError(a, http.StatusBadRequest, "INVALID_ARGUMENT")
	require.Equal(t, "/inputs", a.body["details"].(map[string]any)["field"])
	d.requireError(d.call(d.admin, http.MethodDelete, "{ns}/executions", nil), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	d.requireError(d.call(d.admin, http.MethodGet, "/v2/x", nil), http.StatusNotFound, "NOT_FOUND")
	d.requireError(d.call(d.admin, http.MethodGet, "/v1/ns/nowhere/queues", nil), http.StatusNotFound, "NOT_FOUND")
	d.requireError(d.call(d.admin, http.MethodPost, "{ns}/executions/nope", `{}`), http.StatusNotFound, "NOT_FOUND")
	d.requireError(d.call(d.admin, http.MethodGet, "{ns}/executions?cursor=xyz", nil), http.StatusBadRequest, "INVALID_ARGUMENT")
	d.requireError(d.call(d.admin, http.MethodGet, "{ns}/executions?limit=501", nil), http.StatusBadRequest, "INVALID_ARGUMENT")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/v1/ns/"+d.ns+"/executions/order", strings.NewReader(`{}`))
	require.NoError(t, err)
	request.Header.Set("X-Api-Key", d.admin)
	request.Header.Set("Content-Type", "text/plain")
	request.Header.Set("X-Request-Id", "mine-1")
	refused := d.do(request)
	d.requireError(refused, http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE")
	require.Equal(t, "mine-1", refused.header.Get("X-Request-Id"))
}

func TestKeysArePresentedOneWay(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	ask := func(set func(http.Header)) answer {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/ns/"+d.ns+"/queues", nil)
		require.NoError(t, err)
		set(request.Header)
		return d.do(request)
	}
	require.Equal(t, http.StatusOK, ask(func(h http.Header) { h.Set("Authorization", "Bearer "+d.admin) }).status)
	both := ask(func(h http.Header) { h.Set("Authorization", "Bearer "+d.admin); h.Set("X-Api-Key", "nfk_other") })
	d.requireError(both, http.StatusUnauthorized, "UNAUTHENTICATED")
	require.Equal(t, http.StatusOK, ask(func(h http.Header) { h.Set("Authorization", "Bearer "+d.admin); h.Set("X-Api-Key", d.admin) }).status)
}

func TestGzipBodiesAreBoundedAfterUnpacking(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	send := func(text string) answer {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/v1/ns/"+d.ns+"/executions/order", &packed)
		require.NoError(t, err)
		request.Header.Set("X-Api-Key", d.admin)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Content-Encoding", "gzip")
		return d.do(request)
	}
	require.Equal(t, http.StatusCreated, send(`{"input":{"order":"a"}}`).status)
	d.requireError(send(`{"input":{"a":"`+strings.Repeat("a", 64<<20)+`"}}`), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
}

func TestExecutionsArePagedWithoutGapsOrRepeats(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	var want []string
	for range 7 {
		want = append(want, d.start("order", nil))
	}
	d.start("bill", nil)
	slices.Reverse(want)
	for _, task := range d.lease(d.admin, "pack", 3) {
		a := d.call(d.admin, http.MethodPost, path(task, "report"), map[string]any{"leaseToken": task["leaseToken"], "status": "COMPLETED"})
		require.Equal(t, http.StatusOK, a.status, a.text)
	}
	var got []string
	query := "{ns}/executions?workflow=order&limit=2"
	for next := query; next != ""; {
		a := d.call(d.admin, http.MethodGet, next, nil)
		require.Equal(t, http.StatusOK, a.status, a.text)
		for _, item := range a.body["items"].([]any) {
			got = append(got, item.(map[string]any)["executionId"].(string))
		}
		next = ""
		if cursor, ok := a.body["nextCursor"].(string); ok {
			next = query + "&cursor=" + cursor
			d.requireError(d.call(d.admin, http.MethodGet, "{ns}/executions?workflow=bill&cursor="+cursor, nil), http.StatusBadRequest, "INVALID_ARGUMENT")
		}
	}
	require.Equal(t, want, got)
	a := d.call(d.admin, http.MethodGet, "{ns}/executions?status=COMPLETED", nil)
	require.Len(t, a.body["items"], 3)
	a = d.call(d.admin, http.MethodGet, "{ns}/executions?status=RUNNING&status=FAILED", nil)
	require.Len(t, a.body["items"], 5)
}

func TestAReaderWaitsForChange(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	id := d.start("order", nil)
	seq := d.call(d.admin, http.MethodGet, "{ns}/executions/"+id+"?include=", nil).body["seq"]
	waited := make(chan answer, 1)
	go func() {
		waited <- d.call(d.admin, http.MethodGet, fmt.Sprintf("{ns}/executions/%s?afterSeq=%v&waitSeconds=20", id, seq), nil)
	}()
	task := d.lease(d.admin, "pack", 1)[0]
	d.call(d.admin, http.MethodPost, path(task, "report"), map[string]any{"leaseToken": task["leaseToken"], "status": "COMPLETED"})
	select {
	case a := <-waited:
		require.Equal(t, "COMPLETED", a.body["status"], a.text)
	case <-time.After(15 * time.Second):
		t.Fatal("the reader was not told")
	}
}

func TestQueuesSemaphoresAndDefinitionsAreShown(t *testing.T) {
	t.Parallel()
	objects := packing()
	pack := objects[0].(*schema.TaskDefinition)
	pack.Semaphores = []schema.Ref{{Namespace: enginetest.Namespace, Name: "table"}}
	d := open(t, append(objects, &schema.Semaphore{Metadata: schema.Metadata{Name: "table", Namespace: enginetest.Namespace}, Permits: 1})...)
	for range 3 {
		d.start("order", nil)
	}
	leased := d.call(d.admin, http.MethodPost, "{ns}/queues/pack/lease", map[string]any{"workerId": "w1", "count": 3})
	require.Len(t, leased.body["tasks"], 1, leased.text)
	throttled := leased.body["throttled"].(map[string]any)
	require.Equal(t, "semaphore:"+d.ns+"/table", throttled["control"], leased.text)

	semaphores := d.call(d.admin, http.MethodGet, "{ns}/semaphores", nil)
	require.Equal(t, map[string]any{"name": "table", "permits": num(1), "held": num(1)}, semaphores.body["items"].([]any)[0])
	depth := d.call(d.admin, http.MethodGet, "{ns}/queues/pack/depth?exact=true", nil)
	require.Equal(t, num(2), depth.body["ready"], depth.text)
	require.Equal(t, num(1), depth.body["leased"])
	queues := d.call(d.admin, http.MethodGet, "{ns}/queues", nil)
	require.Contains(t, queues.text, `"queue":"pack"`)
	require.Contains(t, queues.text, `"queue":"charge"`, "a queue that nothing was put into is listed")
	d.requireError(d.call(d.admin, http.MethodGet, "{ns}/queues/packk/depth", nil), http.StatusNotFound, "NOT_FOUND")

	held := d.call(d.admin, http.MethodGet, "{ns}/executions", nil).body["items"].([]any)[0].(map[string]any)["executionId"]
	tasks := d.call(d.admin, http.MethodGet, fmt.Sprintf("{ns}/executions/%s/tasks", held), nil)
	require.Equal(t, "semaphore:"+d.ns+"/table", tasks.body["items"].([]any)[0].(map[string]any)["control"], tasks.text)

	object := d.call(d.admin, http.MethodGet, "{ns}/metadata/task-definitions/pack", nil)
	require.Equal(t, http.StatusOK, object.status, object.text)
	require.Equal(t, num(1), object.body["revision"])
	require.Equal(t, object.body["digest"], d.call(d.admin, http.MethodGet, "{ns}/metadata/task-definitions/pack/revisions/1", nil).body["digest"])
	d.requireError(d.call(d.admin, http.MethodGet, "{ns}/metadata/task-definitions/pack/revisions/9", nil), http.StatusNotFound, "NOT_FOUND")
	list := d.call(d.admin, http.MethodGet, "{ns}/metadata/workflows?limit=1", nil)
	require.Len(t, list.body["items"], 1)
	require.NotEmpty(t, list.body["nextCursor"])
}

func TestServicePages(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	require.Equal(t, "ok", d.call("", http.MethodGet, "/v1/health/live", nil).body["status"])
	ready := d.call("", http.MethodGet, "/v1/health/ready", nil)
	require.Equal(t, http.StatusOK, ready.status, ready.text)
	health := d.call(d.admin, http.MethodGet, "/v1/health", nil)
	require.Equal(t, "ok", health.body["status"], health.text)
	require.Equal(t, "test", health.body["environment"])

	docs := d.call("", http.MethodGet, "/v1/docs", nil)
	require.Contains(t, docs.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, docs.text, "http://")
	require.NotContains(t, docs.text, "https://")
	require.Equal(t, "nosniff", docs.header.Get("X-Content-Type-Options"))
	require.Equal(t, http.StatusOK, d.call("", http.MethodGet, "/v1/docs/docs.js", nil).status)
	require.Equal(t, "no-store", d.call(d.admin, http.MethodGet, "{ns}/queues", nil).header.Get("Cache-Control"))

	metrics := d.call(d.admin, http.MethodGet, "/v1/metrics", nil)
	for _, name := range []string{
		"nf_decide_queue_depth", "nf_decide_queue_oldest_seconds", "nf_tasks_ready", "nf_tasks_delayed", "nf_tasks_leased",
		"nf_timers_overdue", "nf_executions_open", "nf_runners_alive", "nf_build_info", "nf_applied_generation", "nf_http_request_seconds",
	} {
		require.Contains(t, metrics.text, "\n"+name, name)
	}
}

func num(n int) any { return jsonNumber(strconv.Itoa(n)) }
