package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// baseSource is where the bytes of a base come from: its file, if all of it is
// here when the staged file is made, else whoever staged the file.
type baseSource struct {
	c     *Cache
	obj   chunk.Object
	fetch BaseRead
	entry *entry
	file  *file // complete, and held; nil: ask fetch
}

// openBase finds out where a base's bytes are.
func (c *Cache) openBase(ctx context.Context, b Base) *baseSource {
	src := &baseSource{c: c, obj: b.Object, fetch: b.Read}
	e, f, err := c.acquire(ctx, b.Object.ID, nil)
	if err != nil {
		return src
	}
	if !f.Complete() || !sameBytes(f.obj, b.Object) {
		c.release(e, f)
		return src
	}
	src.entry, src.file = e, f
	return src
}

// root returns where the file is; nil if there is none.
func (b *baseSource) root() *root {
	if b == nil || b.file == nil {
		return nil
	}
	return b.file.root
}

func (b *baseSource) close() {
	if b != nil && b.file != nil {
		b.c.release(b.entry, b.file)
		b.file = nil
	}
}

// zero reports whether a block is known to be all zeros.
func (b *baseSource) zero(block int) bool { return b.file != nil && b.file.isZero(block) }

// read fills p with the bytes at off.
func (b *baseSource) read(ctx context.Context, off int64, p []byte) error {
	if b.file == nil {
		if b.fetch == nil {
			return fmt.Errorf("read object %s: %w", b.obj.ID.Short(), chunk.ErrNotHeld)
		}
		if err := b.fetch(ctx, off, p); err != nil {
			return fmt.Errorf("read object %s at %d: %w", b.obj.ID.Short(), off, err)
		}
		return nil
	}
	_, err := b.file.data.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read object %s: %w", b.obj.ID.Short(), err)
	}
	return nil
}

// block fills p with the first len(p) bytes of a block. A whole one that lies
// here is held against its sum: it becomes part of another object now.
func (b *baseSource) block(ctx context.Context, block int, p []byte) error {
	span := b.obj.Block(block)
	if err := b.read(ctx, span.Off, p); err != nil {
		return err
	}
	if b.file == nil || int64(len(p)) != span.Len {
		return nil
	}
	if want, ok := b.file.Sum(block); ok && want != chunk.Sum(p) {
		return fmt.Errorf("read block %d of object %s: %w", block, b.obj.ID.Short(), chunk.ErrCorrupt)
	}
	return nil
}

// baseMap says which bytes of a staged file are still its base's: those below
// end in blocks that the table does not have. Reading it takes no lock; changes
// are made with Staged.mu held. Its file has the form of an object's map.
type baseMap struct {
	*table
	src     *baseSource
	end     atomic.Int64
	f       *os.File
	head    header
	writeAt func(f *os.File, b []byte, off int64) (int, error)
	flights map[int]*flight
	sector  [sectorSize]byte
}

func newBaseMap(c *Cache, f *os.File, h header, t *table, src *baseSource) *baseMap {
	m := &baseMap{table: t, src: src, f: f, head: h, writeAt: c.writeAt, flights: make(map[int]*flight)}
	m.end.Store(h.ident.Size)
	return m
}

// run returns whether the byte at off is the file's own, and up to where at
// most to the same holds. A nil map owns everything.
func (m *baseMap) run(off, to int64) (own bool, end int64) {
	base := m.end.Load()
	if off >= base {
		return true, to
	}
	b := int(off / m.obj.BlockSize)
	own = m.Has(b)
	for end = off; end < min(to, base); b++ {
		if m.Has(b) != own {
			return own, end
		}
		end = int64(b+1) * m.obj.BlockSize
	}
	if own && end >= base {
		return true, to
	}
	return own, min(end, to, base)
}

// dataRun says whether the base's byte at off is data, at most up to to.
func (m *baseMap) dataRun(off, to int64) (data bool, end int64, err error) {
	b := int(off / m.obj.BlockSize)
	return !m.src.zero(b), min(m.obj.Block(b).End(), to), nil
}

// foreign reports whether a byte of [off, end) is the base's.
func (m *baseMap) foreign(off, end int64) bool {
	if m == nil || off >= end {
		return false
	}
	own, to := m.run(off, end)
	return !own || to < end
}

// part returns the bytes of a block that are the base's, if the block is.
func (m *baseMap) part(block int) (off, end int64) {
	off = int64(block) * m.obj.BlockSize
	return off, max(off, min(off+m.obj.BlockSize, m.end.Load()))
}

// each calls fn with the blocks that are still the base's and touch
// [off, end), and whether all of their bytes lie in it, until it fails.
func (m *baseMap) each(off, end int64, fn func(block int, whole bool) error) error {
	end = min(end, m.end.Load())
	for b := int(off / m.obj.BlockSize); int64(b)*m.obj.BlockSize < end; b++ {
		if m.Has(b) {
			continue
		}
		from, to := m.part(b)
		if off >= to {
			continue
		}
		if err := fn(b, off <= from && to <= end); err != nil {
			return err
		}
	}
	return nil
}

// own records that a block is the file's own; its bytes are in the data file.
// Staged.mu is held.
func (m *baseMap) own(block int) error {
	i := block / groupBlocks
	g, bit := m.locate(block)
	w := g.bits()
	w.have |= bit
	m.encodeGroup(m.sector[:], i, w)
	if _, err := m.writeAt(m.f, m.sector[:], int64(1+i)*sectorSize); err != nil {
		return err
	}
	g.have.Store(w.have)
	return nil
}

// cut records that nothing from size on is the base's any more. Staged.mu is
// held.
func (m *baseMap) cut(size int64) error {
	if size >= m.end.Load() {
		return nil
	}
	m.end.Store(size)
	m.head.ident.Size = size
	_, err := m.writeAt(m.f, m.head.encode(), 0)
	return err
}

func (m *baseMap) close() {
	if m != nil {
		m.src.close()
		m.f.Close()
	}
}

// startFrom gives a new staged file its base's content: by sharing the file
// system's blocks, where it can, else block by block when they are needed.
func (s *Staged) startFrom(src *baseSource) error {
	size := src.obj.Size
	if s.clone(src) {
		s.sums.fresh = false
		s.size.Store(size)
		src.close()
		return nil
	}
	if err := s.data.Truncate(size); err != nil {
		return err
	}
	h := header{kind: kindBase, obj: src.obj, boot: s.c.boot, ident: Identity{Size: size}}
	f, err := s.c.openFD(s.r.stagedPath(s.id, ".base"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if err = f.Truncate(mapSize(src.obj)); err == nil {
		_, err = s.c.writeAt(f, h.encode(), 0)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.base = newBaseMap(s.c, f, h, newTable(src.obj, s.c.zeros), src)
	s.size.Store(size)
	return nil
}

// clone shares the blocks of a base that lies on the same file system.
func (s *Staged) clone(src *baseSource) bool {
	if src.root() != s.r || s.c.reserve(s.r, src.file.used.Load()) != nil {
		return false
	}
	s.c.unreserve(s.r, src.file.used.Load()) // recharge counts what it came to
	return s.c.reflink(s.data, src.file.data) == nil
}

// reflink makes a file share all the blocks of another.
func reflink(to, from *os.File) error {
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
}
