package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// errLeaseOver: the bytes came too late to be believed.
var errLeaseOver = errors.New("the lease ran out before its blocks were read")

// ErrFull: the peer has registered all it may, and all of it is in use.
var ErrFull = errors.New("the peer has no room for another registration just now")

// ErrMemory: the peer cannot register the blocks.
var ErrMemory = errors.New("the peer cannot register the blocks for RDMA")

// Fetch implements chunk.Transport. It waits for memory first. A block that is
// zero has no Data. After an error for which Elsewhere is true, the same peer
// may have the blocks by another transport.
func (c *Client) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.busy.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(chunk.ErrClosed) })()
	l, err := c.fetch(ctx, from, refs)
	if err != nil {
		if c.life.Err() != nil {
			err = chunk.ErrClosed // whichever wait it was that Close ended first
		}
		return nil, fmt.Errorf("fetch %s from %s by RDMA: %w", rdma.DescribeRefs(refs), rdma.DescribePeer(from), err)
	}
	return l, nil
}

// Elsewhere says of an error of Fetch whether it is one of RDMA itself, so that
// another transport may bring the blocks.
func Elsewhere(err error) bool {
	return pausing(err) || errors.Is(err, ErrPaused) || errors.Is(err, ErrFull) || errors.Is(err, ErrMemory)
}

func (c *Client) fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (*rdma.Lent, error) {
	if len(refs) > maxBlocks {
		return nil, fmt.Errorf("%w: %d blocks at once, want %d at most", rdma.ErrTooLarge, len(refs), maxBlocks)
	}
	addr, err := rdma.Address(from, Protocol)
	if err != nil {
		return nil, err
	}
	l, err := c.arena.Lend(ctx, refs)
	if err != nil || len(refs) == 0 {
		return l, err
	}
	p, err := c.peer(from, addr)
	if err == nil {
		err = c.fetchFrom(ctx, p, l)
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// fetchFrom tries one link, and one more if that one broke under it: perhaps
// for another's sake.
func (c *Client) fetchFrom(ctx context.Context, p *peerLinks, l *rdma.Lent) error {
	for again := true; ; again = false {
		ref := l.Blocks()[0].Ref
		var held *stocked
		var k *link
		var rail int
		var err error
		if len(l.Blocks()) == 1 {
			k, rail, held = p.stocked(ref)
		}
		if held == nil {
			k, rail, err = p.pick(ctx, ref)
		}
		connected := err == nil
		if connected {
			for range l.Blocks() {
				c.cfg.Counters.Request()
			}
			if len(l.Blocks()) == 1 {
				p.ahead(ref, aheadWhen(held))
			}
			if err = c.fetchOver(ctx, k, l, held); err == nil {
				p.rails.worked(rail)
				c.total.worked(k.path.Local.Name(), read(l))
				return nil
			}
		}
		if cause := context.Cause(ctx); cause != nil {
			if broke(err) || errors.Is(err, errSilent) && p.rails.silent(rail) {
				p.pause(rail, err)
				c.total.failed(err)
			}
			return cause
		}
		if errors.Is(err, chunk.ErrBusy) {
			return err
		}
		again = again && errors.Is(err, errLink)
		if p.met() && pausing(err) && (!again || !connected || broke(err)) {
			p.pause(rail, err)
			c.total.failed(err)
		}
		if connected {
			for range l.Blocks() {
				c.cfg.Counters.Failed(errors.Is(err, chunk.ErrCorrupt))
			}
		}
		if !again {
			return err
		}
	}
}

// broke says whether an error is of the network or a device, rather than of a
// link that was ended for another reason.
func broke(err error) bool {
	var status *ib.StatusError
	return errors.As(err, &status) && status.Status != ib.StatusFlushed
}

// aheadWhen says how soon leases on the blocks after one are asked for: with what
// will be said of it, if anything.
func aheadWhen(held *stocked) when {
	if held != nil && !held.grant.fixed() {
		return whenever
	}
	return atOnce
}

// fetchOver asks, unless a lease came ahead, READs, checks and gives back.
func (c *Client) fetchOver(ctx context.Context, k *link, l *rdma.Lent, held *stocked) error {
	k.users.enter()
	defer k.users.leave()
	refs := make([]chunk.BlockRef, len(l.Blocks()))
	demand := false
	for i := range l.Blocks() {
		l.Blocks()[i] = chunk.Received{Ref: l.Blocks()[i].Ref, Data: l.Slot(i).Data}
		refs[i] = l.Blocks()[i].Ref
		demand = demand || refs[i].Demand
	}
	id := c.nextID()
	if held == nil {
		asked := time.Now()
		m, err := k.call(ctx, id, atOnce, ask{id: id, refs: refs}, nil)
		if err != nil {
			return err // a grant that comes yet is given back unused
		}
		g, ok := m.(grant)
		if !ok {
			return errorOf(m.(verdict))
		}
		held = &stocked{g, asked}
	} else {
		k.out.begin()
	}
	said := sync.OnceFunc(k.out.end)
	defer said()
	g := held.grant
	start := time.Now()
	if err := c.take(ctx, k, g, l, refs); err != nil {
		if errors.Is(err, chunk.ErrCorrupt) {
			return k.complain(ctx, id, g, err)
		}
		k.giveUp(g)
		return err
	}
	k.took(time.Since(start))
	if time.Since(held.asked) >= g.ttl {
		k.fail(fmt.Errorf("%w: %w", errLink, errLeaseOver))
		return errLeaseOver
	}
	w := soon
	if g.fixed() {
		if g.ahead {
			w = whenever // it holds nothing back
		}
		k.out.add(w, giveBack{id: id, lease: g.lease, use: useTaken})
		return nil
	}
	if demand {
		w = atOnce
	}
	m, err := k.call(ctx, id, w, giveBack{id: id, lease: g.lease}, said)
	if err != nil {
		if errors.Is(err, chunk.ErrStalled) {
			k.fail(err)
		}
		return err
	}
	v, ok := m.(verdict)
	if !ok {
		k.out.end() // what a grant began
		err := fmt.Errorf("%w: a lease for one given back", chunk.ErrCorrupt)
		k.fail(err)
		return err
	}
	return errorOf(v)
}

// nextID returns an id for an ask.
func (c *Client) nextID() uint32 { return c.lastID.Add(1) }

// complainBound is how long a provider may take to say what it knows of blocks
// that were found to be wrong.
const complainBound = 2 * time.Second

// complain gives a lease back whose blocks are wrong, and returns why they are:
// the provider knows if its source was changed under it, which is no lie.
func (l *link) complain(ctx context.Context, id uint32, g grant, wrong error) error {
	ctx, cancel := context.WithTimeout(ctx, complainBound)
	defer cancel()
	m, err := l.call(ctx, id, atOnce, giveBack{id: id, lease: g.lease, use: useBad}, nil)
	if err != nil {
		return wrong
	}
	v, ok := m.(verdict)
	if !ok {
		l.out.end() // what a grant began
		return wrong
	}
	if v.code != codeChanged && v.code != codeDamaged {
		return wrong
	}
	return errorOf(v)
}

// take READs the blocks of a grant into the lease's memory and checks them.
func (c *Client) take(ctx context.Context, k *link, g grant, l *rdma.Lent, refs []chunk.BlockRef) error {
	if g.incarnation != k.peer.Incarnation {
		err := fmt.Errorf("%w: incarnation %d answered", chunk.ErrWrongNode, g.incarnation)
		k.fail(err)
		return err
	}
	if len(g.blocks) != len(refs) {
		return fmt.Errorf("%w: %d blocks for %d", chunk.ErrCorrupt, len(g.blocks), len(refs))
	}
	var reads []ib.Read
	for i, p := range g.blocks {
		if p.object != refs[i].Object || p.index != refs[i].Index || p.len != refs[i].Len {
			return fmt.Errorf("%w: %d bytes of block %d of %s for %d bytes of block %d of %s", chunk.ErrCorrupt,
				p.len, p.index, p.object.Short(), refs[i].Len, refs[i].Index, refs[i].Object.Short())
		}
		if p.zero {
			continue
		}
		if p.addr > -uint64(p.len) {
			return fmt.Errorf("%w: block %d is said to lie at the end of memory", chunk.ErrCorrupt, p.index)
		}
		reads = c.pieces(reads, k, l.Slot(i), p)
	}
	if err := k.read(ctx, reads); err != nil {
		return err
	}
	for i, p := range g.blocks {
		b := &l.Blocks()[i]
		if p.zero {
			*b = chunk.Received{Ref: b.Ref, Zero: true, Sum: chunk.Sum(make([]byte, p.len))}
			continue
		}
		c.cfg.Counters.Received(k.peer.Node, p.len)
		if b.Sum = chunk.Sum(b.Data); b.Sum != p.sum {
			return fmt.Errorf("%w: the bytes of block %d sum to %08x, declared %08x", chunk.ErrCorrupt, p.index, b.Sum, p.sum)
		}
	}
	return nil
}

// pieces appends the READs of one block: none across a boundary of what the
// arena is registered in.
func (c *Client) pieces(reads []ib.Read, k *link, s rdma.Slot, p place) []ib.Read {
	name := k.path.Local.Device
	region := c.cfg.Host.devs[name].region
	step := min(readPiece, region)
	for off := int64(0); off < p.len; off += step {
		n := min(step, p.len-off)
		reads = append(reads, ib.Read{
			Local: ib.Address(s.Data[off:]), LKey: c.memory[name][(c.arena.Offset(s)+off)/region].LKey(),
			Remote: p.addr + uint64(off), RKey: p.key, Len: uint32(n),
		})
	}
	return reads
}

// errorOf says what a provider's verdict means.
func errorOf(v verdict) error {
	var kind error
	switch v.code {
	case codeOK:
		return nil
	case codeBusy:
		return &chunk.Busy{Retry: min(v.retry, longestRetry), Sending: v.sending}
	case codeNotHeld:
		return chunk.ErrNotHeld
	case codeChanged:
		return chunk.ErrSourceChanged
	case codeDamaged:
		return chunk.ErrDamaged
	case codeRefused:
		kind = chunk.ErrRefused
	case codeMemory:
		kind = ErrMemory
	case codeFull:
		kind = ErrFull
	case codeOver:
		kind = errLeaseOver
	case codeClosed:
		return fmt.Errorf("%w: the peer is shutting down", errLink)
	default:
		kind = errPeer
	}
	return fmt.Errorf("%w: %.256q", kind, v.text)
}

// errPeer: the peer could not read the block.
var errPeer = errors.New("the peer failed")

// longestRetry bounds what a peer can say of when to ask it again.
const longestRetry = 10 * time.Second

// read returns the bytes that were READ.
func read(l *rdma.Lent) (n int64) {
	for _, b := range l.Blocks() {
		n += int64(len(b.Data))
	}
	return n
}
