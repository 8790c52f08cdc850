package devices

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func rail(name string, mtu int, gids ...GID) Rail {
	SortGIDs(gids, LinkEthernet)
	return Rail{Device: name, Port: 1, Link: LinkEthernet, MTU: mtu, GIDs: gids}
}

func ib(name, addr string) Rail {
	return Rail{Device: name, Port: 1, Link: LinkInfiniBand, MTU: 4096, GIDs: []GID{{Addr: netip.MustParseAddr(addr), Type: TypeIB}}}
}

func within(g GID, bits int) GID {
	g.Bits = bits
	return g
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		local, remote []Rail
		want          []string // local device and GID index, remote ones, MTU
	}{
		{"the best both have", []Rail{rail("a", 4096, local1, local2, ipv4v1, ipv4v2)}, []Rail{rail("x", 4096, local2, ipv4v1)}, []string{"a2 x2 4096"}},
		{"the lower MTU", []Rail{rail("a", 4096, ipv4v2)}, []Rail{rail("x", 1024, second4v2)}, []string{"a3 x6 1024"}},
		{"an unknown MTU", []Rail{rail("a", 0, ipv4v2)}, []Rail{rail("x", 1024, second4v2)}, []string{"a3 x6 1024"}},
		{"link-local reaches link-local", []Rail{rail("a", 4096, local2)}, []Rail{rail("x", 4096, local2, ipv4v2)}, []string{"a1 x1 4096"}},
		{"link-local does not reach routable", []Rail{rail("a", 4096, local2)}, []Rail{rail("x", 4096, ipv6v2)}, nil},
		{"IPv4 does not reach IPv6", []Rail{rail("a", 4096, ipv4v2)}, []Rail{rail("x", 4096, ipv6v2)}, nil},
		{"v1 does not reach v2", []Rail{rail("a", 4096, ipv4v1)}, []Rail{rail("x", 4096, ipv4v2)}, nil},
		{"what the peer can reach before what is best here", []Rail{rail("a", 4096, ipv4v2, ipv6v2)}, []Rail{rail("x", 4096, ipv6v2)}, []string{"a4 x4 4096"}},
		{"a subnet in common first", []Rail{rail("a", 4096, ipv4v2, within(second4v2, 112))}, []Rail{rail("x", 4096, gid(9, "10.9.3.3", TypeRoCEv2))}, []string{"a6 x9 4096"}},
		{
			"rails in pairs", []Rail{rail("a", 4096, ipv4v2), rail("b", 4096, second4v2)}, []Rail{rail("x", 4096, ipv4v2), rail("y", 4096, second4v2)},
			[]string{"a3 x3 4096", "b6 y6 4096", "a3 y6 4096", "b6 x3 4096"},
		},
		{
			"rails in their own subnets", []Rail{rail("a", 4096, within(ipv4v2, 112)), rail("b", 4096, within(second4v2, 112))},
			[]Rail{rail("y", 4096, second4v2), rail("x", 4096, ipv4v2)},
			[]string{"a3 x3 4096", "b6 y6 4096", "a3 y6 4096", "b6 x3 4096"},
		},
		{"InfiniBand in one fabric", []Rail{ib("a", "fe80::1")}, []Rail{ib("x", "fe80::2")}, []string{"a0 x0 4096"}},
		{"InfiniBand in two", []Rail{ib("a", "fe80::1")}, []Rail{ib("x", "fec0::2")}, nil},
		{"InfiniBand and Ethernet", []Rail{ib("a", "fe80::1")}, []Rail{rail("x", 4096, local1)}, nil},
		{"iWARP", []Rail{rail("a", 4096, gid(0, "5054:ff::", TypeIWARP))}, []Rail{rail("x", 4096, gid(0, "5055:ff::", TypeIWARP))}, []string{"a0 x0 4096"}},
		{"nothing here", nil, []Rail{rail("x", 4096, ipv4v2)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range Paths(c.local, c.remote) {
				got = append(got, fmt.Sprintf("%s%d %s%d %d", p.Local.Device, p.LocalGID.Index, p.Remote.Device, p.RemoteGID.Index, p.MTU))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestPathTellsAnMTUMismatch(t *testing.T) {
	t.Parallel()
	p := Paths([]Rail{rail("a", 4096, ipv4v2)}, []Rail{rail("x", 1024, second4v2)})[0]
	problem, bad := p.Problem()
	require.True(t, bad)
	require.Equal(t, MTUMismatch, problem.Code)
	require.ErrorContains(t, problem, "a:1: its MTU of 4096 bytes is not that of the peer's x:1, 1024")
	_, bad = Paths([]Rail{rail("a", 4096, ipv4v2)}, []Rail{rail("x", 4096, second4v2)})[0].Problem()
	require.False(t, bad)
}
