package fs

import (
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// parentOf returns the directory a name is to be changed in.
func (f *FS) parentOf(node uint64, name string) (*inode, fuse.Status) {
	if f.readOnly() {
		return nil, fuse.EROFS
	}
	if len(name) > meta.NameMax {
		return nil, statusNameTooLong
	}
	n := f.table.get(node)
	switch {
	case n == nil:
		return nil, statusStale
	case n.kind != meta.KindDir:
		return nil, fuse.ENOTDIR
	}
	return n, fuse.OK
}

// attrsOf returns the attributes of something new in a directory. The kernel
// has applied the umask. In a directory with the setgid bit the group is the
// directory's, and new directories have the bit, too.
func (f *FS) attrsOf(parent *inode, caller *fuse.Caller, mode uint32, kind meta.Kind) meta.Attrs {
	a := meta.Attrs{Mode: mode & 07777, UID: caller.Uid, GID: caller.Gid, MtimeNs: time.Now().UnixNano()}
	_, dir := f.table.where(parent)
	if dir.Mode&syscall.S_ISGID != 0 {
		a.GID = dir.GID
		if kind == meta.KindDir {
			a.Mode |= syscall.S_ISGID
		}
	}
	return a
}

// Create implements fuse.RawFileSystem. The kernel has looked the name up
// before and found nothing.
func (r *raw) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	f := r.fs
	parent, st := f.parentOf(in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
	defer c.end()
	exclusive := in.Flags&syscall.O_EXCL != 0
	a := f.attrsOf(parent, &in.Caller, in.Mode, meta.KindFile)
	write, err := f.cfg.Changes.Create(c, parent.id, name, a, exclusive)
	switch {
	case errors.Is(err, meta.ErrExist) && !exclusive:
		return statusStale // it appeared since: the kernel looks again and opens it
	case err != nil:
		f.complain(c, "create", name, err)
		return byWriter(err)
	}
	e := write.Entry()
	e.Name = name
	n := f.made(parent, &e, &out.EntryOut)
	p, err := f.adopt(n, write)
	if err != nil {
		return byNode(err)
	}
	h := &handle{inode: n, staged: p.staged}
	f.openForWriting(h, in.Pid)
	h.staged.bared(&h.marks)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	out.Fh = f.handles.put(h)
	return fuse.OK
}

// newFileValid is how long the kernel may rely on the attributes of a file that
// was just made: it looks at them once more before it gives the file to who made
// it.
const newFileValid = 100 * time.Millisecond

// made enters what was made here and answers with it.
func (f *FS) made(parent *inode, e *meta.Entry, out *fuse.EntryOut) *inode {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	f.table.touch(parent.id, e.Name)
	n := f.table.enter(parent.id, e)
	f.fillEntry(n, out, true)
	if e.Kind == meta.KindFile {
		// It is about to be written, which makes the kernel forget what it was
		// told here. Until then only this mount changes it.
		out.SetAttrTimeout(min(newFileValid, validFor(e)))
	}
	return n
}

// adopt opens a new file's inode for writing. Whoever looked the name up
// meanwhile may have been faster, with a use of the same WriteFile.
func (f *FS) adopt(n *inode, write WriteFile) (file, error) {
	w := wayTo(write, false)
	for {
		p, first, _, _ := f.table.settle(n, w)
		if first {
			return p, nil
		}
		p, ok, err := f.table.join(n, true)
		if ok || err != nil {
			write.Close()
			return p, err
		}
	}
}

// Mknod implements fuse.RawFileSystem: regular files only.
func (r *raw) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	f := r.fs
	parent, st := f.parentOf(in.NodeId, name)
	switch {
	case st != fuse.OK:
		return st
	case in.Mode&syscall.S_IFMT != syscall.S_IFREG && in.Mode&syscall.S_IFMT != 0:
		return fuse.ENOTSUP
	}
	c := f.newLasting(cancel, &in.InHeader, defaultNamesTimeout)
	defer c.end()
	a := f.attrsOf(parent, &in.Caller, in.Mode, meta.KindFile)
	write, err := f.cfg.Changes.Create(c, parent.id, name, a, true)
	if err != nil {
		f.complain(c, "make", name, err)
		return byWriter(err)
	}
	defer write.Close()
	if err := write.Publish(c); err != nil { // no close will
		f.complain(c, "make", name, err)
		if err := f.cfg.Changes.Unlink(c, parent.id, name); err != nil {
			f.log.Debug("remove what could not be published", "name", name, "error", err)
		}
		return byOwner(err)
	}
	e := write.Entry()
	e.Name = name
	f.made(parent, &e, out)
	return fuse.OK
}

// Mkdir implements fuse.RawFileSystem.
func (r *raw) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	f := r.fs
	parent, st := f.parentOf(in.NodeId, name)
	if st != fuse.OK {
		return st
	}
	c := f.newCall(cancel, &in.InHeader, defaultNamesTimeout)
	defer c.end()
	e, err := f.cfg.Changes.Mkdir(c, parent.id, name, f.attrsOf(parent, &in.Caller, in.Mode, meta.KindDir))
	if err != nil {
		f.complain(c, "mkdir", name, err)
		return byWriter(err)
	}
	e.Name = name
	f.made(parent, &e, out)
	return fuse.OK
}

// Symlink implements fuse.RawFileSystem.
func (r *raw) Symlink(cancel <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	f := r.fs
	parent, st := f.parentOf(header.NodeId, name)
	if st != fuse.OK {
		return st
	}
	c := f.newCall(cancel, header, defaultNamesTimeout)
	defer c.end()
	a := f.attrsOf(parent, &header.Caller, 0o777, meta.KindSymlink)
	e, err := f.cfg.Changes.Symlink(c, parent.id, name, target, a)
	if err != nil {
		f.complain(c, "symlink", name, err)
		return byWriter(err)
	}
	e.Name = name
	f.made(parent, &e, out)
	return fuse.OK
}
