package httptask_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// got is what a server was sent.
type got struct {
	method, uri, host, body string
	header                  http.Header
}

// recorder is a server that remembers what it was sent.
func recorder(t *testing.T) (uri string, seen func() []got) {
	t.Helper()
	var mu sync.Mutex
	var all []got
	uri = server(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, got{method: r.Method, uri: r.RequestURI, host: r.Host, body: string(body), header: r.Header.Clone()})
	})
	return uri, func() []got { mu.Lock(); defer mu.Unlock(); return append([]got(nil), all...) }
}

func num(s string) json.Number { return json.Number(s) }

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	object := map[string]any{"z": num("1"), "a": []any{"<é>", nil, true}}
	for name, c := range map[string]struct {
		input                          map[string]any
		method, uri, body, contentType string
	}{
		"default is GET":        {map[string]any{}, "GET", "/base", "", ""},
		"path":                  {map[string]any{"path": "/orders/1"}, "GET", "/base/orders/1", "", ""},
		"path without slash":    {map[string]any{"path": "orders/1"}, "GET", "/base/orders/1", "", ""},
		"path slash alone":      {map[string]any{"path": "/"}, "GET", "/base/", "", ""},
		"path, literal signs":   {map[string]any{"path": "/a b/ü/{x}/%41/a;b=c,d"}, "GET", "/base/a%20b/%C3%BC/%7Bx%7D/%41/a;b=c,d", "", ""},
		"path, encoded signs":   {map[string]any{"path": "/a%3Fb%23c%252F%5Cx"}, "GET", "/base/a%3Fb%23c%252F%5Cx", "", ""},
		"path, host look-alike": {map[string]any{"path": "//evil.example/x"}, "GET", "/base//evil.example/x", "", ""},
		"path, at sign":         {map[string]any{"path": "@evil.example/:80"}, "GET", "/base/@evil.example/:80", "", ""},
		"query":                 {map[string]any{"query": map[string]any{"b": num("1.0"), "a": []any{"x y", true}, "c": "&=#"}}, "GET", "/base?a=x+y&a=true&b=1.0&c=%26%3D%23", "", ""},
		"query, empty":          {map[string]any{"query": map[string]any{"a": []any{}}}, "GET", "/base", "", ""},
		"object":                {map[string]any{"method": "POST", "body": object}, "POST", "/base", `{"a":["<é>",null,true],"z":1}`, "application/json"},
		"list":                  {map[string]any{"method": "PUT", "body": []any{}}, "PUT", "/base", `[]`, "application/json"},
		"text":                  {map[string]any{"method": "PATCH", "body": "a=1"}, "PATCH", "/base", "a=1", ""},
		"number":                {map[string]any{"method": "POST", "body": num("1.50")}, "POST", "/base", "1.50", "application/json"},
		"false":                 {map[string]any{"method": "POST", "body": false}, "POST", "/base", "false", "application/json"},
		"null is none":          {map[string]any{"method": "GET", "body": nil}, "GET", "/base", "", ""},
		"own content type":      {map[string]any{"method": "POST", "body": object, "headers": map[string]any{"content-type": "application/cbor"}}, "POST", "/base", `{"a":["<é>",null,true],"z":1}`, "application/cbor"},
		"DELETE with body":      {map[string]any{"method": "DELETE", "body": "x"}, "DELETE", "/base", "x", ""},
		"OPTIONS with body":     {map[string]any{"method": "OPTIONS", "body": "x"}, "OPTIONS", "/base", "x", ""},
		"HEAD":                  {map[string]any{"method": "HEAD"}, "HEAD", "/base", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri, seen := recorder(t)
			completed(t, newTask(t).Run(t.Context(), call(target(uri+"/base", nil), c.input)))
			require.Len(t, seen(), 1)
			sent := seen()[0]
			require.Equal(t, c.method, sent.method)
			require.Equal(t, c.uri, sent.uri)
			require.Equal(t, c.body, sent.body)
			require.Equal(t, c.contentType, sent.header.Get("Content-Type"))
			require.Equal(t, strings.TrimPrefix(uri, "http://"), sent.host)
		})
	}
}

func TestURIs(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"/a?x=1#frag":     "/a?x=1&q=2",
		"":                "/?q=2",
		"/a b?x=a b\"<>é": "/a%20b?x=a%20b%22%3C%3E%C3%A9&q=2",
		"/%7e?x=%zz":      "/%7e?x=%zz&q=2", // a query is the author's: what a server makes of it is its own affair
		"/a/../b":         "/a/../b?q=2",
	} {
		uri, seen := recorder(t)
		completed(t, newTask(t, loopback).Run(t.Context(), built(uri+given, map[string]any{"query": map[string]any{"q": num("2")}})))
		require.Equal(t, want, seen()[0].uri)
	}
}

func TestFC_065_IdempotencyKey(t *testing.T) {
	t.Parallel()
	for method, sent := range map[string]bool{"GET": false, "HEAD": false, "OPTIONS": false, "POST": true, "PUT": true, "PATCH": true, "DELETE": true} {
		uri, seen := recorder(t)
		task := newTask(t)
		for range 2 {
			completed(t, task.Run(t.Context(), call(target(uri, nil), map[string]any{"method": method})))
		}
		want := ""
		if sent {
			want = "orders/0198c7a0/charge/0"
		}
		for _, r := range seen() {
			require.Equal(t, want, r.header.Get("Idempotency-Key"), method)
		}
		completed(t, task.Run(t.Context(), call(target(uri, nil), map[string]any{"method": method, "headers": map[string]any{"idempotency-key": "mine"}})))
		require.Equal(t, []string{"mine"}, seen()[2].header.Values("Idempotency-Key"))
		completed(t, task.Run(t.Context(), call(target(uri, map[string]schema.Secretable{"Idempotency-Key": {Text: "fixed"}}), map[string]any{"method": method})))
		require.Equal(t, []string{"fixed"}, seen()[3].header.Values("Idempotency-Key"))
	}
}

func TestHeadersAndSecrets(t *testing.T) {
	t.Parallel()
	uri, seen := recorder(t)
	to := target(uri, map[string]schema.Secretable{"X-Tenant": {Text: "t1"}, "X-Target": {Secret: &schema.SecretRef{Name: "psp", Key: "k", Prefix: "Key "}}})
	c := call(to, map[string]any{"headers": map[string]any{"Authorization": secretRef("Bearer "), "X-Number": num("1.50"), "x-umlaut": "ü", "User-Agent": "mine"}})
	var asked []string
	c.Secrets = func(_ context.Context, namespace string, ref schema.SecretRef) (string, error) {
		asked = append(asked, namespace+"/"+ref.Name+"/"+ref.Key)
		return "value-of-" + ref.Name, nil
	}
	completed(t, newTask(t).Run(t.Context(), c))
	h := seen()[0].header
	require.Equal(t, "Bearer value-of-psp-key", h.Get("Authorization"))
	require.Equal(t, "Key value-of-psp", h.Get("X-Target"))
	require.Equal(t, "t1", h.Get("X-Tenant"))
	require.Equal(t, "1.50", h.Get("X-Number"))
	require.Equal(t, "ü", h.Get("X-Umlaut"))
	require.Equal(t, "mine", h.Get("User-Agent"))
	require.Equal(t, []string{"shared/psp/k", "orders/psp-key/token"}, asked, "each in the namespace of the object that holds it")
}

// TestRefusedBeforeTheCall: contract 2.7, row by row. Nothing reaches the server.
func TestRefusedBeforeTheCall(t *testing.T) {
	t.Parallel()
	headers := func(name string, value any) map[string]any {
		return map[string]any{"headers": map[string]any{name: value}}
	}
	refused, misfit := systemtasks.CauseInvalidRequest, systemtasks.CauseInputInvalid
	type row struct {
		input map[string]any
		cause string
	}
	rows := map[string]row{
		"header value with LF":     {headers("X-A", "a\nb"), refused},
		"header value with CR":     {headers("X-A", "a\rb"), refused},
		"header value with NUL":    {headers("X-A", "a\x00b"), refused},
		"header value with tab":    {headers("X-A", "a\tb"), refused},
		"header value with DEL":    {headers("X-A", "a\x7fb"), refused},
		"header value with C1":     {headers("X-A", "a\u0085b"), refused},
		"header value not UTF-8":   {headers("X-A", "a\xffb"), refused},
		"header value null":        {headers("X-A", nil), misfit},
		"header value boolean":     {headers("X-A", true), misfit},
		"header value list":        {headers("X-A", []any{"a"}), misfit},
		"header value object":      {headers("X-A", map[string]any{"a": "b"}), misfit},
		"the Target's header":      {headers("x-tenant", "other"), refused},
		"the Target's, underscore": {headers("X_Tenant", "other"), refused},
		"one header twice":         {map[string]any{"headers": map[string]any{"X-A": "1", "x_a": "2"}}, refused},
		"headers text":             {map[string]any{"headers": "X-A: b"}, misfit},
		"path with query":          {map[string]any{"path": "/a?b"}, refused},
		"path with fragment":       {map[string]any{"path": "/a#b"}, refused},
		"path with backslash":      {map[string]any{"path": `/a\b`}, refused},
		"path with control":        {map[string]any{"path": "/a\nb"}, refused},
		"path with dots":           {map[string]any{"path": "/a/../b"}, refused},
		"path with a dot":          {map[string]any{"path": "/a/./b"}, refused},
		"path ends in dots":        {map[string]any{"path": "/a/.."}, refused},
		"path of dots":             {map[string]any{"path": ".."}, refused},
		"path with encoded dots":   {map[string]any{"path": "/a/%2e%2E/b"}, refused},
		"path with half encoded":   {map[string]any{"path": "/a/.%2e/b"}, refused},
		"path with encoded slash":  {map[string]any{"path": "/a%2Fb"}, refused},
		"path climbs by backslash": {map[string]any{"path": "/a/..%5Cb"}, refused},
		"path badly encoded":       {map[string]any{"path": "/a%2"}, refused},
		"path badly encoded, two":  {map[string]any{"path": "/a%zz"}, refused},
		"path not UTF-8":           {map[string]any{"path": "/a\xff"}, refused},
		"path number":              {map[string]any{"path": num("1")}, misfit},
		"method lower case":        {map[string]any{"method": "get"}, misfit},
		"method unknown":           {map[string]any{"method": "TRACE"}, misfit},
		"method number":            {map[string]any{"method": num("1")}, misfit},
		"body with GET":            {map[string]any{"body": "x"}, misfit},
		"body with HEAD":           {map[string]any{"method": "HEAD", "body": map[string]any{}}, misfit},
		"body too large":           {map[string]any{"method": "POST", "body": strings.Repeat("x", 6<<20+1)}, refused},
		"body too large as JSON":   {map[string]any{"method": "POST", "body": []any{strings.Repeat("\x01", 1<<20)}}, refused},
		"query text":               {map[string]any{"query": "a=b"}, misfit},
		"query null":               {map[string]any{"query": map[string]any{"a": nil}}, misfit},
		"query object":             {map[string]any{"query": map[string]any{"a": map[string]any{}}}, misfit},
		"query list of lists":      {map[string]any{"query": map[string]any{"a": []any{[]any{}}}}, misfit},
		"timeout 0":                {map[string]any{"timeoutMs": num("0")}, misfit},
		"timeout too long":         {map[string]any{"timeoutMs": num("600001")}, misfit},
		"timeout fraction":         {map[string]any{"timeoutMs": num("1.5")}, misfit},
		"timeout text":             {map[string]any{"timeoutMs": "1000"}, misfit},
		"unknown key (BG-22)":      {map[string]any{"asyncComplete": true}, misfit},
		"uri beside target":        {map[string]any{"uri": "http://example.org/"}, misfit},
	}
	for _, name := range []string{
		"Host", "host", "Content-Length", "content_length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE", "Trailer", "Expect",
		"Proxy-Authorization", "proxy-connection", "X-Nf-Delivery", "x_nf_anything", "", "a b", "a:b", "a\r\nb", "ü", "(x)", ":authority",
	} {
		rows["header "+name] = row{headers(name, "x"), refused}
	}
	uri, seen := recorder(t)
	to := target(uri, map[string]schema.Secretable{"X-Tenant": {Text: "t1"}})
	task := newTask(t)
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := failed(t, task.Run(t.Context(), call(to, c.input)))
			require.Equal(t, c.cause, out.Cause, out.Reason)
			require.True(t, out.Terminal)
			require.Nil(t, out.Output)
		})
	}
	t.Cleanup(func() { require.Empty(t, seen()) })
}

func TestRefusedSecretsAndTargets(t *testing.T) {
	t.Parallel()
	uri, seen := recorder(t)
	task := newTask(t, loopback)

	// A secret beside a uri would go wherever the input says (NF3208).
	beside := built(uri, map[string]any{"headers": map[string]any{"Authorization": secretRef("")}})
	beside.Secrets = func(context.Context, string, schema.SecretRef) (string, error) {
		require.Fail(t, "it must not even be read")
		return "", nil
	}
	require.Equal(t, systemtasks.CauseInputInvalid, failed(t, task.Run(t.Context(), beside)).Cause)

	// A secret with a line break inside would write headers of its own. Its value stays unsaid.
	broken := call(target(uri, nil), map[string]any{"headers": map[string]any{"Authorization": secretRef("")}})
	broken.Secrets = func(context.Context, string, schema.SecretRef) (string, error) { return "first\r\nX-Evil: second", nil }
	out := failed(t, task.Run(t.Context(), broken))
	require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause)
	require.NotContains(t, out.Reason, "second")

	for name, c := range map[string]systemtasks.Call{
		"no target":      {Input: map[string]any{"target": "gone"}},
		"gRPC target":    {Input: map[string]any{"target": "g"}, Target: &schema.Target{GRPC: &schema.GRPCTarget{Address: "x:1"}}},
		"neither":        {Input: map[string]any{}},
		"path with uri":  built(uri, map[string]any{"path": "/x"}),
		"null uri":       {Input: map[string]any{"uri": nil}},
		"null in target": {Input: map[string]any{"target": nil}},
	} {
		require.Equal(t, systemtasks.CauseInputInvalid, failed(t, task.Run(t.Context(), c)).Cause, name)
	}
	for _, bad := range []string{"", "x", "/x", "//host/x", "ftp://example.org/", "http:/x", "http:x", "http://", "http://[::1", "http://exa mple/", "http://a:0/", "http://a:b/", "http://a:65536/", "http://a\r\nb/", "javascript:alert(1)", "HTTP+UNIX://x/"} {
		out := failed(t, task.Run(t.Context(), built(bad, map[string]any{})))
		require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause, bad)
	}
	require.Empty(t, seen())
}

// TestOnlyATargetMayBePrivate: contract 2.7, X18.
func TestOnlyATargetMayBePrivate(t *testing.T) {
	t.Parallel()
	uri, seen := recorder(t)
	completed(t, newTask(t).Run(t.Context(), call(target(uri, nil), map[string]any{})))
	out := failed(t, newTask(t).Run(t.Context(), built(uri, map[string]any{})))
	require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause)
	require.Contains(t, out.Reason, "loopback")
	completed(t, newTask(t, loopback).Run(t.Context(), built(uri, map[string]any{})))
	listed := newTask(t, func(o *outbound.Options) {
		var err error
		o.AllowedHosts, err = outbound.ParseAllowedHosts(strings.TrimPrefix(uri, "http://"))
		require.NoError(t, err)
	})
	completed(t, listed.Run(t.Context(), built(uri, map[string]any{})))
	require.Len(t, seen(), 3)
	for _, base := range []string{"http://169.254.169.254", "http://[fd00:ec2::254]/latest", "http://0.0.0.0:1", "http://[64:ff9b::a9fe:a9fe]"} {
		out := failed(t, newTask(t).Run(t.Context(), call(target(base, nil), map[string]any{})))
		require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause, base)
	}
}

// TestRedirectsCarryNoSecretElsewhere: neither the Target's headers nor the task's leave the Target's origin.
func TestRedirectsCarryNoSecretElsewhere(t *testing.T) {
	t.Parallel()
	other, seen := recorder(t)
	uri := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/landed", http.StatusFound) })
	to := target(uri, map[string]schema.Secretable{"X-Target": {Secret: &schema.SecretRef{Name: "a", Key: "b"}}})
	completed(t, newTask(t, loopback).Run(t.Context(), call(to, map[string]any{"headers": map[string]any{"Authorization": secretRef("Bearer ")}})))
	require.Len(t, seen(), 1)
	require.Empty(t, seen()[0].header.Get("X-Target"))
	require.Empty(t, seen()[0].header.Get("Authorization"))

	out := failed(t, newTask(t).Run(t.Context(), call(to, map[string]any{})))
	require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause, "the other hop is checked as a built URI")
	require.Len(t, seen(), 1)
}
