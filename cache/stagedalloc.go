package cache

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Allocate is fallocate(2) with mode 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, and
// ZERO_RANGE with or without KEEP_SIZE; others are EOPNOTSUPP.
func (s *Staged) Allocate(ctx context.Context, off, n int64, mode uint32) error {
	const keep = unix.FALLOC_FL_KEEP_SIZE
	if off < 0 || n <= 0 {
		return unix.EINVAL
	}
	if off > math.MaxInt64-n {
		return unix.EFBIG
	}
	if mode&unix.FALLOC_FL_PUNCH_HOLE == 0 && off+n > s.limit() {
		return unix.EFBIG
	}
	zeroing := false
	switch mode {
	case 0, keep:
	case unix.FALLOC_FL_PUNCH_HOLE | keep, unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | keep:
		zeroing = true
	default:
		return unix.EOPNOTSUPP
	}
	err := s.c.withRoom(ctx, s.r, func() error {
		if zeroing {
			if err := s.takeEdges(ctx, off, off+n); err != nil {
				return err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.changeable(); err != nil {
			return err
		}
		if zeroing {
			return s.zeroRange(off, n, mode)
		}
		return s.allocate(off, n, mode)
	})
	if err != nil {
		return fmt.Errorf("allocate %d bytes at %d of staged file %x: %w", n, off, s.id, stagedError(s.r, err))
	}
	return nil
}

// allocate promises room for a range. Where the base's blocks are it is for
// their bytes when they come. mu is held.
func (s *Staged) allocate(off, n int64, mode uint32) error {
	promised, err := s.reserve(off, n)
	if err != nil {
		return err
	}
	err = s.retried(promised, func() error { return unix.Fallocate(int(s.data.Fd()), mode, off, n) })
	if end := off + n; mode == 0 && end > s.size.Load() {
		if err == nil {
			s.size.Store(end)
		} else {
			_ = s.data.Truncate(s.size.Load())
		}
	}
	if e := s.recharge(promised); err == nil {
		err = e
	}
	return err
}

// zeroRange makes a range zeros, holes or allocated. No block of the base lies
// in it in part. mu is held.
func (s *Staged) zeroRange(off, n int64, mode uint32) error {
	end := off + n
	err := s.punch(off, n)
	if err != nil {
		s.sums.doubt(s.unit, off, end)
		return err
	}
	err = s.own(off, end)
	s.sums.zeroed(s.unit, off, end, s.base.foreign)
	if err != nil {
		return err
	}
	if mode&unix.FALLOC_FL_PUNCH_HOLE == 0 {
		return s.allocate(off, n, mode&unix.FALLOC_FL_KEEP_SIZE)
	}
	return s.recharge(0)
}

// punch makes a range of the data file a hole. mu is held.
func (s *Staged) punch(off, n int64) error {
	err := unix.Fallocate(int(s.data.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for n > 0 {
		k := min(n, int64(len(zeroPage)), s.size.Load()-off)
		if k <= 0 {
			return nil
		}
		if _, err := s.c.writeAt(s.data, zeroPage[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
