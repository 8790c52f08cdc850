package cache

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// Room returns how many bytes of objects that are not here yet could be stored
// if all that is neither kept nor pinned were evicted, what is in use now included: in all, and
// of one object, which lies on one root. Before the start's scan is over it
// waits for it.
func (c *Cache) Room(ctx context.Context) (total, one int64, err error) {
	if err := c.scan(ctx); err != nil {
		return 0, 0, err
	}
	loose := map[*root]int64{}
	all := int64(0)
	c.mu.Lock()
	for _, e := range c.entries {
		if e.root == nil || e.kept || c.isPinned(e.obj.ID) {
			continue
		}
		n := e.used
		if e.file != nil {
			n = e.file.used.Load()
		}
		loose[e.root] += n
		all += n
	}
	c.mu.Unlock()
	for _, r := range c.roots {
		if !r.usable() {
			continue
		}
		room := max(r.askFree()+loose[r], 0)
		total += room
		one = max(one, room)
	}
	if limit := c.cfg.Size; limit > 0 {
		left := max(limit-c.used.Load()+all, 0)
		total, one = min(total, left), min(one, left)
	}
	return total, one, nil
}

// InUse reports whether somebody on this machine has the cache's copy of an
// object open, or is being sent a block of it.
func (c *Cache) InUse(id chunk.ObjectID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	return e != nil && e.refs > 0
}

// Flush makes the bytes of an object that are here durable, and their map.
// chunk.ErrNotHeld: nothing of it is here. A registered file is not ours to
// flush.
func (c *Cache) Flush(ctx context.Context, id chunk.ObjectID) error {
	e, f, err := c.acquire(ctx, id, nil)
	if err != nil {
		return fmt.Errorf("flush object %s: %w", id.Short(), err)
	}
	defer c.releaseQuietly(e, f)
	c.flush.Lock()
	defer c.flush.Unlock()
	c.finish(ctx, flushing{e: e, f: f}, false)
	if f.Complete() && !f.allSynced() {
		return fmt.Errorf("flush object %s: the disk of %s did not take it", id.Short(), f.root.dir)
	}
	return nil
}
