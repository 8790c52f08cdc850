package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

const (
	// sumWindow is how many blocks' checksums a keeper is asked for at once; it
	// divides meta.GroupBlocks.
	sumWindow = 1024
	// unknownFor is how long "nobody has bound this block" is believed.
	unknownFor = time.Second
	// factObjects bounds the objects whose facts are kept in memory.
	factObjects = 256
)

// facts is what is bound about objects: from the store, where keepers write
// it a moment after they bind it, else from a keeper that lives.
type facts struct {
	catalog *meta.Catalog
	peers   *peers
	locate  func(context.Context, chunk.SetID) ([]chunk.Provider, error)
	self    chunk.NodeID
	own     holdings // what is here
	timeout time.Duration

	mu      sync.Mutex
	objects map[chunk.ObjectID]*boundSums
}

// boundSums is what is known of one object. Bound sums never change.
type boundSums struct {
	mu     sync.Mutex // held over a query: one at a time per object
	groups map[int]*meta.SumGroup
	asked  map[int]time.Time // by group: when nothing more was known
}

var _ chunk.Facts = (*facts)(nil)

// Zeros implements chunk.Facts.
func (f *facts) Zeros(ctx context.Context, o chunk.Object) (chunk.Bitmap, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	z, err := f.catalog.Zeros(ctx, o)
	if err != nil {
		return chunk.Bitmap{}, fmt.Errorf("read the zero blocks of object %s: %w", o.ID, err)
	}
	return z, nil
}

// Sum implements chunk.Facts.
func (f *facts) Sum(ctx context.Context, o chunk.Object, block int) (uint32, bool) {
	b := f.of(o.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	group := block / meta.GroupBlocks
	if sum, ok := b.sum(block); ok {
		return sum, true
	}
	if time.Since(b.asked[group]) < unknownFor {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	// A store or keeper that does not answer leaves the block unbound for
	// now: the engine then goes by the peer's own checksum.
	if g, err := f.catalog.SumGroup(ctx, o, group); err == nil {
		b.groups[group] = &g
	}
	sum, ok := b.sum(block)
	if !ok {
		f.askKeepers(ctx, o, block, b)
		sum, ok = b.sum(block)
	}
	if !ok {
		b.asked[group] = time.Now()
	}
	return sum, ok
}

func (b *boundSums) sum(block int) (uint32, bool) {
	g, i := b.groups[block/meta.GroupBlocks], block%meta.GroupBlocks
	if g == nil || !g.Known.Has(i) {
		return 0, false
	}
	return g.Sums[i], true
}

// askKeepers adds to b what a keeper that lives has bound around a block but
// not written to the store yet.
func (f *facts) askKeepers(ctx context.Context, o chunk.Object, block int, b *boundSums) {
	group := block / meta.GroupBlocks
	g := b.groups[group]
	providers, err := f.locate(ctx, o.Set)
	if g == nil || err != nil {
		return
	}
	first := block / sumWindow * sumWindow
	count := min(sumWindow, o.Blocks()-first)
	for _, p := range providers {
		if !p.Keeper || p.Node == f.self {
			continue
		}
		got, err := f.peers.sums(ctx, p.Peer, o, first, count, false)
		if err != nil {
			continue
		}
		for i, sum := range got {
			at := i - group*meta.GroupBlocks
			g.Known.Set(at)
			g.Sums[at] = sum
		}
		if _, ok := got[block]; ok {
			return
		}
	}
}

func (f *facts) of(id chunk.ObjectID) *boundSums {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.objects[id]
	if b == nil {
		for old := range f.objects {
			if len(f.objects) < factObjects {
				break
			}
			delete(f.objects, old)
		}
		b = &boundSums{groups: map[int]*meta.SumGroup{}, asked: map[int]time.Time{}}
		f.objects[id] = b
	}
	return b
}
