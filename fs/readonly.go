package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// What would change something is refused.

// SetAttr implements fuse.RawFileSystem.
func (*raw) SetAttr(<-chan struct{}, *fuse.SetAttrIn, *fuse.AttrOut) fuse.Status { return fuse.EROFS }

// Mknod implements fuse.RawFileSystem.
func (*raw) Mknod(<-chan struct{}, *fuse.MknodIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Mkdir implements fuse.RawFileSystem.
func (*raw) Mkdir(<-chan struct{}, *fuse.MkdirIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Unlink implements fuse.RawFileSystem.
func (*raw) Unlink(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return fuse.EROFS }

// Rmdir implements fuse.RawFileSystem.
func (*raw) Rmdir(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return fuse.EROFS }

// Rename implements fuse.RawFileSystem.
func (*raw) Rename(<-chan struct{}, *fuse.RenameIn, string, string) fuse.Status { return fuse.EROFS }

// Link implements fuse.RawFileSystem.
func (*raw) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Symlink implements fuse.RawFileSystem.
func (*raw) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return fuse.EROFS
}

// Create implements fuse.RawFileSystem.
func (*raw) Create(<-chan struct{}, *fuse.CreateIn, string, *fuse.CreateOut) fuse.Status {
	return fuse.EROFS
}

// Tmpfile implements fuse.RawFileSystem.
func (*raw) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status { return fuse.EROFS }

// Write implements fuse.RawFileSystem.
func (*raw) Write(<-chan struct{}, *fuse.WriteIn, []byte) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

// Writev implements fuse.RawFileSystem.
func (*raw) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

// CopyFileRange implements fuse.RawFileSystem.
func (*raw) CopyFileRange(<-chan struct{}, *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	return 0, fuse.EROFS
}

// Fallocate implements fuse.RawFileSystem.
func (*raw) Fallocate(<-chan struct{}, *fuse.FallocateIn) fuse.Status { return fuse.EROFS }

// Ioctl implements fuse.RawFileSystem.
func (*raw) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return statusNotTTY
}
