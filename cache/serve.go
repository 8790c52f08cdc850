package cache

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/p2pfs/p2pfs/chunk"
)

// Block implements chunk.Source. The file of a Block is shared: only reads at
// explicit offsets are allowed. The error is ErrDamaged when two contents were
// seen under the object.
func (c *Cache) Block(ctx context.Context, object chunk.ObjectID, index int) (chunk.Block, error) {
	s, err := c.places.get(object)
	if err != nil {
		return chunk.Block{}, err
	}
	if s != nil {
		b, err := s.block(ctx, index)
		if err != nil || b.Zero {
			c.places.release(s)
		}
		return b, err
	}
	e, f, err := c.acquire(ctx, object, nil)
	if err != nil {
		return chunk.Block{}, err
	}
	sum, ok := f.Sum(index)
	if !ok {
		c.release(e, f)
		return chunk.Block{}, fmt.Errorf("block %d of object %s: %w", index, object.Short(), chunk.ErrNotHeld)
	}
	span := f.obj.Block(index)
	if f.isZero(index) {
		c.release(e, f)
		return zeroBlock(span, sum), nil
	}
	return chunk.Block{
		File: f.data, Off: span.Off, Len: span.Len, Sum: sum, Fixed: true,
		Release: func() error { c.release(e, f); return nil },
	}, nil
}

func zeroBlock(span chunk.Span, sum uint32) chunk.Block {
	return chunk.Block{Off: span.Off, Len: span.Len, Sum: sum, Zero: true, Fixed: true, Release: func() error { return nil }}
}

// block hands out one block of a registered file.
func (s *placed) block(ctx context.Context, index int) (chunk.Block, error) {
	o := s.rec.obj
	if index < 0 || index >= o.Blocks() {
		return chunk.Block{}, fmt.Errorf("block %d of object %s: %w", index, o.ID.Short(), chunk.ErrNotHeld)
	}
	if why := s.damaged.Load(); why != nil {
		return chunk.Block{}, fmt.Errorf("block %d of object %s: %w: %s", index, o.ID.Short(), chunk.ErrDamaged, *why)
	}
	src, err := s.prepare()
	if err != nil {
		return chunk.Block{}, err
	}
	if err := s.check(src); err != nil {
		return chunk.Block{}, err
	}
	if err := s.bind(ctx, src, index); err != nil {
		return chunk.Block{}, err
	}
	span := o.Block(index)
	sum, _ := s.table.Sum(index)
	if s.table.isZero(index) {
		return zeroBlock(span, sum), nil
	}
	return chunk.Block{
		File: src, Off: span.Off, Len: span.Len, Sum: sum,
		Release: func() error {
			defer s.p.release(s)
			return s.after(src, index)
		},
	}, nil
}

// after says whether what was read since block may be believed. When only the
// ctime moved the block is read once more: somebody may have written and set
// the times back.
func (s *placed) after(src *os.File, index int) error {
	if err := s.checkOpen(src); err != nil {
		return err
	}
	return s.bind(s.p.c.life, src, index)
}

// bind returns when a block has a sum, recorded, and verified under the file's
// identity. Those who ask for one block at once share one read.
func (s *placed) bind(ctx context.Context, src *os.File, index int) error {
	for {
		if s.table.Has(index) && s.table.isSynced(index) {
			return nil
		}
		s.mu.Lock()
		fl := s.flights[index]
		mine := fl == nil
		if mine {
			fl = &flight{done: make(chan struct{})}
			s.flights[index] = fl
		}
		s.mu.Unlock()
		if mine {
			fl.err = s.sumBlock(src, index)
			s.mu.Lock()
			delete(s.flights, index)
			s.mu.Unlock()
			close(fl.done)
			return fl.err
		}
		select {
		case <-fl.done:
			if fl.err != nil {
				return fl.err
			}
		case <-ctx.Done():
			return fmt.Errorf("sum block %d of object %s: %w", index, s.rec.obj.ID.Short(), ctx.Err())
		}
	}
}

// sumTries bounds how often a file's attributes may change under us.
const sumTries = 4

// sumBlock reads a block between two looks at the file's identity and records
// its sum, or compares it with the one that is bound.
func (s *placed) sumBlock(src *os.File, index int) error {
	for range sumTries {
		before := s.ident.Load()
		sum, zero, err := s.read(src, index)
		if err != nil {
			return err
		}
		if err := s.checkOpen(src); err != nil {
			return err
		}
		bound, done, err := s.record(before, index, sum, zero)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		if want, _ := s.table.Sum(index); want != sum {
			return s.damage(fmt.Sprintf("block %d of %s was bound as %08x and reads as %08x", index, s.rec.path, want, sum))
		}
		if tell := s.p.c.cfg.Bound; bound && tell != nil {
			tell(s.rec.obj, index, sum)
		}
		return nil
	}
	return changed(s.rec.path, "its attributes keep changing")
}

// record notes a sum that was read under the identity before; done is false if
// that has passed. bound is true if it is the block's first. A sum that
// differs from the bound one changes nothing.
func (s *placed) record(before *Identity, index int, sum uint32, zero bool) (bound, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.detached.Load() && !s.table.Has(index) {
		return false, false, fmt.Errorf("object %s was registered anew or forgotten: %w", s.rec.obj.ID.Short(), chunk.ErrNotHeld)
	}
	if s.ident.Load() != before {
		return false, false, nil
	}
	if want, ok := s.table.Sum(index); ok && want != sum {
		return false, true, nil
	}
	g, bit := s.table.locate(index)
	w := g.bits()
	bound = w.have&bit == 0
	if bound {
		g.sums[index%groupBlocks].Store(sum)
		if zero {
			w.zero |= bit
		}
	}
	w.have |= bit
	w.synced |= bit
	if err := s.writeGroup(s.sums, s.table, index/groupBlocks, w); err != nil {
		return false, false, s.p.root.diskError("write sums", s.rec.obj.ID, err)
	}
	return bound, true, nil
}

// read returns the sum of a block's bytes, and whether all of them are zero. A
// hole is not read.
func (s *placed) read(src *os.File, index int) (sum uint32, zero bool, err error) {
	span := s.rec.obj.Block(index)
	if next, err := nextData(src, span.Off); err == nil && next >= span.End() {
		return s.p.c.zeros.of(span.Len), true, nil
	}
	sum, zero, n, err := s.p.c.buffers.sum(src, span)
	if err == io.EOF {
		return 0, false, s.giveUp(fmt.Sprintf("it ends %d bytes into block %d", n, index))
	}
	if err != nil {
		return 0, false, fmt.Errorf("read registered file: %w", err)
	}
	return sum, zero, nil
}
