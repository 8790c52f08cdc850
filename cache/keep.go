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
	if err := f.setKept(e, keep); err != nil {
		return fmt.Errorf("keep: %w", f.root.diskError("write map", id, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stays(e) {
		return fmt.Errorf("keep object %s: %w", id.Short(), errLeaves)
	}
	// We use it, so that it is not on the list of what may be evicted.
	e.kept = keep
	return nil
}

// errLeaves: the object is being removed, or was.
var errLeaves = fmt.Errorf("it is being removed: %w", chunk.ErrNotHeld)

// stays reports whether an entry in use is here and not being removed. Cache.mu
// is held.
func (c *Cache) stays(e *entry) bool { return c.entries[e.obj.ID] == e && e.busy == nil }

// setKept writes the header, durably. The caller uses the file and its entry.
func (f *file) setKept(e *entry, keep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head.kept == keep {
		return nil
	}
	mapf := f.mapf
	if mapf == nil {
		var err error
		if mapf, err = f.reopenMap(e); err != nil {
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

// reopenMap opens a map that was closed when it was finished. If the object was
// removed since, nothing has its name, or what was fetched anew: errLeaves.
func (f *file) reopenMap(e *entry) (*os.File, error) {
	mapf, err := os.OpenFile(f.root.path(f.obj.ID, ".map"), os.O_RDWR, 0)
	f.c.mu.Lock()
	stays := f.c.stays(e)
	f.c.mu.Unlock()
	switch {
	case stays:
		return mapf, err
	case err == nil:
		mapf.Close()
	}
	return nil, errLeaves
}
