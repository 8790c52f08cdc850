package chunk

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// maxCopies is how many peers are asked for one late block.
const maxCopies = 3

// mostFlights is how many blocks of an object are asked for unasked at once in a
// crowd: who asks for more gets a trickle of each, and takes the turns of others.
// Where blocks come so fast that asking takes longer, a few more are.
const (
	mostFlights  = 5
	extraFlights = 3
)

// maxScan bounds how many blocks one look for the rest considers.
const maxScan = 256

// plan decides what to ask of whom now. The flights it returns are on the
// board already and have their place at the gate. Late blocks come first, then
// what is demanded, then what lies on the readers' way, then the rest.
func (b *board) plan(now time.Time, in intake) []*flight {
	b.starved = false
	b.look(now)
	if b.zone.on() {
		b.survey(now)
		defer b.settle(now)
	}
	out := b.planLate(now, in, nil)
	out = b.planDemand(now, in, out)
	if b.held || b.left == 0 || !b.hungry() || b.sated() {
		return out
	}
	if !b.roomy() {
		b.starved = true
		in.wait(true)
		return out
	}
	if !b.crowded || !b.whole {
		out = b.planWindow(now, in, out)
	}
	if b.whole {
		out = b.planRest(now, in, out)
	}
	return out
}

// look sees how many others fetch the object now. Among them, a node asks each
// peer for little at a time, so that many peers give it something and none of
// them spends its time on it alone. Those that can be asked at all in this round
// are noted: what follows goes over them alone.
func (b *board) look(now time.Time) {
	n := 0
	b.crowded, b.fastest = false, 0
	b.open, b.opensAt = b.open[:0], time.Time{}
	for _, p := range b.peers {
		st := p.vital
		b.fastest = max(b.fastest, st.rate)
		if p.out != nil {
			continue
		}
		if st.strikes == 0 {
			n++
			b.crowded = b.crowded || p.news && p.lack > 0
		}
		if st.ready(now) {
			b.open = append(b.open, p)
		} else if b.opensAt.IsZero() || st.open.Before(b.opensAt) {
			b.opensAt = st.open
		}
	}
	b.perPeer = max(1, 6/max(n, 1))
}

// sated reports whether as much is under way as is asked for unasked in a crowd.
func (b *board) sated() bool { return b.crowded && b.whole && b.enough() }

func (b *board) enough() bool {
	most := mostFlights
	if d := b.took.median(); d > 0 {
		most += min(int(uploadAhead/d), extraFlights)
	}
	return len(b.flights) >= most
}

// planLate asks other peers for blocks that take too long.
func (b *board) planLate(now time.Time, in intake, out []*flight) []*flight {
	late := max(b.limits.HedgeAfter, 4*b.took.median())
	if b.crowded && b.left <= len(b.flights) {
		late = max(b.limits.HedgeAfter, 3*b.took.median()/2) // the end: nothing else is left to ask for
	}
	if !slices.ContainsFunc(b.flights, func(f *flight) bool { return now.Sub(f.started) >= late }) {
		return out
	}
	hedges := 0
	for _, f := range b.flights {
		if f.hedge {
			hedges++
		}
	}
	for _, f := range slices.Clone(b.flights) {
		if f.lost || f.late || now.Sub(f.started) < late {
			continue
		}
		if hedges >= max(1, b.limits.InFlight/4) || len(b.others(f.block)) >= maxCopies {
			continue
		}
		spec := f.spec && !b.demanded(f.block)
		if spec && !b.whole {
			continue // a second copy would go beyond what may be fetched unasked
		}
		p, _ := b.pick(f.block, spec, true, now)
		if p == nil || !in.open(f.n, spec) {
			continue
		}
		f.late = true
		f.peer.st.late()
		hedges++
		in.take(p.st, f.n, spec)
		out = append(out, b.start(f.block, p, spec, true, now))
	}
	return out
}

func (b *board) planDemand(now time.Time, in intake, out []*flight) []*flight {
	for _, block := range b.queue {
		if b.busy.Has(block) {
			continue
		}
		n := b.o.Block(block).Len
		if !in.open(n, false) {
			return out
		}
		p, crowded := b.pick(block, false, false, now)
		if p == nil {
			b.starved = true
			if crowded {
				in.wait(false)
			}
			continue
		}
		in.take(p.st, n, false)
		out = append(out, b.start(block, p, false, false, now))
	}
	return out
}

// hungry reports whether anything may be fetched unasked.
func (b *board) hungry() bool {
	return b.whole || len(b.streams.list) > 0 && b.spec+b.o.BlockSize <= speculation(b.o, b.distinct)
}

// planWindow asks for what the readers come to next, nearest first.
func (b *board) planWindow(now time.Time, in intake, out []*flight) []*flight {
	for d := 1; d <= b.limits.window(b.o); d++ {
		for _, s := range b.streams.list {
			block := s.step(d)
			if !b.absent(block) {
				continue
			}
			f, more := b.speculate(block, now, in)
			if f != nil {
				out = append(out, f)
			}
			if !more {
				return out
			}
		}
	}
	return out
}

// planRest asks for whatever is left: in order from a lone provider, which is
// kinder to its disk; spread in a crowd.
func (b *board) planRest(now time.Time, in intake, out []*flight) []*flight {
	if b.crowd() {
		return b.planSpread(now, in, out)
	}
	for b.roomy() {
		block := b.lowest(now)
		if block < 0 {
			return out
		}
		f, more := b.speculate(block, now, in)
		if f != nil {
			out = append(out, f)
		}
		if f == nil || !more {
			return out
		}
	}
	in.wait(true)
	return out
}

// planSpread asks each peer for the rarest of what it has: sources first while
// they have blocks that nobody was sent, then the one that will be done soonest.
func (b *board) planSpread(now time.Time, in intake, out []*flight) []*flight {
	for !b.crowded || !b.enough() {
		p := b.freest()
		if p == nil {
			b.starved = true
			in.wait(true)
			return out
		}
		block := b.rarest(p, now)
		if block < 0 {
			p.dry = b.epoch
			continue
		}
		if b.zone.on() && b.tally.sent[block] > 0 && p.first(b) { // not for want of better
			p.drained = b.epoch
			continue
		}
		n := b.o.Block(block).Len
		if !b.whole && b.spec+n > speculation(b.o, b.distinct) || !in.open(n, true) {
			return out
		}
		in.take(p.st, n, true)
		out = append(out, b.start(block, p, true, false, now))
	}
	return out
}

// speculate asks for a block that nobody waits for; more says whether another
// one is worth trying.
func (b *board) speculate(block int, now time.Time, in intake) (f *flight, more bool) {
	n := b.o.Block(block).Len
	if !b.whole && b.spec+n > speculation(b.o, b.distinct) {
		return nil, false
	}
	p, crowded := b.pick(block, true, false, now)
	if p == nil {
		if crowded {
			in.wait(true)
		}
		return nil, true
	}
	if !in.open(n, true) {
		return nil, false
	}
	in.take(p.st, n, true)
	return b.start(block, p, true, false, now), true
}

// matters reports whether news of a peer may change the plan: whether it has
// something new that is wanted, and can be asked.
func (b *board) matters(p *peer, a Availability, now time.Time) bool {
	if !a.Full && !slices.ContainsFunc(a.Added, b.absent) {
		return false
	}
	return len(b.queue) > 0 || !b.sated() && b.spare(p, now)
}

// absent reports whether the block is neither here nor on its way, nor
// damaged.
func (b *board) absent(block int) bool {
	return block >= 0 && block < b.o.Blocks() && !b.have.Has(block) && !b.busy.Has(block) && !b.damaged[block]
}

// lowest returns the first absent block that a peer with room has, or -1.
func (b *board) lowest(now time.Time) int {
	n := b.o.Blocks()
	for b.low < n && !b.absent(b.low) {
		b.low++
	}
	for i, seen := b.low, 0; i < n && seen < maxScan; i++ {
		if !b.absent(i) {
			continue
		}
		seen++
		if b.copies(i, now) > 0 {
			return i
		}
	}
	return -1
}

// rarest returns the absent block of the peer that is hardest to get
// elsewhere, -1 if it has none; of equals any one. A few hundred are looked at,
// from a random place on.
func (b *board) rarest(p *peer, now time.Time) int {
	have, whole := p.have, p.lack == 0
	if !p.news { // the registry says that it has all
		have, whole = b.all(), true
	}
	words := have.words()
	foreign := b.foreign(p.Peer)
	left := foreign && !b.alone(now) // to others of the zone
	best, least := -1, math.MaxInt
	dice := b.rng.Uint32()
	turn := int(dice >> 26) // where in a word to begin
	at := int(dice&(1<<26-1)) % words
	seen := 0
	for range words {
		x := have.word(at) &^ b.have.word(at) &^ b.busy.word(at)
		if left {
			x &= b.zone.mine.word(at)
		}
		x = bits.RotateLeft64(x, -turn)
		for ; x != 0; x &= x - 1 {
			block := 64*at + (bits.TrailingZeros64(x)+turn)&63
			rank := b.rank(block, whole)
			if rank >= least || foreign && !b.crosses(block, true, now) || len(b.damaged) > 0 && b.damaged[block] || b.isLater(block, p, now) {
				continue
			}
			best, least = block, rank
		}
		if seen += 64; best >= 0 && seen >= maxScan {
			break
		}
		if at++; at == words {
			at = 0
		}
	}
	return best
}

// rank orders blocks by how soon they should be asked of a peer, lowest first.
// From one that has everything, those it sent least: what it sends twice is
// time that something new is not sent in. From others, those that the fewest
// have.
func (b *board) rank(block int, whole bool) int {
	copies, sent := int(b.tally.copies[block]), int(b.tally.sent[block])
	if whole {
		return sent<<8 + min(copies, 255)
	}
	return copies<<8 + min(sent, 255)
}

// isLater reports whether the peer said just now that it sends the block to
// somebody else.
func (b *board) isLater(block int, p *peer, now time.Time) bool {
	if len(b.later) == 0 {
		return false
	}
	l, ok := b.later[block]
	return ok && l.peer == p && now.Before(l.until)
}

// copies returns how many peers have the block; 0 if none with room has.
func (b *board) copies(block int, now time.Time) int {
	n, room := 0, false
	for _, p := range b.peers {
		if p.holds(block, true) {
			n++
			room = room || b.spare(p, now)
		}
	}
	if !room {
		return 0
	}
	return n
}

// roomy reports whether any peer can be asked for one more unasked block.
func (b *board) roomy() bool { return slices.ContainsFunc(b.open, b.takes) }

// spare reports whether the peer can be asked for one more unasked block.
func (b *board) spare(p *peer, now time.Time) bool {
	return p.out == nil && b.takes(p) && p.ready(now)
}

// takes reports whether a peer that can be asked is given one more unasked block.
func (b *board) takes(p *peer) bool {
	return p.room(true) && (!b.crowded || p.flights < b.perPeer)
}
