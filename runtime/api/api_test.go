//go:build unix

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/api"
	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/queue"
	"nf/runtime/telemetry"
	"nf/runtime/worker/workertest"
	"nf/schema"
)

// door is a whole process with its API on a listener, and a key that may do everything.
type door struct {
	*workertest.Stack
	t     *testing.T
	url   string
	admin string
	keys  *auth.Keys
	ns    string
}

func open(t *testing.T, objects ...schema.Object) *door {
	t.Helper()
	s := workertest.New(t, workertest.Options{}, objects...)
	signing, err := s.Store.InstallKeys(t.Context())
	require.NoError(t, err)
	keys := auth.New(s.Store, clock.System{})
	server := api.New(api.Deps{
		Store: s.Store, Registry: s.Registry, Engine: s.Engine, Queue: s.Queue, Keys: keys, Signer: queue.NewSigner(signing),
		Metrics: telemetry.New("test", ""), Clock: clock.System{}, Version: "test", Build: 1, Environment: "test", Runner: "r1",
	})
	listener := httptest.NewServer(server)
	t.Cleanup(func() { server.Close(); listener.Close() })
	name, ok := s.Registry.Snapshot().NamespaceName(s.NS)
	require.True(t, ok)
	d := &door{Stack: s, t: t, url: listener.URL, keys: keys, ns: name}
	d.admin = d.key("admin", nil, auth.Admin)
	return d
}

func (d *door) key(name string, namespaces []string, scopes ...auth.Scope) string {
	d.t.Helper()
	text, err := d.keys.Create(d.t.Context(), auth.Operator("test"), name, scopes, namespaces, func(string) bool { return false })
	require.NoError(d.t, err)
	return text
}

// answer is what a call came to.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (a answer) errorCode() string {
	code, _ := a.body["error"].(string)
	return code
}

// call sends a request. body may be a value, or a string that is sent as it is.
func (d *door) call(key, method, path string, body any) answer {
	d.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(d.t, err)
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(d.t.Context()), method, d.url+strings.ReplaceAll(path, "{ns}", "/v1/ns/"+d.ns), reader)
	require.NoError(d.t, err)
	if key != "" {
		request.Header.Set("X-Api-Key", key)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return d.do(request)
}

func (d *door) do(request *http.Request) answer {
	d.t.Helper()
	response, err := http.DefaultClient.Do(request)
	require.NoError(d.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(d.t, err)
	a := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		require.NoError(d.t, decoder.Decode(&a.body), string(text))
	}
	return a
}

// start starts an execution and gives its id.
func (d *door) start(workflow string, input map[string]any) string {
	d.t.Helper()
	if input == nil {
		input = map[string]any{}
	}
	a := d.call(d.admin, http.MethodPost, "{ns}/executions/"+workflow, map[string]any{"input": input})
	require.Equal(d.t, http.StatusCreated, a.status, a.text)
	return a.body["executionId"].(string)
}

// lease leases tasks of a queue.
func (d *door) lease(key, queueName string, count int) []map[string]any {
	d.t.Helper()
	a := d.call(key, http.MethodPost, "{ns}/queues/"+queueName+"/lease", map[string]any{"workerId": "w1", "count": count, "waitSeconds": 5})
	require.Equal(d.t, http.StatusOK, a.status, a.text)
	var tasks []map[string]any
	for _, t := range a.body["tasks"].([]any) {
		tasks = append(tasks, t.(map[string]any))
	}
	return tasks
}

func path(task map[string]any, verb string) string {
	return fmt.Sprintf("{ns}/tasks/%s/%s", task["taskId"], verb)
}

func (d *door) requireError(a answer, status int, code string) {
	d.t.Helper()
	require.Equal(d.t, status, a.status, a.text)
	require.Equal(d.t, code, a.errorCode(), a.text)
	require.NotEmpty(d.t, a.body["message"])
	require.NotEmpty(d.t, a.body["requestId"])
}
