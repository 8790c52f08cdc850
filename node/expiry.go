package node

import "context"

// runExpiry takes away the names whose time is over until ctx ends: those given
// here, and those that this node comes across.
func (n *Node) runExpiry(ctx context.Context) error {
	n.catalog.RunExpiry(ctx, n.collectSoon)
	return nil
}
