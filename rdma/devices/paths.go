package devices

import (
	"cmp"
	"net/netip"
	"slices"
)

// A Path is a way from a rail of this node to one of a peer's.
type Path struct {
	Local, Remote       Rail
	LocalGID, RemoteGID GID
	// MTU is that of the lower end, in bytes; 0 if neither knows its own.
	MTU int
	// SameSubnet says that the peer's address is in the subnet of the local
	// one, as far as the local one's is known.
	SameSubnet bool
}

// Problem says what is not as it should be about the path; ok is false if
// nothing is.
func (p Path) Problem() (_ Problem, ok bool) {
	if p.Local.MTU == 0 || p.Remote.MTU == 0 || p.Local.MTU == p.Remote.MTU {
		return Problem{}, false
	}
	return mtuMismatch(p.Local.Name(), p.Local.MTU, p.Remote.MTU, "the peer's "+p.Remote.Name()), true
}

// Paths returns the pairs of rails that can reach each other, each with the
// best pair of GIDs, in the order in which to use them: better pairs first,
// and among equals the n-th rail here with the n-th there, as cables in racks
// go. None: the two nodes have no RDMA in common.
//
// A pair can reach each other if both are InfiniBand with the same prefix, or
// both speak the same sort of RoCE or both iWARP, from addresses of the same
// family; a link-local address reaches only link-local ones. Whether a router
// in between lets them is seen when they connect.
func Paths(local, remote []Rail) []Path {
	type ranked struct {
		Path
		quality, distance int
	}
	var all []ranked
	for i, l := range local {
		for j, r := range remote {
			if p, q, ok := match(l, r); ok {
				all = append(all, ranked{p, q, max(i-j, j-i)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.quality, b.quality), cmp.Compare(a.distance, b.distance))
	})
	var out []Path
	for _, r := range all {
		out = append(out, r.Path)
	}
	return out
}

// match finds the best pair of GIDs of two rails; less quality is better.
func match(l, r Rail) (best Path, quality int, ok bool) {
	for _, a := range l.GIDs {
		for _, b := range r.GIDs {
			if !reaches(l, a, r, b) {
				continue
			}
			same := sameSubnet(a, b)
			q := pairQuality(a, b, l.Link, same)
			if ok && q >= quality {
				continue
			}
			best = Path{Local: l, Remote: r, LocalGID: a, RemoteGID: b, MTU: lowerMTU(l.MTU, r.MTU), SameSubnet: same}
			quality, ok = q, true
		}
	}
	return best, quality, ok
}

func reaches(l Rail, a GID, r Rail, b GID) bool {
	switch {
	case l.Link != r.Link || a.Type != b.Type:
		return false
	case a.Type == TypeIWARP:
		return true // its GIDs are made of hardware addresses; it goes by IP
	case a.Type == TypeIB:
		return [8]byte(prefixOf(a)) == [8]byte(prefixOf(b))
	}
	return a.IP().Is4() == b.IP().Is4() && a.Routable() == b.Routable()
}

func prefixOf(g GID) []byte {
	b := g.Addr.As16()
	return b[:8]
}

func sameSubnet(a, b GID) bool {
	if a.Bits == 0 {
		return false
	}
	return netip.PrefixFrom(a.Addr, a.Bits).Contains(b.Addr)
}

// pairQuality puts the rule for GIDs first (the worse of the two counts), then
// pairs in one subnet: they need no router.
func pairQuality(a, b GID, link LinkLayer, same bool) int {
	q := 2 * max(quality(a, link), quality(b, link))
	if !same {
		q++
	}
	return q
}

// lowerMTU returns the smaller of those that are known.
func lowerMTU(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
