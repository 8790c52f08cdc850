package fs

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// dirHandle is one open directory: the listing as it was at opendir or at the
// last rewind. Offset 1 follows ".", 2 follows "..", i+3 follows entries[i], so
// an offset means the same for as long as the listing does.
type dirHandle struct {
	inode *inode

	mu      sync.Mutex // held by one READDIR; it waits for Names only on rewind
	entries []meta.Entry
	changes uint64 // of the directory when entries were asked for
	read    bool   // something was read since
}

// OpenDir implements fuse.RawFileSystem.
func (r *raw) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f := r.fs
	n := f.table.get(in.NodeId)
	switch {
	case n == nil:
		return statusStale
	case n.kind != meta.KindDir:
		return fuse.ENOTDIR
	}
	c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
	defer c.end()
	h := &dirHandle{inode: n}
	if err := f.list(c, h); err != nil {
		return byNode(err)
	}
	out.Fh = f.dirs.put(h)
	return fuse.OK
}

// list takes a fresh listing into h. h.mu is held, or h is not shared yet.
func (f *FS) list(ctx context.Context, h *dirHandle) error {
	changes := f.table.seen(h.inode)
	entries, err := f.cfg.Names.List(ctx, h.inode.id)
	if err != nil {
		_, e := f.table.where(h.inode)
		f.complain(ctx, "list", e.Name, err)
		return err
	}
	h.entries, h.changes, h.read = entries, changes, false
	return nil
}

// ReadDir implements fuse.RawFileSystem.
func (r *raw) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return r.readDir(cancel, in, out, func(_ *dirHandle, e *meta.Entry, d fuse.DirEntry) bool {
		return out.AddDirEntry(d)
	})
}

// ReadDirPlus implements fuse.RawFileSystem. Each entry it returns counts as a
// lookup.
func (r *raw) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	t := &r.fs.table
	return r.readDir(cancel, in, out, func(h *dirHandle, e *meta.Entry, d fuse.DirEntry) bool {
		entry := out.AddDirLookupEntry(d)
		if entry == nil {
			return false
		}
		if e == nil || e.Inode == meta.RootDir || typeBits(e.Kind) == 0 {
			return true // node id 0: a name without attributes
		}
		written := false
		t.mu.Lock()
		defer func() {
			t.mu.Unlock()
			if written {
				r.fs.fillLive(t.get(entry.NodeId), entry)
			}
		}()
		// A listing older than the last change must not undo what the
		// kernel was told meanwhile.
		if h.inode.changes != h.changes {
			return true
		}
		if t.doubted(h.inode.id, e.Name, time.Now()) {
			return true
		}
		written = r.fs.fillEntry(t.enter(h.inode.id, e), entry, true)
		return true
	})
}

// readDir adds entries from in.Offset on until add says that no more fit. The
// entry is nil for "." and "..".
func (r *raw) readDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList, add func(*dirHandle, *meta.Entry, fuse.DirEntry) bool) fuse.Status {
	f := r.fs
	h := f.dirs.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.Offset == 0 && h.read { // rewinddir(3) shows what is there now
		c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
		defer c.end()
		if err := f.list(c, h); err != nil {
			return byNode(err)
		}
	}
	h.read = true
	dir, _ := f.table.where(h.inode)
	dots := [...]fuse.DirEntry{
		{Name: ".", Ino: uint64(h.inode.id), Mode: typeBits(meta.KindDir), Off: 1},
		{Name: "..", Ino: uint64(dir), Mode: typeBits(meta.KindDir), Off: 2},
	}
	for i := in.Offset; i < uint64(len(dots)); i++ {
		if !add(h, nil, dots[i]) {
			return fuse.OK
		}
	}
	first := max(in.Offset, uint64(len(dots))) - uint64(len(dots))
	for i := first; i < uint64(len(h.entries)); i++ {
		e := &h.entries[i]
		if !add(h, e, fuse.DirEntry{Name: e.Name, Ino: uint64(e.Inode), Mode: typeBits(e.Kind), Off: i + 3}) {
			return fuse.OK
		}
	}
	return fuse.OK
}

// ReleaseDir implements fuse.RawFileSystem.
func (r *raw) ReleaseDir(in *fuse.ReleaseIn) { r.fs.dirs.take(in.Fh) }

// FsyncDir implements fuse.RawFileSystem.
func (*raw) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }
