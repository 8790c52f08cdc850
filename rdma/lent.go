package rdma

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
)

// Lent is memory of an arena for the blocks of one fetch. Release may race with
// itself: the first call counts.
type Lent struct {
	arena    *Arena
	slots    []Slot
	blocks   []chunk.Received
	released atomic.Bool
}

var _ chunk.Lease = (*Lent)(nil)

// Lend waits for the memory of all of refs. The blocks have their Ref, and Data as
// long as it says. Errors: of CheckRef and Acquire; the cause of ctx's end.
func (a *Arena) Lend(ctx context.Context, refs []chunk.BlockRef) (*Lent, error) {
	sizes := make([]int64, len(refs))
	for i, r := range refs {
		if err := CheckRef(r); err != nil {
			return nil, err
		}
		sizes[i] = r.Len
	}
	slots, err := a.Acquire(ctx, sizes...)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("get memory: %w", err)
	}
	l := &Lent{arena: a, slots: slots, blocks: make([]chunk.Received, len(refs))}
	for i, r := range refs {
		l.blocks[i] = chunk.Received{Ref: r, Data: slots[i].Data}
	}
	return l, nil
}

// Slot returns the memory of block i, in the order of the refs.
func (l *Lent) Slot(i int) Slot { return l.slots[i] }

// Blocks implements chunk.Lease. Until the lease is handed on, whoever fills it
// changes them in place.
func (l *Lent) Blocks() []chunk.Received { return l.blocks }

// Release implements chunk.Lease.
func (l *Lent) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.arena.Release(l.slots...)
	}
}

// CheckRef refuses a reference to what no block can be.
func CheckRef(r chunk.BlockRef) error {
	if r.Index < 0 || r.Len <= 0 || r.Len > chunk.MaxBlockSize {
		return fmt.Errorf("impossible block: index %d, %d bytes", r.Index, r.Len)
	}
	return nil
}
