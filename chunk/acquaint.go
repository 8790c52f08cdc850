package chunk

import (
	"math/rand/v2"
	"slices"
	"time"
)

// relocate returns how long after the registry's last answer it is asked
// again: soon when a block has no holder, or no peer can be asked.
func (b *board) relocate(g *gate) time.Duration {
	every := b.limits.Relocate
	soon := min(time.Second, every)
	usable := false
	for _, p := range b.peers {
		usable = usable || p.out == nil && !g.failing(p.st)
	}
	if !usable {
		return soon
	}
	for _, block := range b.queue {
		if !b.busy.Has(block) && !slices.ContainsFunc(b.peers, func(p *peer) bool { return p.holds(block, false) }) {
			return soon
		}
	}
	return every
}

// merge takes over what the registry says. Peers that are known and answer
// stay, whatever it says: a record that is gone stops new choices only.
func (b *board) merge(ps []Provider, g *gate) {
	for _, p := range b.peers {
		p.listed = false
	}
	var fresh []Provider
	for _, q := range ps {
		if q.Node == b.self {
			continue
		}
		i := slices.IndexFunc(b.peers, func(p *peer) bool { return p.Node == q.Node })
		switch {
		case i < 0:
			fresh = append(fresh, q)
		case b.peers[i].Incarnation != q.Incarnation:
			b.part(b.peers[i]) // another run: nothing known of it holds
			fresh = append(fresh, q)
		default:
			p := b.peers[i]
			p.listed, p.Peer = true, q.Peer
			if q.Keeper {
				p.keeps()
			}
		}
	}
	for _, p := range slices.Clone(b.peers) {
		if !p.listed && g.failing(p.st) {
			b.part(p)
		}
	}
	for _, q := range choose(fresh, b.zone.name, b.rng, b.limits.Peers-len(b.peers)) {
		b.meet(q, g).listed = true
	}
}

// meet adds a peer.
func (b *board) meet(q Provider, g *gate) *peer {
	st := g.standing(q.Peer)
	p := &peer{
		Peer: q.Peer, st: st, vital: st.vital, tally: b.tally,
		keeper: q.Keeper, hint: q.Complete || q.Keeper, unfollow: func() {},
	}
	if b.near(q.Peer) && !q.Keeper {
		p.local = b.zone.tally
	}
	b.peers = append(b.peers, p)
	return p
}

// part takes a peer off the board.
func (b *board) part(p *peer) {
	p.unfollow()
	p.forget()
	p.parted = true
	b.peers = slices.DeleteFunc(b.peers, func(o *peer) bool { return o == p })
}

// introduce takes note of nodes that others say fetch the object too: at a
// simultaneous start they are known long before the registry lists them. Only so
// many are taken that there is room for those who follow: who came first is named
// to all who come later, and would else be asked by everybody, while nobody knows
// those who came last.
func (b *board) introduce(ps []Peer, g *gate) { b.take(ps, max(b.limits.Peers*5/8, 1), g) }

// followed takes note of a node that follows this one: a few more than one would
// choose, so that most of those who ask a node can be asked by it.
func (b *board) followed(p Peer, g *gate) { b.take([]Peer{p}, b.limits.Peers*3/2, g) }

// take adds peers as long as there are fewer than most, or one is worth less.
func (b *board) take(ps []Peer, most int, g *gate) {
	for _, q := range ps {
		if q.Node == b.self || q.Node.IsZero() {
			continue
		}
		i := slices.IndexFunc(b.peers, func(p *peer) bool { return p.Node == q.Node })
		if i >= 0 && (b.peers[i].Incarnation == q.Incarnation || !b.replaceable(b.peers[i], g)) {
			continue
		}
		if i < 0 && len(b.peers) >= most {
			i = slices.IndexFunc(b.peers, func(p *peer) bool { return b.replaceable(p, g) })
			if i < 0 {
				i = b.remote(q)
			}
			if i < 0 {
				continue
			}
		}
		if i >= 0 {
			b.part(b.peers[i])
		}
		b.meet(Provider{Peer: q}, g)
	}
}

// replaceable reports whether a peer is worth less than one that nobody knows
// yet.
func (b *board) replaceable(p *peer, g *gate) bool {
	return p.out != nil || p.none || p.followed > 1 || g.failing(p.st)
}

// followable reports whether the peer should be followed, and is not.
func (p *peer) followable(now time.Time) bool {
	return !p.following && p.out == nil && !now.Before(p.followAt)
}

// choose takes n of the providers at random, those of the zone with eight times the
// chance, and a keeper among them if there is one.
func choose(ps []Provider, zone string, rng *rand.Rand, n int) []Provider {
	if n <= 0 {
		return nil
	}
	order := make(map[NodeID]float64, len(ps))
	for _, p := range ps {
		order[p.Node] = rng.Float64()
		if zone != "" && p.Zone == zone {
			order[p.Node] /= 8
		}
	}
	slices.SortStableFunc(ps, func(a, b Provider) int {
		switch {
		case order[a.Node] < order[b.Node]:
			return -1
		case order[a.Node] > order[b.Node]:
			return 1
		}
		return 0
	})
	if len(ps) <= n {
		return ps
	}
	keeper := func(p Provider) bool { return p.Keeper }
	if i := slices.IndexFunc(ps, keeper); i >= n {
		ps[n-1] = ps[i]
	}
	return ps[:n]
}
