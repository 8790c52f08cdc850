package meta

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// SumGroup returns what is bound about a group of blocks; an empty group with
// Version 0 if nothing is.
func (c *Catalog) SumGroup(ctx context.Context, o chunk.Object, group int) (SumGroup, error) {
	if group < 0 || group >= Groups(o) {
		return SumGroup{}, fmt.Errorf("read checksums of object %s: it has no group %d", o.ID.Short(), group)
	}
	gs, err := c.sumGroups(ctx, o, group, group+1)
	if err != nil {
		return SumGroup{}, err
	}
	return gs[0], nil
}

// sumGroups reads the groups [first, end).
func (c *Catalog) sumGroups(ctx context.Context, o chunk.Object, first, end int) ([]SumGroup, error) {
	var keys []Key
	for i := first; i < end; i++ {
		keys = append(keys, Key{objectSlot(o.ID), groupField(i)})
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("read checksums of object %s: %w", o.ID.Short(), err)
	}
	gs := make([]SumGroup, len(recs))
	for i, r := range recs {
		gs[i] = newSumGroup(o, first+i)
		if r.Value == nil {
			continue
		}
		if gs[i], err = unmarshalSumGroup(o, first+i, r.Value, r.Version); err != nil {
			return nil, err
		}
	}
	return gs, nil
}

// Zeros returns the blocks of an object that are known to be all zero; a
// bitmap of length 0 if none are.
func (c *Catalog) Zeros(ctx context.Context, o chunk.Object) (chunk.Bitmap, error) {
	if !o.Sparse {
		return chunk.Bitmap{}, nil
	}
	zeros, n := chunk.NewBitmap(o.Blocks()), Groups(o)
	for first := 0; first < n; first += groupsPerGet {
		gs, err := c.sumGroups(ctx, o, first, min(n, first+groupsPerGet))
		if err != nil {
			return chunk.Bitmap{}, err
		}
		for _, g := range gs {
			// A group starts at a whole byte, since GroupBlocks is a multiple of 8.
			copy(zeros.Bytes()[g.Group*GroupBlocks/8:], g.Zero.Bytes())
		}
	}
	if zeros.Count() == 0 {
		return chunk.Bitmap{}, nil
	}
	return zeros, nil
}

// BindSums binds checksums of blocks, by block number; several callers may
// bind at once. A block that is bound to another sum keeps that, the others
// are bound, and the error is chunk.ErrDamaged.
func (c *Catalog) BindSums(ctx context.Context, o chunk.Object, sums map[int]uint32) error {
	groups := make(map[int]map[int]uint32)
	for b, s := range sums {
		if b < 0 || b >= o.Blocks() {
			return fmt.Errorf("bind checksums of object %s: it has no block %d", o.ID.Short(), b)
		}
		g := b / GroupBlocks
		if groups[g] == nil {
			groups[g] = make(map[int]uint32)
		}
		groups[g][b%GroupBlocks] = s
	}
	var damaged error
	for g, in := range groups {
		clash, err := c.bindGroup(ctx, o, g, in)
		if err != nil {
			return fmt.Errorf("bind checksums of object %s: %w", o.ID.Short(), err)
		}
		if clash >= 0 {
			damaged = fmt.Errorf("block %d of object %s has two checksums: %w", g*GroupBlocks+clash, o.ID.Short(), chunk.ErrDamaged)
		}
	}
	return damaged
}

// bindGroup merges sums into one group and returns a block that is bound to
// another sum, or -1.
func (c *Catalog) bindGroup(ctx context.Context, o chunk.Object, group int, sums map[int]uint32) (clash int, err error) {
	_, err = c.rewrite(ctx, Key{objectSlot(o.ID), groupField(group)}, func(old Record) ([]byte, error) {
		clash = -1
		g := newSumGroup(o, group)
		if old.Value != nil {
			var err error
			if g, err = unmarshalSumGroup(o, group, old.Value, old.Version); err != nil {
				return nil, err
			}
		}
		news := 0
		for b, s := range sums {
			switch {
			case !g.Known.Has(b):
				g.Known.Set(b)
				g.Sums[b] = s
				news++
			case g.Sums[b] != s:
				clash = b
			}
		}
		if news == 0 {
			return nil, nil
		}
		return marshalSumGroup(g, old.Value)
	})
	return clash, err
}
