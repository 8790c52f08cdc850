package cache

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// Read returns n bytes at off, or fewer, at least one but at the end of the
// file: bytes that lie in one file are answered by that file, so that they need
// not be copied. It is valid until the Staged is closed.
func (s *Staged) Read(ctx context.Context, off, n int64) (chunk.Data, error) {
	if off < 0 || n < 0 {
		return chunk.Data{}, fmt.Errorf("read staged file %x: negative offset %d or length %d", s.id, off, n)
	}
	if s.closed.Load() {
		return chunk.Data{}, fmt.Errorf("read staged file %x: %w", s.id, chunk.ErrClosed)
	}
	n = min(n, s.size.Load()-off)
	if n <= 0 {
		return chunk.Data{}, nil
	}
	if s.base == nil {
		return chunk.Data{File: s.data, Off: off, N: int(n)}, nil
	}
	for {
		own, end := s.base.run(off, off+n)
		if own {
			return chunk.Data{File: s.data, Off: off, N: int(end - off)}, nil
		}
		if f := s.base.src.file; f != nil {
			return chunk.Data{File: f.data, Off: off, N: int(end - off)}, nil
		}
		p := make([]byte, end-off)
		if err := s.base.src.read(ctx, off, p); err != nil {
			return chunk.Data{}, fmt.Errorf("read staged file %x: %w", s.id, err)
		}
		// The blocks may have been written while their old bytes came.
		if own, now := s.base.run(off, end); !own && now == end {
			return chunk.Data{Bytes: p, Off: off, N: len(p)}, nil
		}
	}
}

// ReadAt reads like io.ReaderAt.
func (s *Staged) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		d, err := s.Read(ctx, off+int64(n), int64(len(p)-n))
		if err != nil {
			return n, err
		}
		if d.N == 0 {
			return n, io.EOF
		}
		k := d.N
		if d.File != nil {
			k, err = d.File.ReadAt(p[n:n+d.N], d.Off)
		} else {
			copy(p[n:], d.Bytes)
		}
		d.Release()
		n += k
		if err != nil { // io.EOF: truncated meanwhile
			return n, err
		}
	}
	return n, nil
}

// Seek returns the first offset at or after off that is data (SEEK_DATA) or in
// a hole (SEEK_HOLE), as lseek(2); the end of the file is a hole. What is still
// the base's is data unless it is known to be zeros. ENXIO: off is not below
// the size, or no data follows.
func (s *Staged) Seek(_ context.Context, off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return 0, fmt.Errorf("seek in staged file %x: %w", s.id, chunk.ErrClosed)
	}
	size := s.size.Load()
	if off < 0 || off >= size {
		return 0, unix.ENXIO
	}
	for off < size {
		data, end, err := s.extent(off, size)
		if err != nil {
			return 0, fmt.Errorf("seek in staged file %x: %w", s.id, err)
		}
		if data == (whence == unix.SEEK_DATA) {
			return off, nil
		}
		off = end
	}
	if whence == unix.SEEK_HOLE {
		return size, nil
	}
	return 0, unix.ENXIO
}

// extent says whether off lies in data, and how far that goes. mu is held.
func (s *Staged) extent(off, size int64) (data bool, end int64, err error) {
	end = size
	if s.base != nil {
		own, to := s.base.run(off, size)
		if !own {
			return s.base.dataRun(off, to)
		}
		end = to
	}
	next, err := nextData(s.data, off)
	switch {
	case err != nil:
		return false, 0, err
	case next > off:
		return false, min(next, end), nil
	}
	hole, err := unix.Seek(int(s.data.Fd()), off, unix.SEEK_HOLE)
	if err != nil {
		hole = math.MaxInt64
	}
	return true, min(hole, end), nil
}
