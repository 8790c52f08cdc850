package cache

import (
	"context"
	"fmt"
)

// takeEdges takes over the blocks of the base that a change of [off, end) would
// change in part.
func (s *Staged) takeEdges(ctx context.Context, off, end int64) error {
	if s.base == nil {
		return nil
	}
	return s.base.each(off, end, func(block int, whole bool) error {
		if whole {
			return nil
		}
		return s.take(ctx, block)
	})
}

// take makes a block of the base the file's own, with the bytes it has there.
// Those who need one block at once share one fetch.
func (s *Staged) take(ctx context.Context, block int) error {
	for {
		s.mu.Lock()
		if s.base.Has(block) {
			s.mu.Unlock()
			return nil
		}
		fl := s.base.flights[block]
		mine := fl == nil
		if mine {
			fl = &flight{done: make(chan struct{})}
			s.base.flights[block] = fl
		}
		s.mu.Unlock()
		if mine {
			fl.err = s.takeNow(ctx, block)
			s.mu.Lock()
			delete(s.base.flights, block)
			s.mu.Unlock()
			close(fl.done)
			return fl.err
		}
		select {
		case <-fl.done:
			// An error may be that of the other's context: try ourselves.
		case <-ctx.Done():
			return fmt.Errorf("take over block %d of object %s: %w", block, s.base.obj.ID.Short(), ctx.Err())
		}
	}
}

func (s *Staged) takeNow(ctx context.Context, block int) error {
	m := s.base
	var p []byte
	if off, end := m.part(block); end > off && !m.src.zero(block) {
		buf := s.c.blocks.get(end - off)
		defer s.c.blocks.put(buf)
		p = *buf
		if err := m.src.block(ctx, block, p); err != nil {
			return fmt.Errorf("take over block %d: %w", block, err)
		}
	}
	zero := allZero(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Has(block) {
		return nil // written whole meanwhile
	}
	if err := s.changeable(); err != nil {
		return err
	}
	off, end := m.part(block) // may end sooner than it did
	if zero {
		return stagedError(s.r, s.takeZeros(block, off, end))
	}
	return stagedError(s.r, s.takeBytes(block, p[:end-off], off))
}

func (s *Staged) takeBytes(block int, p []byte, off int64) error {
	promised, err := s.reserve(off, int64(len(p)))
	if err != nil {
		return err
	}
	err = s.retried(promised, func() error {
		_, err := s.c.writeAt(s.data, p, off)
		return err
	})
	if err == nil {
		err = s.base.own(block)
	}
	if err == nil {
		s.sums.wrote(s.unit, off, p, s.base.foreign)
	}
	if e := s.recharge(promised); err == nil {
		err = e
	}
	return err
}

// takeZeros: the data file may hold bytes of a write that failed.
func (s *Staged) takeZeros(block int, off, end int64) error {
	if end > off {
		if next, err := nextData(s.data, off); err != nil || next < end {
			if err := s.punch(off, end-off); err != nil {
				return err
			}
		}
	}
	return s.base.own(block)
}
