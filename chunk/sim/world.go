package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// nature is what is the matter with a node.
type nature uint8

const (
	sound nature = iota
	slow
	fickle // goes and comes back
	dead
	lying
	glancing // reads the first block and no more
)

const (
	startWithin = int64(20 * time.Millisecond)  // all begin within this
	tickEvery   = int64(time.Second)            // a node looks around
	landing     = int64(2 * time.Millisecond)   // checking and storing a block
	locateTakes = int64(5 * time.Millisecond)   // the registry answers
	deadTakes   = int64(3 * time.Second)        // until a request to a dead node fails
	locateMost  = 32                            // providers of one answer
	endOfTime   = int64(1000000 * time.Second)  // no run is longer
	flushLeast  = int64(50 * time.Millisecond)  // news are gathered
	wakeLeast   = int64(5 * time.Millisecond)   // a node looks around no more often
	nearest     = int64(100 * time.Microsecond) // no two nodes are nearer to each other
	gone        = int64(200 * time.Millisecond) // until others see that a node vanished
)

// world is one run under way.
type world struct {
	cfg    Config
	object chunk.Object
	rng    *rand.Rand
	now    int64 // ns
	net    network
	agenda agenda
	nodes  []*node // the source first
	listed []*node // by the registry, in the order of announcement
	unborn int     // receivers that are not done
	due    []*node // whose minds have something to think about
	spare  []*node // memory of those that were due
	turn   int64   // ns; everything before has happened

	refused int64
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 7))}
	w.object = chunk.Object{ID: chunk.ObjectID{1}, Set: chunk.SetID{1}, Size: cfg.Size, BlockSize: cfg.Block, ChunkSize: max(cfg.Block, chunk.DefaultChunkSize)}
	for i := range cfg.Receivers + 1 {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	w.assign(cfg.Slow, slow)
	w.assign(cfg.Churn, fickle)
	w.assign(cfg.Dead, dead)
	w.assign(cfg.Lying, lying)
	if cfg.Glance > 0 { // a seed means what it did before there were any
		w.assign(cfg.Glance, glancing)
	}
	source := w.nodes[0]
	source.have = chunk.NewBitmap(w.object.Blocks())
	source.have.Fill()
	w.announce(source)
	nominal := int64(float64(cfg.Size) / cfg.Rate * 1e9)
	for _, n := range w.nodes[1:] {
		n.spoil(cfg)
		if n.nature == dead {
			w.announce(n)
			continue
		}
		w.unborn++
		n.began = w.rng.Int64N(startWithin)
		w.agenda.add(event{at: n.began, kind: evStart, node: n})
		if n.nature == fickle {
			away := nominal/8 + w.rng.Int64N(nominal/2+1)
			w.agenda.add(event{at: away, kind: evLeave, node: n})
			w.agenda.add(event{at: away + nominal/16 + w.rng.Int64N(nominal/8+1), kind: evReturn, node: n})
		}
	}
	return w
}

// assign gives a share of the receivers something to suffer from.
func (w *world) assign(share float64, as nature) {
	left := int(share*float64(w.cfg.Receivers) + 0.5)
	for _, i := range w.rng.Perm(w.cfg.Receivers) {
		if n := w.nodes[1+i]; left > 0 && n.nature == sound {
			n.nature = as
			left--
		}
	}
}

// advance lets everything happen that does before the time until, or until every
// receiver is done.
func (w *world) advance(until int64) {
	for w.unborn > 0 {
		at, flow := w.next()
		switch {
		case at >= until:
			return
		case flow:
			w.now = max(w.now, at)
			f := w.net.heap[0].flow
			f.req.to.sentAll(f)
		default:
			e := w.agenda.next()
			w.now = max(w.now, e.at)
			w.happen(&e)
		}
	}
}

// next returns when the next thing happens, endOfTime if nothing will; flow says
// that a flow ends then.
func (w *world) next() (at int64, flow bool) {
	at, some := w.agenda.first()
	if !some {
		at = endOfTime
	}
	if len(w.net.heap) > 0 && w.net.heap[0].end <= at {
		return w.net.heap[0].end, true
	}
	return at, false
}

func (w *world) happen(e *event) {
	n := e.node
	switch e.kind {
	case evStart:
		n.start()
	case evAsk:
		n.asked(e.req)
	case evQuit:
		e.req.dropped = true
		n.quit(e.req)
	case evRefused:
		n.refused(e.req)
	case evLanded:
		n.landed(e.req)
	case evFlush:
		n.flush()
	case evHeard:
		n.tellAll(e.news)
	case evFollow:
		n.followed(*e.who)
	case evMap:
		n.heard(e.news)
	case evLost:
		n.unfollowed(*e.who)
	case evLocate, evTick, evWake:
		n.think(e)
	case evLeave:
		n.leave()
	case evReturn:
		n.comeBack()
	case evUploads:
		n.checking = false
		n.serve(n.uploads.Next(w.time()))
	}
}

// later adds an event d from now.
func (w *world) later(d int64, e event) {
	e.at = w.now + d
	w.agenda.add(e)
}

func (w *world) time() time.Time { return time.Unix(0, w.now) }

func (w *world) latency() int64 { return max(int64(w.cfg.Latency), nearest) }

// announce has the registry list a node.
func (w *world) announce(n *node) {
	if !n.announced {
		n.announced = true
		w.listed = append(w.listed, n)
	}
}

// locate returns what the registry answers: the source, which keeps the object,
// and others at random.
func (w *world) locate() (out []chunk.Provider) {
	source := w.nodes[0]
	out = append(out, chunk.Provider{Peer: source.peer, Keeper: true, Complete: true})
	seen := map[*node]bool{source: true}
	for range 4 * locateMost {
		n := w.listed[w.rng.IntN(len(w.listed))]
		if seen[n] || n.away {
			continue
		}
		seen[n] = true
		out = append(out, chunk.Provider{Peer: n.peer, Complete: n.whole()})
		if len(out) == locateMost {
			break
		}
	}
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// byID returns the node of an id.
func (w *world) byID(id chunk.NodeID) *node {
	return w.nodes[binary.LittleEndian.Uint32(id[:])-1]
}
