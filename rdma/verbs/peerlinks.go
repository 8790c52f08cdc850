package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

// Errors after which the blocks may be had some other way.
var (
	// ErrNoPath: no port here reaches one of the peer's by RDMA.
	ErrNoPath = errors.New("no RDMA path to the peer")
	// ErrPaused: every connection to the peer failed a short while ago.
	ErrPaused = errors.New("RDMA connections to the peer are paused")
	// errLink: a link broke, or could not be made.
	errLink = errors.New("RDMA connection failed")
)

// peerLinks is the links to one run of a peer, one for each rail. Links are
// made when they are first wanted.
type peerLinks struct {
	c    *Client
	peer chunk.Peer
	addr string
	used atomic.Int64 // nanoseconds
	runs runs

	meeting chan struct{} // lock of meet

	mu     sync.Mutex
	gone   bool
	rails  *rails // nil: not met yet
	paths  []devices.Path
	links  []*railLink
	failed error     // why the last pause is
	refuse time.Time // not to be met before
}

// railLink is the place of one link.
type railLink struct {
	dialing chan struct{} // lock of link: held while connecting
	link    atomic.Pointer[link]
}

func (p *peerLinks) lock(ctx context.Context, l chan struct{}) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// meet learns the peer's ports, once, and which of the own ones reach them.
func (p *peerLinks) meet(ctx context.Context) error {
	if p.met() {
		return nil
	}
	if err := p.lock(ctx, p.meeting); err != nil {
		return err
	}
	defer func() { <-p.meeting }()
	if p.met() {
		return nil
	}
	p.mu.Lock()
	paused, why := time.Now().Before(p.refuse), p.failed
	p.mu.Unlock()
	if paused {
		return fmt.Errorf("%w: %w", ErrPaused, why)
	}
	all, err := p.c.askRails(ctx, p.peer, p.addr)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var paths []devices.Path
	if err == nil {
		if paths = pairs(devices.Paths(p.c.cfg.Host.Rails(), all)); len(paths) == 0 {
			err = ErrNoPath
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if pausing(err) {
			p.failed, p.refuse = err, time.Now().Add(firstPause)
		}
		return err
	}
	n := p.c.cfg.Rails
	if n == 0 {
		n = min(len(paths), MaxRails)
	}
	p.paths = paths
	for range n {
		p.links = append(p.links, &railLink{dialing: make(chan struct{}, 1)})
	}
	p.rails = newRails(n, p.c.cfg.Strategy, time.Now)
	return nil
}

func (p *peerLinks) met() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rails != nil
}

// pairs takes of all paths those that share no port, in their order: each port
// talks to one other.
func pairs(all []devices.Path) []devices.Path {
	local, remote := map[string]bool{}, map[string]bool{}
	var out []devices.Path
	for _, p := range all {
		if local[p.Local.Name()] || remote[p.Remote.Name()] {
			continue
		}
		local[p.Local.Name()], remote[p.Remote.Name()] = true, true
		out = append(out, p)
	}
	return out
}

// pick returns the link for a block, made if there is none, and its rail.
func (p *peerLinks) pick(ctx context.Context, ref chunk.BlockRef) (*link, int, error) {
	if err := p.meet(ctx); err != nil {
		return nil, 0, err
	}
	n, ok := p.rails.pick(ref)
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, 0, fmt.Errorf("%w: %w", ErrPaused, p.failed)
	}
	l, err := p.link(ctx, n)
	return l, n, err
}

// link returns the link of a rail.
func (p *peerLinks) link(ctx context.Context, n int) (*link, error) {
	r := p.links[n]
	if l := r.link.Load(); l != nil && l.alive() {
		return l, nil
	}
	if err := p.lock(ctx, r.dialing); err != nil {
		return nil, err
	}
	defer func() { <-r.dialing }()
	if l := r.link.Load(); l != nil && l.alive() {
		return l, nil
	}
	path := p.paths[n%len(p.paths)]
	l, err := p.c.connect(ctx, p.peer, p.addr, path)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	gone := p.gone
	if !gone {
		r.link.Store(l)
	}
	p.mu.Unlock()
	if gone {
		l.fail(chunk.ErrClosed)
		return nil, chunk.ErrClosed
	}
	return l, nil
}

// pausing says whether an error is one of a connection, not of its use.
func pausing(err error) bool {
	for _, kind := range []error{
		chunk.ErrWrongNode, chunk.ErrRefused, chunk.ErrNotHeld, chunk.ErrSourceChanged, chunk.ErrDamaged,
		chunk.ErrCorrupt, chunk.ErrBusy, chunk.ErrClosed, ErrPaused, ErrFull, ErrMemory, errPeer, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return false
		}
	}
	return true
}

// pause leaves a rail alone for a while.
func (p *peerLinks) pause(n int, why error) {
	d := p.rails.failed(n)
	p.mu.Lock()
	p.failed = why
	p.mu.Unlock()
	p.c.cfg.Log.Warn("an RDMA connection is paused", "peer", rdma.DescribePeer(p.peer), "rail", n, "path", describePath(p.paths[n%len(p.paths)]), "pause", d, "err", why)
}

// close breaks every link.
func (p *peerLinks) close() {
	p.mu.Lock()
	p.gone = true
	links := p.links
	p.mu.Unlock()
	for _, r := range links {
		if l := r.link.Load(); l != nil {
			l.fail(chunk.ErrClosed)
		}
	}
}

func describePath(p devices.Path) string { return p.Local.Name() + " to " + p.Remote.Name() }
