package fs

import (
	"context"
	"math"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// SetAttr implements fuse.RawFileSystem. Clearing the setuid and setgid bits
// after writes and changes of owner comes as a change of mode: the kernel does
// not leave it to us.
func (r *raw) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f := r.fs
	if f.readOnly() {
		return fuse.EROFS
	}
	n := f.table.get(in.NodeId)
	if n == nil {
		return statusStale
	}
	c := f.newLasting(cancel, &in.InHeader, publishTimeout)
	defer c.end()
	size, resize := in.GetSize()
	if resize {
		if st := f.setSize(c, n, in, size); st != fuse.OK {
			return st
		}
	}
	if set := changeOf(in, resize); set != (meta.AttrChange{}) {
		names, cancel := context.WithTimeout(c, defaultNamesTimeout)
		defer cancel()
		if st := f.setAttr(names, n, set); st != fuse.OK {
			return st
		}
	}
	f.fillAttrOut(n, out, true)
	return fuse.OK
}

// changeOf returns which attributes become what. Access times are not kept. A
// new size brings the modification time with it.
func changeOf(in *fuse.SetAttrIn, resize bool) (set meta.AttrChange) {
	if mode, ok := in.GetMode(); ok {
		set.Mode = &mode
	}
	if uid, ok := in.GetUID(); ok {
		set.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		set.GID = &gid
	}
	if in.Valid&fuse.FATTR_MTIME == 0 || resize && in.Valid&fuse.FATTR_MTIME_NOW != 0 {
		return set
	}
	mtime := time.Now().UnixNano()
	if in.Valid&fuse.FATTR_MTIME_NOW == 0 {
		mtime = joinNs(in.Mtime, in.Mtimensec)
	}
	set.MtimeNs = &mtime
	return set
}

// setAttr changes attributes.
func (f *FS) setAttr(ctx context.Context, n *inode, set meta.AttrChange) fuse.Status {
	err := f.change(ctx, n, set)
	if err != nil {
		f.complain(ctx, "change attributes", f.table.nameOf(n), err)
	}
	return byNode(err)
}

// change changes attributes, of the file where it is being written, else of
// the name.
func (f *FS) change(ctx context.Context, n *inode, set meta.AttrChange) error {
	dir, known := f.table.where(n)
	f.table.mark(n)
	if s, ok := f.table.pin(n); ok {
		defer f.depart(n)
		_, err := s.write.SetAttr(ctx, set)
		return err
	}
	e, err := f.setClosed(ctx, n, dir, known, set)
	if err != nil {
		return err
	}
	f.table.mark(n)
	f.table.changed(n, &e, set.MtimeNs != nil)
	return nil
}

// setClosed is setAttr for what is not being written. A file that is not
// published yet is known by its id only.
func (f *FS) setClosed(ctx context.Context, n *inode, dir meta.InodeID, e meta.Entry, set meta.AttrChange) (meta.Entry, error) {
	if n.node == rootNode || f.table.removed(n) {
		return set.Apply(e) // no name could keep it
	}
	if n.kind == meta.KindFile {
		if write, ok := f.cfg.Changes.Find(dir, e); ok {
			defer write.Close()
			return write.SetAttr(ctx, set)
		}
	}
	return f.cfg.Changes.SetAttr(ctx, dir, e, set)
}

// setSize cuts or extends a file: of a handle (ftruncate), of a path that is
// being opened with O_TRUNC, or of a path by itself (truncate). The last is
// published here when nobody has the file open for writing, since no close
// will.
func (f *FS) setSize(c *call, n *inode, in *fuse.SetAttrIn, size uint64) fuse.Status {
	switch {
	case n.kind == meta.KindDir:
		return fuse.Status(syscall.EISDIR)
	case n.kind != meta.KindFile:
		return fuse.EINVAL
	case size > math.MaxInt64:
		return fuse.Status(syscall.EFBIG)
	}
	var h *handle
	if fh, ok := in.GetFh(); ok {
		h = f.handles.get(fh)
	}
	if h == nil || h.staged == nil || h.inode != n {
		h = nil
		if st := f.confirm(c, n, in.Pid, intent{write: true}); st != fuse.OK {
			return st
		}
	}
	p, _, cut, err := f.admit(c, n, intent{write: true, truncate: size == 0})
	if err != nil {
		f.complain(c, "truncate", f.table.nameOf(n), err)
		return byOwner(err)
	}
	defer f.depart(n)
	s := p.staged
	if !cut {
		if err := s.write.Resize(c, int64(size)); err != nil {
			f.complain(c, "truncate", f.table.nameOf(n), err)
			return byOwner(err)
		}
	}
	switch {
	case h != nil:
		s.wrote(&h.marks)
	case size == 0:
		s.bared(nil)
	default:
		s.wroteByPath()
	}
	if h != nil || !s.alone() || f.table.removed(n) {
		return fuse.OK
	}
	if _, err := f.publish(c, n, s); err != nil {
		f.complain(c, "truncate", f.table.nameOf(n), err)
		return byOwner(err)
	}
	return fuse.OK
}
