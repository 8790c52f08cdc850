package cache

import (
	"context"

	"github.com/p2pfs/p2pfs/chunk"
)

// Zeros returns the blocks of an object that are known here to be all zeros;
// false if nothing of it is here.
func (c *Cache) Zeros(ctx context.Context, id chunk.ObjectID) (chunk.Bitmap, bool) {
	if r, ok, _ := c.places.find(id); ok {
		return r.zero, true
	}
	e, f, err := c.acquire(ctx, id, nil)
	if err != nil {
		return chunk.Bitmap{}, false
	}
	defer c.release(e, f)
	zeros := chunk.NewBitmap(f.obj.Blocks())
	for b := range f.obj.Blocks() {
		if f.table.isZero(b) {
			zeros.Set(b)
		}
	}
	return zeros, true
}
