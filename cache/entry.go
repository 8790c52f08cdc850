package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// entry is one fetched object here, whether its files are open or not. All of
// it is guarded by Cache.mu; what busy announces is done by whoever set it.
type entry struct {
	root *root
	obj  chunk.Object // all but the ID zero until known
	// known: obj, used, present and complete were read from the map.
	known    bool
	used     int64 // bytes on disk
	present  int64 // bytes of the object, zeros included
	complete bool
	kept     bool // never evicted
	lastUse  time.Time
	file     *file         // open; nil: closed
	refs     int           // users of file
	busy     chan struct{} // closed when the opening, closing or removal under way has ended
	inLRU    *list.Element
	inIdle   *list.Element
}

// errAbsent: the files are not there or not to be believed, and gone now.
var errAbsent = errors.New("object file is absent")

// acquire returns the open file of an object, which then has one user more.
// Without facts (o nil) an object that is not here is ErrNotHeld; with them it
// is made.
func (c *Cache) acquire(ctx context.Context, id chunk.ObjectID, o *chunk.Object) (*entry, *file, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, nil, fmt.Errorf("open object %s: %w", id.Short(), chunk.ErrClosed)
		}
		e := c.entries[id]
		switch {
		case e == nil && o == nil:
			c.mu.Unlock()
			return nil, nil, fmt.Errorf("object %s: %w", id.Short(), chunk.ErrNotHeld)
		case e != nil && e.busy != nil:
			busy := e.busy
			c.mu.Unlock()
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return nil, nil, fmt.Errorf("open object %s: %w", id.Short(), ctx.Err())
			}
		case e != nil && e.file != nil:
			f := e.file
			if o != nil && !sameBytes(f.obj, *o) {
				c.mu.Unlock()
				return nil, nil, fmt.Errorf("open object %s: %d bytes in blocks of %d here, %d in blocks of %d asked for: %w", id.Short(), f.obj.Size, f.obj.BlockSize, o.Size, o.BlockSize, chunk.ErrCorrupt)
			}
			c.use(e)
			c.mu.Unlock()
			return e, f, nil
		}
		if e == nil {
			e = &entry{obj: chunk.Object{ID: id}}
			c.entries[id] = e
		}
		c.unlist(e)
		e.busy = make(chan struct{})
		r := e.root
		c.mu.Unlock()
		f, err := c.materialise(r, id, o)
		if err := c.settle(e, f, err); err == nil {
			return e, f, nil
		} else if !errors.Is(err, errAbsent) {
			return nil, nil, err
		}
	}
}

// materialise opens the files of an entry, or makes them if it has none yet.
// Out of descriptors, it first closes those that are open for nobody.
func (c *Cache) materialise(r *root, id chunk.ObjectID, o *chunk.Object) (*file, error) {
	open := func() (*file, error) {
		if r == nil {
			return c.createFile(*o)
		}
		return c.loadFile(r, id, o)
	}
	f, err := open()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		c.closeIdle(0, true)
		f, err = open()
	}
	return f, err
}

// settle ends the busy time of an entry that was being opened.
func (c *Cache) settle(e *entry, f *file, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(e.busy)
	e.busy = nil
	if err != nil {
		if e.root == nil || errors.Is(err, errAbsent) {
			c.forget(e)
		} else {
			c.relist(e)
		}
		return err
	}
	if e.root != nil {
		c.account(e, 0) // the open file counts for itself
	}
	e.root, e.file = f.root, f
	e.used = f.used.Load()
	c.learn(e, f.obj, f.table, f.head.kept)
	c.use(e)
	return nil
}

// learn records what a map says of an entry. The entry is in no list.
func (c *Cache) learn(e *entry, o chunk.Object, t *table, kept bool) {
	if !e.known {
		e.known = true
		c.sets[o.Set]++
	}
	e.obj = o
	e.present, e.complete, e.kept = t.presentBytes(), t.Complete(), kept
}

// account corrects the bytes that a closed entry takes on disk. An open file
// counts its own as it grows, and the entry learns them at release.
func (c *Cache) account(e *entry, used int64) {
	c.used.Add(used - e.used)
	e.root.used.Add(used - e.used)
	e.used = used
}

// forget takes an entry out of the books. The bytes of one still in use stay
// counted until its last user goes.
func (c *Cache) forget(e *entry) {
	c.unlist(e)
	if c.entries[e.obj.ID] == e {
		delete(c.entries, e.obj.ID)
	}
	if e.known {
		e.known = false
		if c.sets[e.obj.Set]--; c.sets[e.obj.Set] == 0 {
			delete(c.sets, e.obj.Set)
		}
	}
	switch {
	case e.root == nil:
	case e.refs > 0:
		e.used = 0
	default:
		c.account(e, 0)
	}
}

// use adds a user. The entry's file is open.
func (c *Cache) use(e *entry) {
	c.unlist(e)
	e.refs++
	e.lastUse = c.cfg.Now()
}

// unlist takes an entry out of the lists of unused ones.
func (c *Cache) unlist(e *entry) {
	if e.inLRU != nil {
		c.lru.Remove(e.inLRU)
		e.inLRU = nil
		c.evictable -= e.used
	}
	if e.inIdle != nil {
		c.idle.Remove(e.inIdle)
		e.inIdle = nil
	}
}

// relist puts an unused entry back into the lists, by its last use: near the
// young end, as a rule.
func (c *Cache) relist(e *entry) {
	if e.refs > 0 || e.busy != nil {
		return
	}
	if e.known && !e.kept && !c.isPinned(e.obj.ID) && e.inLRU == nil {
		e.inLRU = insert(&c.lru, e)
		c.evictable += e.used
	}
	if e.file != nil && e.inIdle == nil {
		e.inIdle = insert(&c.idle, e)
	}
}

// insert keeps a list of entries in the order of their last use.
func insert(l *list.List, e *entry) *list.Element {
	for el := l.Back(); el != nil; el = el.Prev() {
		if !el.Value.(*entry).lastUse.After(e.lastUse) {
			return l.InsertAfter(e, el)
		}
	}
	return l.PushFront(e)
}

// release takes one user of f away.
func (c *Cache) release(e *entry, f *file) {
	c.mu.Lock()
	e.lastUse = c.cfg.Now()
	c.releaseLocked(e, f)
}

// releaseQuietly takes away a user that was none to the eviction order.
func (c *Cache) releaseQuietly(e *entry, f *file) {
	c.mu.Lock()
	c.releaseLocked(e, f)
}

// releaseLocked takes one user of f away and unlocks Cache.mu. The file of an
// object that was dropped meanwhile, or of a cache that was closed, goes with
// its last user.
func (c *Cache) releaseLocked(e *entry, f *file) {
	e.refs--
	dropped := e.file != f
	if !dropped {
		e.used = f.used.Load()
		e.present, e.complete = f.presentBytes(), f.Complete()
		c.relist(e)
	}
	last := e.refs == 0
	closing := last && !dropped && c.closed && e.busy == nil
	if closing {
		c.unlist(e)
		e.file, e.busy = nil, make(chan struct{})
	}
	idle := c.idle.Len()
	c.mu.Unlock()
	switch {
	case last && dropped:
		f.freed()
		f.closeFiles()
	case closing:
		c.closeEntry(e, f)
	case idle > c.cfg.OpenFiles:
		// Dirty ones wait for the flush, but not for all descriptors.
		c.closeIdle(c.cfg.OpenFiles, idle > 4*c.cfg.OpenFiles)
	}
}
