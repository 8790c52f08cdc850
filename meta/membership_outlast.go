package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outlast waits for a record that JoinNode found of another machine under the
// node's id, which nobody renews if that machine is this one before it was
// booted anew. It returns nil once the record is gone, or is this machine's.
// ErrExist: it was renewed, since it outlived its ttl (0: NodeTTL), or was
// written anew meanwhile. While the store does not answer nothing is decided.
func (c *Catalog) Outlast(ctx context.Context, info NodeInfo, ttl time.Duration) error {
	if ttl <= 0 {
		ttl = NodeTTL
	}
	key := Key{nodeSlot(info.Node), self}
	tick := time.NewTicker(max(ttl/20, 10*time.Millisecond))
	defer tick.Stop()
	var first Record
	var since time.Time // zero: not seen yet, or the store was away, and gives leases time to be renewed
	for {
		recs, err := c.slots.Get(ctx, key)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the end of node %q: %w", info.Name, ctx.Err())
		case errors.Is(err, ErrUnavailable):
			since = time.Time{}
		case err != nil:
			return fmt.Errorf("wait for the end of node %q: %w", info.Name, err)
		case recs[0].Value == nil:
			return nil
		default:
			if n, err := unmarshalNode(info.Node, recs[0].Value); err == nil && n.Host == info.Host {
				return nil
			}
			if first.Value == nil {
				first = recs[0]
			}
			if since.IsZero() {
				since = time.Now()
			}
			// Stores look for what has run out now and then only.
			if recs[0].Version != first.Version || time.Since(since) > ttl+ttl/2 {
				return fmt.Errorf("wait for the end of node %q: it lives: %w", info.Name, ErrExist)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of node %q: %w", info.Name, ctx.Err())
		case <-tick.C:
		}
	}
}
