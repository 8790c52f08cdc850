package fs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// Lookup implements fuse.RawFileSystem.
func (r *raw) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f := r.fs
	if len(name) > meta.NameMax {
		return statusNameTooLong
	}
	parent := f.table.get(header.NodeId)
	switch {
	case parent == nil:
		return statusStale
	case parent.kind != meta.KindDir:
		return fuse.ENOTDIR
	case name == "." || name == "..":
		return f.lookupDots(parent, name, out)
	}
	c := f.newCall(cancel, header, defaultNamesTimeout)
	defer c.end()
	changes, came := f.table.seen(parent), time.Now()
	way := f.confirmedWay(parent.id)
	e, confirmed, moved, err := f.find(c, way, parent.id, name)
	if errors.Is(err, meta.ErrNotFound) {
		if moved = f.standing(way, moved, header.Pid, came); moved != nil {
			err = moved
		}
	}
	if err != nil {
		f.complain(c, "look up", name, err)
		// A name that is not there is ENOENT whichever directory id it was
		// asked under, and the kernel does not remember it.
		return toStatus(err)
	}
	f.table.mu.Lock()
	n := f.table.enter(parent.id, &e)
	if !confirmed.IsZero() {
		n.answered = time.Now()
	}
	if confirmed.After(n.confirmed) {
		n.confirmed = confirmed
	}
	written := f.fillEntry(n, out, parent.changes == changes)
	f.table.mu.Unlock()
	if written {
		f.fillLive(n, out)
	}
	return fuse.OK
}

// lookupDots answers "." and "..", which only NFS asks for.
func (f *FS) lookupDots(dir *inode, name string, out *fuse.EntryOut) fuse.Status {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	n := dir
	if name == ".." {
		if n = f.table.dirs[dir.dir]; n == nil {
			return statusStale
		}
	}
	n.lookups++
	f.fillEntry(n, out, true)
	return fuse.OK
}

// find returns the entry of a name. If the store was asked, because the name is
// in doubt, confirmed is when. moved is what the store says of the way, if asked.
func (f *FS) find(c *call, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, confirmed time.Time, moved, err error) {
	now := time.Now()
	f.table.mu.Lock()
	doubted := f.table.doubted(dir, name, now)
	f.table.mu.Unlock()
	if doubted {
		confirmed = now
		e, moved, err = f.cfg.Names.ConfirmBy(c, way, dir, name)
	} else {
		e, moved, err = f.cfg.Names.LookupBy(c, way, dir, name)
	}
	if err != nil {
		return e, confirmed, moved, err
	}
	if e.Inode == meta.RootDir || typeBits(e.Kind) == 0 {
		return e, confirmed, moved, fmt.Errorf("%w: entry %q has inode %d", meta.ErrFormat, name, e.Inode)
	}
	e.Name = name
	return e, confirmed, moved, nil
}

// fillEntry answers with an inode. Unless it is current, the kernel is told
// not to rely on it: a change was announced after the name was asked for, when
// the kernel had nothing yet that a notice could have made it forget. written
// says that the file is being written, so that the attributes are those of a
// while ago: see fillLive. table.mu is held.
func (f *FS) fillEntry(n *inode, out *fuse.EntryOut, current bool) (written bool) {
	out.NodeId, out.Generation = n.node, n.gen
	e := n.shown()
	fillAttr(&e, &out.Attr)
	written = n.written()
	valid := validFor(&e)
	if current {
		out.SetEntryTimeout(valid)
	}
	if current && !written {
		out.SetAttrTimeout(valid)
	}
	return written
}

// validFor returns how long the kernel may rely on an entry: not longer than it
// is there.
func validFor(e *meta.Entry) time.Duration {
	if e.ExpiresNs == 0 {
		return defaultValid
	}
	return max(0, min(defaultValid, time.Until(time.Unix(0, e.ExpiresNs))))
}

// fillLive answers with the attributes as they are now, if the file is still
// being written. table.mu is not held.
func (f *FS) fillLive(n *inode, out *fuse.EntryOut) {
	if e, ok := f.live(n); ok {
		fillAttr(&e, &out.Attr)
	}
}

// Forget implements fuse.RawFileSystem.
func (r *raw) Forget(node, lookups uint64) { r.fs.table.forget(node, lookups) }

// GetAttr implements fuse.RawFileSystem.
func (r *raw) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f := r.fs
	n := f.table.get(in.NodeId)
	if n == nil {
		return statusStale
	}
	current := true
	switch {
	case f.table.isWritten(n), f.table.removed(n):
	case n.node != rootNode:
		c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
		defer c.end()
		var st fuse.Status
		if current, st = f.revalidate(c, n, in.Pid); st != fuse.OK {
			return st
		}
	}
	f.fillAttrOut(n, out, current)
	return fuse.OK
}

// fillAttrOut answers with what stat shows of an inode. The kernel does not
// rely on it while the file is being written: each write moves its times.
func (f *FS) fillAttrOut(n *inode, out *fuse.AttrOut, current bool) {
	e, gone := f.table.show(n)
	if now, ok := f.live(n); ok {
		e, current = now, false
	}
	fillAttr(&e, &out.Attr)
	if gone {
		out.Nlink = 0
	}
	if current {
		out.SetTimeout(validFor(&e))
	}
}

// revalidate brings the attributes of an inode up to date, for a thread. current
// is false when they are the last ones known and may be old.
func (f *FS) revalidate(ctx context.Context, n *inode, tid uint32) (current bool, st fuse.Status) {
	came := time.Now()
	dir, known := f.table.where(n)
	changes := f.table.changesIn(dir)
	e, err := f.cfg.Names.Lookup(ctx, dir, known.Name)
	switch {
	case err == nil && f.table.still(n, &e):
		f.table.refresh(n, &e)
		return f.table.changesIn(dir) == changes, fuse.OK
	case err == nil, errors.Is(err, meta.ErrNotFound):
		// The name stands for something else now. Whoever has the file open
		// may still ask for its attributes, and so may an open that was told
		// so once already: the kernel checks permissions before it opens.
		if !f.table.isOpen(n) && !f.table.suffices(n, tid, came) {
			f.table.mistrust(n, tid, intent{}, came, time.Now())
			return false, statusStale
		}
		f.notifier.push(notice{kind: noticeName, dir: dir, name: known.Name})
		return false, fuse.OK
	case errors.Is(err, context.Canceled):
		return false, fuse.EINTR
	}
	f.log.Debug("attributes may be old", "name", known.Name, "error", err)
	return false, fuse.OK
}

// Readlink implements fuse.RawFileSystem.
func (r *raw) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	n := r.fs.table.get(header.NodeId)
	switch {
	case n == nil:
		return nil, statusStale
	case n.kind != meta.KindSymlink:
		return nil, fuse.EINVAL
	}
	_, e := r.fs.table.where(n)
	return []byte(e.Target), fuse.OK
}

// Access implements fuse.RawFileSystem. The kernel checks permissions itself
// (default_permissions).
func (*raw) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

// spaceShown is the size statfs shows when nobody knows a better one.
const spaceShown = 1 << 50

// StatFs implements fuse.RawFileSystem.
func (r *raw) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	total, free := int64(spaceShown), int64(0)
	if r.fs.cfg.Space != nil {
		total, free = r.fs.cfg.Space()
	}
	out.Bsize, out.Frsize = pageSize, pageSize
	out.Blocks = uint64(max(total, 0)) / pageSize
	out.Bfree = uint64(max(free, 0)) / pageSize
	out.Bavail = out.Bfree
	out.NameLen = meta.NameMax
	return fuse.OK
}
