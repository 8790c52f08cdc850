package cache

import (
	"context"
	"fmt"
	"time"
)

// soil notes n bytes that a power failure would lose.
func (f *file) soil(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.soilLocked(n)
}

func (f *file) soilLocked(n int64) {
	first := f.dirty == 0
	f.dirty += n
	if first {
		f.dirtySince = f.c.cfg.Now()
		f.c.smu.Lock()
		f.c.dirty[f] = struct{}{}
		f.c.smu.Unlock()
	}
	if f.dirty >= f.c.cfg.SyncBytes {
		select {
		case f.c.kick <- struct{}{}:
		default:
		}
	}
}

// isDirty reports whether a sync is due or under way.
func (f *file) isDirty() bool {
	f.c.smu.Lock()
	defer f.c.smu.Unlock()
	_, ok := f.c.dirty[f]
	return ok
}

// due reports whether the file has been dirty for so long, or with so much.
func (f *file) due(age time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dirty > 0 && (f.dirty >= f.c.cfg.SyncBytes || f.c.cfg.Now().Sub(f.dirtySince) >= age)
}

// sync makes the blocks that are present now durable, then says so in the
// map: data, sums, and only then the synced bits. Writers are not held up.
func (f *file) sync() error {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	f.mu.Lock()
	have := make([]uint64, len(f.groups))
	for i := range have {
		have[i] = f.groups[i].have.Load()
	}
	mapf := f.mapf
	f.dirty = 0
	f.c.smu.Lock()
	delete(f.c.dirty, f)
	f.c.smu.Unlock()
	f.recountUsed()
	f.mu.Unlock()
	if mapf == nil {
		return nil
	}
	if err := f.c.datasync(f.data); err != nil {
		return err
	}
	if err := f.c.datasync(mapf); err != nil {
		return err
	}
	return f.markSynced(have)
}

// markSynced writes the synced bits of blocks that are durable. When nothing
// more is to come the map is finished and closed.
func (f *file) markSynced(have []uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range have {
		w := f.groups[i].bits()
		if have[i]&^w.synced == 0 {
			continue
		}
		w.synced |= have[i]
		if err := f.writeGroup(i, w); err != nil {
			return err
		}
	}
	if !f.Complete() || !f.head.sealed || !f.allSynced() {
		return nil
	}
	if err := f.c.datasync(f.mapf); err != nil {
		return err
	}
	f.closeMap()
	return nil
}

// syncDirty syncs the files that have been dirty for age, or hold too much.
func (c *Cache) syncDirty(ctx context.Context, age time.Duration) {
	c.smu.Lock()
	files := make([]*file, 0, len(c.dirty))
	for f := range c.dirty {
		files = append(files, f)
	}
	c.smu.Unlock()
	for _, f := range files {
		if ctx.Err() != nil {
			return
		}
		if !f.due(age) {
			continue
		}
		c.syncFile(ctx, f)
	}
}

// syncFile syncs one file of those that may be closed meanwhile. A file whose
// bytes the disk would not take is given up: after a failed flush the kernel
// may drop pages it called clean, and reads would then find old bytes.
func (c *Cache) syncFile(ctx context.Context, f *file) {
	e := c.hold(f)
	if e == nil {
		return
	}
	defer c.releaseQuietly(e, f)
	err := f.sync()
	if err == nil {
		return
	}
	f.root.failed(fmt.Errorf("flush object %s: %w", f.obj.ID.Short(), err))
	c.log.Warn("object given up: its bytes could not be flushed", "object", f.obj.ID, "err", err)
	if _, err := c.remove(ctx, e); err != nil {
		c.log.Warn("object not removed", "object", f.obj.ID, "err", err)
	}
}

// hold adds a user to a file that is open now; nil if it no longer is, or is
// being opened or removed. It goes with releaseQuietly.
func (c *Cache) hold(f *file) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[f.obj.ID]
	if e == nil || e.file != f || e.busy != nil {
		return nil
	}
	c.unlist(e)
	e.refs++
	return e
}
