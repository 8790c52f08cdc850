package devices

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseGID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		want     string // "": refused
	}{
		{"the kernel's form", "fe80:0000:0000:0000:5054:00ff:fe12:3456", "fe80::5054:ff:fe12:3456"},
		{"IPv4 in IPv6", "0000:0000:0000:0000:0000:ffff:0a4d:0001", "::ffff:10.77.0.1"},
		{"plain IPv4", "10.77.0.1", "::ffff:10.77.0.1"},
		{"zero", zeroGID, "::"},
		{"empty", "", ""},
		{"too short", "fe80:0000:0000", ""},
		{"with an interface", "fe80::1%eth0", ""},
		{"words", "no such GID", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := ParseGID(c.in)
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, netip.MustParseAddr(c.want), a)
		})
	}
}

func FuzzParseGID(f *testing.F) {
	f.Add("fe80:0000:0000:0000:5054:00ff:fe12:3456")
	f.Add("::ffff:10.0.0.1")
	f.Add("fe80::1%eth0")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseGID(s)
		if err != nil {
			return
		}
		again, err := ParseGID(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)
		require.True(t, a.Is6())
		_ = empty(a, LinkInfiniBand)
	})
}

func TestPathMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		link   LinkLayer
		netdev int
		want   int
	}{
		{"jumbo frames", LinkEthernet, 9000, 4096},
		{"just enough for 4096", LinkEthernet, 4192, 4096},
		{"one byte less", LinkEthernet, 4191, 2048},
		{"plain Ethernet", LinkEthernet, 1500, 1024},
		{"tiny", LinkEthernet, 300, 0},
		{"IP over InfiniBand", LinkInfiniBand, 2044, 2048},
		{"IP over InfiniBand, 4 KiB", LinkInfiniBand, 4092, 4096},
		{"unknown", LinkEthernet, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, PathMTU(c.link, c.netdev))
		})
	}
}

func TestMemlockIsWaivedByACapability(t *testing.T) {
	t.Parallel()
	require.True(t, mayLockAll("Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"))
	require.True(t, mayLockAll("Name:\tx\nCapEff:\t0000000000004000\n"))
	require.False(t, mayLockAll("Name:\tx\nCapEff:\t0000000000003fff\nCapBnd:\t000001ffffffffff\n"))
	require.False(t, mayLockAll("Name:\tx\n"))
}

func TestMemlockTooSmall(t *testing.T) {
	t.Parallel()
	_, bad := CheckMemlock(1<<20, 1<<20)
	require.False(t, bad)
	_, bad = CheckMemlock(Unlimited, 1<<40)
	require.False(t, bad)
	p, bad := CheckMemlock(8<<20, 1<<30)
	require.True(t, bad)
	require.Equal(t, SmallMemlock, p.Code)
	require.ErrorContains(t, p, "only 8388608 bytes may be locked")
	require.ErrorContains(t, p, "ulimit -l")
}
