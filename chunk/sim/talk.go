package sim

import (
	"slices"

	"github.com/p2pfs/p2pfs/chunk"
)

// introductions is how many others a node names to one that begins to follow
// it.
const introductions = 8

// followed takes a follower on: it is told everything there is, and who else
// follows; and the node gets to know it.
func (n *node) followed(f *node, run uint64) {
	w := n.w
	if n.nature == dead || n.away || n.have.Len() == 0 || f.run != run {
		wait := w.latency()
		if n.nature == dead {
			wait += deadTakes
		}
		w.later(wait, event{kind: evLost, node: f, from: n, run: run})
		return
	}
	first := &news{from: n, run: n.run, to: []*node{f}, a: chunk.Availability{Full: true, Have: n.have.Clone(), Keeper: n == w.nodes[0]}}
	if n.nature == lying {
		first.a.Have.Fill()
	}
	for b, times := range n.sentOnce {
		for range times {
			first.a.Sent = append(first.a.Sent, b)
		}
	}
	for _, i := range w.rng.Perm(len(n.followers))[:min(introductions, len(n.followers))] {
		if o := n.followers[i]; o != f {
			first.a.Peers = append(first.a.Peers, o.peer)
		}
	}
	if !slices.Contains(n.followers, f) {
		n.followers = append(n.followers, f)
	}
	w.later(w.latency(), event{kind: evMap, node: f, news: first})
	if n.planner != nil && n.done == 0 {
		n.planner.FollowedBy(f.peer)
		n.discover()
	}
}

// heard takes in the first news of a node that is followed.
func (n *node) heard(s *news) {
	if n.away || n.planner == nil || n.done > 0 || s.run != s.from.run {
		return
	}
	matters := n.planner.Heard(s.from.peer.Node, s.a, n.w.time())
	if len(s.a.Peers) > 0 {
		n.discover()
	}
	if matters && n.planner.Starved() || s.a.Full {
		n.plan()
	}
}

// tell notes a new block for the followers.
func (n *node) tell(block int) {
	if n.nature != lying {
		n.added = append(n.added, block)
		n.news()
	}
}

// begins notes that a block is being sent, which a node that has everything
// tells.
func (n *node) begins(block int) {
	if n != n.w.nodes[0] && n.done == 0 {
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
	n.followers = slices.DeleteFunc(n.followers, func(f *node) bool { return f.done > 0 || f.away })
	s := &news{from: n, run: n.run, to: slices.Clone(n.followers), a: chunk.Availability{Added: n.added, Sent: n.began2}}
	n.added, n.began2 = nil, nil
	n.w.later(n.w.latency(), event{kind: evHeard, node: n, news: s})
}

// tellAll has every follower hear the news.
func (n *node) tellAll(s *news) {
	for _, f := range s.to {
		f.heard(s)
	}
}

// unfollowed notes that a node that was followed is gone.
func (n *node) unfollowed(from *node, run uint64) {
	if n.run == run && n.planner != nil && n.done == 0 {
		n.planner.Unfollowed(from.peer.Node, errGone, n.w.time())
	}
}
