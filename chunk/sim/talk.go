package sim

import (
	"slices"

	"github.com/p2pfs/p2pfs/chunk"
)

// follower is a node that follows another one: what it knows that one by, and
// which of its runs it is.
type follower struct {
	node *node
	as   chunk.Following
	run  uint64
}

// news is what a node tells of itself, to one or to all who follow.
type news struct {
	from *node
	run  uint64
	to   []follower
	a    chunk.Availability
}

// followed takes a follower on: it is told everything there is, and who else
// follows; and the node gets to know it.
func (n *node) followed(f follower) {
	w := n.w
	if n.nature == dead || n.away || n.have.Len() == 0 || f.node.run != f.run {
		wait := w.latency()
		if n.nature == dead {
			wait += deadTakes
		}
		w.later(wait, event{kind: evLost, node: f.node, who: &f})
		return
	}
	first := &news{from: n, run: n.run, to: []follower{f}, a: chunk.Availability{Full: true, Have: n.have.Clone(), Keeper: n == w.nodes[0]}}
	if n.nature == lying {
		first.a.Have.Fill()
	}
	for b, times := range n.sentOnce {
		for range times {
			first.a.Sent = append(first.a.Sent, b)
		}
	}
	first.a.Peers = n.named(f.node)
	if i := slices.IndexFunc(n.followers, func(o follower) bool { return o.node == f.node }); i >= 0 {
		n.followers[i] = f
	} else {
		n.followers = append(n.followers, f)
	}
	w.later(w.latency(), event{kind: evMap, node: f.node, news: first})
	if n.fetches() {
		p := f.node.peer
		n.tell(true, letter{kind: evFollow, what: &p})
	}
}

// named returns some of those who follow.
func (n *node) named(to *node) (out []chunk.Peer) {
	near := func(i int) bool { return n.followers[i].node.peer.Zone == to.peer.Zone }
	for _, i := range chunk.Introductions(n.w.rng.Perm(len(n.followers)), near) {
		if o := n.followers[i].node; o != to {
			out = append(out, o.peer)
		}
	}
	return out
}

// heard takes in the first news of a node that is followed.
func (n *node) heard(s *news) {
	if f := s.to[0]; n.hears(f, s) {
		n.tell(true, letter{kind: evMap, as: f.as, what: s})
	}
}

// hears reports whether a node is still there for news, and whoever told them.
func (n *node) hears(f follower, s *news) bool {
	return n.fetches() && f.run == n.run && s.run == s.from.run
}

// gained notes a new block for the followers.
func (n *node) gained(block int) {
	if n.nature != lying {
		n.added = append(n.added, block)
		n.news()
	}
}

// begins notes that a block is being sent, which a node that has everything
// tells.
func (n *node) begins(block int) {
	if !n.whole() {
		return
	}
	if n.sentOnce == nil {
		n.sentOnce = make([]uint8, n.w.object.Blocks())
	}
	n.sentOnce[block] = min(n.sentOnce[block]+1, 200)
	n.began2 = append(n.began2, block)
	n.news()
}

// news sees to it that the followers are told.
func (n *node) news() {
	if !n.flushing && len(n.followers) > 0 {
		n.flushing = true
		n.w.later(max(flushLeast, 2e6*int64(len(n.followers))), event{kind: evFlush, node: n})
	}
}

// flush tells what is new.
func (n *node) flush() {
	n.flushing = false
	if n.away || len(n.followers) == 0 {
		return
	}
	n.followers = slices.DeleteFunc(n.followers, func(f follower) bool { return f.node.done > 0 || f.node.away })
	s := &news{from: n, run: n.run, to: slices.Clone(n.followers), a: chunk.Availability{Added: n.added, Sent: n.began2}}
	n.added, n.began2 = nil, nil
	n.w.later(n.w.latency(), event{kind: evHeard, node: n, news: s})
}

// tellAll has every follower hear the news. Those who would not ask for more
// whatever they heard read them when they plan next.
func (n *node) tellAll(s *news) {
	for _, f := range s.to {
		if o := f.node; o.hears(f, s) {
			o.tell(o.idle, letter{kind: evHeard, as: f.as, what: s})
		}
	}
}

// unfollowed notes that a node that was followed is gone.
func (n *node) unfollowed(f follower) {
	if n.fetches() && n.run == f.run {
		n.tell(false, letter{kind: evLost, as: f.as})
	}
}
