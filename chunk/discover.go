package chunk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// discovery is how one swarm learns who has what. It belongs to the loop.
type discovery struct {
	needed    time.Time // when it was last of use
	locating  bool
	locateAt  time.Time // not again before, unless hurried
	locatedAt time.Time
	locateErr error
	misses    int // failures in a row

	ctx       context.Context // of the followers, while there are any
	cancel    context.CancelFunc
	following int

	zeros   int
	zerosAt time.Time
}

// hurry has the registry asked again at once.
func (d *discovery) hurry() { d.locateAt, d.locatedAt = time.Time{}, time.Time{} }

// stop ends the followers; they report back when they have ended.
func (d *discovery) stop() {
	if d.cancel != nil {
		d.cancel()
		d.ctx, d.cancel = nil, nil
	}
}

// needed reports whether anything is wanted that is not here.
func (s *swarm) needed(now time.Time) bool {
	b := s.board
	if b.left == 0 {
		return false
	}
	return len(s.waiters) > 0 || len(b.queue) > 0 || !b.held && b.hungry() && (b.whole || b.ahead())
}

// discover asks the registry and the peers when that is due, and stops
// following once nothing has been wanted for the grace period.
func (s *swarm) discover(now time.Time) {
	d := &s.disc
	if !s.needed(now) {
		if now.Sub(d.needed) >= s.e.cfg.Limits.Grace {
			d.stop()
		}
		return
	}
	d.needed = now
	s.askZeros(now)
	if !d.locating && !now.Before(d.locateAt) && now.Sub(d.locatedAt) >= s.relocate(now) {
		s.locate()
	}
	for _, p := range s.board.peers {
		if !p.following && p.out == nil && !now.Before(p.followAt) && (!p.news || p.lack > 0) {
			s.follow(p)
		}
	}
}

// relocate returns how long after the registry's last answer it is asked
// again: soon when a block has no holder, or no peer can be asked.
func (s *swarm) relocate(now time.Time) time.Duration {
	b := s.board
	every := s.e.cfg.Limits.Relocate
	soon := min(time.Second, every)
	usable := false
	for _, p := range b.peers {
		usable = usable || p.out == nil && !s.e.gate.failing(p.st)
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

func (s *swarm) locate() {
	s.disc.locating = true
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
		defer cancel()
		ps, err := s.e.cfg.Registry.Locate(ctx, s.o.Set)
		s.post(func(now time.Time) { s.located(ps, err, now) })
	}()
}

func (s *swarm) located(ps []Provider, err error, now time.Time) {
	d := &s.disc
	d.locating = false
	if err != nil {
		d.locateErr = err
		d.locateAt = now.Add(min(250*time.Millisecond<<min(d.misses, 3), 2*time.Second))
		d.misses++
		return
	}
	d.locateErr, d.misses, d.locateAt = nil, 0, time.Time{}
	d.locatedAt = now
	s.merge(ps, now)
}

// merge takes over what the registry says. Peers that are known and answer
// stay, whatever it says: a record that is gone stops new choices only.
func (s *swarm) merge(ps []Provider, now time.Time) {
	b := s.board
	for _, p := range b.peers {
		p.listed = false
	}
	var fresh []Provider
	for _, q := range ps {
		if q.Node == s.e.cfg.Self {
			continue
		}
		i := slices.IndexFunc(b.peers, func(p *peer) bool { return p.Node == q.Node })
		switch {
		case i < 0:
			fresh = append(fresh, q)
		case b.peers[i].Incarnation != q.Incarnation:
			b.peers[i].unfollow()
			b.peers = slices.Delete(b.peers, i, i+1) // another run: nothing known of it holds
			fresh = append(fresh, q)
		default:
			p := b.peers[i]
			p.listed, p.Peer = true, q.Peer
			p.keeper = p.keeper || q.Keeper
		}
	}
	b.peers = slices.DeleteFunc(b.peers, func(p *peer) bool {
		gone := !p.listed && s.e.gate.failing(p.st)
		if gone {
			p.unfollow()
		}
		return gone
	})
	for _, q := range choose(fresh, s.e.cfg.Zone, b.rng, s.e.cfg.Limits.Peers-len(b.peers)) {
		b.peers = append(b.peers, &peer{
			Peer: q.Peer, st: s.e.gate.standing(q.Peer), listed: true,
			keeper: q.Keeper, hint: q.Complete || q.Keeper, unfollow: func() {},
		})
	}
}

// choose takes n of the providers at random, those of the zone with twice the
// chance, and a keeper among them if there is one.
func choose(ps []Provider, zone string, rng *rand.Rand, n int) []Provider {
	if n <= 0 {
		return nil
	}
	order := make(map[NodeID]float64, len(ps))
	for _, p := range ps {
		order[p.Node] = rng.Float64()
		if zone != "" && p.Zone == zone {
			order[p.Node] /= 2
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

// errNews ends following a peer whose news makes no sense.
var errNews = errors.New("news of blocks that the object does not have")

// follow listens to what a peer has until it has all of it.
func (s *swarm) follow(p *peer) {
	d := &s.disc
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithCancel(s.ctx)
	}
	ctx, cancel := context.WithCancel(d.ctx)
	p.following, p.unfollow = true, cancel
	d.following++
	from := p.Peer
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		defer cancel()
		var end error
		err := s.e.cfg.Scout.Follow(ctx, from, s.o, func(a Availability) bool {
			if a.Full {
				a.Have = a.Have.Clone()
			}
			a.Added = slices.Clone(a.Added)
			// One piece of news at a time: a peer that floods waits.
			said := make(chan bool, 1)
			s.post(func(now time.Time) { said <- s.heard(p, a, now, &end) })
			select {
			case more := <-said:
				return more
			case <-ctx.Done():
				return false
			}
		})
		stopped := ctx.Err() != nil
		s.post(func(now time.Time) { s.followed(p, errors.Join(end, err), stopped, now) })
	}()
}

func (s *swarm) heard(p *peer, a Availability, now time.Time, end *error) (more bool) {
	if !p.heard(a, s.o.Blocks()) {
		*end = errNews
		return false
	}
	s.e.gate.with(p.st, func() { p.st.answer(now) })
	return p.lack > 0
}

// followed notes that following a peer ended.
func (s *swarm) followed(p *peer, err error, stopped bool, now time.Time) {
	p.following = false
	s.disc.following--
	if stopped || err == nil && p.news {
		p.followAt = now.Add(firstBackoff)
		return
	}
	if err != nil {
		p.lastErr = fmt.Errorf("follow: %w", err)
	}
	if errors.Is(err, ErrNotHeld) {
		p.nothing()
	}
	p.followAt = now.Add(backoff(p.followed))
	p.followed++
}
