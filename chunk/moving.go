package chunk

import "time"

// watch returns what a flight calls with each piece of its block: the loop
// hears of that once a second, and of a quick block never.
func (s *swarm) watch(f *flight) (came func()) {
	next := time.Now().Add(moveTick)
	return func() {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(moveTick)
		s.post(func(now time.Time) { s.moving(f, now) })
	}
}

// moving notes that bytes of a block come: its peer lives, and whoever waits for
// the block goes on waiting, however long all of it takes.
func (s *swarm) moving(f *flight, now time.Time) {
	if f.lost {
		return
	}
	f.moved = now
	s.gaveUp = time.Time{}
	s.e.gate.with(f.peer.st, func() { f.peer.st.answer(now) })
	if t := s.wants[f.block]; t != nil {
		for _, w := range t.waiters {
			w.base, w.spent = now, 0
		}
	}
	if s.alls == 0 {
		return
	}
	for w := range s.waiters {
		if w.all {
			w.base = now
		}
	}
}

// moves reports whether bytes of the block came lately.
func (b *board) moves(block int, now time.Time) bool {
	for _, f := range b.flights {
		if f.block == block && now.Sub(f.moved) < b.limits.Grace {
			return true
		}
	}
	return false
}
