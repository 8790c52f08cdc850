package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/meta"
)

// handle is one open file.
type handle struct {
	inode  *inode
	size   int64
	local  *os.File // naturePassthrough, natureLocal: shared by the inode's handles
	reader Reader   // natureIncomplete
}

// Open implements fuse.RawFileSystem.
func (r *raw) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f := r.fs
	if in.Flags&syscall.O_ACCMODE != syscall.O_RDONLY || in.Flags&syscall.O_TRUNC != 0 {
		return fuse.EROFS
	}
	n := f.table.get(in.NodeId)
	switch {
	case n == nil:
		return statusStale
	case n.kind != meta.KindFile:
		return fuse.EINVAL
	}
	c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
	defer c.end()
	if st := f.confirm(c, n, in.Pid); st != fuse.OK {
		return st
	}
	st, err := f.open(c, n, out)
	if err != nil {
		_, e := f.table.where(n)
		f.complain(c, "open", e.Name, err)
	}
	return st
}

// confirm makes sure that an inode is what its name stands for. If it is not,
// the answer is ESTALE: the kernel looks the name up again and opens what it
// finds.
func (f *FS) confirm(ctx context.Context, n *inode, tid uint32) fuse.Status {
	if f.cfg.Consistency != ConsistencyOpen || f.table.takeConfirmed(n, tid) {
		return fuse.OK
	}
	dir, known := f.table.where(n)
	e, err := f.cfg.Names.Confirm(ctx, dir, known.Name)
	switch {
	case errors.Is(err, meta.ErrNotFound), err == nil && !known.SameContent(e):
		f.table.mistrust(n, tid, time.Now())
		return statusStale
	case err != nil:
		f.complain(ctx, "open", known.Name, err)
		return byNode(err)
	}
	if f.table.refresh(n, &e) {
		f.notifier.push(notice{kind: noticeAttr, node: n.node})
	}
	return fuse.OK
}

// open gives the kernel a handle on n and says how to read it.
func (f *FS) open(ctx context.Context, n *inode, out *fuse.OpenOut) (fuse.Status, error) {
	p, keep, err := f.admit(ctx, n)
	if err != nil {
		return byNode(err), err
	}
	_, e := f.table.where(n)
	h := &handle{inode: n, size: e.Size, local: p.local}
	if p.nature == natureIncomplete {
		if h.reader, err = f.cfg.Bytes.Open(ctx, e.Object); err != nil {
			f.depart(n)
			return byNode(err), fmt.Errorf("open object %s: %w", e.Object.ID.Short(), err)
		}
	}
	// A descriptor that cannot be written has nothing to flush at close.
	out.OpenFlags = fuse.FOPEN_NOFLUSH
	switch {
	case p.nature == naturePassthrough:
		out.OpenFlags |= fuse.FOPEN_PASSTHROUGH
		out.BackingID = p.backing
		f.passthrough.opens.Add(1)
	case keep:
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
	out.Fh = f.handles.put(h)
	return fuse.OK, nil
}

// admit counts one more handle of n, settling its nature if it is the first.
// keep says that the pages the kernel holds are still right.
func (f *FS) admit(ctx context.Context, n *inode) (p file, keep bool, err error) {
	for {
		if p, ok := f.table.join(n); ok {
			return p, true, nil
		}
		completions := f.completions.Load()
		w, err := f.choose(ctx, n)
		if err != nil {
			return file{}, false, err
		}
		p, first, drop, keep := f.table.settle(n, w)
		if !first {
			f.giveBack(w.backing, w.release)
			continue
		}
		if drop {
			f.notifier.push(notice{kind: noticePages, node: n.node})
		}
		if w.nature == natureIncomplete && f.completions.Load() != completions {
			// An object became complete after we looked: perhaps this one.
			f.notifier.push(notice{kind: noticeRecheck, node: n.node})
		}
		return p, keep, nil
	}
}

// choose finds out how a file that is not open should be read.
func (f *FS) choose(ctx context.Context, n *inode) (way, error) {
	_, e := f.table.where(n)
	if e.Size == 0 {
		return way{nature: natureEmpty}, nil
	}
	local, release, ok, err := f.cfg.Bytes.Local(ctx, e.Object)
	if err != nil {
		// The local copy cannot be used. Others may have the bytes.
		f.log.Debug("open a local file", "name", e.Name, "object", e.Object.ID, "error", err)
	}
	if err != nil || !ok {
		return way{nature: natureIncomplete}, nil
	}
	s, err := stampOf(local)
	if err != nil {
		release()
		return way{}, fmt.Errorf("look at the local file of %s: %w", e.Name, err)
	}
	w := way{nature: natureLocal, local: local, release: release, stamp: s}
	if id, ok := f.passthrough.register(local, s.dev); ok {
		w.nature, w.backing = naturePassthrough, id
	}
	return w, nil
}

// giveBack returns what a nature held.
func (f *FS) giveBack(backing int32, release func()) {
	if backing != 0 {
		f.passthrough.unregister(backing)
	}
	if release != nil {
		release()
	}
}

// Release implements fuse.RawFileSystem. The kernel sends it when the last
// descriptor and the last mapping are gone and no read is under way.
func (r *raw) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if h := r.fs.handles.take(in.Fh); h != nil {
		r.fs.closeHandle(h)
	}
}

// closeHandle ends one handle that is no longer in f.handles.
func (f *FS) closeHandle(h *handle) {
	if h.reader != nil {
		if err := h.reader.Close(); err != nil {
			f.log.Debug("close a reader", "error", err)
		}
	}
	f.depart(h.inode)
}

// depart counts one handle less of n.
func (f *FS) depart(n *inode) {
	p, last := f.table.leave(n)
	if !last {
		return
	}
	f.giveBack(p.backing, p.release)
	if p.complete { // it waited for this
		f.notifier.push(notice{kind: noticeComplete, node: n.node})
	}
}

// Flush implements fuse.RawFileSystem.
func (*raw) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Fsync implements fuse.RawFileSystem.
func (*raw) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }

// dropLocalPages asks the kernel to drop the page cache of an object's local
// file, when the same bytes are cached as pages of the mount.
func (f *FS) dropLocalPages(ctx context.Context, e meta.Entry) {
	local, release, ok, err := f.cfg.Bytes.Local(ctx, e.Object)
	if err != nil || !ok {
		return
	}
	defer release()
	if err := unix.Fadvise(int(local.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		f.log.Debug("drop cached pages", "file", local.Name(), "error", err)
	}
}
