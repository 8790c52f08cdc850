package tcp

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// lease lends slots of the arena. Release may race with itself: the first
// call counts.
type lease struct {
	arena    *rdma.Arena
	slots    []rdma.Slot
	blocks   []chunk.Received
	released atomic.Bool
}

var _ chunk.Lease = (*lease)(nil)

// newLease waits for the memory of all of refs.
func (c *Client) newLease(ctx context.Context, refs []chunk.BlockRef) (*lease, error) {
	sizes := make([]int64, len(refs))
	for i, r := range refs {
		if err := checkRef(r); err != nil {
			return nil, err
		}
		sizes[i] = r.Len
	}
	slots, err := c.arena.Acquire(ctx, sizes...)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("get memory: %w", err)
	}
	l := &lease{arena: c.arena, slots: slots, blocks: make([]chunk.Received, len(refs))}
	for i, r := range refs {
		l.blocks[i] = chunk.Received{Ref: r, Data: slots[i].Data}
	}
	return l, nil
}

func checkRef(r chunk.BlockRef) error {
	if r.Index < 0 || r.Len <= 0 || r.Len > chunk.MaxBlockSize {
		return fmt.Errorf("impossible block: index %d, %d bytes", r.Index, r.Len)
	}
	return nil
}

// Blocks implements chunk.Lease.
func (l *lease) Blocks() []chunk.Received { return l.blocks }

// Release implements chunk.Lease.
func (l *lease) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.arena.Release(l.slots...)
	}
}
