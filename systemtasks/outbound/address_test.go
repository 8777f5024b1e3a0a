package outbound_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// forbidden are hosts that a built URI may not name, in every spelling that some stack understands. PORT is that of a server
// on loopback which must not see a connection.
var forbidden = []string{
	// Loopback.
	"127.0.0.1", "127.0.0.2", "127.255.255.254", "[::1]", "[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.",
	// Numbers that resolvers read as loopback.
	"2130706433", "017700000001", "0x7f000001", "0X7F000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "127.00.0.1",
	"0x7f.1", "0177.1", "127.0x1", "127.0.0.0x1", "0", "0.0.0.0", "[::]", "1.2.3.4.5", "127.0.0.1.1", "0x", "256.0.0.1", "4294967295",
	"１２７.０.０.１", "127。0。0。1", "①②⑦.⓪.⓪.①", "ⓛocalhost",
	// IPv4 inside IPv6.
	"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::7f00:1]", "[::ffff:0:127.0.0.1]",
	"[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::127.0.0.1]", "[64:ff9b:1:7f00:0:100::]", "[64:ff9b:1:7f:0:1::]", "[64:ff9b:1:0:7f:0:100:0]",
	"[2002:7f00:1::1]", "[2002:7f00:0001::]", "[2001:0:7f00:1::]", "[2001::80ff:fffe]", "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
	"[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[2002:0a00:1::1]", "[64:ff9b:1::a9fe:a9fe]",
	// Private, link-local, shared, reserved.
	"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.1.1", "100.64.0.1", "100.127.255.255",
	"192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "240.0.0.1", "255.255.255.255",
	"224.0.0.1", "239.255.255.250", "[ff02::1]", "[ff0e::1]",
	"[fe80::1]", "[fe80::1%25lo]", "[::1%25lo]", "[fec0::1]", "[fc00::1]", "[fd12:3456::1]", "[100::1]", "[2001:db8::1]", "[2001:2::1]", "[2001:10::1]",
	"[3fff::1]", "[5f00::1]", "[4000::1]", "[::2]",
	// Metadata services.
	"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192", "[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]",
	"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]",
	// Hosts that are none.
	"", "[::1", "::1", "[::1]x", "[v1.x]", "a b", "127.0.0.1%00", "%31%32%37.0.0.1", "127.0.0.1\\@example.org", ".", "..", "a..b", ".a",
}

// TestForbiddenAddressesInEveryForm: no built URI reaches them, whatever the spelling, with a real server behind those that
// mean this machine.
func TestForbiddenAddressesInEveryForm(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(forbidden), 50)
	server := serve(t, "127.0.0.1:0", says(ok))
	c := client(t, strict)
	for _, host := range forbidden {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse("http://" + host + ":" + server.port + "/")
			if err != nil {
				return // not even a URI
			}
			r := get(t, "http://example.invalid/")
			r.URL, r.Timeout = u, 5000
			resp, failure := c.Do(t.Context(), r)
			require.Nil(t, resp)
			require.Equal(t, systemtasks.CauseInvalidRequest, failure.Cause, failure.Reason)
			require.True(t, failure.Terminal)
			require.False(t, failure.Sent)
		})
	}
	t.Cleanup(func() { require.Zero(t, server.connections(), "a forbidden address was connected to") })
}

func TestGloballyReachableAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0", "192.0.0.9", "192.0.0.10", "192.0.1.0", "192.31.196.1", "192.52.193.1", "192.175.48.1", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "64:ff9b:1::808:808", "64:ff9b:1:808:8:800::", "2002:808:808::1",
		"2001:0:808:808:0:0:f7f7:f7f7", "2001:1::1", "2001:3::1", "2001:4:112::1", "2001:20::1", "2001:30::1", "2001:200::1", "2606:4700::1111", "2a00:1450::1", "2620:4f:8000::1",
	} {
		for _, trust := range []outbound.Trust{outbound.TrustNone, outbound.TrustLoopback, outbound.TrustDeclared} {
			require.Empty(t, outbound.Forbidden(netip.MustParseAddr(text), trust), text)
		}
	}
}

// TestNeverList: what no declaration opens, in plain form and inside others.
func TestNeverList(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
		"0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "239.1.2.3", "ff02::1", "255.255.255.255",
	} {
		forms := []string{text}
		if addr := netip.MustParseAddr(text); addr.Is4() {
			b := addr.As4()
			hex := fmt.Sprintf("%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
			inverted := fmt.Sprintf("%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])
			forms = append(forms, "::ffff:"+hex, "64:ff9b::"+hex, "64:ff9b:1::"+hex, "2002:"+hex+"::1", "2001:0:"+hex+"::1", "2001:0:808:808::"+inverted)
			if b[0] != 0 {
				forms = append(forms, "::"+hex)
			}
		}
		for _, form := range forms {
			for _, trust := range []outbound.Trust{outbound.TrustNone, outbound.TrustLoopback, outbound.TrustDeclared} {
				require.NotEmpty(t, outbound.Forbidden(netip.MustParseAddr(form), trust), form)
			}
		}
	}
}

func TestTrustOpensWhatItNamesAndNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr                     string
		none, loopback, declared bool
	}{
		{"8.8.8.8", true, true, true},
		{"127.0.0.1", false, true, true},
		{"127.8.9.1", false, true, true},
		{"::1", false, true, true},
		{"::ffff:127.0.0.1", false, true, true},
		{"10.0.0.1", false, false, true},
		{"fe80::1%eth0", false, false, true},
		{"fd12::1", false, false, true},
		{"169.254.1.1", false, false, true},
		{"169.254.169.254", false, false, false},
		{"fd00:ec2::254%eth0", false, false, false},
		{"0.0.0.0", false, false, false},
	} {
		addr := netip.MustParseAddr(c.addr)
		require.Equal(t, c.none, outbound.Forbidden(addr, outbound.TrustNone) == "", c.addr)
		require.Equal(t, c.loopback, outbound.Forbidden(addr, outbound.TrustLoopback) == "", c.addr)
		require.Equal(t, c.declared, outbound.Forbidden(addr, outbound.TrustDeclared) == "", c.addr)
	}
}

func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	list, err := outbound.ParseAllowedHosts(" internal.example , Other.Example.:8080,10.0.0.7, [fd00::1]:443 ,fd00::2,[fd00::3],, bücher.example")
	require.NoError(t, err)
	for hostPort, want := range map[[2]string]bool{
		{"internal.example", "80"}: true, {"internal.example", "9"}: true, {"other.example", "8080"}: true, {"other.example", "80"}: false,
		{"10.0.0.7", "1"}: true, {"10.0.0.8", "1"}: false, {"fd00::1", "443"}: true, {"fd00::1", "80"}: false, {"fd00::2", "80"}: true, {"fd00::3", "1"}: true,
		{"xn--bcher-kva.example", "80"}: true, {"sub.internal.example", "80"}: false,
	} {
		require.Equal(t, want, list.Has(hostPort[0], hostPort[1]), hostPort)
	}
	require.False(t, outbound.AllowedHosts{}.Has("internal.example", "80"))
	for _, bad := range []string{"http://a", "a/b", "*.example", "a:0", "a:99999", "a:x", "127.1", "a b", "user@host", "[::1", ":80", "[::1]:"} {
		_, err := outbound.ParseAllowedHosts("ok.example," + bad)
		require.Error(t, err, bad)
		require.Contains(t, err.Error(), strings.TrimSpace(bad))
	}
}

func FuzzForbidden(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::1", "64:ff9b:1:7f00:0:100::", "2002:7f00:1::1"} {
		a := netip.MustParseAddr(s).As16()
		f.Add(a[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		none, loopback, declared := outbound.Forbidden(addr, outbound.TrustNone), outbound.Forbidden(addr, outbound.TrustLoopback), outbound.Forbidden(addr, outbound.TrustDeclared)
		if declared != "" {
			require.NotEmpty(t, loopback)
		}
		if loopback != "" {
			require.NotEmpty(t, none)
		}
		// Every way to write an IPv4 address inside another gives the verdict of the address itself.
		if v4 := addr.Unmap(); v4.Is4() {
			x := v4.As4()
			mapped := netip.AddrFrom16(v4.As16())
			sixToFour := netip.AddrFrom16([16]byte{0x20, 0x02, x[0], x[1], x[2], x[3], 15: 1})
			nat64 := netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: x[0], 13: x[1], 14: x[2], 15: x[3]})
			for _, form := range []netip.Addr{mapped, sixToFour, nat64} {
				require.Equal(t, outbound.Forbidden(v4, outbound.TrustNone), outbound.Forbidden(form, outbound.TrustNone), form)
			}
		}
	})
}
