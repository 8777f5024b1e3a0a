package outbound_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// TestFC_065_NothingIsSentTwice: a kept connection that dies under a request is what makes HTTP clients send again by
// themselves. With and without body, with an Idempotency-Key, for every method: the server sees one request per call.
func TestFC_065_NothingIsSentTwice(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT", "PATCH"} {
		for _, body := range []string{"none", "empty", "some"} {
			for name, second := range map[string]answer{"closes": hangsUp(""), "resets": resets("")} {
				t.Run(method+", body "+body+", "+name, func(t *testing.T) {
					t.Parallel()
					first := says(ok)
					if method == "HEAD" {
						first = says("HTTP/1.1 200 OK\r\n\r\n")
					}
					server := serve(t, "127.0.0.1:0", first, second)
					c := client(t)
					r := get(t, server.url("/"))
					r.Method = method
					r.Headers.Set("Idempotency-Key", "same")
					switch body {
					case "empty":
						r.Body = []byte{}
					case "some":
						r.Body = []byte("data")
					}
					resp, failure := c.Do(t.Context(), r)
					require.Nil(t, failure)
					require.Equal(t, 200, resp.Status)
					_, failure = c.Do(t.Context(), r)
					require.NotNil(t, failure)
					require.Equal(t, systemtasks.CauseConnectionFailed, failure.Cause, failure.Reason)
					require.True(t, failure.Sent)
					require.Len(t, server.seen(), 2, "one request per call")
					for _, got := range server.seen() {
						require.Equal(t, method, got.method)
						require.Empty(t, got.header.Get("Transfer-Encoding"))
						require.Equal(t, string(r.Body), got.body)
						if body == "none" && (method == "POST" || method == "PUT" || method == "PATCH") {
							require.Equal(t, "0", got.header.Get("Content-Length"))
						}
					}
				})
			}
		}
	}
}

// TestFC_064_RetryableAnswersAreNotRetriedHere: the retrying client underneath is told never to.
func TestFC_064_RetryableAnswersAreNotRetriedHere(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504, 520} {
		server := serve(t, "127.0.0.1:0", says(fmt.Sprintf("HTTP/1.1 %d x\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n", status)))
		for range 3 {
			_, failure := client(t).Do(t.Context(), post(t, server.url("/"), "x"))
			require.Nil(t, failure)
		}
		require.Len(t, server.seen(), 3)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says(ok))
	c := client(t)
	for i := range 10 {
		r := get(t, server.url("/"))
		if i%2 == 1 {
			r = post(t, server.url("/"), "data")
		}
		_, failure := c.Do(t.Context(), r)
		require.Nil(t, failure)
	}
	require.Equal(t, 1, server.connections())

	// One host's failure does not cost the others their connections.
	dead := serve(t, "127.0.0.1:0", hangsUp(""))
	_, failure := c.Do(t.Context(), get(t, dead.url("/")))
	require.NotNil(t, failure)
	_, failure = c.Do(t.Context(), get(t, server.url("/")))
	require.Nil(t, failure)
	require.Equal(t, 1, server.connections())
}

func TestConnectionsOfAHostAreBounded(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int32
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := open.Add(1)
		for {
			seen := most.Load()
			if n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}
		if n == 3 {
			close(hold)
		}
		<-hold
		open.Add(-1)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	c := client(t, func(o *outbound.Options) { o.MaxConnsPerHost = 3 })
	done := make(chan *outbound.Failure, 12)
	r := get(t, server.URL+"/")
	for range 12 {
		go func() {
			_, failure := c.Do(t.Context(), r)
			done <- failure
		}()
	}
	for range 12 {
		require.Nil(t, <-done)
	}
	require.EqualValues(t, 3, most.Load())
}

// redirects answers with a Location.
func redirects(status int, to string) answer {
	return says(fmt.Sprintf("HTTP/1.1 %d x\r\nLocation: %s\r\nContent-Length: 3\r\n\r\nsee", status, to))
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, body string
		status       int
		then         string // method of the second request, "" = not followed
	}{
		"GET 301": {"GET", "", 301, "GET"}, "GET 302": {"GET", "", 302, "GET"}, "GET 303": {"GET", "", 303, "GET"}, "GET 307": {"GET", "", 307, "GET"}, "GET 308": {"GET", "", 308, "GET"},
		"HEAD 303": {"HEAD", "", 303, "HEAD"}, "HEAD 302": {"HEAD", "", 302, "HEAD"}, "OPTIONS 301": {"OPTIONS", "", 301, "OPTIONS"},
		"POST 301": {"POST", "data", 301, "GET"}, "POST 302": {"POST", "data", 302, "GET"}, "POST 303": {"POST", "data", 303, "GET"},
		"POST 307": {"POST", "data", 307, ""}, "POST 308": {"POST", "data", 308, ""}, "POST 307 without body": {"POST", "", 307, "POST"},
		"PUT 301": {"PUT", "data", 301, ""}, "PUT 303": {"PUT", "data", 303, "GET"}, "DELETE 302": {"DELETE", "", 302, ""}, "DELETE 308": {"DELETE", "", 308, "DELETE"},
		"GET 300": {"GET", "", 300, ""}, "GET 304": {"GET", "", 304, ""}, "GET 305": {"GET", "", 305, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := redirects(c.status, "/next?q=1#part")
			if c.method == "HEAD" || c.status == 304 {
				first = says(fmt.Sprintf("HTTP/1.1 %d x\r\nLocation: /next?q=1\r\n\r\n", c.status))
			}
			second := says(ok)
			if c.method == "HEAD" {
				second = says("HTTP/1.1 200 OK\r\n\r\n")
			}
			server := serve(t, "127.0.0.1:0", first, second)
			r := get(t, server.url("/first"))
			r.Method = c.method
			r.Headers.Set("X-Mine", "yes")
			r.Headers.Set("Idempotency-Key", "key")
			r.Headers.Set("Content-Type", "text/plain")
			if c.body != "" {
				r.Body = []byte(c.body)
			}
			resp, failure := client(t).Do(t.Context(), r)
			require.Nil(t, failure)
			if c.then == "" {
				require.Len(t, server.seen(), 1)
				require.Equal(t, outbound.Unfollowed, resp.Verdict)
				require.NotEmpty(t, resp.Headers.Get("Location"))
				return
			}
			require.Equal(t, 200, resp.Status)
			require.Len(t, server.seen(), 2)
			got := server.seen()[1]
			require.Equal(t, c.then, got.method)
			require.Equal(t, "/next?q=1", got.uri)
			require.Empty(t, got.body, "a body is sent once")
			require.Equal(t, "yes", got.header.Get("X-Mine"), "same scheme, host and port: headers stay")
			require.Empty(t, got.header.Get("Referer"))
			require.Equal(t, c.then == c.method, got.header.Get("Idempotency-Key") == "key")
			require.Equal(t, c.then == c.method, got.header.Get("Content-Type") == "text/plain")
			require.Equal(t, server.url("/next"), outbound.Where(resp.URL))
		})
	}
}

func TestRedirectsAreCounted(t *testing.T) {
	t.Parallel()
	for limit := range 5 {
		server := serve(t, "127.0.0.1:0", redirects(302, "/1"), redirects(302, "/2"), redirects(302, "/3"), says(ok))
		r := get(t, server.url("/0"))
		r.MaxRedirects = limit
		resp, failure := client(t).Do(t.Context(), r)
		if limit >= 3 {
			require.Nil(t, failure)
			require.Equal(t, 200, resp.Status)
			require.Equal(t, 1, server.connections(), "the bodies of redirects are drained")
			continue
		}
		require.NotNil(t, failure)
		require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause)
		require.True(t, failure.Terminal)
		require.Len(t, server.seen(), limit+1)
	}
}

func TestRedirectsWithoutAGoodLocation(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{"none": "", "empty": "Location: \r\n", "no URI": "Location: http://[::1\r\n", "bad escape": "Location: /%zz\r\n"} {
		server := serve(t, "127.0.0.1:0", says("HTTP/1.1 302 Found\r\n"+head+"Content-Length: 0\r\n\r\n"))
		resp, failure := client(t).Do(t.Context(), get(t, server.url("/")))
		require.Nil(t, failure, name)
		require.Equal(t, outbound.Unfollowed, resp.Verdict, name)
		require.NotEmpty(t, resp.Unfollowed, name)
	}
}

// TestRedirectsElsewhereCarryNothing: another scheme, host or port gets none of the headers, and is checked as a built URI.
func TestRedirectsElsewhereCarryNothing(t *testing.T) {
	t.Parallel()
	other := serve(t, "127.0.0.1:0", says(ok))
	server := serve(t, "127.0.0.1:0", redirects(302, "http://user:pass@"+other.address+"/b"))
	r := get(t, server.url("/a"))
	r.Headers.Set("Authorization", "Bearer secret")
	r.Headers.Set("X-Api-Key", "secret")
	_, failure := client(t).Do(t.Context(), r)
	require.Nil(t, failure)
	got := other.seen()[0].header
	require.Empty(t, got.Get("Authorization"))
	require.Empty(t, got.Get("X-Api-Key"))
	require.Equal(t, "nf", got.Get("User-Agent"))

	// Back home they stay dropped.
	var home *raw
	far := serve(t, "127.0.0.1:0", func(conn net.Conn, r request) bool { return redirects(302, home.url("/back"))(conn, r) })
	home = serve(t, "127.0.0.1:0", redirects(302, far.url("/")), says(ok))
	r = get(t, home.url("/a"))
	r.Headers.Set("X-Api-Key", "secret")
	_, failure = client(t).Do(t.Context(), r)
	require.Nil(t, failure)
	require.Len(t, home.seen(), 2)
	require.Empty(t, home.seen()[1].header.Get("X-Api-Key"))
}

func TestRedirectsToForbiddenPlaces(t *testing.T) {
	t.Parallel()
	for _, to := range []string{
		"http://127.0.0.1:PORT/", "//127.0.0.1:PORT/", "http://[::ffff:127.0.0.1]:PORT/", "http://127.1:PORT/", "http://localhost:PORT/", "http://2130706433:PORT/",
		"http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "gopher://127.0.0.1:PORT/", "ftp://127.0.0.1/", "javascript:1", "http:///x", "http://10.0.0.1/",
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			inner := serve(t, "127.0.0.1:0", says(ok))
			server := serve(t, "127.0.0.1:0", redirects(302, strings.ReplaceAll(to, "PORT", inner.port)))
			r := get(t, server.url("/"))
			origin, err := outbound.OriginOf(r.URL)
			require.NoError(t, err)
			r.Exempt = origin // a Target at a private address: its exemption covers its own origin alone
			_, failure := client(t, strict).Do(t.Context(), r)
			require.NotNil(t, failure)
			require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause, failure.Reason)
			require.Zero(t, inner.connections())
			require.Len(t, server.seen(), 1)
		})
	}
}

func TestRedirectFromHTTPSToHTTPIsRefused(t *testing.T) {
	t.Parallel()
	plain := serve(t, "127.0.0.1:0", says(ok))
	secure := httptest.NewTLSServer(http.RedirectHandler("http://"+plain.address+"/", http.StatusFound))
	t.Cleanup(secure.Close)
	c := client(t, func(o *outbound.Options) {
		o.RootCAs = secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs //nolint:forcetypeassert // httptest documents it
	})
	_, failure := c.Do(t.Context(), get(t, secure.URL+"/"))
	require.NotNil(t, failure)
	require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause)
	require.Contains(t, failure.Reason, "from https to http")
	require.Zero(t, plain.connections())
}

// TestNoProxy cannot be parallel: it sets the variables that other clients read.
func TestNoProxy(t *testing.T) {
	proxy := serve(t, "127.0.0.1:0", says(ok))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, "http://"+proxy.address)
	}
	t.Setenv("NO_PROXY", "")
	resolver := nameserver(t, func(string, int) []netip.Addr { return nil })
	_, failure := client(t, strict, func(o *outbound.Options) { o.Resolver = resolver }).Do(t.Context(), get(t, "http://service.example/"))
	require.NotNil(t, failure)
	require.Zero(t, proxy.connections())
}

func TestDialTarget(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says(ok))
	c := client(t, strict)
	conn, err := c.DialTarget(t.Context(), server.address)
	require.NoError(t, err, "a Target may be private")
	require.NoError(t, conn.Close())
	for _, address := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80", "0.0.0.0:80"} {
		_, err = c.DialTarget(t.Context(), address)
		var blocked *outbound.BlockedError
		require.ErrorAs(t, err, &blocked, address)
		require.True(t, blocked.Never)
	}
	for _, address := range []string{"", "x", "127.1:80", "host:", "unix:/tmp/socket"} {
		_, err = c.DialTarget(t.Context(), address)
		require.Error(t, err, address)
	}
}
