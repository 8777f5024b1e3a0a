package outbound_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

func TestNewChecksItsOptions(t *testing.T) {
	t.Parallel()
	_, err := outbound.New(outbound.Options{})
	require.ErrorContains(t, err, "clock")
	_, err = outbound.New(outbound.Options{Now: time.Now, MaxConnsPerHost: -1})
	require.Error(t, err)
}

// TestDNSRebinding: the name gives a harmless address when it is looked at and loopback when it is dialled; the guard sees what is
// dialled.
func TestDNSRebinding(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says(ok))
	resolver := nameserver(t, func(name string, nth int) []netip.Addr {
		switch {
		case name == "rebind.example." && nth == 1:
			return []netip.Addr{netip.MustParseAddr("0.0.0.1")} // never reachable, refused by the guard too
		case name == "mapped.example.":
			return []netip.Addr{netip.MustParseAddr("64:ff9b::7f00:1")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	c := client(t, strict, func(o *outbound.Options) { o.Resolver = resolver })
	for _, name := range []string{"rebind.example", "rebind.example", "direct.example", "mapped.example", "DIRECT.example."} {
		_, failure := c.Do(t.Context(), get(t, "http://"+name+":"+server.port+"/"))
		require.NotNil(t, failure, name)
		require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause, failure.Reason)
		require.NotContains(t, failure.Reason, "127.0.0.1", "what a name resolves to is nobody's business")
	}
	require.Zero(t, server.connections())
}

func TestAllowListAndLoopbackOpenADoor(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says(ok))
	resolver := nameserver(t, func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	allow := func(list string) func(*outbound.Options) {
		return func(o *outbound.Options) {
			hosts, err := outbound.ParseAllowedHosts(list)
			require.NoError(t, err)
			o.AllowedHosts, o.Resolver = hosts, resolver
		}
	}
	uri := "http://internal.example:" + server.port + "/"
	for list, want := range map[string]bool{
		"internal.example": true, "INTERNAL.example:" + server.port: true, "internal.example:1": false, "127.0.0.1": false, "": false,
	} {
		resp, failure := client(t, strict, allow(list)).Do(t.Context(), get(t, uri))
		if want {
			require.Nil(t, failure, list)
			require.Equal(t, "hi", string(resp.Body))
			continue
		}
		require.NotNil(t, failure, list)
		require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause)
	}
	resp, failure := client(t, allow("")).Do(t.Context(), get(t, uri))
	require.Nil(t, failure, "nf dev allows loopback")
	require.Equal(t, 200, resp.Status)

	// A listed host still may not be a metadata service.
	meta := nameserver(t, func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr("169.254.169.254")} })
	_, failure = client(t, allow("internal.example"), func(o *outbound.Options) { o.Resolver = meta }).Do(t.Context(), get(t, "http://internal.example/"))
	require.NotNil(t, failure)
	require.Contains(t, failure.Reason, "metadata")
}

// TestAnExemptConnectionIsNotLent: a connection that a Target's exemption opened stays idle in its pool; a built URI for the
// same host and port may not ride on it.
func TestAnExemptConnectionIsNotLent(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says(ok))
	c := client(t, strict)
	exempt := get(t, server.url("/"))
	origin, err := outbound.OriginOf(exempt.URL)
	require.NoError(t, err)
	exempt.Exempt = origin
	resp, failure := c.Do(t.Context(), exempt)
	require.Nil(t, failure)
	require.Equal(t, 200, resp.Status)
	_, failure = c.Do(t.Context(), get(t, server.url("/")))
	require.NotNil(t, failure)
	require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause)
	require.Len(t, server.seen(), 1)

	other := get(t, server.url("/"))
	other.Exempt = origin
	other.Exempt.Port = "1"
	_, failure = c.Do(t.Context(), other)
	require.NotNil(t, failure, "the exemption is for scheme, host and port")
}

// TestClassification holds contract 2.6 row by row, over raw sockets.
func TestClassification(t *testing.T) {
	t.Parallel()
	want := map[int]outbound.Verdict{408: outbound.Retryable, 425: outbound.Retryable, 429: outbound.Retryable, 500: outbound.Retryable, 501: outbound.Terminal, 502: outbound.Retryable, 503: outbound.Retryable, 504: outbound.Retryable}
	for status := range 1000 {
		expected, special := want[status]
		switch {
		case special:
		case status < 200 || status >= 600:
			expected = outbound.Malformed
		case status < 300:
			expected = outbound.Success
		case status < 400:
			expected = outbound.Unfollowed
		case status < 500:
			expected = outbound.Terminal
		case status <= 519:
			expected = outbound.Terminal
		default:
			expected = outbound.Retryable
		}
		require.Equal(t, expected, outbound.Classify(status), status)
	}
	for _, status := range []int{200, 201, 204, 226, 299, 300, 304, 305, 399, 400, 404, 408, 425, 429, 499, 500, 501, 503, 505, 519, 520, 599, 600, 799, 999, 101} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			length := "Content-Length: 4\r\n\r\nbody"
			if status == 204 || status == 304 || status == 101 {
				length = "\r\n"
			}
			server := serve(t, "127.0.0.1:0", says(fmt.Sprintf("HTTP/1.1 %d Whatever\r\nRetry-After: 7\r\n%s", status, length)))
			resp, failure := client(t).Do(t.Context(), get(t, server.url("/")))
			require.Nil(t, failure)
			require.Equal(t, status, resp.Status)
			require.Equal(t, outbound.Classify(status), resp.Verdict)
			require.Equal(t, resp.Verdict == outbound.Retryable, resp.HasMinWait, "Retry-After counts on a retryable status only")
			if resp.HasMinWait {
				require.Equal(t, schema.Millis(7000), resp.MinWait)
			}
			require.Len(t, server.seen(), 1)
		})
	}
}

func TestFC_044_RetryAfterHasACeiling(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0", says("HTTP/1.1 429 x\r\nRetry-After: 3\r\nRetry-After: 999999\r\nContent-Length: 0\r\n\r\n"))
	resp, failure := client(t).Do(t.Context(), get(t, server.url("/")))
	require.Nil(t, failure)
	require.Equal(t, day, resp.MinWait)
}

// TestNoAnswer: what is no answer at all is CONNECTION_FAILED, retryable, and was sent once.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer answer
		reason string
	}{
		"closed at once":               {hangsUp(""), "closed before the answer was complete"},
		"reset":                        {resets(""), "connection reset by peer"},
		"not HTTP":                     {hangsUp("SSH-2.0-OpenSSH_9.6\r\n"), "malformed HTTP"},
		"bad status":                   {hangsUp("HTTP/1.1 abc OK\r\n\r\n"), "malformed HTTP"},
		"1xx and no more":              {hangsUp("HTTP/1.1 100 Continue\r\n\r\n"), "closed before the answer was complete"},
		"1xx for ever":                 {hangsUp(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 50)), ""},
		"header cut":                   {hangsUp("HTTP/1.1 200 OK\r\nContent-Len"), ""},
		"header too large":             {hangsUp("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n"), ""},
		"body cut":                     {hangsUp("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "closed before the answer was complete"},
		"chunk cut":                    {hangsUp("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), "closed before the answer was complete"},
		"bad chunk":                    {hangsUp("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), ""},
		"two lengths":                  {hangsUp("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), ""},
		"reset in the body":            {resets("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), ""},
		"a body cut on a final status": {hangsUp("HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nabc"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, "127.0.0.1:0", c.answer)
			resp, failure := client(t).Do(t.Context(), post(t, server.url("/a?token=x"), "data"))
			require.Nil(t, resp)
			require.Equal(t, systemtasks.CauseConnectionFailed, failure.Cause, failure.Reason)
			require.False(t, failure.Terminal)
			require.True(t, failure.Sent)
			require.Contains(t, failure.Reason, "no answer from "+server.url("/a")+": ")
			require.Contains(t, failure.Reason, c.reason)
			require.NotContains(t, failure.Reason, "token")
			require.Len(t, server.seen(), 1)
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		_, failure := client(t).Do(t.Context(), get(t, "http://"+listener.Addr().String()+"/"))
		require.Equal(t, systemtasks.CauseConnectionFailed, failure.Cause)
		require.Equal(t, "no answer from http://"+listener.Addr().String()+"/: connection refused", failure.Reason)
		require.False(t, failure.Sent)
	})
	t.Run("no such name", func(t *testing.T) {
		t.Parallel()
		resolver := nameserver(t, func(string, int) []netip.Addr { return nil })
		_, failure := client(t, func(o *outbound.Options) { o.Resolver = resolver }).Do(t.Context(), get(t, "http://nobody.example/"))
		require.Equal(t, systemtasks.CauseConnectionFailed, failure.Cause)
		require.Equal(t, "no answer from http://nobody.example/: the host name does not resolve", failure.Reason)
	})
}

// TestFC_046_TLSFailuresAreClassifiedByType pins the types on the Go version in use.
func TestFC_046_TLSFailuresAreClassifiedByType(t *testing.T) {
	t.Parallel()
	selfSigned := httptest.NewUnstartedServer(http.NotFoundHandler())
	selfSigned.Config.ErrorLog = discardLog()
	selfSigned.StartTLS()
	t.Cleanup(selfSigned.Close)
	trusted := func(o *outbound.Options) {
		o.RootCAs = x509.NewCertPool()
		o.RootCAs.AddCert(selfSigned.Certificate())
		o.Resolver = nameserver(t, func(string, int) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	expired, pool := expiredServer(t)
	mute := serve(t, "127.0.0.1:0", hangsUp("not TLS at all"))
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.Config.ErrorLog = discardLog()
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10} // a server that is too old
	old.StartTLS()
	t.Cleanup(old.Close)
	_, port, err := net.SplitHostPort(selfSigned.Listener.Addr().String())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		uri, reason string
		change      func(*outbound.Options)
	}{
		"self-signed":   {selfSigned.URL, "signed by an unknown authority", func(*outbound.Options) {}},
		"another host":  {"https://other.name.invalid:" + port, "for another host", trusted},
		"expired":       {expired, "the certificate is not valid", func(o *outbound.Options) { o.RootCAs = pool }},
		"HTTP":          {"https://" + plain.Listener.Addr().String(), "does not speak TLS", func(*outbound.Options) {}},
		"hangs up":      {"https://" + mute.address, "closed before", func(*outbound.Options) {}},
		"TLS 1.1 alone": {old.URL, "protocol version not supported", func(*outbound.Options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, failure := client(t, c.change).Do(t.Context(), get(t, c.uri+"/"))
			require.NotNil(t, failure)
			require.Equal(t, systemtasks.CauseConnectionFailed, failure.Cause, failure.Reason)
			require.False(t, failure.Terminal)
			require.Contains(t, failure.Reason, c.reason)
			require.False(t, failure.Sent)
		})
	}
	resp, failure := client(t, func(o *outbound.Options) {
		o.RootCAs = x509.NewCertPool()
		o.RootCAs.AddCert(selfSigned.Certificate())
	}).Do(t.Context(), get(t, selfSigned.URL+"/"))
	require.Nil(t, failure)
	require.Equal(t, 404, resp.Status)
}

// expiredServer serves HTTPS with a certificate whose time is over; the pool trusts it.
func expiredServer(t *testing.T) (uri string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.AddDate(-20, 0, 0), NotAfter: now.AddDate(-19, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = discardLog()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	return server.URL, pool
}

func TestBG_77_TimeoutIsOurs(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answer{
		"no answer": func(conn net.Conn, _ request) bool { _, _ = io.Copy(io.Discard, conn); return false },
		"drip": func(conn net.Conn, _ request) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na")
			_, _ = io.Copy(io.Discard, conn)
			return false
		},
		"redirect drips": func(conn net.Conn, _ request) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 302 x\r\nLocation: /a\r\nContent-Length: 9\r\n\r\na")
			_, _ = io.Copy(io.Discard, conn)
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, "127.0.0.1:0", a)
			r := get(t, server.url("/slow?x=1"))
			r.Timeout = 300
			begun := time.Now()
			_, failure := client(t).Do(t.Context(), r)
			require.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
			require.Less(t, time.Since(begun), 20*time.Second, "no other time-out ends it")
			require.Equal(t, systemtasks.CauseCallTimeout, failure.Cause, failure.Reason)
			require.False(t, failure.Terminal)
			require.Contains(t, failure.Reason, "within 300 ms (timeoutMs)")
			require.True(t, failure.Sent)
			require.Len(t, server.seen(), 1)
		})
	}
}

func TestCancellationGivesNoVerdict(t *testing.T) {
	t.Parallel()
	came := make(chan struct{}, 1)
	server := serve(t, "127.0.0.1:0", silent(came))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-came
		cancel(errors.New("the execution ended"))
	}()
	_, failure := client(t).Do(ctx, get(t, server.url("/")))
	require.NotNil(t, failure)
	require.True(t, failure.Released())
	require.True(t, failure.Sent)

	_, failure = client(t).Do(ctx, get(t, server.url("/")))
	require.True(t, failure.Released())
	require.False(t, failure.Sent, "nothing was sent after the end")
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		limit  int64
		fits   bool
	}{
		"exactly":                 {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", 10, true},
		"one over, declared":      {"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890", 10, false},
		"declared, never sent":    {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 10, false},
		"one over, chunked":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n", 10, false},
		"one over, until closed":  {"HTTP/1.1 200 OK\r\n\r\n01234567890", 10, false},
		"exactly, until closed":   {"HTTP/1.1 200 OK\r\n\r\n0123456789", 10, true},
		"over on a retryable one": {"HTTP/1.1 503 x\r\nContent-Length: 11\r\n\r\n01234567890", 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, "127.0.0.1:0", hangsUp(c.answer))
			r := get(t, server.url("/"))
			r.MaxResponseBytes = c.limit
			resp, failure := client(t).Do(t.Context(), r)
			if c.fits {
				require.Nil(t, failure)
				require.Equal(t, "0123456789", string(resp.Body))
				return
			}
			require.Nil(t, resp)
			require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause, failure.Reason)
			require.True(t, failure.Terminal)
			require.Contains(t, failure.Reason, "larger than 10 bytes")
		})
	}
	t.Run("request", func(t *testing.T) {
		t.Parallel()
		server := serve(t, "127.0.0.1:0", says(ok))
		_, failure := client(t).Do(t.Context(), post(t, server.url("/"), strings.Repeat("x", outbound.MaxRequestBody+1)))
		require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause)
		resp, failure := client(t).Do(t.Context(), post(t, server.url("/"), strings.Repeat("x", outbound.MaxRequestBody)))
		require.Nil(t, failure)
		require.Equal(t, 200, resp.Status)
		require.Len(t, server.seen(), 1)
	})
	t.Run("HEAD says a length and has no body", func(t *testing.T) {
		t.Parallel()
		server := serve(t, "127.0.0.1:0", says("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"))
		r := get(t, server.url("/"))
		r.Method = http.MethodHead
		resp, failure := client(t).Do(t.Context(), r)
		require.Nil(t, failure)
		require.Empty(t, resp.Body)
	})
}
