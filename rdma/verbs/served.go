package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// maxAsks bounds the asks of one link that are worked on at a time.
const maxAsks = 256

// maxLeases bounds the leases of one link that are out: four for each ask that
// may be worked on. maxAhead bounds those of them that were asked for ahead.
const (
	maxLeases = 1024
	maxAhead  = 64
)

// answerAfter bounds how long an answer waits for leases ahead that were asked
// for in the same frame, so that they go in one.
const (
	answerAfter = 100 * time.Millisecond
	slowAhead   = answerAfter
	someAhead   = 8 // leases ahead go together, even if they took long
)

// Errors of a reader that is none of ours.
var (
	errNothing = fmt.Errorf("%w: an ask for no blocks", chunk.ErrRefused)
	errLeases  = fmt.Errorf("more than %d leases are out", maxLeases)
)

// served is the provider's side of a link.
type served struct {
	h           *Handler
	from        chunk.NodeID
	incarnation uint64 // own
	dev         *hostDevice
	queue       *ib.Queue // made once the Handler knows of the link, as is control
	control     *control
	out         *outbox
	slow        atomic.Bool // leases ahead took slowAhead

	broken sync.Once // by fail
	mu     sync.Mutex
	failed bool
	leases map[uint64]*lent
	aheads int // of those, how many were asked for ahead
}

// lent is a lease that is out.
type lent struct {
	ahead   []chunk.BlockRef // asked for ahead: nobody was asked whether they may be sent
	blocks  []chunk.Block
	regions []*registered[regionKey, region]
	done    []func() // of Admit
	bytes   int64
	timer   *time.Timer
}

// run answers the reader until the link breaks or ctx ends.
func (l *served) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, l.fail)()
	var asks sync.WaitGroup
	defer asks.Wait()
	defer cancel() // before that
	places := make(chan struct{}, maxAsks)
	for {
		all, err := l.control.receive()
		if err != nil {
			return
		}
		l.out.begin() // until all of the frame is looked at
		for _, m := range all {
			switch m := m.(type) {
			case ask:
				select {
				case places <- struct{}{}:
				default:
					return // no reader of ours asks so much at once
				}
				answer := l.answer
				if m.ahead {
					answer = l.answerAhead()
				}
				asks.Go(func() {
					defer func() { <-places }()
					answer(ctx, m)
				})
			case giveBack:
				l.takeBack(m)
			default:
				return
			}
		}
		l.out.end()
	}
}

// send sends messages, or breaks the link.
func (l *served) send(ms ...message) {
	if err := l.control.send(ms...); err != nil {
		l.fail()
	}
}

// fail moves the connection to error: once it returns, no READ of the reader
// succeeds.
func (l *served) fail() {
	l.broken.Do(func() {
		l.mu.Lock()
		l.failed = true
		l.mu.Unlock()
		if err := l.queue.Fail(); err != nil {
			// Destroyed, it serves nobody either.
			l.h.cfg.Log.Warn("an RDMA connection is closed at once", "peer", l.from.Short(), "err", err)
			l.queue.Close()
		}
		_ = l.control.conn.Close()
	})
}

// stop ends the link: the connection to error first, only then its leases.
func (l *served) stop() {
	l.fail()
	l.out.close()
	l.mu.Lock()
	leases := l.leases
	l.leases = nil
	l.mu.Unlock()
	l.queue.Close()
	for _, x := range leases {
		x.timer.Stop()
		_ = l.h.release(x) // nobody is left to tell
	}
}

// answer grants or refuses one ask.
func (l *served) answer(ctx context.Context, a ask) {
	if f := l.h.faults.onAsk; f != nil && !f(l) {
		return
	}
	if len(a.refs) == 0 {
		l.refuse(a.id, errNothing)
		return
	}
	x := new(lent)
	places, err := l.lend(ctx, a.refs, x)
	if err != nil {
		_ = l.h.release(x) // the first error counts
		l.refuse(a.id, err)
		return
	}
	w := soon
	for _, r := range a.refs {
		l.h.crowds.alone(r.Object, l.from)
		if r.Demand {
			w = atOnce
		}
	}
	if g, ok := l.grant(grant{id: a.id, blocks: places}, x); ok {
		l.out.add(w, g)
	}
}

// grant makes a lease known here, and returns what says so to the reader; false
// when the link is gone.
func (l *served) grant(g grant, x *lent) (grant, bool) {
	var err error
	g.incarnation, g.ttl = l.incarnation, l.h.cfg.TTL
	if g.lease, err = l.keep(x); err != nil {
		_ = l.h.release(x)
		if errors.Is(err, errLeases) {
			l.h.cfg.Log.Warn("an RDMA connection is broken", "peer", l.from.Short(), "err", err)
			l.fail()
		}
		return grant{}, false // the link is gone
	}
	if f := l.h.faults.onGrant; f != nil {
		f(l, &g)
	}
	return g, true
}

// keep makes a lease known and starts its time.
func (l *served) keep(x *lent) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed || l.leases == nil {
		return 0, chunk.ErrClosed
	}
	if len(l.leases) >= maxLeases {
		return 0, errLeases
	}
	id := l.h.last.Add(1)
	l.leases[id] = x
	l.aheads += len(x.ahead)
	l.h.granted.Add(1)
	x.timer = time.AfterFunc(l.h.cfg.TTL, func() { l.expire(id) })
	return id, nil
}

// expire costs the reader its connection: its READs end before the memory can
// be used for anything else.
func (l *served) expire(id uint64) {
	l.mu.Lock()
	_, out := l.leases[id]
	l.mu.Unlock()
	if !out {
		return
	}
	l.h.expired.Add(1)
	l.h.cfg.Log.Warn("a lease ran out, its RDMA connection is broken", "peer", l.from.Short())
	l.fail() // run returns, and stop gives the lease back
}

// takeBack ends a lease for its reader.
func (l *served) takeBack(r giveBack) {
	if f := l.h.faults.onReturn; f != nil && !f(l) {
		return
	}
	l.mu.Lock()
	x := l.leases[r.lease]
	delete(l.leases, r.lease)
	if x != nil {
		l.aheads -= len(x.ahead)
	}
	l.mu.Unlock()
	v := verdict{id: r.id, code: codeOver, text: "the lease is over"}
	if x != nil {
		x.timer.Stop()
		if r.use == useBad {
			// The registration may show pages that are the file's no more. A
			// reader that says so again and again costs no more for it.
			for _, g := range x.regions {
				l.h.regions.drop(g, dropAge)
			}
		}
		err := l.h.release(x)
		v = verdictOf(r.id, err)
		switch {
		case err != nil || r.use == useBad:
			l.h.cfg.Counters.ServeFailed()
		case r.use != useUnused:
			l.h.cfg.Counters.Sent(l.from, x.bytes)
			if note := l.h.cfg.Note; note != nil {
				for _, ref := range x.ahead {
					note(ref)
				}
			}
			for range x.blocks {
				l.h.cfg.Counters.Served()
			}
		}
	}
	if r.use == useGood || r.use == useBad {
		l.out.add(soon, v)
	}
}

// release gives back all that a lease holds.
func (h *Handler) release(x *lent) error {
	var errs []error
	for _, b := range x.blocks {
		if b.Release != nil {
			errs = append(errs, b.Release())
		}
	}
	for _, r := range x.regions {
		h.regions.done(r)
	}
	for _, f := range x.done {
		f()
	}
	return errors.Join(errs...)
}
