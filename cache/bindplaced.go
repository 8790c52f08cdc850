package cache

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// BindInPlace records the sums of a registered file's blocks, one for each,
// that were read from it under the identity it was registered with: it need
// not be read again to be served. Blocks known to be zero keep that.
// chunk.ErrDamaged: a block is bound to another sum. ErrNotHeld: the object is
// not registered here.
func (c *Cache) BindInPlace(_ context.Context, object chunk.ObjectID, sums []uint32) error {
	s, err := c.places.get(object)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("bind sums of object %s: %w", object.Short(), chunk.ErrNotHeld)
	}
	defer c.places.release(s)
	if len(sums) != s.rec.obj.Blocks() {
		return fmt.Errorf("bind sums of object %s: %d sums for %d blocks", object.Short(), len(sums), s.rec.obj.Blocks())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.loadSums(); err != nil {
		return err
	}
	if s.detached.Load() {
		return fmt.Errorf("object %s was registered anew or forgotten: %w", object.Short(), chunk.ErrNotHeld)
	}
	verified := *s.ident.Load() == s.rec.id
	for i := range s.table.groups {
		if err := s.adopt(i, sums[i*groupBlocks:min((i+1)*groupBlocks, len(sums))], verified); err != nil {
			return err
		}
	}
	return nil
}

// adopt binds the blocks of one group. s.mu is held.
func (s *placed) adopt(group int, sums []uint32, verified bool) error {
	g := &s.table.groups[group]
	w := g.bits()
	for k, sum := range sums {
		block := group*groupBlocks + k
		bit := uint64(1) << k
		if have, ok := s.table.Sum(block); ok {
			if have != sum {
				return fmt.Errorf("block %d of object %s is bound as %08x and not %08x: %w", block, s.rec.obj.ID.Short(), have, sum, chunk.ErrDamaged)
			}
		} else {
			g.sums[k].Store(sum)
			w.have |= bit
		}
		if verified {
			w.synced |= bit
		}
	}
	if err := s.writeGroup(s.sums, s.table, group, w); err != nil {
		return s.p.root.diskError("write sums", s.rec.obj.ID, err)
	}
	return nil
}
