package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/staging"
)

// startStaging makes the write side of the mount. It is there for a mount that
// is read-only, too: what an earlier run left must stay, and can be recovered.
func (n *Node) startStaging(_, life context.Context) error {
	a, err := staging.New(staging.Config{
		Node: n.id, Bytes: staging.CacheBytes{Cache: n.cache}, Catalog: n.catalog, View: keptNames{n.view, n.collection},
		Open: (&objectBytes{cache: n.cache, engine: n.engine, source: n.source}).Open, ChunkSize: n.chunkSize,
		KeyTTL: n.cfg.KeyTTL, Private: n.cfg.Private, Timeout: n.cfg.MetaTimeout, Log: n.log,
		Changed: func(dir meta.InodeID, name string) {
			if m := n.mounted.Load(); m != nil {
				m.Changed(dir, name, false)
			}
		},
	})
	if err != nil {
		return err
	}
	n.staging.Store(a)
	n.publishes, n.usesSet = a.Holds, a.Keeps
	n.onClose("the files that were being written", plain(a.Close))
	n.goRun(life, "files left by an earlier run", a.Run)
	return nil
}

// withdraw takes back this node's provider record of a set, unless files are
// being published into it.
func (n *Node) withdraw(ctx context.Context, set chunk.SetID) error {
	if a := n.staging.Load(); a != nil && a.Keeps(set) {
		return nil
	}
	return n.registry.withdraw(ctx, set)
}

// withdrawn makes this node's record of a set, which was taken back, say what is
// here now.
func (n *Node) withdrawn(ctx context.Context, set chunk.SetID) error {
	if a := n.staging.Load(); a != nil && a.Keeps(set) {
		return nil
	}
	return n.registry.correct(ctx, set, func(ctx context.Context) (cache.SetInfo, bool, error) {
		if !n.cache.HoldsSet(set) {
			return cache.SetInfo{}, false, nil
		}
		sets, err := n.cache.Sets(ctx)
		for _, s := range sets {
			if s.Set == set {
				return s, true, nil
			}
		}
		return cache.SetInfo{}, false, err
	})
}

// learned takes in a change of names that the view tells of.
func (n *Node) learned(c meta.Change) {
	n.nameChanged(c.Dir, c.Name)
	n.restorer.changed(c)
	if a := n.staging.Load(); a != nil {
		a.Learned(c.Dir, c.Name)
	}
	if m := n.mounted.Load(); m != nil {
		m.Changed(c.Dir, c.Name, c.Gap)
	}
}

// mountConfig says what is mounted and how.
func (n *Node) mountConfig() fs.Config {
	a := n.staging.Load()
	return fs.Config{
		Mountpoint: n.cfg.Mountpoint, Names: a.Names(), Changes: a, Bytes: &objectBytes{cache: n.cache, engine: n.engine, source: n.source},
		FSName: "p2pfs:" + n.store.Cluster.String()[:8], Passthrough: n.cfg.Passthrough != "off",
		Consistency: n.cfg.Consistency, AllowOther: os.Geteuid() == 0, ReadOnly: n.cfg.ReadOnly, XAttr: n.cfg.XAttr,
		CacheDirs: append([]string{n.cfg.MetaDir}, n.cfg.CacheDirs...), Space: n.space, Log: n.log,
	}
}

// spaceTimeout bounds how long statfs waits for the start's look at the cache.
const spaceTimeout = time.Second

// space is what df shows: as much is free as could be written here.
func (n *Node) space() (total, free int64) {
	ctx, cancel := context.WithTimeout(context.Background(), spaceTimeout)
	defer cancel()
	used := n.cache.Stats().UsedBytes
	free, _, err := n.cache.Room(ctx)
	if err != nil { // not known yet: a full disk would keep people from trying
		free = n.cfg.CacheSize
	}
	return used + free, free
}

// unpublished describes what waits to be recovered, for people; empty: nothing
// does.
func (n *Node) unpublished() string {
	if s := n.staging.Load().Stats(); s.Failed > 0 {
		return fmt.Sprintf("files written here and not published: %d; see p2pfs recover", s.Failed)
	}
	return ""
}
