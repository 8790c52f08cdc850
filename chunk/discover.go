package chunk

import (
	"context"
	"errors"
	"fmt"
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
	if !d.locating && !now.Before(d.locateAt) && now.Sub(d.locatedAt) >= s.board.relocate(s.e.gate) {
		s.locate()
	}
	for _, p := range s.board.peers {
		if p.followable(now) {
			s.follow(p)
		}
	}
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
	s.board.merge(ps, s.e.gate)
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
	p.gains(a, now)
	s.e.gate.with(p.st, func() { p.st.answer(now) })
	s.board.introduce(a.Peers, s.e.gate)
	return true
}

// followed notes that following a peer ended.
func (s *swarm) followed(p *peer, err error, stopped bool, now time.Time) {
	s.disc.following--
	if err != nil && !stopped {
		if errors.Is(p.lastErr, ErrStalled) { // that it talked was all that spoke for it
			s.e.gate.with(p.st, func() { p.st.dead = !p.st.live(now, LongestTurn) })
		}
		p.lastErr = fmt.Errorf("follow: %w", err)
	}
	p.ended(err, stopped, now)
}
