package outbound_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"nf/systemtasks/outbound"
)

// raw is a TCP server that answers with bytes, since what it must say no HTTP library would write.
type raw struct {
	address string
	port    string

	mu       sync.Mutex
	conns    int
	requests []request
}

type request struct {
	method, uri, host string
	header            http.Header
	body              string
}

// answer is what a server does with one request: it writes, and may close.
type answer func(conn net.Conn, r request) (keep bool)

// serve starts a server on an address ("127.0.0.1:0") that gives the answers in order, the last one again and again.
func serve(t *testing.T, on string, answers ...answer) *raw {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", on)
	require.NoError(t, err)
	s := &raw{address: listener.Addr().String()}
	_, s.port, err = net.SplitHostPort(s.address)
	require.NoError(t, err)
	var running sync.WaitGroup
	var open sync.Map
	t.Cleanup(func() {
		_ = listener.Close()
		open.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true }) //nolint:forcetypeassert // only those are in it
		running.Wait()
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			running.Go(func() { s.handle(conn, answers) })
		}
	})
	return s
}

func (s *raw) handle(conn net.Conn, answers []answer) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	s.conns++
	s.mu.Unlock()
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r := request{method: req.Method, uri: req.RequestURI, host: req.Host, header: req.Header, body: string(body)}
		s.mu.Lock()
		n := len(s.requests)
		s.requests = append(s.requests, r)
		s.mu.Unlock()
		if !answers[min(n, len(answers)-1)](conn, r) {
			return
		}
	}
}

func (s *raw) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

func (s *raw) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *raw) url(path string) string { return "http://" + s.address + path }

// says writes a text and keeps the connection.
func says(text string) answer {
	return func(conn net.Conn, _ request) bool {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
}

// hangsUp writes a text and closes the connection.
func hangsUp(text string) answer {
	return func(conn net.Conn, _ request) bool {
		_, _ = io.WriteString(conn, text)
		return false
	}
}

// resets ends the connection with a reset.
func resets(text string) answer {
	return func(conn net.Conn, _ request) bool {
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // all of them are
		return false
	}
}

// silent never answers; the channel says that a request came in.
func silent(came chan<- struct{}) answer {
	return func(conn net.Conn, _ request) bool {
		came <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
		return false
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

// client makes a client that may reach loopback, unless changed.
func client(t *testing.T, change ...func(*outbound.Options)) *outbound.Client {
	t.Helper()
	opts := outbound.Options{Now: func() time.Time { return now }, AllowLoopback: true}
	for _, f := range change {
		f(&opts)
	}
	c, err := outbound.New(opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func strict(o *outbound.Options) { o.AllowLoopback = false }

// get is a GET without anything special.
func get(t *testing.T, uri string) outbound.Request {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return outbound.Request{
		Method: http.MethodGet, URL: u, Headers: http.Header{"User-Agent": {"nf"}},
		MaxRedirects: 3, MaxResponseBytes: outbound.MaxResponseBody, Timeout: 20_000,
	}
}

func post(t *testing.T, uri, body string) outbound.Request {
	t.Helper()
	r := get(t, uri)
	r.Method, r.Body = http.MethodPost, []byte(body)
	r.Headers.Set("Idempotency-Key", "ns/exec/ref/0")
	return r
}

// nameserver answers every A and AAAA question of a name with the next of its addresses.
func nameserver(t *testing.T, answers func(name string, nth int) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { _ = conn.Close(); running.Wait() })
	running.Go(func() {
		asked := map[string]int{}
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(buffer[:n]) != nil || len(q.Questions) != 1 {
				continue
			}
			question := q.Questions[0]
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true}, Questions: q.Questions}
			name := question.Name.String()
			if question.Type == dnsmessage.TypeA {
				asked[name]++
			}
			for _, addr := range answers(name, max(asked[name], 1)) {
				header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET}
				switch {
				case addr.Is4() && question.Type == dnsmessage.TypeA:
					reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
				case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
					reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
				}
			}
			packed, err := reply.Pack()
			if err != nil {
				continue
			}
			_, _ = conn.WriteTo(packed, from)
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
