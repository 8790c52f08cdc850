package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// drainBound is how long READs of a connection in error may take to end; after
// it, the connection is destroyed under them.
const drainBound = 2 * time.Second

// link is the reader's side of a link.
type link struct {
	c       *Client
	peer    chunk.Peer
	path    devices.Path
	queue   *ib.Queue
	control *control
	room    chan struct{} // one for each READ posted
	good    atomic.Int64  // READs that ended well
	work    sync.WaitGroup
	out     *outbox
	stock   *stock
	users   users
	typical atomic.Int64 // nanoseconds

	broken chan struct{} // closed by fail
	once   sync.Once

	mu        sync.Mutex
	err       error
	calls     map[uint32]chan any // answers to asks and giveBacks
	transfers map[uint64]*transfer
	last      uint64
	drained   chan struct{} // made by fail; closed when no transfer is left
}

// transfer is some READs that belong together.
type transfer struct {
	progress atomic.Int64 // READs ended
	done     chan struct{}
	began    int64 // link.good then

	// Guarded by link.mu.
	left int  // posted and not ended
	open bool // more may be posted
	err  error
}

// newLink returns a link; the caller entered the client on its behalf.
func newLink(c *Client, peer chunk.Peer, path devices.Path, q *ib.Queue, ctl *control) *link {
	l := &link{
		c: c, peer: peer, path: path, queue: q, control: ctl,
		room: make(chan struct{}, c.cfg.Host.depth(path.Local)), broken: make(chan struct{}),
		calls: make(map[uint32]chan any), transfers: make(map[uint64]*transfer),
	}
	l.out = &outbox{send: l.send, enough: l.users.usual, linger: l.linger, patience: sayAfter, moved: l.good.Load}
	l.stock = newStock(func(all []grant) { l.giveUp(all...) })
	return l
}

// What is to be said of blocks that were READ waits for others of the same link:
// for as many as are fetched at once as a rule, up to enoughSaid, about as long
// as a block takes; and for sayAfter if nothing moves.
const (
	enoughSaid = 4
	mostLinger = 250 * time.Millisecond
	sayAfter   = 250 * time.Millisecond
)

// linger returns how long it is worth while to wait for others.
func (l *link) linger() time.Duration { return min(time.Duration(l.typical.Load()), mostLinger) }

// took notes how long a block took to be READ.
func (l *link) took(d time.Duration) {
	if old := l.typical.Load(); old != 0 {
		d = (3*time.Duration(old) + d) / 4
	}
	l.typical.Store(int64(d)) // one of those that come at once is as good as another
}

// send sends messages, or breaks the link.
func (l *link) send(ms ...message) {
	if err := l.control.send(ms...); err != nil {
		l.fail(fmt.Errorf("%w: %w", errLink, err))
	}
}

func (l *link) start() {
	l.work.Go(l.listen)
	l.work.Go(l.reap)
	go func() {
		defer l.c.busy.Done()
		<-l.broken
		l.shut()
	}()
}

func (l *link) alive() bool {
	select {
	case <-l.broken:
		return false
	default:
		return true
	}
}

// fail breaks the link. What waits for it gets err.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.mu.Lock()
		l.err = err
		l.drained = make(chan struct{})
		if len(l.transfers) == 0 {
			close(l.drained)
		}
		l.mu.Unlock()
		close(l.broken)
	})
}

// cause returns what broke the link.
func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// shut ends a broken link. Transfers end before their memory is used again:
// with their completions, or when the connection is destroyed.
func (l *link) shut() {
	_ = l.queue.Fail() // if it cannot be, closing it does as well
	_ = l.control.conn.Close()
	l.out.close()
	l.stock.close()
	t := time.NewTimer(drainBound)
	defer t.Stop()
	select {
	case <-l.drained:
	case <-t.C:
	}
	l.queue.Close()
	l.work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.transfers {
		t.err = fmt.Errorf("%w: %w", errLink, l.err)
		delete(l.transfers, id)
		close(t.done)
	}
}

// listen hands answers to those who wait for them.
func (l *link) listen() {
	for {
		all, err := l.control.receive()
		if err != nil {
			if errors.Is(err, errWire) {
				err = fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
			} else {
				err = fmt.Errorf("%w: %w", errLink, err)
			}
			l.fail(err)
			return
		}
		for _, m := range all {
			switch m := m.(type) {
			case grant:
				if wanted := m.ahead && l.stock.put(m) || !m.ahead && l.hand(m.id, m); !wanted {
					l.giveUp(m) // nobody waits any more
				}
			case verdict:
				l.hand(m.id, m)
			default:
				l.fail(fmt.Errorf("%w: it sent what only readers send", chunk.ErrCorrupt))
				return
			}
		}
	}
}

// hand gives an answer to who waits for it. Who gets a grant is busy: it calls
// out.end.
func (l *link) hand(id uint32, m any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.calls[id]
	if ch == nil {
		return false
	}
	delete(l.calls, id)
	if _, granted := m.(grant); granted {
		l.out.begin()
	}
	ch <- m // has room for one
	return true
}

// giveUp ends leases of which nobody wants a block any more.
func (l *link) giveUp(all ...grant) {
	ms := make([]message, len(all))
	for i, g := range all {
		ms[i] = giveBack{id: g.id, lease: g.lease, use: useUnused}
	}
	l.out.add(atOnce, ms...)
}

// call sends a message and waits for the answer to it. said is called, if it is
// there, when the message is in the outbox.
func (l *link) call(ctx context.Context, id uint32, w when, m message, said func()) (any, error) {
	ch := make(chan any, 1)
	l.mu.Lock()
	l.calls[id] = ch
	l.mu.Unlock()
	l.out.add(w, m)
	if said != nil {
		said()
	}
	stall := time.NewTimer(l.c.cfg.StallTimeout)
	defer stall.Stop()
	var err error
	select {
	case a := <-ch:
		return a, nil
	case <-l.broken:
		err = l.cause()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-stall.C:
		err = fmt.Errorf("%w for %v", chunk.ErrStalled, l.c.cfg.StallTimeout)
	}
	l.mu.Lock()
	delete(l.calls, id)
	l.mu.Unlock()
	select {
	case a := <-ch: // it came in the same moment
		return a, nil
	default:
		return nil, err
	}
}

// reap tells transfers of their READs' ends.
func (l *link) reap() {
	out := make([]ib.Done, maxDepth)
	for {
		n, err := l.queue.Reap(out)
		if err != nil {
			l.fail(fmt.Errorf("%w: %w", errLink, err))
			return
		}
		for _, d := range out[:n] {
			l.ended(d)
		}
	}
}

func (l *link) ended(d ib.Done) {
	l.leaveRoom()
	var err error
	if d.Status != 0 {
		err = fmt.Errorf("%w: %w", errLink, &ib.StatusError{Status: d.Status, Text: l.queue.StatusText(d.Status)})
		l.fail(err) // the connection is in error
	} else {
		l.good.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.transfers[d.ID]
	if t == nil {
		return
	}
	if err != nil && (t.err == nil || d.Status != ib.StatusFlushed) {
		t.err = err
	}
	t.progress.Add(1)
	t.left--
	l.settle(d.ID, t)
}

// settle ends a transfer that has nothing left. Called with mu held.
func (l *link) settle(id uint64, t *transfer) {
	if t.left > 0 || t.open || l.transfers[id] != t {
		return
	}
	delete(l.transfers, id)
	close(t.done)
	if l.drained != nil && len(l.transfers) == 0 {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}
