package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// What is not offered. Without Changes the answer is EROFS, as for every other
// change.

// Link implements fuse.RawFileSystem. A file has one name.
func (r *raw) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return r.refuse(fuse.ENOTSUP)
}

// Tmpfile implements fuse.RawFileSystem. The kernel does not ask again and
// answers EOPNOTSUPP by itself.
func (r *raw) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	return r.refuse(fuse.ENOSYS)
}

// CopyFileRange implements fuse.RawFileSystem. The kernel does not ask again
// and copies by itself.
func (r *raw) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, r.refuse(fuse.ENOSYS)
}

// Ioctl implements fuse.RawFileSystem.
func (*raw) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return statusNotTTY
}

// refuse answers a request for what this mount never does.
func (r *raw) refuse(st fuse.Status) fuse.Status {
	if r.fs.readOnly() {
		return fuse.EROFS
	}
	return st
}

// readOnly reports whether nothing can be changed through this mount.
func (f *FS) readOnly() bool { return f.cfg.Changes == nil }
