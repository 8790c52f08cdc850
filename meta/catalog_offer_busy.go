package meta

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// reStoreSlot lists the nodes that are bringing names back.
const reStoreSlot Slot = "restore"

// SetRestoring says that a node is bringing names back into the store, or has
// done so.
func (c *Catalog) SetRestoring(ctx context.Context, node chunk.NodeID, on bool) error {
	set := Set{Field: node.String()}
	if on {
		set.Value = []byte{}
	}
	if _, err := c.raw.Apply(ctx, reStoreSlot, nil, []Set{set}); err != nil {
		return fmt.Errorf("say that names are being brought back: %w", err)
	}
	return nil
}

// Restoring returns how many nodes that live are bringing names back.
func (c *Catalog) Restoring(ctx context.Context) (int, error) {
	n := 0
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.raw.List(ctx, reStoreSlot, next, MaxSets)
		if err != nil {
			return 0, fmt.Errorf("list who brings names back: %w", err)
		}
		var keys []Key
		for _, r := range p.Records {
			if id, err := chunk.ParseNodeID(r.Field); err == nil {
				keys = append(keys, Key{nodeSlot(id), self})
			}
		}
		if len(keys) > 0 {
			recs, err := c.raw.Get(ctx, keys...)
			if err != nil {
				return 0, fmt.Errorf("list who brings names back: %w", err)
			}
			for _, r := range recs {
				if r.Value != nil {
					n++
				}
			}
		}
		next = p.Next
	}
	return n, nil
}

// StoreRecord returns what the store says of itself now; false if it has no
// record.
func (c *Catalog) StoreRecord(ctx context.Context) (StoreInfo, bool, error) {
	recs, err := c.raw.Get(ctx, Key{StoreSlot, self})
	if err != nil || recs[0].Value == nil {
		return StoreInfo{}, false, err
	}
	info, err := UnmarshalStore(recs[0].Value)
	return info, err == nil, err
}
