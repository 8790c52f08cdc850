package chunktest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// ErrDown is what a node that is down answers with.
var ErrDown = errors.New("connection refused")

// Fault decides about one fetch of one block from a node: it may wait, change
// what is sent, or fail. Nil changes nothing.
type Fault func(ctx context.Context, b *chunk.Received) error

// Net is a cluster in memory: transport, scout, registry and facts at once.
// Safe for concurrent use.
type Net struct {
	mu        sync.Mutex
	nodes     []*Node
	objects   map[chunk.ObjectID]chunk.Object
	zeros     map[chunk.ObjectID]chunk.Bitmap
	bound     bool
	locateErr error
	located   int
	announced []Announcement
	announce  error
	leases    int
	asked     int // sums
}

// Announcement is one call of Announce that worked.
type Announcement struct {
	Set      chunk.SetID
	Complete bool
}

var (
	_ chunk.Transport = (*Net)(nil)
	_ chunk.Scout     = (*Net)(nil)
	_ chunk.Registry  = (*Net)(nil)
	_ chunk.Facts     = (*Net)(nil)
)

// NewNet returns a cluster without nodes.
func NewNet() *Net {
	return &Net{objects: map[chunk.ObjectID]chunk.Object{}, zeros: map[chunk.ObjectID]chunk.Bitmap{}}
}

// Object makes an object of the smallest block size, four blocks a chunk.
func (n *Net) Object(size int64) chunk.Object {
	o := chunk.Object{
		ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: size,
		BlockSize: chunk.MinBlockSize, ChunkSize: 4 * chunk.MinBlockSize,
	}
	return n.Add(o)
}

// Add makes an object known.
func (n *Net) Add(o chunk.Object) chunk.Object {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.objects[o.ID] = o
	return o
}

// Keeper adds a node that has all of everything and is a keeper.
func (n *Net) Keeper(name string) *Node {
	return n.add(name, &Node{keeper: true, complete: true})
}

// Mirror adds a node that has all of everything and is no keeper.
func (n *Net) Mirror(name string) *Node {
	return n.add(name, &Node{complete: true})
}

// Partial adds a node that has the given blocks of one object.
func (n *Net) Partial(name string, o chunk.Object, blocks ...int) *Node {
	have := chunk.NewBitmap(o.Blocks())
	for _, b := range blocks {
		have.Set(b)
	}
	return n.add(name, &Node{partial: true, of: o.ID, have: have})
}

func (n *Net) add(name string, p *Node) *Node {
	p.net, p.changed = n, make(chan struct{})
	p.Peer = chunk.Peer{Node: chunk.NewNodeID(), Incarnation: 1, Name: name}
	n.Do(func() { n.nodes = append(n.nodes, p) })
	return p
}

// Content returns the bytes of a block: the same for ever.
func Content(o chunk.Object, block int) []byte {
	b := make([]byte, o.Block(block).Len)
	seed := binary.LittleEndian.Uint64(o.ID[:8])
	r := rand.NewPCG(seed, uint64(block))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	for ; i < len(b); i++ {
		b[i] = byte(r.Uint64())
	}
	return b
}

// Bytes returns [off, off+n) of an object.
func Bytes(o chunk.Object, off, n int64) []byte {
	n = min(n, o.Size-off)
	first, end := o.BlocksOf(off, n)
	var all []byte
	for i := first; i < end; i++ {
		all = append(all, Content(o, i)...)
	}
	skip := off - int64(first)*o.BlockSize
	return all[skip : skip+n]
}

// Do changes the cluster under its lock.
func (n *Net) Do(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// FailLocate makes Locate fail; nil ends that.
func (n *Net) FailLocate(err error) { n.Do(func() { n.locateErr = err }) }

// FailAnnounce makes Announce fail; nil ends that.
func (n *Net) FailAnnounce(err error) { n.Do(func() { n.announce = err }) }

// BindAll makes keepers vouch for every block.
func (n *Net) BindAll() { n.Do(func() { n.bound = true }) }

// Zero makes blocks of an object known to be zero.
func (n *Net) Zero(o chunk.Object, zeros chunk.Bitmap) { n.Do(func() { n.zeros[o.ID] = zeros }) }

// Located counts the calls of Locate.
func (n *Net) Located() (c int) { n.Do(func() { c = n.located }); return c }

// SumsAsked counts the calls of Sum.
func (n *Net) SumsAsked() (c int) { n.Do(func() { c = n.asked }); return c }

// Announced returns what was announced, in order.
func (n *Net) Announced() (a []Announcement) {
	n.Do(func() { a = slices.Clone(n.announced) })
	return a
}

// Leases counts those that were not released.
func (n *Net) Leases() (c int) { n.Do(func() { c = n.leases }); return c }

// Fetched counts the blocks asked of all nodes.
func (n *Net) Fetched() (c int) {
	n.Do(func() {
		for _, p := range n.nodes {
			c += len(p.fetched)
		}
	})
	return c
}

func (n *Net) find(p chunk.Peer) *Node {
	i := slices.IndexFunc(n.nodes, func(q *Node) bool { return q.Peer.Node == p.Node })
	if i < 0 {
		return nil
	}
	return n.nodes[i]
}

// Fetch implements chunk.Transport.
func (n *Net) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	out := make([]chunk.Received, 0, len(refs))
	for _, ref := range refs {
		b, err := n.fetch(ctx, from, ref)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	n.Do(func() { n.leases++ })
	return &lease{net: n, blocks: out}, nil
}

func (n *Net) fetch(ctx context.Context, from chunk.Peer, ref chunk.BlockRef) (b chunk.Received, err error) {
	var p *Node
	var o chunk.Object
	var delay time.Duration
	var fault Fault
	n.Do(func() {
		p, o = n.find(from), n.objects[ref.Object]
		if p == nil {
			err = ErrDown
			return
		}
		p.fetched = append(p.fetched, ref.Index)
		p.inFlight++
		p.most = max(p.most, p.inFlight)
		fault = p.fault
		if err = p.refusal(from, ref); err == nil {
			delay = p.delay + p.queue(ref.Len)
		}
		b = chunk.Received{Ref: ref, Zero: n.zeros[ref.Object].Has(ref.Index)}
	})
	if p == nil {
		return b, err
	}
	defer n.Do(func() { p.inFlight-- })
	if err == nil && delay > 0 {
		err = Wait(ctx, delay)
	}
	if err != nil {
		return b, err
	}
	if !b.Zero {
		b.Data = Content(o, ref.Index)
		b.Sum = chunk.Sum(b.Data)
	}
	if fault != nil {
		err = fault(ctx, &b)
	}
	return b, err
}

type lease struct {
	net    *Net
	blocks []chunk.Received
	once   sync.Once
}

func (l *lease) Blocks() []chunk.Received { return l.blocks }

// Release spoils the bytes, so that whoever still uses them is found out.
func (l *lease) Release() {
	first := false
	l.once.Do(func() { first = true })
	if !first {
		panic("lease released twice")
	}
	for _, b := range l.blocks {
		clear(b.Data)
	}
	l.net.Do(func() { l.net.leases-- })
}

// Locate implements chunk.Registry.
func (n *Net) Locate(ctx context.Context, _ chunk.SetID) (ps []chunk.Provider, err error) {
	n.Do(func() {
		n.located++
		err = n.locateErr
		for _, p := range n.nodes {
			if !p.unlisted {
				ps = append(ps, chunk.Provider{Peer: p.Peer, Keeper: p.keeper, Complete: p.complete})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return ps, ctx.Err()
}

// Announce implements chunk.Registry.
func (n *Net) Announce(_ context.Context, set chunk.SetID, complete bool) (err error) {
	n.Do(func() {
		if err = n.announce; err == nil {
			n.announced = append(n.announced, Announcement{set, complete})
		}
	})
	return err
}

// Follow implements chunk.Scout.
func (n *Net) Follow(ctx context.Context, from chunk.Peer, o chunk.Object, on func(chunk.Availability) bool) error {
	n.Do(func() {
		if p := n.find(from); p != nil {
			p.following++
		}
	})
	defer n.Do(func() {
		if p := n.find(from); p != nil {
			p.following--
		}
	})
	for {
		a, changed, err := n.availability(from, o)
		if err != nil {
			return err
		}
		if !on(a) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *Net) availability(from chunk.Peer, o chunk.Object) (a chunk.Availability, changed chan struct{}, err error) {
	n.Do(func() {
		p := n.find(from)
		if p == nil || p.down || p.deaf || p.Peer.Incarnation != from.Incarnation {
			err = fmt.Errorf("follow: %w", ErrDown)
			return
		}
		a = chunk.Availability{Full: true, Keeper: p.keeper, Have: chunk.NewBitmap(o.Blocks())}
		switch {
		case !p.partial:
			a.Have.Fill()
		case p.of == o.ID:
			a.Have.Or(p.have)
		}
		changed = p.changed
	})
	return a, changed, err
}

// Zeros implements chunk.Facts.
func (n *Net) Zeros(_ context.Context, o chunk.Object) (z chunk.Bitmap, err error) {
	n.Do(func() { z = n.zeros[o.ID] })
	return z, nil
}

// Sum implements chunk.Facts.
func (n *Net) Sum(_ context.Context, o chunk.Object, block int) (sum uint32, ok bool) {
	n.Do(func() {
		n.asked++
		ok = n.bound
	})
	if !ok {
		return 0, false
	}
	return chunk.Sum(Content(o, block)), true
}

// Wait waits for d or the end of ctx.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
