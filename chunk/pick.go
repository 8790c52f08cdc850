package chunk

import (
	"slices"
	"time"
)

// pick returns the best peer to ask for a block: one that has it, is not in
// penalty, and will be done with what it was asked for soonest. crowded says
// that there are such peers and all of them have enough to do. With other,
// a peer that has the block in flight already does not count.
func (b *board) pick(block int, speculative, other bool, now time.Time) (best *peer, crowded bool) {
	first := b.soonest()
	soon := !speculative && !other && b.soonElsewhere(block, now)
	home := b.zone.on() && !b.crosses(block, speculative, now)
	for _, p := range b.peers {
		if !p.holds(block, speculative) || !p.st.usable(now) || other && b.asked(p, block) {
			continue
		}
		if home && b.foreign(p.Peer) || !p.st.room(speculative) || !p.st.free(now) || b.isLater(block, p, now) || soon && !p.partial() {
			crowded = true
			continue
		}
		first.offer(p)
	}
	if first.peer == nil && !crowded && !speculative && !other {
		return b.lastResort(block, now), false
	}
	return first.peer, crowded
}

// soonest is the peer, of those that it was offered, that would be done with one
// more block first; of equals any one.
type soonest struct {
	b    *board
	rate float64 // of the fastest peer; 1 if none is known
	peer *peer   // nil: none was offered
	cost float64
	ties int
}

func (b *board) soonest() soonest {
	s := soonest{b: b, rate: b.fastest}
	if s.rate == 0 {
		s.rate = 1
	}
	return s
}

func (s *soonest) offer(p *peer) {
	c := p.cost(s.rate)
	switch {
	case s.peer == nil || c < s.cost:
		s.peer, s.cost, s.ties = p, c, 1
	case c == s.cost:
		if s.ties++; s.b.rng.IntN(s.ties) == 0 {
			s.peer = p
		}
	}
}

// soonElsewhere reports whether a demanded block is on its way from a source to
// somebody who can be asked for it soon. In a crowd that is waited for, within
// reason: when many read in order, the source would send what all of them want
// first again and again, and nothing else.
func (b *board) soonElsewhere(block int, now time.Time) bool {
	if !b.crowded {
		return false
	}
	since := b.wanted(block, now)
	patience := min(max(4*b.took.median(), leastPatience), mostPatience)
	return b.tally.sent[block] > 0 && now.Sub(since) < patience
}

// wanted returns since when a demanded block is looked for.
func (b *board) wanted(block int, now time.Time) time.Time {
	since, ok := b.since[block]
	if !ok {
		b.since[block], since = now, now
	}
	return since
}

// freest returns the peer to ask for one more unasked block: of those that may
// have something wanted, the one that will be done soonest. While a source has
// blocks that nobody was sent, it goes before all others: a crowd that is busy
// with itself and leaves the source idle has nothing left to share a moment later,
// and then waits for the source all at once.
func (b *board) freest() *peer {
	first, source := b.soonest(), b.soonest()
	for _, p := range b.open {
		if p.dry == b.epoch || !p.news && !(p.hint && p.followed > 0) || !b.takes(p) {
			continue
		}
		first.offer(p)
		if p.first(b) {
			source.offer(p)
		}
	}
	if source.peer != nil {
		return source.peer
	}
	return first.peer
}

// first reports whether a peer goes before all others: it has blocks that nobody
// was sent.
func (p *peer) first(b *board) bool {
	return p.news && p.lack == 0 && b.tally.unsent > 0 && p.drained != b.epoch
}

// cost estimates when one more block from the peer would be here. A peer
// nobody knows yet is taken to be as fast as the fastest, so that it is tried;
// one that cannot be followed is likely gone.
func (p *peer) cost(fastest float64) float64 {
	rate := p.rate
	if rate == 0 {
		rate = fastest
	}
	c := float64(p.flights+1) / rate
	if p.followed > 0 {
		c *= 4
	}
	return c
}

// lastResort returns a holder that is in penalty, for a demanded block that
// nobody else has: whoever waits must not fail while the only provider, back
// again, sits out a long back-off. The one that failed longest ago is first.
func (b *board) lastResort(block int, now time.Time) *peer {
	var best *peer
	for _, p := range b.peers {
		if !p.holds(block, false) || !p.st.probe(now) {
			continue
		}
		if best == nil || p.st.failedAt.Before(best.st.failedAt) {
			best = p
		}
	}
	return best
}

func (b *board) asked(p *peer, block int) bool {
	return slices.ContainsFunc(b.flights, func(f *flight) bool { return f.peer == p && f.block == block })
}

// wakeAt returns when a peer that the last plan could not ask can be asked, or had
// said that it has a demanded block; zero if there is none.
func (b *board) wakeAt(now time.Time) (at time.Time) {
	if b.opensAt.After(now) {
		at = b.opensAt
	}
	for _, block := range b.queue {
		if l, ok := b.later[block]; ok && l.until.After(now) && (at.IsZero() || l.until.Before(at)) {
			at = l.until
		}
		if t := b.crossesAt(block); t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}
