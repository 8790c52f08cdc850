package cache

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/p2pfs/p2pfs/chunk"
)

// Keep says, durably, that an object is never to be evicted or dropped, or that
// it may be again. Bytes that a kept object lacks still have to be fetched.
// chunk.ErrNotHeld: nothing of the object is here, or, with keep false, nothing
// is to be given up. A registered file is always kept: ErrKept.
func (c *Cache) Keep(ctx context.Context, id chunk.ObjectID, keep bool) error {
	if r, ok, err := c.places.find(id); err != nil {
		return fmt.Errorf("keep: %w", err)
	} else if ok {
		if keep {
			return nil
		}
		return fmt.Errorf("give up object %s: %w: %s", id.Short(), ErrKept, r.path)
	}
	return c.keepCopy(ctx, id, keep)
}

// Loosen lets the cache's own copy of an object be evicted from now on, also
// where the object is registered besides: it then stays what is kept. Nothing
// there is no error.
func (c *Cache) Loosen(ctx context.Context, id chunk.ObjectID) error {
	c.mu.Lock()
	e := c.entries[id]
	loose := e == nil || e.known && e.busy == nil && !e.kept
	c.mu.Unlock()
	if loose {
		return nil
	}
	if err := c.keepCopy(ctx, id, false); !errors.Is(err, chunk.ErrNotHeld) {
		return err
	}
	return nil
}

// keepCopy is Keep for a copy in the cache.
func (c *Cache) keepCopy(ctx context.Context, id chunk.ObjectID, keep bool) error {
	e, f, err := c.acquire(ctx, id, nil)
	if err != nil {
		return fmt.Errorf("keep object %s: %w", id.Short(), err)
	}
	defer c.release(e, f)
	f.keeping.Lock()
	defer f.keeping.Unlock()
	if err := f.setKept(keep); err != nil {
		return fmt.Errorf("keep: %w", f.root.diskError("write map", id, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[id] != e || e.busy != nil {
		return fmt.Errorf("keep object %s: it is being removed: %w", id.Short(), chunk.ErrNotHeld)
	}
	// We use it, so that it is not on the list of what may be evicted.
	e.kept = keep
	return nil
}

// setKept writes the header, durably.
func (f *file) setKept(keep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head.kept == keep {
		return nil
	}
	mapf := f.mapf
	if mapf == nil {
		// The map was closed when it was finished.
		var err error
		if mapf, err = os.OpenFile(f.root.path(f.obj.ID, ".map"), os.O_RDWR, 0); err != nil {
			return err
		}
		defer mapf.Close()
	}
	h := f.head
	h.kept = keep
	if _, err := f.c.writeAt(mapf, h.encode(), 0); err != nil {
		return err
	}
	if err := f.c.datasync(mapf); err != nil {
		return err
	}
	f.head.kept = keep
	return nil
}
