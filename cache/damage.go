package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	bolt "go.etcd.io/bbolt"
)

// Recheck reads a block again and compares it with its sum. A registered file
// that differs is damaged from then on: ErrDamaged. A fetched object that
// differs is removed, to be fetched anew, unless it is kept: ErrCorrupt. A block that is not
// here, or was never bound, is ErrNotHeld.
func (c *Cache) Recheck(ctx context.Context, object chunk.ObjectID, block int) error {
	s, err := c.places.get(object)
	if err != nil {
		return err
	}
	if s != nil {
		defer c.places.release(s)
		return s.recheck(block)
	}
	e, f, err := c.acquire(ctx, object, nil)
	if err != nil {
		return err
	}
	defer c.release(e, f)
	if !f.Has(block) {
		return fmt.Errorf("recheck block %d of object %s: %w", block, object.Short(), chunk.ErrNotHeld)
	}
	ok, err := f.matches(block)
	if err != nil || ok {
		return err
	}
	switch _, err := c.remove(ctx, e); {
	case errors.Is(err, ErrKept):
		c.log.Error("a block of a kept object is bad on disk", "object", object, "block", block, "root", f.root.dir)
	case err != nil:
		return err
	default:
		c.log.Warn("object removed: a block on disk is no longer what was fetched", "object", object, "block", block, "root", f.root.dir)
	}
	return fmt.Errorf("recheck block %d of object %s: %w", block, object.Short(), chunk.ErrCorrupt)
}

func (s *placed) recheck(block int) error {
	src, err := s.prepare()
	if err != nil {
		return err
	}
	if why := s.damaged.Load(); why != nil {
		return fmt.Errorf("object %s: %w: %s", s.rec.obj.ID.Short(), chunk.ErrDamaged, *why)
	}
	want, ok := s.table.Sum(block)
	if !ok {
		return fmt.Errorf("recheck block %d of object %s: %w", block, s.rec.obj.ID.Short(), chunk.ErrNotHeld)
	}
	if err := s.check(src); err != nil {
		return err
	}
	sum, _, err := s.read(src, block)
	if err != nil {
		return err
	}
	if sum == want {
		return nil
	}
	if err := s.check(src); err != nil {
		return err
	}
	return s.damage(fmt.Sprintf("block %d of %s was bound as %08x and reads as %08x", block, s.rec.path, want, sum))
}

// MarkDamaged records, durably, that a registered object is not to be served
// any more: two contents were seen under it. ErrNotHeld: it is not registered.
func (c *Cache) MarkDamaged(_ context.Context, object chunk.ObjectID, why string) error {
	s, err := c.places.get(object)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("mark object %s as damaged: %w", object.Short(), chunk.ErrNotHeld)
	}
	defer c.places.release(s)
	return s.markDamaged(why)
}

// damage marks the object and returns the error for the caller.
func (s *placed) damage(why string) error {
	if err := s.markDamaged(why); err != nil {
		return err
	}
	return fmt.Errorf("object %s: %w: %s", s.rec.obj.ID.Short(), chunk.ErrDamaged, why)
}

func (s *placed) markDamaged(why string) error {
	if !s.damaged.CompareAndSwap(nil, &why) {
		return nil
	}
	id := s.rec.obj.ID
	s.p.c.log.Error("object is damaged and no longer served", "object", id, "path", s.rec.path, "why", why)
	err := s.p.db.Update(func(tx *bolt.Tx) error {
		all := tx.Bucket(bucketObjects)
		b := all.Get(id[:])
		if b == nil {
			return nil
		}
		r, err := decodeRecord(b)
		if err != nil {
			return err
		}
		r.damaged = why
		return all.Put(id[:], r.encode())
	})
	if tell := s.p.c.cfg.Damaged; tell != nil {
		tell(s.rec.obj, why)
	}
	if err != nil {
		return fmt.Errorf("record damage of object %s: %w", id.Short(), s.p.dbError(err))
	}
	return nil
}
