package fs

import (
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// Only the extended attributes of users are kept. Of the others the kernel asks
// for security.capability at every write: that is answered without looking at
// anything. ENOTSUP also ends what ls -l asks about every file; ENODATA would not.

// xattrUser begins the names of extended attributes that are kept.
const xattrUser = "user."

// The flags of setxattr(2).
const (
	xattrCreate  = 1
	xattrReplace = 2
)

// GetXAttr implements fuse.RawFileSystem.
func (r *raw) GetXAttr(cancel <-chan struct{}, header *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if !strings.HasPrefix(name, xattrUser) {
		return 0, fuse.ENOTSUP
	}
	x, st := r.fs.xattrs(cancel, header)
	if st != fuse.OK {
		return 0, st
	}
	value, ok := x.Get(name)
	if !ok {
		return 0, fuse.Status(syscall.ENODATA)
	}
	if len(dest) < len(value) {
		return uint32(len(value)), tooShort(dest)
	}
	return uint32(copy(dest, value)), fuse.OK
}

// ListXAttr implements fuse.RawFileSystem.
func (r *raw) ListXAttr(cancel <-chan struct{}, header *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	x, st := r.fs.xattrs(cancel, header)
	if st != fuse.OK {
		return 0, st
	}
	size := 0
	for name := range x.All() {
		if size+len(name) < len(dest) {
			copy(dest[size:], name)
			dest[size+len(name)] = 0
		}
		size += len(name) + 1
	}
	if len(dest) < size {
		return uint32(size), tooShort(dest)
	}
	return uint32(size), fuse.OK
}

// tooShort is the answer to who has no room for it: who has none at all only
// asks for the size.
func tooShort(dest []byte) fuse.Status {
	if len(dest) == 0 {
		return fuse.OK
	}
	return fuse.ERANGE
}

// xattrs returns the extended attributes of an inode, as fresh as what stat
// shows.
func (f *FS) xattrs(cancel <-chan struct{}, header *fuse.InHeader) (meta.XAttrs, fuse.Status) {
	n := f.table.get(header.NodeId)
	if n == nil {
		return "", statusStale
	}
	if e, ok := f.live(n); ok {
		return e.XAttrs, fuse.OK
	}
	if n.node != rootNode && !f.table.removed(n) {
		c := f.newCall(cancel, header, defaultNamesTimeout)
		defer c.end()
		if _, st := f.revalidate(c, n, header.Pid); st != fuse.OK {
			return "", st
		}
	}
	_, e := f.table.where(n)
	return e.XAttrs, fuse.OK
}

// SetXAttr implements fuse.RawFileSystem.
func (r *raw) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return r.fs.setXAttr(cancel, &in.InHeader, meta.XAttrChange{
		Name: name, Value: string(value),
		Create: in.Flags&xattrCreate != 0, Replace: in.Flags&xattrReplace != 0,
	})
}

// RemoveXAttr implements fuse.RawFileSystem.
func (r *raw) RemoveXAttr(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return r.fs.setXAttr(cancel, header, meta.XAttrChange{Name: name, Remove: true})
}

// setXAttr changes an extended attribute. The mountpoint has none: it has no
// entry that could keep them. Nor have symlinks, to which the kernel lets no
// user give any.
func (f *FS) setXAttr(cancel <-chan struct{}, header *fuse.InHeader, change meta.XAttrChange) fuse.Status {
	if f.readOnly() {
		return fuse.EROFS
	}
	n := f.table.get(header.NodeId)
	switch {
	case n == nil:
		return statusStale
	case !strings.HasPrefix(change.Name, xattrUser), n.node == rootNode:
		return fuse.ENOTSUP
	case change.Name == xattrUser:
		return fuse.EINVAL
	case n.kind == meta.KindSymlink:
		return fuse.EPERM
	}
	c := f.newCall(cancel, header, defaultNamesTimeout)
	defer c.end()
	return f.setAttr(c, n, meta.AttrChange{XAttr: &change})
}
