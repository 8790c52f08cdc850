package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// node is one simulated machine: what it serves, and what it tells others. What
// others look at when they tell it something stands first.
type node struct {
	w      *world
	run    uint64 // grows when it goes or returns: what was meant for an earlier run is lost
	done   int64
	wants  bool // it began to fetch the object, and is not away
	away   bool
	idle   bool // its mind would have asked for more, as far as is known
	due    bool // its mind has something to think about
	nature nature
	mail   []letter // for its mind

	mind  *mind
	up    link
	down  link
	have  chunk.Bitmap
	left  int // blocks not in have
	peer  chunk.Peer
	began int64

	uploads  chunk.Uploads
	waiting  []*request // taken, and not their turn yet
	serving  []*request
	checking bool

	flushing  bool
	announced bool
	followers []follower
	added     []int // to be told
	began2    []int // blocks that it began to send, to be told
	sentOnce  []uint8

	sent, received int64
	imported       int64 // of received, from other zones
}

// request is one block asked of a node.
type request struct {
	by, to  *node
	byRun   uint64
	toRun   uint64
	ask     chunk.Ask
	at      int64
	upload  chunk.Upload
	flow    *flow
	err     error
	dropped bool // nobody wants the answer
}

func newNode(w *world, i int) *node {
	n := &node{w: w}
	n.mind = &mind{n: n}
	binary.LittleEndian.PutUint32(n.peer.Node[:], uint32(i+1))
	n.peer.Incarnation = 1
	if w.cfg.Zones > 1 {
		n.peer.Zone = fmt.Sprint("z", i%w.cfg.Zones)
	}
	n.up.rate, n.down.rate = w.cfg.Rate, w.cfg.Rate
	n.up.level, n.down.level = w.cfg.Rate, w.cfg.Rate
	return n
}

// spoil makes the node what its nature says.
func (n *node) spoil(cfg Config) {
	if n.nature == slow {
		n.up.rate, n.down.rate = cfg.Rate/10, cfg.Rate/10
		n.up.level, n.down.level = cfg.Rate/10, cfg.Rate/10
	}
}

// tell has the node's mind hear of something. What is not urgent it reads with
// what is.
func (n *node) tell(urgent bool, l letter) {
	l.at = n.w.now
	n.mail = append(n.mail, l)
	if urgent && !n.due {
		n.due = true
		n.w.due = append(n.w.due, n)
	}
}

// whole reports whether it has everything.
func (n *node) whole() bool { return n.have.Len() > 0 && n.left == 0 }

// fetches reports whether the node is at it.
func (n *node) fetches() bool { return n.wants && n.done == 0 }

// start has the node want the object.
func (n *node) start() {
	if n.have.Len() == 0 {
		n.have, n.left = chunk.NewBitmap(n.w.object.Blocks()), n.w.object.Blocks()
	}
	n.wants = true
	n.tell(true, letter{kind: evStart, what: &beginning{n.peer, n.run, n.have.Clone(), n.w.rng.Uint64()}})
	n.w.later(n.w.rng.Int64N(tickEvery), event{kind: evTick, node: n, run: n.run})
}

// think has the node's mind think about an event that it waited for itself.
func (n *node) think(e *event) {
	if !n.fetches() || n.run != e.run {
		return
	}
	l := letter{kind: e.kind}
	switch e.kind {
	case evTick:
		n.w.later(tickEvery, *e)
	case evLocate:
		l.what = n.w.locate()
	}
	n.tell(true, l)
}

// refused notes that a request of the node brought no block.
func (n *node) refused(r *request) {
	if r.byRun != n.run || !n.fetches() {
		return
	}
	var busy *chunk.Busy
	if errors.As(r.err, &busy) {
		n.w.refused++
	}
	n.tell(true, letter{kind: evRefused, what: r})
}

// landed takes a block.
func (n *node) landed(r *request) {
	if r.byRun != n.run || r.dropped {
		return
	}
	n.received += r.ask.Bytes
	if !n.fetches() {
		return
	}
	n.tell(true, letter{kind: evLanded, what: r})
	if r.to.nature == lying || n.have.Has(r.ask.Block) {
		return
	}
	n.have.Set(r.ask.Block)
	n.left--
	n.w.announce(n)
	n.gained(r.ask.Block)
	if n.left == 0 || n.nature == glancing && r.ask.Block == 0 {
		n.done = n.w.now
		n.w.unborn--
	}
}

// leave has the node vanish.
func (n *node) leave() {
	if n.done > 0 {
		return
	}
	n.tell(true, letter{kind: evLeave})
	n.away, n.wants = true, false
	n.run++
	for _, r := range append(append([]*request(nil), n.serving...), n.waiting...) {
		n.quit(r)
		r.err = errGone
		n.w.later(gone, event{kind: evRefused, node: r.by, req: r})
	}
	n.serving, n.waiting, n.uploads = nil, nil, chunk.Uploads{}
	for _, f := range n.followers {
		n.w.later(gone, event{kind: evLost, node: f.node, who: &f})
	}
	n.followers, n.added, n.began2 = nil, nil, nil
}

// comeBack has it return as another incarnation, with the blocks it had.
func (n *node) comeBack() {
	if !n.away {
		return
	}
	n.away = false
	n.peer.Incarnation++
	n.start()
}
