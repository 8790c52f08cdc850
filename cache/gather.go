package cache

import (
	"sync"
	"time"
)

// gatherMost bounds how long a group waits for those who are on their way; it
// does not wait when there are none.
const gatherMost = 2 * time.Millisecond

// gathering lets callers share one piece of work that takes long, each time.
type gathering struct {
	turn sync.Mutex // held by the one who works; before mu

	mu      sync.Mutex
	coming  int       // have said that they will join soon
	waiting *workshop // not begun
	joined  chan struct{}
	works   uint64
}

// workshop is those who share one piece of work.
type workshop struct {
	n    int
	done chan struct{}
	err  error
}

// expect changes how many have said that they will join.
func (g *gathering) expect(n int) {
	g.mu.Lock()
	g.coming += n
	g.mu.Unlock()
	g.nudge()
}

func (g *gathering) nudge() {
	select {
	case g.joined <- struct{}{}:
	default:
	}
}

// join meets one expect. It returns what work, called by one for all of its
// group with their number, and after each of them has called join, returned.
func (g *gathering) join(work func(n int) error) error {
	g.mu.Lock()
	g.coming--
	w := g.waiting
	lead := w == nil
	if lead {
		w = &workshop{done: make(chan struct{})}
		g.waiting = w
	}
	w.n++
	g.mu.Unlock()
	g.nudge()
	if lead {
		g.lead(w, work)
	}
	<-w.done
	return w.err
}

// lead works for a group: after the work under way, which may have begun before
// the group came.
func (g *gathering) lead(w *workshop, work func(n int) error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	g.gather()
	g.mu.Lock()
	g.waiting = nil
	g.works++
	n := w.n
	g.mu.Unlock()
	w.err = work(n)
	close(w.done)
}

// gather waits a little for those who are about to join: a piece of work of
// their own would cost them, and those after them, far more.
func (g *gathering) gather() {
	var t *time.Timer
	for {
		g.mu.Lock()
		coming := g.coming
		g.mu.Unlock()
		if coming == 0 {
			return
		}
		if t == nil {
			t = time.NewTimer(gatherMost)
			defer t.Stop()
		}
		select {
		case <-g.joined:
		case <-t.C:
			return
		}
	}
}
