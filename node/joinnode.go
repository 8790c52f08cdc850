package node

import (
	"context"
	"errors"

	"github.com/p2pfs/p2pfs/meta"
)

// joinNode writes this node's record. One of the same id and another machine,
// or another boot of this one, is waited for as long as it could live without
// being renewed: only a double is refused.
func (n *Node) joinNode(ctx context.Context, info meta.NodeInfo) (*meta.Membership, error) {
	try := func() (*meta.Membership, error) {
		bound, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
		defer cancel()
		return n.catalog.JoinNode(bound, info, n.cfg.ProviderTTL)
	}
	member, err := try()
	if !errors.Is(err, meta.ErrExist) {
		return member, err
	}
	ttl := max(n.cfg.ProviderTTL, DefaultProviderTTL) // it may have another one
	n.log.Warn("waiting for the record of an earlier boot of this machine, or of a double, to run out", "ttl", ttl, "err", err)
	if n.catalog.Outlast(ctx, info, ttl) != nil {
		return nil, err
	}
	return try()
}
