package devices

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseGID reads a GID as the kernel writes it, eight groups of four hex
// digits. Other ways to write an IPv6 address are taken too.
func ParseGID(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the GID %q: %w", s, err)
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("read the GID %q: it names an interface", s)
	}
	return netip.AddrFrom16(a.As16()), nil
}

// empty says whether a place in the GID table is unused: all zero, or on
// InfiniBand a prefix with no address behind it, as a port shows that is down.
func empty(a netip.Addr, link LinkLayer) bool {
	b := a.As16()
	return a.IsUnspecified() || link == LinkInfiniBand && [8]byte(b[8:]) == [8]byte{}
}

func gidType(s string, link LinkLayer, kind NodeKind) GIDType {
	switch {
	case kind == KindRNIC:
		return TypeIWARP
	case strings.EqualFold(s, "RoCE v2"):
		return TypeRoCEv2
	case link == LinkEthernet:
		return TypeRoCEv1 // the kernel's name for both: "IB/RoCE v1"
	}
	return TypeIB
}

func nodeKind(s string) NodeKind {
	switch strings.TrimSpace(afterColon(s)) {
	case "CA":
		return KindCA
	case "RNIC":
		return KindRNIC
	}
	return KindOther
}

// afterColon cuts the number off words like "4: ACTIVE".
func afterColon(s string) string {
	if _, word, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(word)
	}
	return s
}

// subnetBits finds the address among an interface's and returns the length of
// its subnet, counted as in IPv6.
func subnetBits(a netip.Addr, all []netip.Prefix) int {
	for _, p := range all {
		if p.Addr() != a.Unmap() {
			continue
		}
		if p.Addr().Is4() {
			return 96 + p.Bits()
		}
		return p.Bits()
	}
	return 0
}

// PathMTU returns the largest RDMA MTU that fits into frames of an interface
// whose MTU is given; 0 if none does.
func PathMTU(link LinkLayer, netdev int) int {
	room := netdev - roceHeaders
	if link == LinkInfiniBand {
		room = netdev + ipoibHeader // IP over InfiniBand: the link's MTU less its own header
	}
	for mtu := 4096; mtu >= 256; mtu /= 2 {
		if room >= mtu {
			return mtu
		}
	}
	return 0
}

const (
	// roceHeaders is what the kernel sets aside in a frame beside the data.
	roceHeaders = 96
	ipoibHeader = 4
)
