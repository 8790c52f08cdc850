package sim

import (
	"errors"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// mind is what a node decides. It belongs to whoever has it think; until then its
// letters wait at the node.
type mind struct {
	n       *node
	planner *chunk.Planner // nil: it was never told to begin
	run     uint64         // of the node, when it was told to begin
	starved bool           // its last plan would have asked for more
	asked   bool           // the registry
	at      int            // block the reader is at
	wakeAt  int64          // ns
	now     int64          // ns
	asks    []*request     // under way
	inbox   []letter       // to be read
	orders  []event        // to the world, which has them once it thought
}

// letter is something that a mind is told. What it says depends on its kind.
type letter struct {
	at   int64 // ns
	kind kind
	as   chunk.Following
	what any
}

// beginning is what a mind begins with: evStart.
type beginning struct {
	self chunk.Peer
	run  uint64
	have chunk.Bitmap
	seed uint64
}

// think reads what has come, none of which is later than a turn that begins at
// from.
func (m *mind) think(from int64) {
	for i := range m.inbox {
		l := &m.inbox[i]
		m.now = max(l.at, from)
		m.read(l)
		*l = letter{}
	}
	m.inbox = m.inbox[:0]
}

func (m *mind) read(l *letter) {
	if l.kind == evStart {
		m.start(l.what.(*beginning))
		return
	}
	if m.planner == nil || m.planner.Left() == 0 {
		return
	}
	now := m.time()
	switch l.kind {
	case evHeard:
		if s := l.what.(*news); m.planner.Heard(l.as, s.a, now) {
			m.plan()
		}
	case evMap:
		m.planner.Heard(l.as, l.what.(*news).a, now)
		m.discover()
		m.plan()
	case evLanded:
		m.landed(l.what.(*request))
	case evRefused:
		m.refused(l.what.(*request))
	case evWake:
		if m.wakeAt == l.at { // else another wake came first
			m.wakeAt = 0
			m.plan()
		}
	case evTick:
		m.discover()
		m.plan()
	case evLocate:
		m.asked = false
		m.planner.Located(l.what.([]chunk.Provider), now)
		m.discover()
		m.plan()
	case evFollow:
		m.planner.FollowedBy(*l.what.(*chunk.Peer))
		m.discover()
	case evLost:
		m.planner.Unfollowed(l.as, errGone, now)
	case evLeave:
		for _, r := range m.asks {
			m.order(m.latency(), event{kind: evQuit, node: r.to, req: r})
		}
		m.asks, m.planner = nil, nil
	}
}

// start has the node want the object.
func (m *mind) start(b *beginning) {
	w := m.n.w
	m.run, m.at, m.wakeAt, m.starved, m.asked = b.run, 0, 0, false, false
	m.planner = chunk.NewPlanner(b.self, w.object, b.have, w.cfg.Limits, b.seed)
	switch {
	case m.n.nature == glancing:
		m.planner.Read(0, 0)
	case w.cfg.Cat:
		m.goOn()
	default:
		m.planner.All()
	}
	m.discover()
}

// goOn lets the reader go on as far as the blocks are here.
func (m *mind) goOn() {
	o := m.n.w.object
	for m.at < o.Blocks() && m.planner.Read(m.at, min(int64(m.at)*o.BlockSize, o.Size)) {
		m.at++
	}
}

// discover asks the registry when that is due, and follows whom there is.
func (m *mind) discover() {
	now := m.time()
	if !m.asked && !now.Before(m.planner.LocateAt()) {
		m.asked = true
		m.order(locateTakes, event{kind: evLocate, node: m.n, run: m.run})
	}
	for _, f := range m.planner.Follow(now) {
		m.order(m.latency(), event{kind: evFollow, node: m.n.w.byID(f.Peer().Node), who: &follower{m.n, f, m.run}})
	}
}

// plan asks for what the policy says.
func (m *mind) plan() {
	now := m.time()
	for _, a := range m.planner.Plan(now) {
		r := &request{by: m.n, to: m.n.w.byID(a.Peer.Node), byRun: m.run, toRun: a.Peer.Incarnation, ask: a, at: m.now}
		m.asks = append(m.asks, r)
		m.order(m.latency(), event{kind: evAsk, node: r.to, req: r})
	}
	if m.starved = m.planner.Starved(); !m.starved {
		return
	}
	if t := m.planner.WakeAt(now); !t.IsZero() {
		if at := max(t.UnixNano(), m.now+wakeLeast); m.wakeAt == 0 || at < m.wakeAt {
			m.wakeAt = at
			m.order(at-m.now, event{kind: evWake, node: m.n, run: m.run})
		}
	}
}

// refused takes an answer that is no block.
func (m *mind) refused(r *request) {
	if !m.ends(r) {
		return
	}
	m.planner.Failed(r.ask, r.err, m.time())
	m.plan()
}

// landed takes a block.
func (m *mind) landed(r *request) {
	if !m.ends(r) {
		return
	}
	now := m.time()
	if r.to.nature == lying {
		m.planner.Failed(r.ask, chunk.ErrDisowned, now)
		m.plan()
		return
	}
	fresh, useless := m.planner.Landed(r.ask, time.Duration(m.now-r.at), now)
	for _, u := range useless {
		m.drop(u)
	}
	if m.planner.Left() == 0 {
		m.starved = false
		return
	}
	if fresh && m.n.w.cfg.Cat {
		m.goOn()
	}
	m.plan()
}

// drop gives up a request that another one made needless.
func (m *mind) drop(u chunk.Ask) {
	for _, r := range m.asks {
		if r.ask.Same(u) {
			m.ends(r)
			m.planner.Failed(r.ask, errGone, m.time())
			m.order(m.latency(), event{kind: evQuit, node: r.to, req: r})
			return
		}
	}
}

// ends takes a request off the list; false if nobody waits for its answer.
func (m *mind) ends(r *request) bool {
	for i, o := range m.asks {
		if o == r {
			last := len(m.asks) - 1
			m.asks[i], m.asks[last] = m.asks[last], nil
			m.asks = m.asks[:last]
			return true
		}
	}
	return false
}

// order has something happen d from now.
func (m *mind) order(d int64, e event) {
	e.at = m.now + d
	m.orders = append(m.orders, e)
}

func (m *mind) time() time.Time { return time.Unix(0, m.now) }

func (m *mind) latency() int64 { return m.n.w.latency() }

var errGone = errors.New("connection refused")
