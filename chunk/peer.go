package chunk

import (
	"math"
	"time"
)

// peer is another node as one object sees it. What every plan looks at stands
// first: with many peers and many objects it is memory that a plan waits for.
type peer struct {
	*vital // of st
	st     *standing
	out    error // why it is not asked again for this object
	hint   bool  // the registry says it has all of it
	news   bool  // have is what it said itself
	keeper bool
	none   bool // it said that it has nothing of the object
	parted bool // it is off the board
	listed bool // by the registry, the last time it was asked

	following bool
	talks     bool // it is followed, and has spoken: it lives, however long it takes for a block

	followed int    // times following failed in a row
	lack     int    // blocks not in have
	dry      uint64 // the board's epoch when it had nothing that is wanted
	have     Bitmap // once news came

	tally *tally  // of the object's peers
	sent  []uint8 // how often it began to send each block, as far as it said; nil: never said
	Peer
	drained  uint64    // the board's epoch when it had nothing that nobody was sent
	local    *tally    // of the node's zone, if the peer is in it
	gained   time.Time // when it was last heard to have a block more
	outAt    time.Time
	unfollow func()
	followAt time.Time // not again before
	lastErr  error
}

// holds reports whether the peer is thought to have the block. Before it has
// said anything itself, the registry's hint is enough for a demanded block:
// that saves a round trip; and for all others when it cannot be followed.
func (p *peer) holds(block int, speculative bool) bool {
	switch {
	case p.out != nil:
		return false
	case p.news:
		return p.have.Has(block)
	default:
		return p.hint && (!speculative || p.followed > 0)
	}
}

// might reports whether the peer can have the block for all we know.
func (p *peer) might(block int) bool {
	return p.out == nil && (!p.news || p.have.Has(block))
}

// partial reports whether the peer is still fetching the object itself.
func (p *peer) partial() bool {
	if p.news {
		return p.lack > 0
	}
	return !p.hint
}

// heard notes news from the peer; false if it makes no sense.
func (p *peer) heard(a Availability, blocks int) bool {
	if a.Full {
		if a.Have.Len() != blocks {
			return false
		}
		p.forget()
		p.have, p.news = a.Have, true
		p.lack = blocks - a.Have.Count()
		p.tally.add(p.have, 1)
		p.local.add(p.have, 1)
	} else if !p.news {
		return false
	}
	for _, b := range a.Added {
		if b < 0 || b >= blocks {
			return false
		}
		if !p.have.Has(b) {
			p.have.Set(b)
			p.lack--
			p.tally.one(b, 1)
			p.local.one(b, 1)
		}
	}
	for _, b := range a.Sent {
		if b < 0 || b >= blocks {
			return false
		}
		if p.sent == nil {
			p.sent = make([]uint8, blocks)
		}
		if p.sent[b] < math.MaxUint8 {
			p.sent[b]++
			p.tally.send(b, 1)
		}
	}
	p.dry = 0
	if a.Keeper {
		p.keeps()
	}
	p.none = false
	p.followed, p.talks = 0, p.following
	return true
}

// keeps notes that the peer is a keeper. What the others of a zone have is counted
// without it: a crowd is not to have every block from the keeper because that one is
// near.
func (p *peer) keeps() {
	p.keeper = true
	p.discount()
}

// exclude notes why the peer is not asked again for this object.
func (p *peer) exclude(err error, now time.Time) {
	p.out, p.outAt = err, now
	p.discount()
}

// discount has what the peer has not count as what its zone has.
func (p *peer) discount() {
	if p.news {
		p.local.add(p.have, -1)
	}
	p.local = nil
}

// gains notes when it has got further.
func (p *peer) gains(a Availability, now time.Time) {
	if a.Full || len(a.Added) > 0 {
		p.gained = now
	}
}

// nothing notes that the peer has none of the object, whatever it or the
// registry said before.
func (p *peer) nothing() {
	p.forget()
	p.none, p.hint, p.news = true, false, false
}

// forget takes what the peer said out of the tally.
func (p *peer) forget() {
	if p.news {
		p.tally.add(p.have, -1)
		p.local.add(p.have, -1)
	}
	for b, n := range p.sent {
		p.tally.send(b, -int(n))
	}
	p.have, p.news, p.sent = Bitmap{}, false, nil
}

// lacks notes that the peer does not have the block after all.
func (p *peer) lacks(block int) {
	p.hint = false
	if p.news && p.have.Has(block) {
		p.have.Clear(block)
		p.lack++
		p.tally.one(block, -1)
		p.local.one(block, -1)
	}
}
