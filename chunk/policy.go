package chunk

import (
	"math"
	"slices"
	"time"
)

// maxCopies is how many peers are asked for one late block.
const maxCopies = 3

// maxScan bounds how many blocks one look for the rest considers.
const maxScan = 256

// plan decides what to ask of whom now. The flights it returns are on the
// board already and have their place at the gate. Late blocks come first, then
// what is demanded, then what lies on the readers' way, then the rest.
func (b *board) plan(now time.Time, in intake) []*flight {
	out := b.planLate(now, in, nil)
	out = b.planDemand(now, in, out)
	if b.held || b.left == 0 || !b.hungry() {
		return out
	}
	if !b.roomy(now) {
		in.wait(true)
		return out
	}
	out = b.planWindow(now, in, out)
	if b.whole {
		out = b.planRest(now, in, out)
	}
	return out
}

// planLate asks other peers for blocks that take too long.
func (b *board) planLate(now time.Time, in intake, out []*flight) []*flight {
	late := max(b.limits.HedgeAfter, 4*b.took.median())
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

// planRest asks for whatever is left.
func (b *board) planRest(now time.Time, in intake, out []*flight) []*flight {
	crowd := b.crowd()
	for b.roomy(now) {
		var block int
		if crowd {
			block = b.rarest(now)
		} else {
			block = b.lowest(now)
		}
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

// rarest returns, of a random few hundred absent blocks, the one that the
// fewest peers have and one with room has; the first of equals, which is as
// random as their order; -1 if there is none.
func (b *board) rarest(now time.Time) int {
	if b.perm == nil {
		b.shuffle()
	}
	best, least := -1, math.MaxInt
	if len(b.perm) == 0 {
		return best
	}
	at := b.rng.IntN(len(b.perm))
	for seen := 0; seen < maxScan && seen < len(b.perm); {
		if at >= len(b.perm) {
			at = 0
		}
		block := int(b.perm[at])
		if b.have.Has(block) {
			last := len(b.perm) - 1
			b.perm[at] = b.perm[last]
			b.perm = b.perm[:last]
			continue
		}
		seen++
		at++
		if !b.absent(block) {
			continue
		}
		if c := b.copies(block, now); c > 0 && c < least {
			best, least = block, c
		}
	}
	return best
}

func (b *board) shuffle() {
	b.perm = make([]int32, 0, b.left)
	for i := range b.o.Blocks() {
		if !b.have.Has(i) {
			b.perm = append(b.perm, int32(i))
		}
	}
	b.rng.Shuffle(len(b.perm), func(i, j int) { b.perm[i], b.perm[j] = b.perm[j], b.perm[i] })
}

// copies returns how many peers have the block; 0 if none with room has.
func (b *board) copies(block int, now time.Time) int {
	n, room := 0, false
	for _, p := range b.peers {
		if p.holds(block, true) {
			n++
			room = room || p.st.usable(now) && p.st.room(true)
		}
	}
	if !room {
		return 0
	}
	return n
}

// roomy reports whether any peer can be asked for one more unasked block.
func (b *board) roomy(now time.Time) bool {
	return slices.ContainsFunc(b.peers, func(p *peer) bool {
		return p.out == nil && p.st.usable(now) && p.st.room(true)
	})
}
