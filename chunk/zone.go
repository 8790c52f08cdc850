package chunk

import (
	"encoding/binary"
	"slices"
	"time"
)

// zone is what the policy knows of its node's own zone. What the zone has is not
// brought into it again, and what it lacks is brought in by one of its nodes: each
// block has one, whom all that know of each other find in the same way, without a
// word. A block that a reader waits for is left to that one for a moment only. The
// zero value is that of a node which is in no zone.
type zone struct {
	name    string
	tally   *tally    // of the others of the zone, but for keepers; nil: in no zone
	keeper  bool      // a keeper that can be asked is in the zone
	members []NodeID  // those of the zone that are getting on with the object, beside this node
	seen    []NodeID  // the same, while they are looked for
	mine    Bitmap    // blocks that this node is to bring in
	stuck   time.Time // since when all that is left is left to others; zero: it is not
}

// How long others of the zone are relied on.
const (
	leastIdle   = 2 * time.Second        // who gets no block for so long brings nothing in,
	mostIdle    = 30 * time.Second       // or for so long, where blocks take their time
	leastAccord = 200 * time.Millisecond // a block that a reader waits for is left to another one for so long at least,
	firstAccord = time.Second            // so long before any block has come,
	mostAccord  = 2 * time.Second        // and never longer than this
)

// inZone says which node this is, and in which zone.
func (b *board) inZone(self NodeID, name string) {
	b.self, b.zone.name = self, name
	if name != "" {
		b.zone.tally = newTally(b.o.Blocks())
	}
}

func (z *zone) on() bool { return z.tally != nil }

// foreign reports whether a peer is in another zone.
func (b *board) foreign(p Peer) bool { return b.zone.on() && p.Zone != "" && p.Zone != b.zone.name }

// near reports whether a peer is in this node's zone.
func (b *board) near(p Peer) bool { return b.zone.on() && p.Zone == b.zone.name }

// survey sees who of the zone fetches the object now, and with that which blocks
// this node is to bring in.
func (b *board) survey(now time.Time) {
	z := &b.zone
	idle := mostIdle
	if d := b.took.median(); d > 0 {
		idle = min(max(8*d, leastIdle), mostIdle)
	}
	z.seen, z.keeper = z.seen[:0], false
	for _, p := range b.peers {
		switch {
		case !b.near(p.Peer) || p.out != nil || p.strikes > 0 || !p.news:
		case p.lack == 0:
			z.keeper = z.keeper || p.keeper
		case now.Sub(p.gained) < idle:
			z.seen = append(z.seen, p.Node)
		}
	}
	if b.alone(now) {
		b.epoch++
	}
	slices.SortFunc(z.seen, func(x, y NodeID) int { return slices.Compare(x[:], y[:]) })
	if z.mine.Len() > 0 && slices.Equal(z.seen, z.members) {
		return
	}
	z.members, z.seen = z.seen, z.members
	z.mine = NewBitmap(b.o.Blocks())
	for i := range b.o.Blocks() {
		own := claim(b.o.ID, b.self, i)
		if !slices.ContainsFunc(z.members, func(m NodeID) bool { return claim(b.o.ID, m, i) > own }) {
			z.mine.Set(i)
		}
	}
	b.epoch++
}

// claim is how much a node is called to bring a block into its zone.
func claim(o ObjectID, n NodeID, block int) uint64 {
	x := binary.LittleEndian.Uint64(o[:]) ^ uint64(block)*0xbf58476d1ce4e5b9
	for _, w := range [...]uint64{binary.LittleEndian.Uint64(n[:]), binary.LittleEndian.Uint64(n[8:])} {
		x = (x ^ w ^ x>>30) * 0x94d049bb133111eb
		x ^= x >> 27
	}
	return x ^ x>>31
}

// crosses reports whether a block may be asked of another zone now.
func (b *board) crosses(block int, speculative bool, now time.Time) bool {
	switch z := &b.zone; {
	case z.mine.Has(block) && (!z.keeper || b.crowded) && (z.tally.copies[block] == 0 || !speculative && !b.hereabouts(block, now)):
		return true
	case speculative:
		return b.alone(now)
	}
	return now.Sub(b.wanted(block, now)) >= b.accord()
}

// hereabouts reports whether a node of the zone that can be asked has the block.
func (b *board) hereabouts(block int, now time.Time) bool {
	return slices.ContainsFunc(b.peers, func(p *peer) bool {
		return p.local != nil && p.holds(block, false) && p.st.usable(now)
	})
}

// accord is how long a block that a reader waits for is left to others of the zone.
func (b *board) accord() time.Duration {
	d := b.took.median()
	if d == 0 {
		return firstAccord
	}
	return min(max(4*d, leastAccord), mostAccord)
}

// crossesAt returns when a block that a reader waits for is not left to others of
// the zone any more; zero if it was not.
func (b *board) crossesAt(block int) time.Time {
	since, ok := b.since[block]
	if !ok || !b.zone.on() {
		return time.Time{}
	}
	return since.Add(b.accord())
}

// alone reports whether nothing came of what was left to others of the zone, for so
// long that this node brings it in.
func (b *board) alone(now time.Time) bool {
	return !b.zone.stuck.IsZero() && now.Sub(b.zone.stuck) >= min(max(8*b.took.median(), firstAccord), mostIdle)
}

// settle notes, after a plan, whether all that is left is left to others of the
// zone.
func (b *board) settle(now time.Time) {
	switch {
	case len(b.flights) > 0 || b.left == 0:
		b.zone.stuck = time.Time{}
	case b.zone.stuck.IsZero():
		b.zone.stuck = now
	}
}

// remote returns the place of a peer of another zone that makes room for one of
// this zone; -1 if there is none, or few of them are left.
func (b *board) remote(q Peer) int {
	if !b.near(q) {
		return -1
	}
	n, last := 0, -1
	for i, p := range b.peers {
		if b.foreign(p.Peer) && !p.keeper && p.partial() {
			n, last = n+1, i
		}
	}
	if n <= b.limits.Peers/4 {
		return -1
	}
	return last
}

// introductions is how many of those that follow an object a node names to one that
// begins to, and fromZone how many of them are of its zone at most: who brings what
// into a zone is seen alike only by those who know each other, and news of the other
// zones are needed too.
const (
	introductions = 8
	fromZone      = 6
)

// Introductions returns which of the followers of an object, given in a random order,
// are named to one that begins to follow it; near says which are of its zone, or, where
// it is in none, of none either.
func Introductions(order []int, near func(i int) bool) []int {
	var here, rest []int
	for _, i := range order {
		if near(i) && len(here) < fromZone {
			here = append(here, i)
		} else {
			rest = append(rest, i)
		}
	}
	all := append(here, rest...)
	return all[:min(len(all), introductions)]
}
