package meta

import (
	"context"
	"fmt"
	"time"
)

// CleanGone removes tombstones of a directory that were written before a time,
// by the clock of whoever wrote them: they are kept for so long that the clocks'
// difference does not matter.
func (c *Catalog) CleanGone(ctx context.Context, dir InodeID, before time.Time) error {
	if err := c.cleanGone(ctx, dir, before); err != nil {
		return fmt.Errorf("clean tombstones of directory %016x: %w", uint64(dir), err)
	}
	return nil
}

func (c *Catalog) cleanGone(ctx context.Context, dir InodeID, before time.Time) error {
	info := c.store.Load()
	if info == nil || len(info.Epochs) == 0 || info.ReadOnly {
		return nil
	}
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.raw.List(ctx, dirSlot(dir), next, listPage)
		if err != nil {
			return err
		}
		var sets []Set
		var conds []If
		for _, r := range p.Records {
			name, ok := isGone(r.Field)
			if !ok || !isName(name) {
				continue
			}
			if _, at, err := info.unmarshalGone(r); err != nil || !at.Before(before) {
				continue
			}
			sets, conds = append(sets, Set{Field: r.Field}), append(conds, If{Field: r.Field, Version: r.Version})
		}
		for len(sets) > 0 {
			n := min(len(sets), MaxSets)
			// One that was written anew meanwhile is for the next time.
			if _, err := c.raw.Apply(ctx, dirSlot(dir), conds[:n], sets[:n]); err != nil {
				return err
			}
			sets, conds = sets[n:], conds[n:]
		}
		next = p.Next
	}
	return nil
}
