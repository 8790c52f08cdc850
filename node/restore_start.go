package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// startRestorer decides whether what this node knows has to be brought back
// into the store, before anybody asks for names. It runs once the node is a
// member of the cluster.
func (n *Node) startRestorer(_, _ context.Context) error {
	n.restorer = &restorer{
		catalog: n.catalog, journal: n.storage.journal, cache: n.cache, self: n.id, log: n.log,
		timeout: n.cfg.MetaTimeout, settle: settleOf(n.cfg.ProviderTTL), allowed: n.cfg.RestoreStore,
		save: n.storage.table.SaveStore,
		rejoin: func(ctx context.Context) error {
			if m := n.member.Load(); m != nil {
				return m.Rejoin(ctx)
			}
			return nil
		},
		announce: n.announceAgain,
		forget:   func() { n.view.Forget() },
		hold:     n.collection.hold,
		release:  n.collection.release,
		roll:     n.recentNodes,
		listed:   func(ctx context.Context, dir meta.InodeID) ([]meta.Entry, error) { return n.view.List(ctx, dir) },
		changes:  make(chan meta.Place, changesMax),
		guard: keepGuard{
			place: n.lastPlace,
			spare: func(id chunk.ObjectID) bool { return n.publishing(id) || n.collection.isDismissed(id) },
		},
	}
	return n.restorer.begin()
}

// settleOf is settleFor in a cluster whose nodes renew their leases every third
// of ttl, and notice then.
func settleOf(ttl time.Duration) time.Duration {
	return min(max(settleFor, ttl/3+time.Second), settleLong)
}

// announceAgain writes the provider records of all that is here into a store
// that may have lost them.
func (n *Node) announceAgain(ctx context.Context) error {
	n.registry.forget()
	// Before what is kept is listed: a publish that ends meanwhile is in one or
	// the other.
	if a := n.staging.Load(); a != nil {
		if err := a.Renew(ctx); err != nil {
			return err
		}
	}
	sets, err := n.cache.Sets(ctx)
	if err != nil {
		return fmt.Errorf("list what is held here: %w", err)
	}
	for _, s := range sets {
		err := n.registry.correct(ctx, s.Set, func(context.Context) (cache.SetInfo, bool, error) { return s, n.cache.HoldsSet(s.Set), nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// forget forgets what the store was told and has said.
func (r *registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.told)
	clear(r.recent)
}

// recentNodes are those that were in the cluster lately, as far as this node
// knows.
func (n *Node) recentNodes() []chunk.NodeID {
	nodes, _ := n.roll.get()
	var out []chunk.NodeID
	for _, nd := range nodes {
		if nd.Alive || !endedLongAgo(nd, time.Now()) {
			out = append(out, nd.Node)
		}
	}
	return out
}

// restoreJoin makes a store that lost its records the one of this node's
// cluster again, because the user says that it is.
func (n *Node) restoreJoin(ctx context.Context, known meta.StoreInfo, remembered bool) (meta.StoreInfo, error) {
	if !remembered {
		return meta.StoreInfo{}, errors.New("this node does not remember the store of its cluster: run --restore-store on another one")
	}
	n.catalog.UseStore(known)
	info, err := n.catalog.Restore(ctx, known)
	if err != nil {
		return meta.StoreInfo{}, err
	}
	n.catalog.UseStore(info)
	n.log.Warn("made an empty metadata store the one of this cluster again", "url", n.storage.redacted, "cluster", info.Cluster)
	return info, nil
}

// restored describes the last time that names were brought back, for people;
// nil if that has not happened.
func (n *Node) restored() *nodepb.StatusReply_Restored {
	done, ok := n.restorer.report()
	if !ok {
		return nil
	}
	return &nodepb.StatusReply_Restored{
		UnixNs: done.At.UnixNano(), Why: done.Why, Names: int64(done.Names + done.Known), Removed: int64(done.Removed + done.Gone),
		Waiting: int64(done.Waiting),
	}
}
