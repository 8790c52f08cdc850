package cache

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
)

// handle is one user's hold on a fetched object's file.
type handle struct {
	*file
	entry  *entry
	once   sync.Once
	closed atomic.Bool
}

var _ chunk.File = (*handle)(nil)

// Open implements chunk.Store. Of an object that is registered here it returns
// the registered file itself, complete and read-only; a missing one is
// ErrSourceChanged. ErrNoSpace: the object must be read uncached.
func (c *Cache) Open(ctx context.Context, o chunk.Object) (chunk.File, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	if o.Size == 0 {
		return nil, fmt.Errorf("open object %s: an empty object has no file", o.ID.Short())
	}
	if h, ok, err := c.places.open(o.ID); ok || err != nil {
		return h, err
	}
	e, f, err := c.acquire(ctx, o.ID, &o)
	if err != nil {
		return nil, err
	}
	return &handle{file: f, entry: e}, nil
}

// Put implements chunk.File.
func (h *handle) Put(block int, data []byte, sum uint32) error {
	if h.closed.Load() {
		return fmt.Errorf("put block %d of object %s: %w", block, h.obj.ID.Short(), chunk.ErrClosed)
	}
	return h.put(block, data, sum)
}

// PutZero implements chunk.File.
func (h *handle) PutZero(blocks chunk.Bitmap) error {
	if h.closed.Load() {
		return fmt.Errorf("put zeros of object %s: %w", h.obj.ID.Short(), chunk.ErrClosed)
	}
	return h.putZero(blocks)
}

// Reader implements chunk.File. The descriptor is shared: its own offset is
// meaningless, and only reads at explicit offsets are allowed.
func (h *handle) Reader() *os.File { return h.data }

// Close implements io.Closer.
func (h *handle) Close() error {
	h.once.Do(func() {
		h.closed.Store(true)
		h.c.release(h.entry, h.file)
	})
	return nil
}
