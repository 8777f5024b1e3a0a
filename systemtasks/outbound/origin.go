package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Origin is what a Target's exemption and the headers of a call are bound to: scheme, host and port in canonical form. Two
// spellings of one origin are equal.
type Origin struct {
	Scheme string // http or https
	Host   string // lower case, ASCII, no trailing dot; an IP address in its canonical form
	Port   string // decimal, never empty
}

// HostPort gives host:port, an IPv6 host in brackets.
func (o Origin) HostPort() string { return net.JoinHostPort(o.Host, o.Port) }

// OriginOf gives the canonical origin of a URI, or says why it cannot be called.
func OriginOf(u *url.URL) (Origin, error) {
	scheme := strings.ToLower(u.Scheme)
	if scheme != "http" && scheme != "https" {
		return Origin{}, fmt.Errorf("the scheme of a URI must be http or https, not %q", u.Scheme)
	}
	if u.Opaque != "" || u.Host == "" {
		return Origin{}, errors.New("the URI names no host")
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return Origin{}, err
	}
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return Origin{}, errors.New("the URI has an empty port")
		}
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	if port, err = canonicalPort(port); err != nil {
		return Origin{}, err
	}
	return Origin{Scheme: scheme, Host: host, Port: port}, nil
}

// canonicalPort reads a port of 1–65535.
func canonicalPort(s string) (string, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("%q is not a port", s)
	}
	return strconv.FormatUint(n, 10), nil
}

// canonicalHost gives the one form of a host. Numbers that some resolvers read as an IPv4 address (decimal, octal, hexadecimal,
// short forms) are refused: what is not dotted decimal in its usual form is no address, and a name cannot end in a number.
func canonicalHost(host string) (string, error) {
	if strings.ContainsRune(host, '%') && !strings.ContainsRune(host, ':') {
		return "", fmt.Errorf("%q is not a host", host)
	}
	if strings.ContainsRune(host, ':') {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "", fmt.Errorf("%q is not an IP address", host)
		}
		return addr.String(), nil
	}
	ascii := strings.ToLower(host)
	if !isPlainName(ascii) {
		var err error
		if ascii, err = idna.Lookup.ToASCII(host); err != nil {
			return "", fmt.Errorf("%q is not a host", host)
		}
	}
	ascii = strings.TrimSuffix(ascii, ".")
	if !isPlainName(ascii) || len(ascii) > 253 || slices.Contains(strings.Split(ascii, "."), "") {
		return "", fmt.Errorf("%q is not a host", host)
	}
	last := ascii[strings.LastIndexByte(ascii, '.')+1:]
	if !looksNumeric(last) {
		return ascii, nil
	}
	addr, err := netip.ParseAddr(ascii)
	if err != nil {
		return "", fmt.Errorf("%q is not an IP address: write four decimal numbers without leading zeros", host)
	}
	return addr.String(), nil
}

// isPlainName says that a host holds only what host names hold in practice.
func isPlainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// looksNumeric says that a last label makes resolvers read the whole host as an IPv4 address.
func looksNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// AllowedHosts lists the hosts that an operator lets built URIs reach although they are private (NF_HTTP_ALLOWED_HOSTS). The
// zero value lists none.
type AllowedHosts struct{ set map[string]bool }

// ParseAllowedHosts reads a comma-separated list of exact `host` or `host:port`. IPv6 addresses with a port stand in brackets.
func ParseAllowedHosts(list string) (AllowedHosts, error) {
	set := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		key, err := parseAllowed(entry)
		if err != nil {
			return AllowedHosts{}, fmt.Errorf("reading the list of allowed hosts: %q: %w", entry, err)
		}
		set[key] = true
	}
	return AllowedHosts{set: set}, nil
}

func parseAllowed(entry string) (string, error) {
	if strings.ContainsAny(entry, "/*@ ") {
		return "", errors.New("an exact host or host:port is wanted, without scheme, path or wildcard")
	}
	if _, err := netip.ParseAddr(entry); err == nil {
		return canonicalHost(entry)
	}
	if inner, ok := strings.CutPrefix(entry, "["); ok && strings.HasSuffix(inner, "]") {
		return canonicalHost(strings.TrimSuffix(inner, "]"))
	}
	if !strings.ContainsRune(entry, ':') {
		return canonicalHost(entry)
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		return "", errors.New("not host:port")
	}
	if host, err = canonicalHost(host); err != nil {
		return "", err
	}
	if port, err = canonicalPort(port); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

// Has says that the host of an origin is listed, with its port or without one.
func (a AllowedHosts) Has(host, port string) bool {
	return a.set[host] || a.set[net.JoinHostPort(host, port)]
}
