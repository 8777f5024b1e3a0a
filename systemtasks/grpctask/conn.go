package grpctask

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"nf/systemtasks/outbound"
)

// The bounds of the kept connections.
const (
	maxConns       = 256
	idleTimeout    = 5 * time.Minute
	maxHeaderBytes = 256 << 10
)

// key names a connection.
type key struct {
	address string
	tls     bool
}

// conn is a connection to one address and what its users need to know of it.
type conn struct {
	key     key
	cc      *grpc.ClientConn
	dialled atomic.Pointer[error] // how the last dial failed; nil if it did not
	users   int                   // guarded by conns.mu, as the rest
	used    uint64
	dropped bool
}

// conns keeps one connection for each address. Safe for concurrent use.
type conns struct {
	client *outbound.Client
	mu     sync.Mutex
	open   map[key]*conn
	uses   uint64
	closed bool
}

func newConns(client *outbound.Client) *conns {
	return &conns{client: client, open: map[key]*conn{}}
}

// acquire gives the connection to an address. One that lost its server is replaced rather than waited for: gRPC would fail every
// call until its own growing back-off ends, while the retry policy has already waited.
func (s *conns) acquire(k key) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the task is closed")
	}
	s.uses++
	c := s.open[k]
	if c != nil {
		if state := c.cc.GetState(); state == connectivity.TransientFailure || state == connectivity.Shutdown {
			s.drop(c)
			c = nil
		}
	}
	if c == nil {
		var err error
		if c, err = s.dial(k); err != nil {
			return nil, err
		}
		s.open[k] = c
		s.trim()
	}
	c.users++
	c.used = s.uses
	return c, nil
}

// release gives a connection back.
func (s *conns) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	if c.dropped && c.users == 0 {
		_ = c.cc.Close()
	}
	s.trim()
}

// drop takes a connection out of use; it is closed once nobody uses it.
func (s *conns) drop(c *conn) {
	delete(s.open, c.key)
	c.dropped = true
	if c.users == 0 {
		_ = c.cc.Close()
	}
}

// trim drops connections that nobody uses, oldest use first, while there are too many.
func (s *conns) trim() {
	for len(s.open) > maxConns {
		var oldest *conn
		for _, c := range s.open {
			if c.users == 0 && (oldest == nil || c.used < oldest.used) {
				oldest = c
			}
		}
		if oldest == nil {
			return
		}
		s.drop(oldest)
	}
}

// close closes all connections.
func (s *conns) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, c := range s.open {
		errs = append(errs, c.cc.Close())
	}
	clear(s.open)
	return errors.Join(errs...)
}

// dial makes a connection, which gRPC opens with the first call.
func (s *conns) dial(k key) (*conn, error) {
	if err := outbound.CheckAddress(k.address); err != nil {
		return nil, fmt.Errorf("%q: %w", k.address, err)
	}
	c := &conn{key: k}
	creds := insecure.NewCredentials()
	if k.tls {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.client.RootCAs()})
	}
	cc, err := grpc.NewClient("passthrough:///"+k.address,
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := s.client.DialTarget(ctx, address)
			if c.dialled.Store(nil); err != nil {
				c.dialled.Store(&err)
			}
			return nc, err
		}),
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithUserAgent(outbound.UserAgent),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithStatsHandler(observer{}),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	c.cc = cc
	return c, nil
}

// trace is what one call did on the wire. It travels in the call's context and doubles as its credentials, because gRPC asks those
// right before it writes a request: the one place where a second sending can be refused.
type trace struct {
	sent     atomic.Bool // a request may have left the process
	written  atomic.Bool // its headers were handed to the connection
	refused  atomic.Bool // a second sending was refused
	answered atomic.Bool // the server sent headers or a status
}

type traceKey struct{}

func withTrace(ctx context.Context, t *trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t *trace) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if t.written.Load() {
		t.refused.Store(true)
		return nil, status.Error(codes.Unavailable, "the server refused the request before it looked at it")
	}
	t.sent.Store(true)
	return nil, nil //nolint:nilnil // no metadata, no error
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: nothing secret is in it.
func (*trace) RequireTransportSecurity() bool { return false }

// observer writes what happens on a connection into the trace of the call.
type observer struct{}

// TagRPC implements stats.Handler.
func (observer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (observer) HandleRPC(ctx context.Context, event stats.RPCStats) {
	t, ok := ctx.Value(traceKey{}).(*trace)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutHeader:
		t.written.Store(true)
	case *stats.InHeader, *stats.InTrailer:
		t.answered.Store(true)
	}
}

// TagConn implements stats.Handler.
func (observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (observer) HandleConn(context.Context, stats.ConnStats) {}
