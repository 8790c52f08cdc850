package sim

// kind says what an event is.
type kind uint8

const (
	evStart   kind = iota // a node begins to want the object
	evAsk                 // a request reaches the node asked
	evRefused             // the node that asked hears that it was refused
	evLanded              // the last byte of a block is here and checked
	evFlush               // a node tells its followers what is new
	evHeard               // they hear it
	evFollow              // a node is told that another follows it
	evMap                 // the follower has its whole map
	evLost                // the follower learns that the node is gone
	evLocated             // the registry has answered
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
	from *node // the other node, if there is one
	run  uint64
	req  *request
	news *news
}

// agenda is what will happen, a heap by time.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) add(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !e.before(&a.heap[p]) {
			break
		}
		a.heap[i] = a.heap[p]
		i = p
	}
	a.heap[i] = e
}

func (a *agenda) next() event {
	first := a.heap[0]
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = event{}
	a.heap = a.heap[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		c := -1
		for k := 4*i + 1; k < min(4*i+5, last); k++ {
			if (c < 0 || a.heap[k].before(&a.heap[c])) && a.heap[k].before(&e) {
				c = k
			}
		}
		if c < 0 {
			break
		}
		a.heap[i] = a.heap[c]
		i = c
	}
	a.heap[i] = e
	return first
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }
