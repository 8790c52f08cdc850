package chunk

import (
	"sync"
	"time"
)

// gate shares out what all objects have in common: the blocks in flight, in
// all and per peer. Whoever is refused waits in line, demand before
// speculation; nobody who comes later takes what was freed before those in
// line have had a look at it.
type gate struct {
	limits Limits

	mu        sync.Mutex
	used      int
	usedBytes int64
	spec      int
	specBytes int64
	freed     uint64     // how often something was given back
	line      [2][]*seat // demand, speculation
	peers     map[NodeID]*standing
	fresh     []vital // for the nodes that become known next
}

// seat is one swarm's place at the gate; its fields are the gate's.
type seat struct {
	wake    func()
	waiting [2]bool
	seen    [2]uint64 // gate.freed when refused last for want of room
	asked   [2]bool   // refused in this round
}

func newGate(l Limits) *gate {
	return &gate{limits: l, peers: map[NodeID]*standing{}}
}

// round runs the policy of one swarm. What it no longer waits for is struck
// from the line, and the next in line is woken.
func (g *gate) round(s *seat, policy func(intake)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.asked = [2]bool{}
	policy(intake{g, s})
	for k := range s.waiting {
		if s.waiting[k] && !s.asked[k] {
			g.leave(s, k)
		}
	}
	g.nudge()
}

// forget strikes a swarm that ends from the line.
func (g *gate) forget(s *seat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leave(s, 0)
	g.leave(s, 1)
	g.nudge()
}

// with changes a peer's standing.
func (g *gate) with(st *standing, change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// standing returns the record of a node, made if there is none.
func (g *gate) standing(p Peer) *standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.peers[p.Node]
	if st == nil {
		if len(g.fresh) == 0 {
			g.fresh = make([]vital, vitals)
		}
		st = &standing{vital: &g.fresh[0], node: p.Node, incarnation: p.Incarnation}
		st.share = g.limits.PerPeer
		g.fresh = g.fresh[1:]
		g.peers[p.Node] = st
	}
	st.name = p.Name
	if st.incarnation != p.Incarnation {
		st.reborn(p.Incarnation, g.limits)
	}
	return st
}

// failing reports whether the last that was asked of a peer failed.
func (g *gate) failing(st *standing) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return st.strikes > 0
}

// release gives back what take took.
func (g *gate) release(st *standing, n int64, speculative bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st.flights--
	g.used--
	g.usedBytes -= n
	if speculative {
		g.spec--
		g.specBytes -= n
	}
	g.freed++
	g.nudge()
}

// live reports whether any of the peers that may have something of the object
// answered within d.
func (g *gate) live(peers []*peer, now time.Time, d time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range peers {
		if p.out == nil && !p.none && p.st.live(now, d) {
			return true
		}
	}
	return false
}

// nudge wakes the first in line that has not seen what was freed. The woken
// one nudges the next when it is done.
func (g *gate) nudge() {
	for k, line := range g.line {
		if !g.fits(1, k == 1) {
			continue
		}
		for _, s := range line {
			if s.seen[k] != g.freed {
				s.wake()
				return
			}
		}
	}
}

func (g *gate) leave(s *seat, k int) {
	if !s.waiting[k] {
		return
	}
	s.waiting[k] = false
	for i, o := range g.line[k] {
		if o == s {
			g.line[k] = append(g.line[k][:i], g.line[k][i+1:]...)
			return
		}
	}
}

func (g *gate) fits(n int64, speculative bool) bool {
	if g.used == 0 || !speculative && g.used == g.spec && g.used < g.limits.InFlight {
		return true // the largest blocks too, and never behind speculation
	}
	if g.used >= g.limits.InFlight || g.usedBytes+n > g.limits.InFlightBytes {
		return false
	}
	if !speculative {
		return true
	}
	most := g.limits.InFlight - g.limits.Reserve
	share := g.limits.InFlightBytes / int64(g.limits.InFlight) * int64(most)
	return g.spec < most && (g.spec == 0 || g.specBytes+n <= share)
}

// intake is the gate as the policy of one swarm sees it during a round.
type intake struct {
	g *gate
	s *seat
}

// open reports whether one more block of n bytes may be asked for at all.
func (in intake) open(n int64, speculative bool) bool {
	switch {
	case in.ahead(speculative):
		in.queue(speculative)
		return false
	case !in.g.fits(n, speculative):
		in.wait(speculative)
		return false
	}
	return true
}

// ahead reports whether somebody in line goes first.
func (in intake) ahead(speculative bool) bool {
	for k := 0; k <= kind(speculative); k++ {
		for _, s := range in.g.line[k] {
			if s == in.s {
				break
			}
			if s.seen[k] != in.g.freed {
				return true
			}
		}
	}
	return false
}

// wait puts the swarm in line, to be woken when anything is given back.
func (in intake) wait(speculative bool) {
	in.queue(speculative)
	in.s.seen[kind(speculative)] = in.g.freed
}

// queue puts the swarm in line behind those that go first. It has had no look at
// what was freed, and is woken once they are done: they may have no use for it.
func (in intake) queue(speculative bool) {
	k := kind(speculative)
	in.s.asked[k] = true
	in.s.seen[k] = in.g.freed - 1
	if !in.s.waiting[k] {
		in.s.waiting[k] = true
		in.g.line[k] = append(in.g.line[k], in.s)
	}
}

// take counts one block of n bytes as asked of a peer.
func (in intake) take(st *standing, n int64, speculative bool) {
	g := in.g
	st.flights++
	g.used++
	g.usedBytes += n
	if speculative {
		g.spec++
		g.specBytes += n
	}
	g.leave(in.s, kind(speculative))
}

func kind(speculative bool) int {
	if speculative {
		return 1
	}
	return 0
}
