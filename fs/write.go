package fs

import (
	"fmt"
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// writeCached is in WriteIn.WriteFlags when the kernel writes back pages of a
// mapping. It names any handle that may write, not the one that was mapped.
const writeCached = 1

// Write implements fuse.RawFileSystem.
func (r *raw) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return r.Writev(cancel, in, [][]byte{data})
}

// Writev implements fuse.RawFileSystem. The bytes go to the file from where
// go-fuse received them.
//
// O_APPEND does not matter here: the kernel, which has the size of the file and
// locks it, says where each write goes. Its page cache has the bytes there.
func (r *raw) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	f := r.fs
	if f.readOnly() {
		return 0, fuse.EROFS
	}
	h := f.handles.get(in.Fh)
	if h == nil || h.staged == nil {
		return 0, fuse.EBADF
	}
	if in.Offset > math.MaxInt64-uint64(in.Size) {
		return 0, fuse.Status(syscall.EFBIG)
	}
	c := f.newLasting(cancel, &in.InHeader, defaultReadTimeout)
	defer c.end()
	off, done := int64(in.Offset), uint32(0)
	for _, b := range data {
		if err := h.staged.write.Write(c, b, off+int64(done), false); err != nil {
			_, e := f.table.where(h.inode)
			f.complain(c, "write", e.Name, fmt.Errorf("%d bytes at %d: %w", len(b), off+int64(done), err))
			if done == 0 {
				return 0, byOwner(err)
			}
			break
		}
		done += uint32(len(b))
	}
	if in.WriteFlags&writeCached != 0 {
		h.staged.wroteMapped()
	} else {
		h.staged.wrote(&h.marks)
	}
	f.writes.Add(1)
	f.writtenBytes.Add(uint64(done))
	return done, fuse.OK
}

// Fallocate implements fuse.RawFileSystem.
func (r *raw) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	f := r.fs
	if f.readOnly() {
		return fuse.EROFS
	}
	h := f.handles.get(in.Fh)
	switch {
	case h == nil || h.staged == nil:
		return fuse.EBADF
	case in.Length == 0 || in.Offset > math.MaxInt64 || in.Length > math.MaxInt64-in.Offset:
		return fuse.EINVAL
	}
	c := f.newLasting(cancel, &in.InHeader, defaultReadTimeout)
	defer c.end()
	if err := h.staged.write.Allocate(c, int64(in.Offset), int64(in.Length), in.Mode); err != nil {
		return byFile(err)
	}
	h.staged.wrote(&h.marks)
	return fuse.OK
}

// Lseek implements fuse.RawFileSystem; it is only asked for SEEK_DATA and
// SEEK_HOLE. The kernel does it by itself from the first ENOSYS on.
func (r *raw) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	f := r.fs
	if f.readOnly() {
		return fuse.ENOSYS
	}
	h := f.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	size := h.size
	if h.staged != nil {
		size = h.staged.write.Entry().Size
	}
	off := int64(in.Offset)
	switch {
	case in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE:
		return fuse.EINVAL
	case off < 0 || off >= size:
		return fuse.Status(syscall.ENXIO)
	}
	at, err := int64(0), error(nil)
	switch {
	case h.staged != nil:
		c := f.newCall(cancel, &in.InHeader, defaultReadTimeout)
		defer c.end()
		at, err = h.staged.write.Seek(c, off, in.Whence)
	case h.local != nil: // reads do not use its position
		at, err = unix.Seek(int(h.local.Fd()), off, int(in.Whence))
	case in.Whence == unix.SEEK_DATA: // holes here are what has not arrived yet
		at = off
	default:
		at = size
	}
	if err != nil {
		return byFile(err)
	}
	if at = min(at, size); at == size && in.Whence == unix.SEEK_DATA {
		return fuse.Status(syscall.ENXIO)
	}
	out.Offset = uint64(at)
	return fuse.OK
}

// Fsync implements fuse.RawFileSystem. The kernel has written back the pages of
// mappings before.
func (r *raw) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	f := r.fs
	h := f.handles.get(in.Fh)
	if h == nil || h.staged == nil {
		return fuse.OK
	}
	c := f.newLasting(cancel, &in.InHeader, publishTimeout)
	defer c.end()
	if err := h.staged.write.Sync(c); err != nil {
		_, e := f.table.where(h.inode)
		f.complain(c, "fsync", e.Name, err)
		return byWriter(err)
	}
	return fuse.OK
}
