package chunk

import (
	"time"
)

// waiter is one read that waits for blocks, or one that waits for all of them.
// Its fields belong to the loop until ready is closed, and to the reader then.
type waiter struct {
	first, end int
	all        bool
	left       int             // blocks not here yet
	base       time.Time       // of the last progress
	spent      time.Duration   // counts as waited before base
	parts      map[int]*buffer // blocks that are here and could not be stored
	err        error
	ready      chan struct{}
	news       chan struct{} // of all: told of each block, holds one
}

// enlist starts a wait.
func (s *swarm) enlist(w *waiter, now time.Time) {
	w.base = now
	if w.all {
		s.adopt(false, now)
	}
	s.waiters[w] = struct{}{}
	s.forgive(now)
	if w.all {
		w.left = s.board.left
		if s.alls == 0 {
			clear(s.most)
		}
		s.alls++
		s.board.undamage()
		if err := s.putErr; err != nil && s.uncached.Load() && now.UnixNano() < s.storeAt.Load() {
			s.settle(w, err)
			return
		}
	} else {
		w.spent = s.again(now)
		s.board.streams.touch(w.first, s.e.cfg.Limits.window(s.o))
		for i := w.first; i < w.end; i++ {
			s.demand(w, i)
		}
	}
	if w.left == 0 {
		s.settle(w, nil)
	}
}

func (s *swarm) demand(w *waiter, block int) {
	if s.file.Has(block) {
		return
	}
	if s.uncached.Load() {
		if buf := s.e.ring.get(s.o.ID, block); buf != nil {
			w.part(block, buf)
			return
		}
	}
	w.left++
	t := s.wants[block]
	if t == nil {
		t = &want{}
		s.wants[block] = t
		delete(s.most, block)
	}
	t.waiters = append(t.waiters, w)
	s.board.demand(block)
}

func (w *waiter) part(block int, buf *buffer) {
	if w.parts == nil {
		w.parts = map[int]*buffer{}
	}
	w.parts[block] = buf
}

// drop gives back the blocks a waiter was handed.
func (w *waiter) drop() {
	for _, buf := range w.parts {
		buf.release()
	}
	w.parts = nil
}

// leave ends a wait that its reader gave up. What it asked for stays in
// flight for a while.
func (s *swarm) leave(w *waiter, now time.Time) {
	if _, ok := s.waiters[w]; !ok {
		w.drop()
		return
	}
	s.unlist(w, now)
	w.drop()
}

// settle ends a wait.
func (s *swarm) settle(w *waiter, err error) {
	s.unlist(w, time.Now())
	if err != nil {
		w.drop()
	}
	w.err = err
	close(w.ready)
}

func (s *swarm) unlist(w *waiter, now time.Time) {
	delete(s.waiters, w)
	grace := now.Add(s.e.cfg.Limits.Grace)
	if w.all {
		s.alls--
		if s.alls == 0 {
			s.allsUntil = grace
		}
		return
	}
	if w.left == 0 {
		return
	}
	for i := w.first; i < w.end; i++ {
		t := s.wants[i]
		if t == nil {
			continue
		}
		for k, o := range t.waiters {
			if o == w {
				t.waiters = append(t.waiters[:k], t.waiters[k+1:]...)
				break
			}
		}
		if len(t.waiters) == 0 {
			t.until = grace
		}
	}
}

// linger stops fetching what nobody has wanted for the grace period. What still
// comes is let finish: its bytes would be thrown away.
func (s *swarm) linger(now time.Time) {
	for block, t := range s.wants {
		if len(t.waiters) > 0 || now.Before(t.until) || s.board.moves(block, now) {
			continue
		}
		delete(s.wants, block)
		for _, f := range s.board.forgo(block) {
			f.lost = true
			f.cancel()
		}
	}
}

// present hands a block that has come to whoever waits for it; buf is not nil
// when it could not be stored.
func (s *swarm) present(block int, buf *buffer, now time.Time) {
	s.gaveUp = time.Time{}
	delete(s.most, block)
	if t := s.wants[block]; t != nil {
		delete(s.wants, block)
		for _, w := range t.waiters {
			w.left--
			w.base, w.spent = now, 0
			if buf != nil {
				w.part(block, buf.retain())
			}
			if w.left == 0 {
				s.settle(w, nil)
			}
		}
		if buf != nil {
			s.e.ring.put(s.o.ID, block, buf)
		}
	}
	if s.alls > 0 && buf == nil {
		s.presentAll(now)
	}
}

func (s *swarm) presentAll(now time.Time) {
	for w := range s.waiters {
		if !w.all {
			continue
		}
		w.left, w.base = s.board.left, now
		select {
		case w.news <- struct{}{}:
		default:
		}
		if w.left == 0 {
			s.settle(w, nil)
		}
	}
}
