package outbound

import (
	"encoding/binary"
	"net/netip"
)

// Trust says how far an address may lie.
type Trust int

// The kinds of trust, from least to most.
const (
	// TrustNone is for URIs that are built or literal: only globally reachable addresses.
	TrustNone Trust = iota
	// TrustLoopback is TrustNone and loopback: `nf dev`.
	TrustLoopback
	// TrustDeclared is for a Target's own origin and hosts that an operator lists: every address but those of the never list.
	TrustDeclared
)

// Forbidden says why an address may not be dialled, "" if it may. The address may be in any of the forms that carry an IPv4
// address inside (mapped, compatible, translated, NAT64, 6to4, Teredo): every address inside must be allowed, as must be the form itself.
func Forbidden(addr netip.Addr, trust Trust) string {
	addr = addr.WithZone("")
	if inner := embedded(addr); len(inner) > 0 {
		for _, v4 := range inner {
			if why := forbiddenPlain(v4, trust); why != "" {
				return why
			}
		}
		return ""
	}
	return forbiddenPlain(addr, trust)
}

// forbiddenPlain judges an address that carries no other one inside.
func forbiddenPlain(addr netip.Addr, trust Trust) string {
	for _, p := range neverBlocks {
		if p.prefix.Contains(addr) {
			return p.what
		}
	}
	if trust == TrustDeclared || trust == TrustLoopback && addr.IsLoopback() {
		return ""
	}
	if addr.Is6() && !globalUnicast6.Contains(addr) {
		return outside6(addr)
	}
	why := ""
	bits := -1
	for _, p := range specialBlocks { // the longest prefix decides, as in a routing table
		if p.prefix.Contains(addr) && p.prefix.Bits() > bits {
			why, bits = p.what, p.prefix.Bits()
		}
	}
	return why
}

// outside6 says what an IPv6 address outside global unicast is.
func outside6(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		return loopback
	case addr.IsLinkLocalUnicast():
		return linkLocal
	case addr.IsPrivate():
		return private
	}
	return reserved
}

// block is a range of addresses and what it is; an empty text marks a globally reachable range inside a larger one that is not.
type block struct {
	prefix netip.Prefix
	what   string
}

// globalUnicast6 is the only part of IPv6 that is given out for global unicast.
var globalUnicast6 = netip.MustParsePrefix("2000::/3")

// neverBlocks is refused for Targets and listed hosts too (contract 2.7).
var neverBlocks = [...]block{
	{netip.MustParsePrefix("169.254.169.254/32"), metadataService},
	{netip.MustParsePrefix("169.254.170.2/32"), metadataService},
	{netip.MustParsePrefix("169.254.170.23/32"), metadataService},
	{netip.MustParsePrefix("168.63.129.16/32"), metadataService},
	{netip.MustParsePrefix("100.100.100.200/32"), metadataService},
	{netip.MustParsePrefix("192.0.0.192/32"), metadataService},
	{netip.MustParsePrefix("fd00:ec2::254/128"), metadataService},
	{netip.MustParsePrefix("fd00:ec2::23/128"), metadataService},
	{netip.MustParsePrefix("fd20:ce::254/128"), metadataService},
	{netip.MustParsePrefix("0.0.0.0/8"), "the unspecified address"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
}

const (
	metadataService = "a cloud metadata service"
	private         = "a private address"
	loopback        = "a loopback address"
	linkLocal       = "a link-local address"
	reserved        = "not globally reachable"
)

// specialBlocks holds the ranges of the IANA special-purpose registries that are not globally reachable, and the exceptions inside.
var specialBlocks = [...]block{
	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared address (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.0.0.0/24"), reserved},
	{netip.MustParsePrefix("192.0.0.9/32"), ""},
	{netip.MustParsePrefix("192.0.0.10/32"), ""},
	{netip.MustParsePrefix("192.0.2.0/24"), reserved},
	{netip.MustParsePrefix("192.88.99.0/24"), reserved},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("198.18.0.0/15"), reserved},
	{netip.MustParsePrefix("198.51.100.0/24"), reserved},
	{netip.MustParsePrefix("203.0.113.0/24"), reserved},
	{netip.MustParsePrefix("240.0.0.0/4"), reserved},
	{netip.MustParsePrefix("2001::/23"), reserved},
	{netip.MustParsePrefix("2001:1::1/128"), ""},
	{netip.MustParsePrefix("2001:1::2/128"), ""},
	{netip.MustParsePrefix("2001:1::3/128"), ""},
	{netip.MustParsePrefix("2001:3::/32"), ""},
	{netip.MustParsePrefix("2001:4:112::/48"), ""},
	{netip.MustParsePrefix("2001:20::/28"), ""},
	{netip.MustParsePrefix("2001:30::/28"), ""},
	{netip.MustParsePrefix("2001:db8::/32"), reserved},
	{netip.MustParsePrefix("3fff::/20"), reserved},
}

var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// embedded gives the IPv4 addresses inside an IPv6 address, none if its form carries none.
func embedded(addr netip.Addr) []netip.Addr {
	if addr.Is4() {
		return nil
	}
	if addr.Is4In6() {
		return []netip.Addr{addr.Unmap()}
	}
	b := addr.As16()
	at := func(i, j, k, l int) netip.Addr { return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]}) }
	switch {
	case addr.IsUnspecified(), addr.IsLoopback():
		return nil
	case compatible.Contains(addr), translated.Contains(addr), nat64.Contains(addr):
		return []netip.Addr{at(12, 13, 14, 15)}
	case sixToFour.Contains(addr):
		return []netip.Addr{at(2, 3, 4, 5)}
	case teredo.Contains(addr):
		var client [4]byte
		binary.BigEndian.PutUint32(client[:], ^binary.BigEndian.Uint32(b[12:]))
		return []netip.Addr{at(4, 5, 6, 7), netip.AddrFrom4(client)}
	case nat64Local.Contains(addr):
		return nat64Inner(b, at)
	}
	return nil
}

// nat64Inner gives the addresses that one of 64:ff9b:1::/48 may carry. The network behind it may use a prefix of 48, 56, 64 or
// 96 bits (RFC 6052), which the address does not tell; every reading whose unused bits are zero counts, and it is never empty.
func nat64Inner(b [16]byte, at func(i, j, k, l int) netip.Addr) []netip.Addr {
	zero := func(from int) bool {
		for _, c := range b[from:] {
			if c != 0 {
				return false
			}
		}
		return b[8] == 0
	}
	var inner []netip.Addr
	add := func(a netip.Addr) {
		if !a.IsUnspecified() {
			inner = append(inner, a)
		}
	}
	add(at(12, 13, 14, 15))
	if zero(11) {
		add(at(6, 7, 9, 10))
	}
	if zero(12) {
		add(at(7, 9, 10, 11))
	}
	if zero(13) {
		add(at(9, 10, 11, 12))
	}
	if len(inner) == 0 {
		inner = append(inner, netip.IPv4Unspecified())
	}
	return inner
}
