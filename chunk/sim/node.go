package sim

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// node is one simulated machine. What others look at when they tell it something
// stands first.
type node struct {
	w       *world
	planner *chunk.Planner // nil: the source, or one that has not begun
	run     uint64         // grows when it goes or returns: what was meant for an earlier run is lost
	done    int64
	inbox   []letter // news that it has no use for until it plans
	away    bool
	starved bool // it has: its last plan would have asked for more
	nature  nature

	up     link
	down   link
	have   chunk.Bitmap
	peer   chunk.Peer
	began  int64
	at     int // block the reader is at
	wakeAt int64

	uploads  chunk.Uploads
	waiting  []*request // taken, and not their turn yet
	serving  []*request
	asks     []*request // under way
	checking bool

	flushing  bool
	announced bool
	locating  bool
	followers []follower
	added     []int // to be told
	began2    []int // blocks that it began to send, to be told
	sentOnce  []uint8

	sent, received int64
}

// request is one block asked of a node.
type request struct {
	by, to   *node
	byRun    uint64
	toRun    uint64
	ask      chunk.Ask
	at       int64
	upload   chunk.Upload
	flow     *flow
	err      error
	dropped  bool // nobody wants the answer
	answered bool
}

var errGone = errors.New("connection refused")

func newNode(w *world, i int) *node {
	n := &node{w: w}
	binary.LittleEndian.PutUint32(n.peer.Node[:], uint32(i+1))
	n.peer.Incarnation = 1
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

// start has the node want the object.
func (n *node) start() {
	if n.have.Len() == 0 {
		n.have = chunk.NewBitmap(n.w.object.Blocks())
	}
	n.planner = chunk.NewPlanner(n.peer, n.w.object, n.have, n.w.cfg.Limits, n.w.rng.Uint64())
	if n.w.cfg.Cat {
		n.read()
	} else {
		n.planner.All()
	}
	n.w.later(n.w.rng.Int64N(tickEvery), event{kind: evTick, node: n, run: n.run})
	n.discover()
}

// read lets the reader go on as far as the blocks are here.
func (n *node) read() {
	o := n.w.object
	for n.at < o.Blocks() && n.planner.Read(n.at, min(int64(n.at)*o.BlockSize, o.Size)) {
		n.at++
	}
}

// discover asks the registry when that is due, and follows whom there is.
func (n *node) discover() {
	if n.done > 0 {
		return
	}
	now := n.w.time()
	if !n.locating && !now.Before(n.planner.LocateAt()) {
		n.locating = true
		n.w.later(locateTakes, event{kind: evLocated, node: n})
	}
	for _, f := range n.planner.Follow(now) {
		n.w.later(n.w.latency(), event{kind: evFollow, node: n.w.byID(f.Peer().Node), who: &follower{n, f, n.run}})
	}
}

func (n *node) located() {
	n.locating = false
	if n.away || n.planner == nil {
		return
	}
	n.planner.Located(n.w.locate(), n.w.time())
	n.discover()
	n.plan()
}

func (n *node) tick(run uint64) {
	if n.away || n.run != run || n.done > 0 {
		return
	}
	n.w.later(tickEvery, event{kind: evTick, node: n, run: run})
	n.discover()
	n.plan()
}

// plan asks for what the policy says.
func (n *node) plan() {
	if n.away || n.done > 0 || n.planner == nil {
		return
	}
	now := n.w.time()
	n.listen()
	for _, a := range n.planner.Plan(now) {
		to := n.w.byID(a.Peer.Node)
		r := &request{by: n, to: to, byRun: n.run, toRun: a.Peer.Incarnation, ask: a, at: n.w.now}
		n.asks = append(n.asks, r)
		n.w.later(n.w.latency(), event{kind: evAsk, node: to, req: r})
	}
	if n.starved = n.planner.Starved(); !n.starved {
		return
	}
	if t := n.planner.WakeAt(now); !t.IsZero() {
		if at := max(t.UnixNano(), n.w.now+wakeLeast); n.wakeAt == 0 || at < n.wakeAt {
			n.wakeAt = at
			n.w.agenda.add(event{at: at, kind: evWake, node: n})
		}
	}
}

// refused takes an answer that is no block.
func (n *node) refused(r *request) {
	if !n.ends(r) {
		return
	}
	var busy *chunk.Busy
	if errors.As(r.err, &busy) {
		n.w.refused++
	}
	n.planner.Failed(r.ask, r.err, n.w.time())
	n.plan()
}

// ends takes a request off the list; false if nobody waits for its answer.
func (n *node) ends(r *request) bool {
	if r.answered || r.byRun != n.run {
		return false
	}
	r.answered = true
	for i, o := range n.asks {
		if o == r {
			n.asks[i] = n.asks[len(n.asks)-1]
			n.asks = n.asks[:len(n.asks)-1]
			break
		}
	}
	return true
}

// landed takes a block.
func (n *node) landed(r *request) {
	if !n.ends(r) {
		return
	}
	w := n.w
	now := w.time()
	n.received += r.ask.Bytes
	if r.to.nature == lying {
		n.planner.Failed(r.ask, chunk.ErrDisowned, now)
		n.plan()
		return
	}
	fresh, useless := n.planner.Landed(r.ask, time.Duration(w.now-r.at), now)
	for _, u := range useless {
		n.drop(u)
	}
	if !fresh {
		n.plan()
		return
	}
	w.announce(n)
	n.tell(r.ask.Block)
	if n.planner.Left() == 0 {
		n.done = w.now
		w.unborn--
		return
	}
	if w.cfg.Cat {
		n.read()
	}
	n.plan()
}

// drop gives up a request that another one made needless.
func (n *node) drop(u chunk.Ask) {
	for _, r := range n.asks {
		if r.ask.Same(u) {
			n.ends(r)
			n.planner.Failed(r.ask, errGone, n.w.time())
			r.dropped = true
			r.to.quit(r)
			return
		}
	}
}

// leave has the node vanish.
func (n *node) leave() {
	if n.done > 0 {
		return
	}
	n.away = true
	n.run++
	for _, r := range n.asks {
		r.dropped = true
		r.to.quit(r)
	}
	n.asks, n.inbox = nil, nil
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
	n.at = 0
	n.start()
}
