package httptask_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
	"nf/systemtasks/httptask"
	"nf/systemtasks/outbound"
	"nf/systemtasks/taskstest"
)

var now = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// newTask makes the task with a client that may reach loopback only for Targets, unless changed.
func newTask(t *testing.T, change ...func(*outbound.Options)) systemtasks.Task {
	t.Helper()
	opts := outbound.Options{Now: func() time.Time { return now }}
	for _, f := range change {
		f(&opts)
	}
	client, err := outbound.New(opts)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	task, err := httptask.New(httptask.Options{Client: client})
	require.NoError(t, err)
	return task
}

func loopback(o *outbound.Options) { o.AllowLoopback = true }

// server answers with a handler and remembers nothing.
func server(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// target is a declared Target at a base.
func target(base string, headers map[string]schema.Secretable) *schema.Target {
	return &schema.Target{
		Metadata:       schema.Metadata{Namespace: "shared", Name: "psp"},
		HTTP:           &schema.HTTPTarget{BaseURI: base, Headers: headers, MaxRedirects: 3, MaxResponseBytes: outbound.MaxResponseBody},
		DefaultTimeout: 30_000,
	}
}

// call is a call beside a Target.
func call(to *schema.Target, input map[string]any) systemtasks.Call {
	input["target"] = "shared/psp"
	return systemtasks.Call{Namespace: "orders", IdempotencyKey: "orders/0198c7a0/charge/0", Input: input, Target: to, Secrets: taskstest.Resolve}
}

// built is a call to a URI.
func built(uri string, input map[string]any) systemtasks.Call {
	input["uri"] = uri
	return systemtasks.Call{Namespace: "orders", IdempotencyKey: "orders/0198c7a0/charge/0", Input: input}
}

func completed(t *testing.T, out systemtasks.Outcome) map[string]any {
	t.Helper()
	done, ok := out.(systemtasks.Completed)
	require.Truef(t, ok, "%+v", out)
	return done.Output
}

func failed(t *testing.T, out systemtasks.Outcome) systemtasks.Failed {
	t.Helper()
	taskstest.Check(t, out)
	f, ok := out.(systemtasks.Failed)
	require.Truef(t, ok, "%+v", out)
	return f
}

func TestNewNeedsAClient(t *testing.T) {
	t.Parallel()
	_, err := httptask.New(httptask.Options{})
	require.Error(t, err)
}

func secretRef(prefix string) map[string]any {
	return map[string]any{"secretRef": map[string]any{"name": "psp-key", "key": "token", "prefix": prefix}}
}

// echo gives back everything it got, in every encoding, in headers, body and names.
func echo(w http.ResponseWriter, r *http.Request) {
	var all []string
	for _, name := range []string{"Authorization", "X-Token", "X-Own"} {
		for _, v := range r.Header.Values(name) {
			all = append(all, taskstest.Encodings(v)...)
			all = append(all, taskstest.Encodings(strings.TrimPrefix(v, "Bearer "))...)
			w.Header().Add("X-Echo", v)
			w.Header().Add("X-Echo-Url", strings.TrimPrefix(taskstest.Encodings(v)[1], "Bearer+"))
			w.Header().Set("Set-Cookie", "token="+v)
		}
	}
	w.Header().Set("X-Token", "again")
	tree := map[string]any{"all": all, "nested": map[string]any{all[0]: all}}
	switch r.URL.Path {
	case "/json":
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(tree)
	case "/text":
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, strings.Join(all, "\n"))
	case "/broken":
		w.Header().Set("Content-Type", "application/json")
		encoded, _ := json.Marshal(tree)
		_, _ = w.Write(encoded[:len(encoded)-3])
	default:
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, strings.Join(all, " "))
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	var hanging sync.Map // path → chan struct{}
	var calls atomic.Int64
	uri := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/hang"):
			came, _ := hanging.Load(r.URL.Path)
			close(came.(chan struct{})) //nolint:forcetypeassert // only those are in it
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/echo"):
			http.StripPrefix("/echo", http.HandlerFunc(echo)).ServeHTTP(w, r)
		}
	})
	headers := map[string]schema.Secretable{"X-Token": {Secret: &schema.SecretRef{Name: "t", Key: "k"}}}
	for _, path := range []string{"/json", "/text", "/broken", "/forbidden"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			taskstest.Run(t, taskstest.Subject{
				Task: newTask(t),
				Good: func() systemtasks.Call {
					return call(target(uri, nil), map[string]any{"path": "/good", "method": "POST", "body": map[string]any{"a": json.Number("1")}})
				},
				Hang: func() (systemtasks.Call, <-chan struct{}) {
					came, path := make(chan struct{}), fmt.Sprintf("/hang/%d", calls.Add(1))
					hanging.Store(path, came)
					return call(target(uri, nil), map[string]any{"path": path}), came
				},
				Echo: func() systemtasks.Call {
					return call(target(uri+"/echo", headers), map[string]any{"path": path, "headers": map[string]any{"Authorization": secretRef("Bearer "), "X-Own": secretRef("")}})
				},
			})
		})
	}
}

func TestAnswerHeadersThatAreDropped(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Set-Cookie", "Authorization", "Proxy-Authorization", "WWW-Authenticate", "X-Token", "X_token", "X-Kept", "Date"} {
			w.Header()[name] = []string{"v"}
		}
		w.Header()["X-Many"] = []string{"a", "b"}
	})
	out := completed(t, newTask(t).Run(t.Context(), call(target(uri, map[string]schema.Secretable{"x-TOKEN": {Text: "x"}}), map[string]any{})))
	require.Equal(t, map[string]any{"x-kept": "v", "date": "v", "content-length": "0", "x-many": "a, b"}, out["headers"])
}

// TestBG_79_ShapeOfTheOutput: the same for every status, held by a golden file.
func TestBG_79_ShapeOfTheOutput(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		status := 200
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		switch r.URL.Query().Get("as") {
		case "json":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error": {"code": 12345678901234567890, "list": [1.50, true, null, "é"]}}`)
		case "text":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "plain <text> \u2028")
		case "unparsable":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error": `)
		case "bytes":
			w.Header().Set("Content-Type", "application/octet-stream")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "a\xff\x00b")
		default:
			w.WriteHeader(status)
		}
	})
	task := newTask(t)
	var got strings.Builder
	for _, status := range []int{200, 201, 404, 500, 503, 304} {
		for _, as := range []string{"json", "text", "unparsable", "bytes", "nothing"} {
			out := task.Run(t.Context(), call(target(uri, nil), map[string]any{"path": fmt.Sprintf("/%d", status), "query": map[string]any{"as": as}}))
			var output map[string]any
			switch out := out.(type) {
			case systemtasks.Completed:
				output = out.Output
			case systemtasks.Failed:
				output = out.Output
			case systemtasks.Released:
			}
			text, err := jsontext.Encode(output)
			require.NoError(t, err)
			fmt.Fprintf(&got, "%d %s: %s\n", status, as, text)
		}
	}
	golden(t, "outputs.txt", got.String())
}

// TestReasonText: contract 2.6, held by a golden file.
func TestReasonText(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, r *http.Request) {
		status := 200
		_, _ = fmt.Sscanf(r.URL.Path, "/a/%d", &status)
		w.Header().Set("Retry-After", "3")
		if r.URL.Query().Get("to") != "" {
			w.Header().Set("Location", r.URL.Query().Get("to"))
		}
		w.WriteHeader(status)
		switch body := r.URL.Query().Get("body"); body {
		case "long":
			_, _ = io.WriteString(w, strings.Repeat("0123456789é", 200))
		case "bytes":
			_, _ = io.WriteString(w, "bad \xff\xfe and \x00 NUL")
		default:
			_, _ = io.WriteString(w, body)
		}
	})
	task := newTask(t, loopback)
	var got strings.Builder
	for _, c := range []struct{ method, path string }{
		{"GET", "/a/503?body=out+of+order&token=x"},
		{"GET", "/a/503"},
		{"POST", "/a/400?body={\"error\":\"no+such+card\"}"},
		{"GET", "/a/404?body=long"},
		{"GET", "/a/500?body=bytes"},
		{"GET", "/a/520?body=odd"},
		{"GET", "/a/600?body=odder"},
		{"GET", "/a/304"},
		{"GET", "/a/302"},
		{"POST", "/a/307?to=/elsewhere&body=moved"},
		{"PUT", "/a/301?to=/elsewhere"},
		{"GET", "/a/302?to=ftp://x/"},
		{"GET", "/a/302?to=http://10.0.0.1/secret?token=1"},
		{"GET", "/a/302?to=/a/302%3Fto=/a/302%253Fto=/a/302%25253Fto=/a/302%2525253Fto=/x"},
		{"HEAD", "/a/429"},
	} {
		input := map[string]any{"method": c.method}
		if c.method == "POST" || c.method == "PUT" {
			input["body"] = "x"
		}
		out := failed(t, task.Run(t.Context(), built(strings.Replace(uri, "//", "//user:pass@", 1)+c.path, input)))
		require.NotContains(t, out.Reason, "token")
		require.NotContains(t, out.Reason, "pass")
		fmt.Fprintf(&got, "%s %s\n    %s terminal=%t wait=%d%s\n    %s\n", c.method, c.path, out.Cause, out.Terminal, out.MinWait, out.Source, strings.ReplaceAll(out.Reason, uri, "http://host"))
	}
	golden(t, "reasons.txt", got.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("NF_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestBG_02_RetryAfterOfA503(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
	require.Equal(t, systemtasks.CauseHTTPStatus, out.Cause)
	require.False(t, out.Terminal, "the durable policy decides, not the task")
	require.Equal(t, schema.Millis(5000), out.MinWait)
	require.Equal(t, systemtasks.SourceRetryAfter, out.Source)
}

func TestFC_047_HintInsideABodyIsKeptForTheReason(t *testing.T) {
	t.Parallel()
	hint := "quota for project 17 is used up; " + strings.Repeat("x", 2000)
	uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, hint)
	})
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
	require.Equal(t, "429 Too Many Requests from "+uri+"/: "+hint[:1024], out.Reason)
	require.Equal(t, hint, out.Output["body"])
}

func TestFC_127_ABodyThatIsNotUTF8IsMadeValid(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Odd", "\xe9")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "caf\xe9 \x00 \xed\xa0\x80 end")
	})
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
	require.Equal(t, "500 Internal Server Error from "+uri+"/: caf\uFFFD \uFFFD \uFFFD end", out.Reason)
	require.Equal(t, "caf\uFFFD \uFFFD \uFFFD end", out.Output["body"])
	require.Equal(t, "\uFFFD", out.Output["headers"].(map[string]any)["x-odd"]) //nolint:forcetypeassert // as documented
}

func TestASecretIsMaskedBeforeTheReasonIsCut(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 1024-10)+r.Header.Get("X-Token"))
	})
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{"headers": map[string]any{"X-Token": secretRef("")}})))
	require.NotContains(t, out.Reason, taskstest.Plain[:6])
	require.Contains(t, out.Reason, "***")
}

func TestJSONBodies(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 255) + strings.Repeat("]", 255)
	deeper := "[" + deep + "]"
	for name, c := range map[string]struct {
		contentType, body string
		want              any
	}{
		"object":           {"application/json", `{"a":1}`, map[string]any{"a": json.Number("1")}},
		"with charset":     {"Application/JSON; charset=utf-8", `[1]`, []any{json.Number("1")}},
		"suffix":           {"application/vnd.api+json", `"x"`, "x"},
		"null":             {"application/json", `null`, nil},
		"no type":          {"", `{"a":1}`, `{"a":1}`},
		"text":             {"text/plain", `{"a":1}`, `{"a":1}`},
		"trailing":         {"application/json", `{"a":1} x`, `{"a":1} x`},
		"empty":            {"application/json", ``, ``},
		"as deep as fits":  {"application/json", deep, nestedList(255)},
		"too deep":         {"application/json", deeper, deeper},
		"number too large": {"application/json", `1e401`, `1e401`},
		"number as it is":  {"application/json", `1.2300e5`, json.Number("1.2300e5")},
		"NUL":              {"application/json", `"a\u0000b"`, "a\x00b"},
		"not UTF-8":        {"application/json", "\"\xff\"", "\"\uFFFD\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.contentType}
				_, _ = io.WriteString(w, c.body)
			})
			out := completed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
			require.Equal(t, c.want, out["body"])
			require.Equal(t, json.Number("200"), out["status"])
		})
	}
}

func nestedList(depth int) any {
	v := any([]any{})
	for range depth - 1 {
		v = []any{v}
	}
	return v
}

func TestAnAnswerThatGrowsOverTheOutputLimit(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("\x01", 2<<20))
	})
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
	require.Equal(t, systemtasks.CauseOutputTooLarge, out.Cause)
	require.True(t, out.Terminal)
}

func TestTheTargetsLimitsHold(t *testing.T) {
	t.Parallel()
	uri := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
		case "/slow":
			<-r.Context().Done()
		default:
			http.Redirect(w, r, "/large", http.StatusFound)
		}
	})
	small := target(uri, nil)
	small.HTTP.MaxResponseBytes, small.HTTP.MaxRedirects, small.DefaultTimeout = 1024, 0, 200
	for path, want := range map[string]string{"/large": "larger than 1024 bytes", "/moved": "more than 0 redirects", "/slow": "within 200 ms"} {
		out := failed(t, newTask(t).Run(t.Context(), call(small, map[string]any{"path": path})))
		require.Contains(t, out.Reason, want)
	}
	begun := time.Now()
	out := failed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{"path": "/slow", "timeoutMs": json.Number("1000")})))
	require.GreaterOrEqual(t, time.Since(begun), time.Second, "BG-77: FAILED at 1 s")
	require.Less(t, time.Since(begun), 20*time.Second, "BG-77: no other time-out ends it")
	require.Equal(t, systemtasks.CauseCallTimeout, out.Cause)
}

func TestReleasedSaysWhetherItWasSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	uri := server(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	require.Equal(t, systemtasks.Released{Sent: true}, newTask(t).Run(ctx, call(target(uri, nil), map[string]any{})))
	require.Equal(t, systemtasks.Released{}, newTask(t).Run(ctx, call(target(uri, nil), map[string]any{})))
}
