package fs

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
)

// Read implements fuse.RawFileSystem. Handles of passed-through files never
// come here.
func (r *raw) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f := r.fs
	h := f.handles.get(in.Fh)
	if h == nil {
		return nil, fuse.EBADF
	}
	off := int64(in.Offset)
	if h.staged != nil {
		return f.readStaged(cancel, in, h, buf)
	}
	n := min(int64(in.Size), h.size-off)
	if off < 0 || n <= 0 {
		return fuse.ReadResultData(nil), fuse.OK
	}
	f.reads.Add(1)
	var res fuse.ReadResult
	var err error
	if h.local != nil {
		res, err = readLocal(h.local, off, n)
	} else {
		c := f.newCall(cancel, &in.InHeader, defaultReadTimeout)
		defer c.end()
		if res, err = readObject(c, h.reader, off, n, buf); err != nil {
			_, e := f.table.where(h.inode)
			f.complain(c, "read", e.Name, fmt.Errorf("%d bytes at %d: %w", n, off, err))
		}
	}
	if err != nil {
		return nil, byNode(err)
	}
	f.readBytes.Add(uint64(n))
	return res, fuse.OK
}

// reads is what Reader and WriteFile have in common.
type reads interface {
	Read(ctx context.Context, off, n int64) (chunk.Data, error)
}

// readStaged answers from a file that is being written, up to its size as it is
// now. If it was cut while it was read, what is left is read again.
func (f *FS) readStaged(cancel <-chan struct{}, in *fuse.ReadIn, h *handle, buf []byte) (fuse.ReadResult, fuse.Status) {
	c := f.newCall(cancel, &in.InHeader, defaultReadTimeout)
	defer c.end()
	write, off := h.staged.write, int64(in.Offset)
	for {
		n := min(int64(in.Size), write.Entry().Size-off)
		if off < 0 || n <= 0 {
			return fuse.ReadResultData(nil), fuse.OK
		}
		res, err := readObject(c, write, off, n, buf)
		if err == nil {
			f.reads.Add(1)
			f.readBytes.Add(uint64(n))
			return res, fuse.OK
		}
		if write.Entry().Size >= off+n {
			f.complain(c, "read", f.table.nameOf(h.inode), fmt.Errorf("%d bytes at %d: %w", n, off, err))
			return nil, byOwner(err)
		}
	}
}

// readLocal answers with a range of a local file. A file that was cut short
// since is an error: the kernel would show zeros for what is missing.
func readLocal(local *os.File, off, n int64) (fuse.ReadResult, error) {
	fd := local.Fd()
	if err := reaches(int(fd), off+n); err != nil {
		return nil, fmt.Errorf("local file %s: %w", local.Name(), err)
	}
	return fuse.ReadResultFd(fd, off, int(n)), nil
}

// reaches reports an error when a file ends before end.
func reaches(fd int, end int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size < end {
		return fmt.Errorf("%w: it ends at %d, before %d", chunk.ErrSourceChanged, st.Size, end)
	}
	return nil
}

// readObject answers with bytes of an object. What comes in one piece goes to
// the kernel as it is; pieces are joined in buf.
func readObject(ctx context.Context, reader reads, off, n int64, buf []byte) (fuse.ReadResult, error) {
	d, err := reader.Read(ctx, off, n)
	if err != nil {
		return nil, err
	}
	if got := sizeOf(&d); got == n {
		return whole(d)
	} else if got > n || got <= 0 {
		d.Release()
		return nil, fmt.Errorf("%w: a read of %d bytes returned %d", chunk.ErrCorrupt, n, got)
	}
	if int64(len(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	for done := int64(0); ; {
		got, err := copyOut(buf[done:], &d)
		if err != nil {
			return nil, err
		}
		if done += got; done == n {
			return fuse.ReadResultData(buf), nil
		}
		if d, err = reader.Read(ctx, off+done, n-done); err != nil {
			return nil, err
		}
	}
}

// sizeOf returns how many bytes a piece has.
func sizeOf(d *chunk.Data) int64 {
	if d.File != nil {
		return int64(d.N)
	}
	return int64(len(d.Bytes))
}

// copyOut copies a piece to the start of buf and releases it.
func copyOut(buf []byte, d *chunk.Data) (int64, error) {
	defer d.Release()
	n := sizeOf(d)
	if n <= 0 || n > int64(len(buf)) {
		return 0, fmt.Errorf("%w: a read of %d bytes returned %d", chunk.ErrCorrupt, len(buf), n)
	}
	if d.File == nil {
		return int64(copy(buf, d.Bytes)), nil
	}
	got, err := d.File.ReadAt(buf[:n], d.Off)
	if int64(got) < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("read the local file: %w", err)
	}
	return n, nil
}

// whole answers with one piece, which is released when the kernel has it.
func whole(d chunk.Data) (fuse.ReadResult, error) {
	if d.File == nil {
		return &bytesReply{d}, nil
	}
	if err := reaches(int(d.File.Fd()), d.Off+int64(d.N)); err != nil {
		d.Release()
		return nil, fmt.Errorf("local file %s: %w", d.File.Name(), err)
	}
	return &fileReply{ReadResult: fuse.ReadResultFd(d.File.Fd(), d.Off, int(d.N)), data: d}, nil
}

// fileReply is a range of a file; the kernel takes it without a copy through
// this process.
type fileReply struct {
	fuse.ReadResult
	data chunk.Data
}

// Seekable lets go-fuse splice from the file.
func (r *fileReply) Seekable() (fd uintptr, off int64, n int) {
	return r.data.File.Fd(), r.data.Off, int(r.data.N)
}

// Done implements fuse.ReadResult.
func (r *fileReply) Done() { r.data.Release() }

// bytesReply is memory lent by the reader.
type bytesReply struct{ data chunk.Data }

var _ fuse.ReadResult = (*bytesReply)(nil)

// Bytes implements fuse.ReadResult.
func (r *bytesReply) Bytes([]byte) ([]byte, fuse.Status) { return r.data.Bytes, fuse.OK }

// Slices lets go-fuse write the bytes from where they are.
func (r *bytesReply) Slices() ([][]byte, fuse.Status) { return [][]byte{r.data.Bytes}, fuse.OK }

// Size implements fuse.ReadResult.
func (r *bytesReply) Size() int { return len(r.data.Bytes) }

// Done implements fuse.ReadResult.
func (r *bytesReply) Done() { r.data.Release() }
