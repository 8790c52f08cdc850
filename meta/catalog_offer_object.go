package meta

import (
	"context"
	"fmt"
	"slices"
)

// OfferObject brings the record of an object back: what it holds is added to
// what others brought. Zeros and Sums may be of length 0, Known says which Sums
// count; nil: all.
func (c *Catalog) OfferObject(ctx context.Context, r ObjectRecord, known func(block int) bool) error {
	if err := c.offerObject(ctx, r, known); err != nil {
		return fmt.Errorf("offer object %s: %w", r.Object.ID.Short(), err)
	}
	return nil
}

func (c *Catalog) offerObject(ctx context.Context, r ObjectRecord, known func(int) bool) error {
	if r.Zeros.Count() > 0 || len(r.Sums) > 0 {
		for group := range Groups(r.Object) {
			if err := c.offerGroup(ctx, r, group, known); err != nil {
				return err
			}
		}
	}
	// The object's own record goes last: who sees it sees its groups.
	_, err := c.rewrite(ctx, Key{objectSlot(r.Object.ID), self}, func(old Record) ([]byte, error) {
		if old.Value == nil {
			return marshalObject(r, nil)
		}
		was, err := unmarshalObject(r.Object.ID, old.Value, old.Version, c.chunkSize.Load())
		if err != nil {
			return nil, err
		}
		changed := false
		for _, ref := range r.References {
			same := func(o Reference) bool { return o.Dir == ref.Dir && o.Name == ref.Name }
			if !slices.ContainsFunc(was.References, same) {
				was.References, changed = append(was.References, ref), true
			}
		}
		if was.Damaged == "" && r.Damaged != "" {
			was.Damaged, changed = r.Damaged, true
		}
		if !changed {
			return nil, nil
		}
		return marshalObject(was, old.Value)
	})
	return err
}

// offerGroup merges what is known of a group of blocks into the store's.
func (c *Catalog) offerGroup(ctx context.Context, r ObjectRecord, group int, known func(int) bool) error {
	first := group * GroupBlocks
	_, err := c.rewrite(ctx, Key{objectSlot(r.Object.ID), groupField(group)}, func(old Record) ([]byte, error) {
		g := newSumGroup(r.Object, group)
		if old.Value != nil {
			var err error
			if g, err = unmarshalSumGroup(r.Object, group, old.Value, old.Version); err != nil {
				return nil, err
			}
		}
		news := 0
		for i := range g.Known.Len() {
			if r.Zeros.Len() > 0 && r.Zeros.Has(first+i) && !g.Zero.Has(i) {
				g.Zero.Set(i)
				news++
			}
			if len(r.Sums) > 0 && !g.Known.Has(i) && (known == nil || known(first+i)) {
				g.Known.Set(i)
				g.Sums[i] = r.Sums[first+i]
				news++
			}
		}
		if news == 0 {
			return nil, nil
		}
		return marshalSumGroup(g, old.Value)
	})
	return err
}
