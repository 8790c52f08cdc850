package devices

import (
	"cmp"
	"slices"
)

// SortGIDs puts a port's GIDs in the order in which to try them: routable
// before link-local, RoCE v2 before v1, those with an interface before those
// without, IPv4 before IPv6 (an IPv6 address is more often a passing one), and
// lower indexes first.
func SortGIDs(gids []GID, link LinkLayer) {
	slices.SortStableFunc(gids, func(a, b GID) int {
		return cmp.Or(cmp.Compare(quality(a, link), quality(b, link)), cmp.Compare(a.Index, b.Index))
	})
}

// quality orders GIDs; less is better. On InfiniBand the link-local prefix is
// the usual one and no fault: the switches know the way by LID.
func quality(g GID, link LinkLayer) int {
	q := 0
	if !g.Routable() && link != LinkInfiniBand && g.Type != TypeIWARP {
		q += 8
	}
	if g.Type == TypeRoCEv1 {
		q += 4
	}
	if g.Netdev == "" && link == LinkEthernet {
		q += 2
	}
	if !g.IP().Is4() {
		q++
	}
	return q
}
