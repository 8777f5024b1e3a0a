package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Options configures a Client. Now is required.
type Options struct {
	// Now reads the process's clock. It is asked only for a Retry-After date in an answer without a Date.
	Now func() time.Time
	// AllowedHosts may be reached by built URIs although they are private (NF_HTTP_ALLOWED_HOSTS).
	AllowedHosts AllowedHosts
	// AllowLoopback lets every URI reach loopback addresses: `nf dev`.
	AllowLoopback bool
	// Resolver looks up names; nil is the system's.
	Resolver *net.Resolver
	// RootCAs verifies servers; nil is the system's set.
	RootCAs *x509.CertPool
	// MaxConnsPerHost bounds the connections to one host and port in each pool; 0 is 256.
	MaxConnsPerHost int
}

// Client is the only HTTP client of the runner. It needs New. Safe for concurrent use.
type Client struct {
	now      func() time.Time
	rootCAs  *x509.CertPool
	declared *dialer
	// pools by kind of trust: a connection opened under one is never used under another.
	pools map[poolKey]*pool
}

// poolKey names a pool of connections: of a Target's own origin, or of everything else; kept for more requests, or fresh for each.
type poolKey struct{ exempt, fresh bool }

// pool is one retrying client, told never to retry, over one transport.
type pool struct {
	client    *retryablehttp.Client
	transport *http.Transport
}

// New makes a client.
func New(opts Options) (*Client, error) {
	if opts.Now == nil {
		return nil, errors.New("making the outbound client: no clock is given")
	}
	if opts.MaxConnsPerHost < 0 {
		return nil, fmt.Errorf("making the outbound client: %d connections per host", opts.MaxConnsPerHost)
	}
	trust := TrustNone
	if opts.AllowLoopback {
		trust = TrustLoopback
	}
	guarded := &dialer{trust: trust, allowed: opts.AllowedHosts, resolver: opts.Resolver}
	declared := &dialer{trust: TrustDeclared, resolver: opts.Resolver}
	c := &Client{now: opts.Now, rootCAs: opts.RootCAs, declared: declared, pools: map[poolKey]*pool{}}
	for _, fresh := range []bool{false, true} {
		c.pools[poolKey{exempt: false, fresh: fresh}] = newPool(guarded, opts, fresh)
		c.pools[poolKey{exempt: true, fresh: fresh}] = newPool(declared, opts, fresh)
	}
	return c, nil
}

// The limits of a pool.
const (
	defaultConnsPerHost = 256
	maxIdle             = 512
	maxIdlePerHost      = 32
	idleTimeout         = 30 * time.Second
	maxHeaderBytes      = 256 << 10
)

// newPool makes a pool. HTTP/1.1 only: there every request has a connection for itself, so that "sent once" can be kept without
// trusting the retries that HTTP/2 stacks make by themselves.
func newPool(d *dialer, opts Options, fresh bool) *pool {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	perHost := opts.MaxConnsPerHost
	if perHost == 0 {
		perHost = defaultConnsPerHost
	}
	transport := &http.Transport{
		Proxy:                  nil, // none from the environment (contract 2.7)
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.RootCAs, NextProtos: []string{"http/1.1"}},
		TLSHandshakeTimeout:    dialTimeout,
		DisableKeepAlives:      fresh,
		DisableCompression:     true, // the limit is on bytes as received
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    min(maxIdlePerHost, perHost),
		MaxConnsPerHost:        perHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
	}
	client := &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     roundTripper{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     0,
		CheckRetry:   func(context.Context, *http.Response, error) (bool, error) { return false, nil },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return &pool{client: client, transport: transport}
}

// Close closes idle connections. Calls under way go on.
func (c *Client) Close() {
	for _, p := range c.pools {
		p.transport.CloseIdleConnections()
	}
}

// Now reads the clock that the client was given.
func (c *Client) Now() time.Time { return c.now() }

// RootCAs gives the authorities that the client trusts, nil for the system's.
func (c *Client) RootCAs() *x509.CertPool { return c.rootCAs }

// DialTarget connects to host:port of a declared Target: any address but those of the never list. It is the door of gRPC.
func (c *Client) DialTarget(ctx context.Context, address string) (net.Conn, error) {
	return c.declared.DialContext(ctx, "tcp", address)
}

// hop is one request of a call.
type hop struct {
	method  string
	url     *url.URL
	origin  Origin
	headers http.Header
	body    []byte // nil = none
	exempt  bool   // the Target's own origin
}

// send makes one request and gives its answer with the body unread. sent is set once a connection is at hand.
func (c *Client) send(ctx context.Context, h hop, sent *atomic.Bool) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), h.method, h.url.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("building the request: %w", err)
	}
	req.URL = h.url
	req.Header = h.headers
	req.GetBody = nil
	fresh := false
	switch {
	case h.body != nil:
		// Without GetBody nothing beneath can read the body a second time (X17).
		req.Body = io.NopCloser(bytes.NewReader(h.body))
		req.ContentLength = int64(len(h.body))
		if len(h.body) == 0 {
			req.Body, fresh = http.NoBody, true
		}
	case h.method == http.MethodPost || h.method == http.MethodPut || h.method == http.MethodPatch:
		// The transport would send such a request again over a new connection if a kept one turned out dead, and a body that
		// hides its emptiness would be sent chunked. On a connection of its own nothing is repeated.
		fresh = true
	default:
		// A body that only turns out empty when read is sent as none, but keeps the transport from sending twice.
		req.Body = emptyBody{}
	}
	p := c.pools[poolKey{exempt: h.exempt, fresh: fresh}]
	resp, err := p.client.Do(&retryablehttp.Request{Request: req})
	if err != nil {
		return nil, err
	}
	if location, ok := resp.Header[hiddenLocation]; ok {
		delete(resp.Header, hiddenLocation)
		resp.Header["Location"] = location
	}
	return resp, nil
}

// roundTripper keeps the standard client from acting on redirects, which it does even when told not to follow them: it reads
// Location, and an unreadable one makes the whole answer an error. It also keeps the retrying client, which closes the idle
// connections of all hosts whenever one request fails, from doing so.
type roundTripper struct{ transport *http.Transport }

// hiddenLocation is a key that no header read from the network has: a colon ends a name.
const hiddenLocation = "Location: hidden"

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if location, ok := resp.Header["Location"]; ok {
		delete(resp.Header, "Location")
		resp.Header[hiddenLocation] = location
	}
	return resp, nil
}

// emptyBody is a body of no bytes that is not known to be empty.
type emptyBody struct{}

// Read implements io.Reader.
func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (emptyBody) Close() error { return nil }
