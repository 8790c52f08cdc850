package sim

// kind says what an event is.
type kind uint8

const (
	evStart   kind = iota // a node begins to want the object
	evAsk                 // a request reaches the node asked
	evQuit                // the same: it is not wanted any more
	evRefused             // the node that asked hears that it was refused
	evLanded              // the last byte of a block is here and checked
	evFlush               // a node tells its followers what is new
	evHeard               // they hear it
	evFollow              // a node is told that another follows it
	evMap                 // the follower has its whole map
	evLost                // the follower learns that the node is gone
	evLocate              // the registry answers
	evTick                // a node looks around
	evWake                // a peer that was busy may have time
	evLeave               // a node vanishes
	evReturn              // it is back
	evUploads             // a node looks whether a waiting request can be served
)

// event is something that happens to a node. Events at one time happen in the
// order in which they were made.
type event struct {
	at   int64 // ns
	seq  uint64
	kind kind
	node *node
	run  uint64 // of the node, where another one would not be meant
	req  *request
	news *news
	who  *follower
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

const (
	slotTime = int64(1) << 18 // ns: of events that lie so close a heap stays small
	slots    = 1 << 13        // two seconds ahead
)

// agenda is what will happen. With many nodes a heap of all of it would be mostly
// a wait for memory: so time is cut into slots, and only the events of the slot
// that it is are in order.
type agenda struct {
	seq   uint64
	slot  int64     // which it is, counted from the begin of time
	now   heap      // events of this slot, and of those before it
	ahead [][]event // of the next slots, by their number modulo slots
	far   heap      // of all later ones
	n     int       // in ahead
	spare [][]event // memory of slots that have passed
}

func (a *agenda) add(e event) {
	a.seq++
	e.seq = a.seq
	switch s := e.at / slotTime; {
	case s <= a.slot:
		a.now.push(e)
	case s >= a.slot+slots:
		a.far.push(e)
	default:
		if a.ahead == nil {
			a.ahead = make([][]event, slots)
		}
		l := &a.ahead[s%slots]
		if last := len(a.spare) - 1; *l == nil && last >= 0 {
			*l, a.spare = a.spare[last], a.spare[:last]
		}
		*l = append(*l, e)
		a.n++
	}
}

// first returns when the next event happens; false if there is none.
func (a *agenda) first() (at int64, ok bool) {
	for len(a.now) == 0 {
		switch {
		case a.n > 0:
			a.slot++
		case len(a.far) > 0:
			a.slot = a.far[0].at / slotTime
		default:
			return 0, false
		}
		a.enter()
	}
	return a.now[0].at, true
}

// enter has the events of the slot that it is now in order.
func (a *agenda) enter() {
	for len(a.far) > 0 && a.far[0].at/slotTime <= a.slot {
		a.now.push(a.far.pop())
	}
	if a.n == 0 {
		return
	}
	l := &a.ahead[a.slot%slots]
	for _, e := range *l {
		a.now.push(e)
	}
	a.n -= len(*l)
	if *l != nil {
		clear(*l)
		a.spare = append(a.spare, (*l)[:0])
		*l = nil
	}
}

// next takes the next event off; first has said that there is one.
func (a *agenda) next() event { return a.now.pop() }

// heap has the event that happens next at its root.
type heap []event

func (h *heap) push(e event) {
	s := append(*h, e)
	*h = s
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !e.before(&s[p]) {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = e
}

func (h *heap) pop() event {
	s := *h
	first, last := s[0], len(s)-1
	e := s[last]
	s[last] = event{}
	*h = s[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		c := -1
		for k := 4*i + 1; k < min(4*i+5, last); k++ {
			if (c < 0 || s[k].before(&s[c])) && s[k].before(&e) {
				c = k
			}
		}
		if c < 0 {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = e
	return first
}
