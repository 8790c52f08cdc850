package sim

import (
	"sync"
	"sync/atomic"
)

// play lets everything happen until every receiver is done.
//
// Time goes on in turns. What minds are told in one turn they think about in the
// next one, while the world already plays that one: a turn is half as long as it
// takes until an order has any effect, so that none comes too late. Who thinks
// when, and beside whom, makes no difference.
func (w *world) play(workers int) {
	crew := newCrew(workers)
	defer crew.close()
	turn := min(w.latency(), locateTakes, wakeLeast) / 2
	for w.unborn > 0 {
		if len(w.due) == 0 {
			at, _ := w.next()
			if at >= endOfTime {
				return
			}
			w.turn = at / turn * turn // nothing happens before
		}
		thinking := w.summon()
		crew.begin(thinking, w.turn-turn)
		w.turn += turn
		w.advance(w.turn)
		crew.wait()
		w.obey(thinking)
	}
}

// summon returns the nodes whose minds have something to think about, and hands
// them their letters.
func (w *world) summon() []*node {
	thinking := w.due
	w.due, w.spare = w.spare[:0], thinking
	for _, n := range thinking {
		n.due = false
		n.mail, n.mind.inbox = n.mind.inbox, n.mail
	}
	return thinking
}

// obey has the orders of those who thought.
func (w *world) obey(thinking []*node) {
	for _, n := range thinking {
		m := n.mind
		for i, e := range m.orders {
			w.agenda.add(e)
			m.orders[i] = event{}
		}
		m.orders = m.orders[:0]
		n.idle = m.starved
		if n.idle && len(n.mail) > 0 && !n.due { // it might ask for more now
			n.due = true
			w.due = append(w.due, n)
		}
	}
}

// fewMinds think so quickly that nobody need help.
const fewMinds = 16

// crew has minds think side by side. One goroutine uses it.
type crew struct {
	helpers sync.WaitGroup
	call    chan struct{} // to work, one for each helper; closed: no more
	busy    sync.WaitGroup
	minds   []*node
	from    int64
	next    atomic.Int64 // of the minds
}

func newCrew(workers int) *crew {
	c := &crew{call: make(chan struct{}, workers)}
	for range workers - 1 {
		c.helpers.Go(func() {
			for range c.call {
				c.work()
				c.busy.Done()
			}
		})
	}
	return c
}

// begin has them think about letters of a turn that begins at from; wait is called
// next.
func (c *crew) begin(minds []*node, from int64) {
	c.minds, c.from = minds, from
	c.next.Store(0)
	if len(minds) < fewMinds {
		return
	}
	n := cap(c.call) - 1
	c.busy.Add(n)
	for range n {
		c.call <- struct{}{}
	}
}

// wait helps with what is left and returns when all have thought.
func (c *crew) wait() {
	c.work()
	c.busy.Wait()
	c.minds = nil
}

func (c *crew) work() {
	for {
		i := int(c.next.Add(1)) - 1
		if i >= len(c.minds) {
			return
		}
		c.minds[i].mind.think(c.from)
	}
}

// close returns when the helpers have ended.
func (c *crew) close() {
	close(c.call)
	c.helpers.Wait()
}
