package devices

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func gid(index int, addr string, kind GIDType) GID {
	a := netip.AddrFrom16(netip.MustParseAddr(addr).As16())
	return GID{Index: index, Addr: a, Type: kind, Netdev: "ens1"}
}

func roce(name string, gids ...GID) Device {
	return Device{Name: name, Verbs: "/dev/infiniband/uverbs0", Kind: KindCA, NUMA: -1, Ports: []Port{{
		Number: 1, State: "ACTIVE", Physical: "LinkUp", Link: LinkEthernet, Netdev: "ens1", NetMTU: 9000, MTU: 4096, GIDs: gids,
	}}}
}

var (
	local1    = gid(0, "fe80::1", TypeRoCEv1)
	local2    = gid(1, "fe80::1", TypeRoCEv2)
	ipv4v1    = gid(2, "10.0.0.1", TypeRoCEv1)
	ipv4v2    = gid(3, "10.0.0.1", TypeRoCEv2)
	ipv6v2    = gid(4, "fd00::1", TypeRoCEv2)
	auto4v2   = gid(5, "169.254.3.4", TypeRoCEv2)
	second4v2 = gid(6, "10.9.0.1", TypeRoCEv2)
)

func down(d Device) Device {
	d.Ports[0].State, d.Ports[0].Physical = "DOWN", "Disabled"
	return d
}

func small(d Device, netdev int) Device {
	d.Ports[0].NetMTU, d.Ports[0].MTU = netdev, PathMTU(LinkEthernet, netdev)
	return d
}

func locked(d Device, err error) Device {
	d.OpenError = &os.PathError{Op: "open", Path: d.Verbs, Err: err}
	return d
}

func TestChoose(t *testing.T) {
	t.Parallel()
	noVerbs := roce("a", ipv4v2)
	noVerbs.Verbs = ""
	iwarp := roce("siw0", gid(0, "5054:ff::", TypeIWARP))
	iwarp.Kind = KindRNIC
	for _, c := range []struct {
		name    string
		devices []Device
		want    Want
		rails   []string // name and GID index of each
		codes   []Code
		says    string // in Err; "": no error
	}{
		{"no device", nil, Want{GIDIndex: AnyGID}, nil, []Code{NoDevice}, "no RDMA device"},
		{"routable before link-local", []Device{roce("a", local1, local2, ipv4v1)}, Want{GIDIndex: AnyGID}, []string{"a:1 2"}, nil, ""},
		{"v2 before v1", []Device{roce("a", local1, local2, ipv4v1, ipv4v2)}, Want{GIDIndex: AnyGID}, []string{"a:1 3"}, nil, ""},
		{"IPv4 before IPv6", []Device{roce("a", ipv6v2, second4v2)}, Want{GIDIndex: AnyGID}, []string{"a:1 6"}, nil, ""},
		{"link-local only", []Device{roce("a", local1, local2)}, Want{GIDIndex: AnyGID}, []string{"a:1 1"}, []Code{LinkLocalOnly}, ""},
		{"IPv4 link-local is link-local", []Device{roce("a", auto4v2)}, Want{GIDIndex: AnyGID}, []string{"a:1 5"}, []Code{LinkLocalOnly}, ""},
		{"the better device first", []Device{roce("a", local2), roce("b", ipv4v2)}, Want{GIDIndex: AnyGID}, []string{"b:1 3", "a:1 1"}, []Code{LinkLocalOnly}, ""},
		{"what is down is passed over", []Device{down(roce("a")), roce("b", ipv4v2)}, Want{GIDIndex: AnyGID}, []string{"b:1 3"}, nil, ""},
		{"all down", []Device{down(roce("a")), down(roce("b"))}, Want{GIDIndex: AnyGID}, nil, []Code{NoActivePort, NoActivePort}, "ip link set ens1 up"},
		{"named and down", []Device{down(roce("a")), roce("b", ipv4v2)}, Want{Devices: []string{"a"}, GIDIndex: AnyGID}, nil, []Code{NoActivePort}, "not active"},
		{"named in another order", []Device{roce("a", ipv4v2), roce("b", ipv4v2)}, Want{Devices: []string{"b:1", "a", "b"}, GIDIndex: AnyGID}, []string{"b:1 3", "a:1 3"}, nil, ""},
		{"unknown", []Device{roce("a", ipv4v2)}, Want{Devices: []string{"a", "mlx9_0"}, GIDIndex: AnyGID}, []string{"a:1 3"}, []Code{UnknownDevice}, "name one of a:1"},
		{"unknown port", []Device{roce("a", ipv4v2)}, Want{Devices: []string{"a:2"}, GIDIndex: AnyGID}, nil, []Code{UnknownDevice}, "a:2"},
		{"GID index", []Device{roce("a", local1, local2, ipv4v2)}, Want{GIDIndex: 1}, []string{"a:1 1"}, []Code{LinkLocalOnly}, ""},
		{"bad GID index", []Device{roce("a", ipv4v2)}, Want{GIDIndex: 7}, nil, []Code{BadGIDIndex}, "give one of 3 (RoCE v2 10.0.0.1)"},
		{"no GID", []Device{roce("a")}, Want{GIDIndex: AnyGID}, nil, []Code{NoGID}, "ip addr add"},
		{"no permission", []Device{locked(roce("a", ipv4v2), os.ErrPermission)}, Want{GIDIndex: AnyGID}, nil, []Code{NoPermission}, "chmod 666"},
		{"no file in the container", []Device{locked(roce("a", ipv4v2), os.ErrNotExist)}, Want{GIDIndex: AnyGID}, nil, []Code{NoPermission}, "--device /dev/infiniband"},
		{"no ib_uverbs", []Device{noVerbs}, Want{GIDIndex: AnyGID}, nil, []Code{NoVerbs}, "modprobe ib_uverbs"},
		{"iWARP", []Device{iwarp}, Want{GIDIndex: AnyGID}, nil, []Code{IWARP}, "iWARP is not supported"},
		{"iWARP is passed over", []Device{iwarp, roce("b", ipv4v2)}, Want{GIDIndex: AnyGID}, []string{"b:1 3"}, nil, ""},
		{"iWARP by name", []Device{iwarp, roce("b", ipv4v2)}, Want{Devices: []string{"siw0"}, GIDIndex: AnyGID}, nil, []Code{IWARP}, "RoCE"},
		{"unequal MTUs", []Device{roce("a", ipv4v2), small(roce("b", ipv4v2), 1500)}, Want{GIDIndex: AnyGID}, []string{"a:1 3", "b:1 3"}, []Code{SmallMTU, MTUMismatch}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := Choose(c.devices, c.want)
			var rails []string
			for _, r := range got.Rails {
				rails = append(rails, r.Name()+" "+string(rune('0'+r.GID().Index)))
			}
			require.Equal(t, c.rails, rails)
			var codes []Code
			for _, p := range got.Problems {
				codes = append(codes, p.Code)
				require.NotEmpty(t, p.Fix)
				require.NotContains(t, p.What, "%!")
			}
			require.Equal(t, c.codes, codes)
			if c.says == "" {
				require.NoError(t, got.Err())
			} else {
				require.ErrorContains(t, got.Err(), c.says)
			}
		})
	}
}

func TestInfiniBandPrefixIsNoFault(t *testing.T) {
	t.Parallel()
	d := roce("mlx5_0", GID{Index: 0, Addr: netip.MustParseAddr("fe80::e42:a1ff:fe12:3457"), Type: TypeIB})
	d.Ports[0].Link = LinkInfiniBand
	got := Choose([]Device{d}, Want{GIDIndex: AnyGID})
	require.Len(t, got.Rails, 1)
	require.Empty(t, got.Problems)
}

func TestProblemsAreErrors(t *testing.T) {
	t.Parallel()
	err := Choose(nil, Want{GIDIndex: AnyGID}).Err()
	var p Problem
	require.True(t, errors.As(err, &p))
	require.Equal(t, NoDevice, p.Code)
}
