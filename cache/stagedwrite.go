package cache

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// WriteAt writes all of p at off, or nothing that a reader would see beyond the
// old size. Blocks of the base that it changes in part are fetched first.
func (s *Staged) WriteAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 {
		return unix.EINVAL
	}
	if off > math.MaxInt64-int64(len(p)) {
		return unix.EFBIG
	}
	if len(p) == 0 {
		return nil
	}
	end := off + int64(len(p))
	err := s.c.withRoom(ctx, s.r, func() error {
		if err := s.takeEdges(ctx, off, end); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.changeable(); err != nil {
			return err
		}
		return s.write(p, off)
	})
	if err != nil {
		return fmt.Errorf("write %d bytes at %d of staged file %x: %w", len(p), off, s.id, err)
	}
	return nil
}

// Append writes all of p at the end, and returns where that was. Of appends at
// once each finds the end that another left.
func (s *Staged) Append(ctx context.Context, p []byte) (off int64, err error) {
	err = s.c.withRoom(ctx, s.r, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		off = s.size.Load()
		if err := s.changeable(); err != nil || len(p) == 0 {
			return err
		}
		// Nothing of the base lies behind the end.
		return s.write(p, off)
	})
	if err != nil {
		return 0, fmt.Errorf("append %d bytes to staged file %x: %w", len(p), s.id, err)
	}
	return off, nil
}

// limit returns the most bytes the file may have: an object has no more blocks.
func (s *Staged) limit() int64 { return s.unit * math.MaxInt32 }

// write writes where no block of the base would be changed in part. mu is held.
func (s *Staged) write(p []byte, off int64) error {
	end := off + int64(len(p))
	if end > s.limit() {
		return unix.EFBIG
	}
	promised, err := s.reserve(off, int64(len(p)))
	if err != nil {
		return err
	}
	err = s.retried(promised, func() error {
		_, err := s.c.writeAt(s.data, p, off)
		return err
	})
	if err == nil {
		err = s.own(off, end)
	}
	if err != nil {
		if size := s.size.Load(); end > size {
			_ = s.data.Truncate(size)
		}
		s.sums.spoil(s.unit, off, end)
		_ = s.recharge(promised)
		return stagedError(s.r, err)
	}
	if end > s.size.Load() {
		s.size.Store(end)
	}
	s.sums.wrote(s.unit, off, p, s.base.foreign)
	return s.recharge(promised)
}

// own makes the blocks of the base that lie in [off, end) the file's own. mu is
// held.
func (s *Staged) own(off, end int64) error {
	if s.base == nil {
		return nil
	}
	return s.base.each(off, end, func(block int, whole bool) error {
		if !whole {
			return fmt.Errorf("block %d of object %s was not taken over", block, s.base.obj.ID.Short())
		}
		return s.base.own(block)
	})
}

// Truncate sets the size. What is added is zeros, also where the file was
// longer before.
func (s *Staged) Truncate(_ context.Context, size int64) error {
	switch {
	case size < 0:
		return unix.EINVAL
	case size > s.limit():
		return unix.EFBIG
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.changeable()
	if err == nil {
		err = s.truncate(size)
	}
	if err != nil {
		return fmt.Errorf("truncate staged file %x to %d bytes: %w", s.id, size, stagedError(s.r, err))
	}
	return nil
}

// truncate: the data file goes first. Dying in between leaves a base map that
// claims more than the file has, which is clipped when it is read; the other
// way round bytes would be gone from a file of the old size.
func (s *Staged) truncate(size int64) error {
	if err := s.retried(0, func() error { return s.data.Truncate(size) }); err != nil {
		return err
	}
	if size < s.size.Load() {
		s.sums.cut(s.unit, size)
		if s.base != nil {
			if err := s.base.cut(size); err != nil {
				return err
			}
		}
	}
	s.size.Store(size)
	return s.recharge(0)
}
