package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/etcd/embedded"
	"github.com/p2pfs/p2pfs/meta/local"
	"github.com/p2pfs/p2pfs/meta/stores"
	"github.com/p2pfs/p2pfs/node/journal"
)

// storage is the metadata side: the store, the server inside this process if
// there is one, and the durable table that outlives an outage.
type storage struct {
	url      string
	redacted string
	embedded *embedded.Server
	slots    meta.Slots
	table    *local.Table
	journal  *journal.Journal // of what this node did to names
}

// openStorage connects to the store, after starting it when no URL was given.
// It does not wait for a store that is down.
func (n *Node) openStorage(ctx, life context.Context) error {
	s := &storage{url: n.cfg.MetaURL}
	n.storage = s
	if s.url == "" {
		advertise, err := metaAdvertise(n.cfg)
		if err != nil {
			return err
		}
		srv, err := embedded.Start(ctx, embedded.Config{Dir: n.cfg.MetaDir, Listen: n.cfg.MetaListen, Advertise: advertise, Log: n.log})
		if err != nil {
			return fmt.Errorf("start the metadata store: %w", err)
		}
		n.onClose("the metadata store", plain(srv.Close))
		s.embedded, s.url = srv, srv.URL()
		n.goRun(life, "metadata store", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case err, ok := <-srv.Err():
				if ok { // the node lives on, as with any store that is gone
					n.log.Error("the metadata store in this process stopped", "err", err)
				}
			}
			return nil
		})
	}
	s.redacted = meta.RedactURL(s.url)
	slots, err := s.open(ctx, stores.Options{Access: n.cfg.MetaAccess, Stream: n.cfg.Stream})
	if err != nil {
		return err
	}
	n.onClose("the connection to "+s.redacted, plain(slots.Close))
	s.slots = slots
	if s.table, err = local.Open(n.cfg.CacheDirs[0], n.log); err != nil {
		return err
	}
	n.onClose("the table of known names", plain(s.table.Close))
	if s.journal, err = journal.Open(n.cfg.CacheDirs[0], n.log); err != nil {
		return err
	}
	n.onClose("the journal of names", plain(s.journal.Close))
	return nil
}

// open returns the store, by the shortest way there is.
func (s *storage) open(ctx context.Context, opts stores.Options) (meta.Slots, error) {
	if s.embedded == nil {
		return stores.Open(ctx, s.url, opts)
	}
	return etcd.Open(ctx, s.url, etcd.Options{KV: s.embedded.Direct(), Watch: s.embedded.Watcher()})
}

// joinStore learns which cluster this is, from the store or, when that is
// down, from what this node knew when it last ran.
func (n *Node) joinStore(ctx context.Context) error {
	known, remembered, err := n.storage.table.LoadStore()
	if err != nil {
		return fmt.Errorf("recall the store: %w", err)
	}
	bound, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
	defer cancel()
	chunkSize := n.cfg.ChunkSize
	if chunkSize == 0 {
		chunkSize = chunk.DefaultChunkSize
	}
	// A node that has been in a cluster makes no other one: an empty store
	// is one that was emptied, or the wrong one.
	_, was := n.cache.Identity()
	info, err := n.catalog.Join(bound, meta.JoinOptions{Create: was.IsZero(), ChunkSize: chunkSize})
	joined := err == nil
	switch {
	case joined:
	case errors.Is(err, meta.ErrNotFound) && n.cfg.RestoreStore:
		if info, err = n.restoreJoin(bound, known, remembered); err != nil {
			return fmt.Errorf("restore the store at %s: %w", n.storage.redacted, err)
		}
		joined = true
	case errors.Is(err, meta.ErrNotFound):
		return fmt.Errorf("the store at %s is empty, and %s is of cluster %s: was the store emptied, or is another one meant? Restore it, give the right one, give another cache directory, or bring back what this node knows with --restore-store: %w", n.storage.redacted, n.cfg.CacheDirs[0], was, err)
	case errors.Is(err, meta.ErrUnavailable) && remembered:
		n.log.Warn("metadata store unreachable: starting with what is known here", "url", n.storage.redacted, "err", err)
		info = known
		n.catalog.UseStore(info)
	case errors.Is(err, meta.ErrUnavailable):
		return fmt.Errorf("join the cluster at %s (this node has never been in one, so it cannot start without the store): %w", n.storage.redacted, err)
	default:
		return fmt.Errorf("join the cluster at %s: %w", n.storage.redacted, err)
	}
	n.store = info
	n.chunkSize = info.ChunkSize
	if n.cfg.ChunkSize != 0 {
		n.chunkSize = n.cfg.ChunkSize
	}
	if err := n.cache.Bind(info.Cluster); err != nil {
		return err
	}
	if joined { // remembered once it is known to be ours
		if err := n.storage.table.SaveStore(info); err != nil {
			return fmt.Errorf("remember the store: %w", err)
		}
	}
	return nil
}
