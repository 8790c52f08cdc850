package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// Info is what is here of one object.
type Info struct {
	Object     chunk.Object
	Complete   bool
	InPlace    bool   // a registered file, served from where it lies
	Keeper     bool   // never evicted
	Path       string // of the registered file
	LocalBytes int64  // bytes present, zero blocks included
	Damaged    string // why the object is no longer served; empty: it is
	Note       string // of whoever registered it
}

// SetInfo is what to tell the registry about a set of which something is here.
type SetInfo struct {
	Set      chunk.SetID
	Keeper   bool
	Complete bool // every object of the set that is here is complete
}

// Stat returns what is here of an object; false if nothing is. It opens no file
// of an object that the start's scan has seen.
func (c *Cache) Stat(id chunk.ObjectID) (Info, bool) {
	if r, ok, _ := c.places.find(id); ok {
		return r.info(), true
	}
	c.mu.Lock()
	if e := c.entries[id]; e != nil && e.known {
		defer c.mu.Unlock()
		return e.info(), true
	}
	c.mu.Unlock()
	i, _, ok := c.Peek(id)
	return i, ok
}

// Peek returns what is here of an object, and its map, without making or
// keeping anything; false if nothing is. The map goes on changing with the
// object, and stays as it was when the object leaves.
func (c *Cache) Peek(id chunk.ObjectID) (Info, chunk.Held, bool) {
	if r, ok, _ := c.places.find(id); ok {
		return r.info(), whole{c.places, r.obj}, true
	}
	e, f, err := c.acquire(c.life, id, nil)
	if err != nil {
		return Info{}, nil, false
	}
	defer c.release(e, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	return Info{
		Object: f.obj, Complete: f.Complete(), LocalBytes: f.presentBytes(), Keeper: e.kept,
	}, f.table, true
}

// Objects calls fn with each object here, registered ones included, until it
// returns false or ctx ends. Objects that come or go meanwhile may be missed.
// Before the start's scan is over it waits for it.
func (c *Cache) Objects(ctx context.Context, fn func(Info) bool) error {
	if err := c.scan(ctx); err != nil {
		return err
	}
	if more, err := c.places.each(ctx, fn); err != nil || !more {
		return err
	}
	for _, i := range c.infos() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		if !fn(i) {
			return nil
		}
	}
	return nil
}

func (c *Cache) infos() []Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Info, 0, len(c.entries))
	for _, e := range c.entries {
		if !e.known {
			continue
		}
		all = append(all, e.info())
	}
	return all
}

// info is what is known of an entry. Cache.mu is held.
func (e *entry) info() Info {
	if e.file != nil {
		return Info{Object: e.obj, Complete: e.file.Complete(), LocalBytes: e.file.presentBytes(), Keeper: e.kept}
	}
	return Info{Object: e.obj, Complete: e.complete, LocalBytes: e.present, Keeper: e.kept}
}

// Sets returns what to announce at the start, in no particular order. Before
// the start's scan is over it waits for it.
func (c *Cache) Sets(ctx context.Context) ([]SetInfo, error) {
	if err := c.scan(ctx); err != nil {
		return nil, err
	}
	kept := c.places.sets()
	all := make(map[chunk.SetID]*SetInfo, len(kept))
	for _, s := range kept {
		all[s] = &SetInfo{Set: s, Keeper: true, Complete: true}
	}
	for _, i := range c.infos() {
		s := all[i.Object.Set]
		if s == nil {
			s = &SetInfo{Set: i.Object.Set, Complete: true}
			all[s.Set] = s
		}
		s.Complete = s.Complete && i.Complete
		s.Keeper = s.Keeper || i.Keeper
	}
	out := make([]SetInfo, 0, len(all))
	for _, s := range all {
		out = append(out, *s)
	}
	return out, nil
}

// Drop removes a fetched object and returns the bytes that are free now, or
// will be when the last handle on it is closed; handles keep what they read.
// ErrKept: it is registered here, kept (Keep) or pinned. An object that is not
// here is no error.
func (c *Cache) Drop(ctx context.Context, id chunk.ObjectID) (freed int64, err error) {
	if r, ok, err := c.places.find(id); err != nil {
		return 0, fmt.Errorf("drop: %w", err)
	} else if ok {
		return 0, fmt.Errorf("drop object %s: %w: %s", id.Short(), ErrKept, r.path)
	}
	if c.Pinned(id) {
		return 0, fmt.Errorf("drop object %s: it is pinned: %w", id.Short(), ErrKept)
	}
	return c.DropCopy(ctx, id)
}

// DropCopy is Drop for the cache's own copy of an object that may be registered
// here besides, and then stays so.
func (c *Cache) DropCopy(ctx context.Context, id chunk.ObjectID) (freed int64, err error) {
	// Opened first: its facts, and so its set, are then known.
	e, f, err := c.acquire(ctx, id, nil)
	if errors.Is(err, chunk.ErrNotHeld) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("drop: %w", err)
	}
	defer c.release(e, f)
	if freed, err = c.remove(ctx, e); err != nil {
		return 0, fmt.Errorf("drop: %w", err)
	}
	return freed, nil
}
