package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// BlockedError says that an address may not be called. It names the host as the caller wrote it, never the address that a name
// resolved to: an answer must not become a way to read somebody's DNS.
type BlockedError struct {
	Host string
	What string // such as "a private address"
	// Never says that no declaration can help: the address is of the never list.
	Never bool
}

// Error implements error.
func (e *BlockedError) Error() string {
	if e.Never {
		return fmt.Sprintf("the host %s is %s, which no call may reach", e.Host, e.What)
	}
	return fmt.Sprintf("the host %s is %s: declare a Target for it, or list it in NF_HTTP_ALLOWED_HOSTS", e.Host, e.What)
}

// dialTimeout bounds one connection attempt to one address; the call's own timeout usually comes first.
const dialTimeout = 30 * time.Second

// dialer opens connections to addresses that its trust allows. It is immutable.
type dialer struct {
	trust    Trust
	allowed  AllowedHosts
	resolver *net.Resolver
}

// DialContext connects to host:port. The check runs on each address right before it is dialled.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("dialling %q: %w", address, err)
	}
	trust := d.trust
	if trust < TrustDeclared && d.allowed.Has(host, port) {
		trust = TrustDeclared
	}
	guarded := net.Dialer{Timeout: dialTimeout, Resolver: d.resolver}
	guarded.ControlContext = func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(dialled)
		if err != nil {
			return fmt.Errorf("reading the address to dial: %w", err)
		}
		if what := Forbidden(addr.Addr(), trust); what != "" {
			return &BlockedError{Host: host, What: what, Never: Forbidden(addr.Addr(), TrustDeclared) != ""}
		}
		return nil
	}
	return guarded.DialContext(ctx, network, net.JoinHostPort(host, port))
}

// splitAddress reads host:port, both in canonical form.
func splitAddress(address string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", errors.New("it is not host:port")
	}
	if host, err = canonicalHost(host); err != nil {
		return "", "", err
	}
	port, err = canonicalPort(port)
	return host, port, err
}

// CheckAddress says what is wrong with the host:port of a gRPC Target. A scheme, a path, a socket or a list is.
func CheckAddress(address string) error {
	_, _, err := splitAddress(address)
	return err
}
