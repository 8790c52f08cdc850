package chunk

import "time"

// watch returns what a flight calls with each piece of its block, n bytes: the
// loop hears of that once a second, and of a quick block never.
func (s *swarm) watch(f *flight) (came func(n int)) {
	next := time.Now().Add(moveTick)
	got := int64(0)
	return func(n int) {
		got += int64(n)
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(moveTick)
		got := got
		s.post(func(now time.Time) { s.moving(f, got, now) })
	}
}

// moving notes that got bytes of a block have come: its peer lives. Whoever
// waits for the block goes on waiting, however long all of it takes, if that is
// more than any request brought before: a source of which every request breaks
// off half way, or ends with wrong bytes, would else be waited for without end.
func (s *swarm) moving(f *flight, got int64, now time.Time) {
	if f.lost {
		return
	}
	f.moved = now
	s.e.gate.with(f.peer.st, func() { f.peer.st.answer(now) })
	if got <= s.most[f.block] {
		return
	}
	s.most[f.block] = got
	s.gaveUp = time.Time{}
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
