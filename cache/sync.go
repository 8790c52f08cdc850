package cache

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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

// present returns the blocks to be made durable now; what is put from here on
// is dirty again. The map is nil if it is finished.
func (f *file) present() (have []uint64, mapf *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have = make([]uint64, len(f.groups))
	for i := range have {
		have[i] = f.groups[i].have.Load()
	}
	f.dirty = 0
	f.c.smu.Lock()
	delete(f.c.dirty, f)
	f.c.smu.Unlock()
	f.recountUsed()
	return have, f.mapf
}

// markSynced writes the synced bits of blocks that are durable. They need no
// flush of their own: without them blocks are only looked at once more. When
// nothing more is to come the map is finished and closed.
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
	if f.Complete() && f.head.sealed && f.allSynced() {
		f.closeMap()
	}
	return nil
}

// flushing is a file on its way to the disk, with us as one of its users.
type flushing struct {
	e    *entry
	f    *file
	have []uint64
	mapf *os.File
}

// syncDirty makes the blocks of files durable that have been dirty for age, or
// hold too much, and then says so in their maps: data, sums, and only then the
// synced bits. Writers are not held up.
func (c *Cache) syncDirty(ctx context.Context, age time.Duration) {
	c.flush.Lock()
	defer c.flush.Unlock()
	due := make(map[*root][]flushing)
	for _, f := range c.dirtyFiles() {
		if !f.due(age) {
			continue
		}
		if e := c.hold(f); e != nil {
			due[f.root] = append(due[f.root], flushing{e: e, f: f})
		}
	}
	for r, files := range due {
		together := len(files) >= syncTogether
		if together {
			for i := range files {
				files[i].have, files[i].mapf = files[i].f.present()
			}
			together = r.syncAll() == nil
		}
		for _, w := range files {
			if ctx.Err() == nil {
				c.finish(ctx, w, together)
			}
			c.releaseQuietly(w.e, w.f)
		}
	}
}

// flushed returns when the flush under way, which uses the files it is about, has
// ended.
func (c *Cache) flushed() {
	c.flush.Lock()
	defer c.flush.Unlock()
}

func (c *Cache) dirtyFiles() []*file {
	c.smu.Lock()
	defer c.smu.Unlock()
	files := make([]*file, 0, len(c.dirty))
	for f := range c.dirty {
		files = append(files, f)
	}
	return files
}

// finish flushes one file, unless that was done, and marks it. A file whose
// bytes the disk would not take is given up: after a failed flush the kernel
// may drop pages it called clean, and reads would then find old bytes.
func (c *Cache) finish(ctx context.Context, w flushing, flushed bool) {
	var err error
	if !flushed {
		w.have, w.mapf = w.f.present()
	}
	if w.mapf == nil {
		return
	}
	if !flushed {
		if err = c.datasync(w.f.data); err == nil {
			err = c.datasync(w.mapf)
		}
	}
	if err == nil {
		err = w.f.markSynced(w.have)
	}
	if err == nil {
		return
	}
	id := w.f.obj.ID
	w.f.root.failed(fmt.Errorf("flush object %s: %w", id.Short(), err))
	c.log.Warn("object given up: its bytes could not be flushed", "object", id, "err", err)
	if _, err := c.remove(ctx, w.e); err != nil {
		c.log.Warn("object not removed", "object", id, "err", err)
	}
}

// syncTogether is how many dirty files are cheaper flushed with all of their
// file system than one by one: a tree of small files would be a commit each.
const syncTogether = 32

// syncAll flushes the root's file system. An error may be about anything on
// it; each file then tells its own.
func (r *root) syncAll() error {
	if err := unix.Syncfs(int(r.lock.Fd())); err != nil {
		return fmt.Errorf("flush the file system of %s: %w", r.dir, err)
	}
	return nil
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
