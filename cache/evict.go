package cache

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// reserve promises n bytes on a root, making room if need be: ErrNoSpace.
func (c *Cache) reserve(r *root, n int64) error {
	used := c.used.Add(n)
	r.used.Add(n)
	if limit := c.cfg.Size; limit > 0 && used > limit {
		// The first may be what found out how much is here. What is on its
		// way to the disk cannot go before it is there.
		for _, wait := range []func(){func() {}, func() {}, c.flushed} {
			wait()
			c.makeRoom(nil, used-limit, false)
			if used = c.used.Load(); used <= limit {
				break
			}
		}
		if used > limit {
			c.unreserve(r, n)
			c.short()
			return fmt.Errorf("%w: %d bytes are in use or kept open, of %d", chunk.ErrNoSpace, used-n, limit)
		}
	}
	if limit := c.cfg.Size; limit > 0 {
		c.lookAhead(used, limit)
	}
	if r.room(n) {
		return nil
	}
	if c.makeRoom(r, r.shortOf(n), false) > 0 && r.room(n) {
		return nil
	}
	c.unreserve(r, n)
	c.short()
	return fmt.Errorf("%w: the file system of %s is full up to its reserve", chunk.ErrNoSpace, r.dir)
}

func (c *Cache) unreserve(r *root, n int64) {
	c.used.Add(-n)
	r.used.Add(-n)
}

// makeRoom evicts unused objects, least recently used first, until at least
// need bytes are free, on one root or (nil) on any. It evicts nothing when all
// of them together would not be enough, unless told that every bit helps. It
// returns the bytes freed.
func (c *Cache) makeRoom(r *root, need int64, everyBit bool) int64 {
	if need <= 0 {
		return 0
	}
	c.evict.Lock()
	defer c.evict.Unlock()
	if err := c.scan(c.life); err != nil {
		return 0
	}
	if !everyBit && c.evictableOn(r) < need {
		return 0
	}
	var freed int64
	for freed < need {
		e := c.victim(r)
		if e == nil {
			break
		}
		o, n := e.obj, e.used
		if err := c.removeBusy(c.life, e); err != nil {
			c.log.Warn("object not evicted", "object", o.ID, "err", err)
			e.root.failed(err)
			break
		}
		freed += n
		c.evictions.Add(1)
		c.evicted.Add(uint64(n))
		if c.cfg.Evicted != nil {
			c.cfg.Evicted(o)
		}
	}
	return freed
}

// evictableOn returns how many bytes eviction could free.
func (c *Cache) evictableOn(r *root) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r == nil || len(c.roots) == 1 {
		return c.evictable
	}
	var n int64
	for el := c.lru.Front(); el != nil; el = el.Next() {
		if e := el.Value.(*entry); e.root == r {
			n += e.used
		}
	}
	return n
}

// victim takes the least recently used unused entry and makes it busy.
func (c *Cache) victim(r *root) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	for el := c.lru.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if e.busy != nil || (r != nil && e.root != r) {
			continue
		}
		c.unlist(e)
		e.busy = make(chan struct{})
		return e
	}
	return nil
}

// remove takes an object out, whoever uses it: their handles keep the bytes.
// It returns the bytes that are free now or when the last handle closes.
// ErrKept: it is kept here.
func (c *Cache) remove(ctx context.Context, e *entry) (int64, error) {
	c.mu.Lock()
	if e.busy != nil || c.entries[e.obj.ID] != e {
		c.mu.Unlock()
		return 0, nil
	}
	if e.kept {
		c.mu.Unlock()
		return 0, fmt.Errorf("remove object %s: %w", e.obj.ID.Short(), ErrKept)
	}
	c.unlist(e)
	e.busy = make(chan struct{})
	used := e.used
	if e.file != nil {
		used = e.file.used.Load()
	}
	c.mu.Unlock()
	return used, c.removeBusy(ctx, e)
}

// removeBusy removes an entry that the caller made busy: the map, then the
// provider record if nothing else of the set is here, then the bytes.
func (c *Cache) removeBusy(ctx context.Context, e *entry) error {
	r, id := e.root, e.obj.ID
	err := os.Remove(r.path(id, ".map"))
	if os.IsNotExist(err) {
		err = nil
	}
	asked := false
	if err == nil {
		asked = c.withdrawIfLast(ctx, e)
		err = r.unlink(id)
	}
	c.mu.Lock()
	f, set := e.file, e.obj.Set
	unused := e.refs == 0
	close(e.busy)
	e.busy = nil
	if err != nil {
		c.relist(e)
		c.mu.Unlock()
		if asked {
			c.owe(set, nil)
		}
		return fmt.Errorf("remove object %s: %w", id.Short(), err)
	}
	c.forget(e)
	e.file = nil
	c.mu.Unlock()
	if f != nil && unused {
		f.closeFiles()
	}
	if asked {
		if err := c.withdrawn(ctx, set); err != nil {
			c.owe(set, err)
		}
	}
	return nil
}

// closeIdle closes files that nobody uses until at most keep are open. Dirty
// ones are left to the next sync, unless forced.
func (c *Cache) closeIdle(keep int, force bool) {
	for {
		e, f := c.takeIdle(keep, force, time.Time{})
		if e == nil {
			return
		}
		c.closeEntry(e, f)
	}
}

// closeOld closes files that nobody has used since.
func (c *Cache) closeOld(since time.Time) {
	for {
		e, f := c.takeIdle(0, false, since)
		if e == nil {
			return
		}
		c.closeEntry(e, f)
	}
}

// takeIdle makes the longest unused open entry busy, and takes its file.
func (c *Cache) takeIdle(keep int, force bool, since time.Time) (*entry, *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle.Len() <= keep {
		return nil, nil
	}
	for el := c.idle.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if !since.IsZero() && e.lastUse.After(since) {
			return nil, nil
		}
		if e.busy != nil || (!force && e.file.isDirty()) {
			continue
		}
		c.idle.Remove(el)
		e.inIdle = nil
		f := e.file
		e.file = nil
		e.busy = make(chan struct{})
		return e, f
	}
	return nil, nil
}

// closeEntry closes the file of an entry that the caller took it from and made
// busy. The map's modification time is where the last use is remembered. The
// entry stays in its place among those that may be evicted, unless it was pinned
// or unpinned meanwhile.
func (c *Cache) closeEntry(e *entry, f *file) {
	f.closeFiles()
	ts := unix.NsecToTimespec(e.lastUse.UnixNano())
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, f.root.path(f.obj.ID, ".map"), []unix.Timespec{ts, ts}, 0)
	c.mu.Lock()
	close(e.busy)
	e.busy = nil
	if c.isPinned(e.obj.ID) {
		c.unlist(e)
	}
	c.relist(e)
	c.mu.Unlock()
}
