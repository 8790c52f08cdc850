package sim

import "math"

// link is one direction of a node's connection to the network. The flows that
// share it divide it fairly: what one of them cannot use, because the other
// link it goes through is slower, the others get.
type link struct {
	rate  float64 // bytes a second
	level float64 // what a flow gets here that nothing holds back elsewhere
	flows []*flow
}

// flow is one block on its way over two links.
type flow struct {
	up, down       *link
	upPos, downPos int // in the links' flows
	left           float64
	rate           float64 // bytes a second
	at             int64   // when left was true, ns
	end            int64   // when nothing is left at this rate, ns
	pos            int     // in the network's heap; -1: not in it

	req *request
}

// network is every flow under way. Rates are max-min fair but for one
// simplification: a flow that comes or goes changes the levels of its own two
// links and of those that share a flow with them, and no further.
type network struct {
	heap []ending // by end
}

// ending is when a flow ends.
type ending struct {
	end  int64
	flow *flow
}

func (n *network) add(f *flow, now int64) {
	f.at, f.pos = now, -1
	f.upPos, f.downPos = len(f.up.flows), len(f.down.flows)
	f.up.flows = append(f.up.flows, f)
	f.down.flows = append(f.down.flows, f)
	n.change(f.up, f.down, now)
}

func (n *network) remove(f *flow, now int64) {
	f.up.drop(f.upPos, true)
	f.down.drop(f.downPos, false)
	n.unheap(f)
	n.change(f.up, f.down, now)
}

func (l *link) drop(i int, up bool) {
	last := len(l.flows) - 1
	l.flows[i] = l.flows[last]
	if up {
		l.flows[i].upPos = i
	} else {
		l.flows[i].downPos = i
	}
	l.flows[last] = nil
	l.flows = l.flows[:last]
}

// change makes the rates right after the flows of two links changed.
func (n *network) change(up, down *link, now int64) {
	up.fill(true)
	down.fill(false)
	for _, f := range up.flows {
		if f.down != down {
			f.down.fill(false)
		}
	}
	for _, f := range down.flows {
		if f.up != up {
			f.up.fill(true)
		}
	}
	for _, f := range up.flows {
		n.pace(f, now)
		for _, g := range f.down.flows {
			n.pace(g, now)
		}
	}
	for _, f := range down.flows {
		for _, g := range f.up.flows {
			n.pace(g, now)
		}
	}
}

// fill works out the link's level: the share of those that are not held back
// elsewhere once those that are have what they can use.
func (l *link) fill(up bool) {
	n := len(l.flows)
	if n == 0 {
		l.level = l.rate
		return
	}
	share := l.rate / float64(n)
	for range 8 {
		rest, free := l.rate, n
		for _, f := range l.flows {
			other := f.down.level
			if !up {
				other = f.up.level
			}
			if other < share {
				rest -= other
				free--
			}
		}
		if free == 0 {
			l.level = share + rest
			return
		}
		next := rest / float64(free)
		if next <= share*1.0001 {
			l.level = next
			return
		}
		share = next
	}
	l.level = share
}

// pace sets the rate of a flow from the levels of its links.
func (n *network) pace(f *flow, now int64) {
	rate := min(f.up.level, f.down.level)
	if f.pos >= 0 && math.Abs(rate-f.rate) <= f.rate/500 {
		return
	}
	if f.pos >= 0 {
		f.left -= f.rate * float64(now-f.at) / 1e9
	}
	f.at, f.rate = now, rate
	f.end = now + int64(max(f.left, 0)/rate*1e9) + 1
	if f.pos < 0 {
		f.pos = len(n.heap)
		n.heap = append(n.heap, ending{f.end, f})
	}
	n.fix(ending{f.end, f}, f.pos)
}

func (n *network) unheap(f *flow) {
	i, last := f.pos, len(n.heap)-1
	f.pos = -1
	e := n.heap[last]
	n.heap[last] = ending{}
	n.heap = n.heap[:last]
	if i != last {
		n.fix(e, i)
	}
}

// fix puts a flow into its place in the heap; place i is free.
func (n *network) fix(e ending, i int) {
	h := n.heap
	for i > 0 {
		p := (i - 1) / 4
		if h[p].end <= e.end {
			break
		}
		h[i] = h[p]
		h[i].flow.pos = i
		i = p
	}
	for {
		c, least := -1, e.end
		for k := 4*i + 1; k < min(4*i+5, len(h)); k++ {
			if h[k].end < least {
				c, least = k, h[k].end
			}
		}
		if c < 0 {
			break
		}
		h[i] = h[c]
		h[i].flow.pos = i
		i = c
	}
	h[i] = e
	e.flow.pos = i
}
