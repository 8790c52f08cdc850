package chunk

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Planner is the policy of one object at one node without the engine around
// it: what to ask of whom, given what is known. The engine drives the very same
// code; a Planner is for those who want to see what it does in a world of their
// own, package sim above all. It opens no file, starts no goroutine and reads no
// clock. Not safe for concurrent use.
type Planner struct {
	b    *board
	g    *gate
	seat seat
	l    Limits

	locatedAt time.Time
}

// Following is a peer that is followed, from Follow until Unfollowed.
type Following struct{ p *peer }

// Peer returns how to reach it.
func (f Following) Peer() Peer { return f.p.Peer }

// Ask is one request that a Planner wants made. It ends with one call of Landed
// or Failed.
type Ask struct {
	Block  int
	Bytes  int64
	Peer   Peer
	Demand bool // somebody waits for it
	f      *flight
}

// NewPlanner returns the policy of a node that has the given blocks of o, a map
// that the Planner takes over. The seed makes its choices repeatable.
func NewPlanner(self Peer, o Object, have Bitmap, l Limits, seed uint64) *Planner {
	l = l.withDefaults()
	p := &Planner{g: newGate(l), l: l}
	p.seat.wake = func() {}
	p.b = newBoard(o, have, l, rand.New(rand.NewPCG(seed, 0)))
	p.b.inZone(self.Node, self.Zone)
	return p
}

// All has every block wanted, as warm does.
func (p *Planner) All() { p.b.whole = true }

// Read has a reader come to a block; false if it has to wait for it. distinct is
// how many bytes of the object it has read before.
func (p *Planner) Read(block int, distinct int64) bool {
	b := p.b
	b.distinct = distinct
	if distinct >= p.l.wholeAfter(b.o) {
		b.whole = true
	}
	b.streams.touch(block, p.l.window(b.o))
	if b.have.Has(block) {
		return true
	}
	b.demand(block)
	return false
}

// Have returns the map of what is here; it is the Planner's own.
func (p *Planner) Have() Bitmap { return p.b.have }

// Has reports whether the block is here.
func (p *Planner) Has(block int) bool { return p.b.have.Has(block) }

// Left returns how many blocks are absent.
func (p *Planner) Left() int { return p.b.left }

// InFlight returns how many requests are under way.
func (p *Planner) InFlight() int { return len(p.b.flights) }

// Starved reports whether more would be asked for if anybody had it, or had
// time: then news may change the plan.
func (p *Planner) Starved() bool { return p.seat.asked[0] || p.b.starved }

// LocateAt returns when the registry should be asked next.
func (p *Planner) LocateAt() time.Time {
	if p.locatedAt.IsZero() {
		return time.Time{}
	}
	return p.locatedAt.Add(p.b.relocate(p.g))
}

// Located takes over what the registry answered.
func (p *Planner) Located(ps []Provider, now time.Time) {
	p.locatedAt = now
	p.b.merge(ps, p.g)
}

// Follow returns the peers that should be followed from now on; each ends with
// one call of Unfollowed.
func (p *Planner) Follow(now time.Time) (out []Following) {
	for _, q := range p.b.peers {
		if q.followable(now) {
			q.following = true
			out = append(out, Following{q})
		}
	}
	return out
}

// Heard takes in news of a peer, and reports whether they may change the plan:
// that of a Planner that is not Starved they do not.
func (p *Planner) Heard(from Following, a Availability, now time.Time) bool {
	if len(a.Peers) > 0 {
		p.b.introduce(a.Peers, p.g)
	}
	q := from.p
	if q.parted || !q.heard(a, p.b.o.Blocks()) {
		return false
	}
	q.gains(a, now)
	q.st.answer(now)
	return p.Starved() && p.b.matters(q, a, now)
}

// FollowedBy takes note of a node that follows this one.
func (p *Planner) FollowedBy(from Peer) { p.b.followed(from, p.g) }

// Unfollowed notes that following a peer ended.
func (p *Planner) Unfollowed(from Following, err error, now time.Time) {
	if !from.p.parted {
		from.p.ended(err, false, now)
	}
}

// Plan returns the requests to make now.
func (p *Planner) Plan(now time.Time) (out []Ask) {
	var fs []*flight
	p.g.round(&p.seat, func(in intake) { fs = p.b.plan(now, in) })
	for _, f := range fs {
		out = append(out, Ask{Block: f.block, Bytes: f.n, Peer: f.peer.Peer, Demand: !f.spec, f: f})
	}
	return out
}

// WakeAt returns when a peer that could not be asked may be; zero if there is none.
func (p *Planner) WakeAt(now time.Time) time.Time { return p.b.wakeAt(now) }

// Landed notes a block that came, after took. Fresh says that it was not here
// yet; useless are requests that can be dropped now, each of which still ends
// with Failed.
func (p *Planner) Landed(a Ask, took time.Duration, now time.Time) (fresh bool, useless []Ask) {
	b, f := p.b, a.f
	f.peer.st.good(now, f.n, took, p.l)
	p.g.release(f.peer.st, f.n, f.spec)
	b.took.add(took)
	b.end(f, true)
	if b.have.Has(f.block) {
		return false, nil
	}
	for _, o := range b.arrived(f.block) {
		o.lost = true
		useless = append(useless, Ask{Block: o.block, Bytes: o.n, Peer: o.peer.Peer, f: o})
	}
	return true, useless
}

// Failed notes a request that brought nothing.
func (p *Planner) Failed(a Ask, err error, now time.Time) {
	f := a.f
	p.g.release(f.peer.st, f.n, f.spec)
	p.b.end(f, false)
	switch {
	case f.lost && f.late:
		f.peer.st.fail(now, errLate, false)
	case !f.lost:
		if p.b.blame(f, err, now, p.g) == stranger {
			p.locatedAt = time.Time{}
		}
	}
}

// Same reports whether two are one request.
func (a Ask) Same(o Ask) bool { return a.f == o.f }

// ended notes that following the peer ended; stopped: because nobody here
// wants news of it any more.
func (p *peer) ended(err error, stopped bool, now time.Time) {
	p.following, p.talks = false, false
	if stopped || err == nil && p.news {
		p.followAt = now.Add(firstBackoff)
		return
	}
	if errors.Is(err, ErrNotHeld) {
		p.nothing()
	}
	p.followAt = now.Add(backoff(p.followed))
	p.followed++
}
