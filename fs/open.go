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
	staged *staged  // natureStaged: shared by the inode's handles
	writes bool     // staged, and may write
	opener uint32   // process that opened it for writing, 0 when not visible from here
	marks  marks    // what it has changed
}

// intent is what an open is for.
type intent struct{ write, truncate bool }

// intentOf reads the flags of open(2). O_TRUNC comes with the open where the
// kernel offers that, else as a change of size that follows.
func intentOf(flags uint32) intent {
	truncate := flags&syscall.O_TRUNC != 0
	return intent{write: flags&syscall.O_ACCMODE != syscall.O_RDONLY || truncate, truncate: truncate}
}

// Open implements fuse.RawFileSystem.
func (r *raw) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f := r.fs
	want := intentOf(in.Flags)
	if want.write && f.readOnly() {
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
	if st := f.confirm(c, n, in.Pid, want); st != fuse.OK {
		return st
	}
	h, st, err := f.open(c, n, want, out)
	if err != nil {
		_, e := f.table.where(n)
		f.complain(c, "open", e.Name, err)
	}
	if st != fuse.OK {
		return st
	}
	if want.write {
		f.openForWriting(h, in.Pid)
		if want.truncate {
			h.staged.bared(&h.marks)
		}
	}
	out.Fh = f.handles.put(h)
	return fuse.OK
}

// openForWriting makes a handle one that may write, on behalf of a thread.
func (f *FS) openForWriting(h *handle, tid uint32) {
	h.writes, h.opener = true, processOf(tid)
	h.staged.join()
}

// confirm makes sure that an inode is what its name stands for. If it is not,
// the answer is ESTALE: the kernel looks the name up again and opens what it
// finds. One whose name was removed here, while it was being opened or to be
// opened by /proc/<pid>/fd, can still be read.
func (f *FS) confirm(ctx context.Context, n *inode, tid uint32, want intent) fuse.Status {
	came := time.Now()
	if f.table.removed(n) {
		if !want.write || f.table.isWritten(n) {
			return fuse.OK
		}
		f.table.mistrust(n, tid, want, came, time.Now())
		return statusStale
	}
	if f.cfg.Consistency != ConsistencyOpen || f.table.takeConfirmed(n, tid, came) {
		return fuse.OK
	}
	dir, known := f.table.where(n)
	var way meta.Way
	if !f.table.isWritten(n) {
		way = f.confirmedWay(dir)
	}
	e, moved, err := f.cfg.Names.ConfirmBy(ctx, way, dir, known.Name)
	if err == nil || errors.Is(err, meta.ErrNotFound) {
		moved = f.standing(way, moved, tid, came)
	}
	switch {
	case errors.Is(err, meta.ErrNotFound), err == nil && !f.table.still(n, &e):
		f.table.mistrust(n, tid, want, came, time.Now())
		return statusStale
	case err == nil && errors.Is(moved, meta.ErrStale):
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

// open makes a handle on n and tells the kernel how to read it.
func (f *FS) open(ctx context.Context, n *inode, want intent, out *fuse.OpenOut) (*handle, fuse.Status, error) {
	p, keep, cut, err := f.admit(ctx, n, want)
	if err != nil {
		if errors.Is(err, errMixed) {
			return nil, statusStale, nil
		}
		return nil, byOwner(err), err
	}
	_, e := f.table.where(n)
	h := &handle{inode: n, size: e.Size, local: p.local, staged: p.staged}
	if p.nature == natureIncomplete {
		if h.reader, err = f.cfg.Bytes.Open(ctx, e.Object); err != nil {
			f.depart(n)
			return nil, byNode(err), fmt.Errorf("open object %s: %w", e.Object.ID.Short(), err)
		}
	}
	if want.truncate && !cut {
		if err := p.staged.write.Resize(ctx, 0); err != nil {
			f.depart(n)
			return nil, byOwner(err), fmt.Errorf("truncate: %w", err)
		}
	}
	if !want.write { // a descriptor that cannot be written has nothing to flush at close
		out.OpenFlags = fuse.FOPEN_NOFLUSH
	}
	switch {
	case p.nature == naturePassthrough:
		out.OpenFlags |= fuse.FOPEN_PASSTHROUGH
		out.BackingID = p.backing
		f.passthrough.opens.Add(1)
	case keep:
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
	return h, fuse.OK, nil
}

// admit counts one more handle of n, settling its nature if it is the first.
// keep says that the pages the kernel holds are still right, cut that the file
// was emptied for an open that truncates: else that is left to the caller.
// errMixed.
func (f *FS) admit(ctx context.Context, n *inode, want intent) (p file, keep, cut bool, err error) {
	for {
		if p, ok, err := f.table.join(n, want.write); ok || err != nil {
			return p, true, false, err
		}
		completions := f.completions.Load()
		w, err := f.choose(ctx, n, want)
		if err != nil {
			return file{}, false, false, err
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
		return p, keep, w.cut, nil
	}
}

// choose finds out how a file that is not open should be read.
func (f *FS) choose(ctx context.Context, n *inode, want intent) (way, error) {
	if w, ok, err := f.stage(ctx, n, want); ok || err != nil {
		return w, err
	}
	_, e := f.table.where(n)
	if e.Size == 0 {
		return way{nature: natureEmpty, entry: e}, nil
	}
	local, release, ok, err := f.cfg.Bytes.Local(ctx, e.Object)
	if err != nil {
		// The local copy cannot be used. Others may have the bytes.
		f.log.Debug("open a local file", "name", e.Name, "object", e.Object.ID, "error", err)
	}
	if err != nil || !ok {
		return way{nature: natureIncomplete, entry: e}, nil
	}
	s, err := stampOf(local)
	if err != nil {
		release()
		return way{}, fmt.Errorf("look at the local file of %s: %w", e.Name, err)
	}
	w := way{nature: natureLocal, local: local, release: release, stamp: s, entry: e}
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
	r.fs.closing.Add(1) // first: no file that is being closed is counted nowhere
	defer r.fs.closing.Add(-1)
	if h := r.fs.handles.take(in.Fh); h != nil {
		r.fs.closeHandle(r.fs.life.Load().ctx, h)
	}
}

// closeHandle ends one handle that is no longer in f.handles.
func (f *FS) closeHandle(ctx context.Context, h *handle) {
	if h.writes {
		f.publishRest(ctx, h)
	}
	if h.reader != nil {
		if err := h.reader.Close(); err != nil {
			f.log.Debug("close a reader", "error", err)
		}
	}
	f.depart(h.inode)
}

// depart counts one handle less of n.
func (f *FS) depart(n *inode) {
	var now *meta.Entry
	if s := f.table.stagedOf(n); s != nil {
		e := s.write.Entry()
		now = &e
	}
	p, last := f.table.leave(n, now)
	if !last {
		return
	}
	f.giveBack(p.backing, p.release)
	if p.complete { // it waited for this
		f.notifier.push(notice{kind: noticeComplete, node: n.node})
	}
}

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
