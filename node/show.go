package node

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// listBatch is how many names one message of a listing carries.
const listBatch = 1000

// list sends the names under a path; of a file, the file itself.
func (n *Node) list(ctx context.Context, p string, recursive bool, send func(*nodepb.ListReply) error) error {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return err
	}
	batch := &nodepb.ListReply{}
	add := func(p string, e meta.Entry) error {
		batch.Items = append(batch.Items, n.item(p, e))
		if len(batch.Items) < listBatch {
			return nil
		}
		err := send(batch)
		batch = &nodepb.ListReply{}
		return err
	}
	switch {
	case at.entry.Kind != meta.KindDir:
		err = add(path.Base(at.path), at.entry)
	case recursive:
		err = walk(ctx, n.view, at.entry.Inode, "", add)
	default:
		var entries []meta.Entry
		if entries, err = n.view.List(ctx, at.entry.Inode); err != nil {
			return err
		}
		for _, e := range entries {
			if err = add(e.Name, e); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return send(batch)
}

// item describes an entry and how much of it is here.
func (n *Node) item(p string, e meta.Entry) *nodepb.Item {
	it := &nodepb.Item{
		Path: []byte(p), Kind: e.Kind.String(), Size: e.Size, Mode: e.Mode, Uid: e.UID, Gid: e.GID,
		MtimeNs: e.MtimeNs, Target: []byte(e.Target),
	}
	if e.Kind != meta.KindFile {
		return it
	}
	if e.Size == 0 {
		it.State = "complete"
		return it
	}
	it.Object = e.Object.ID.String()
	info, ok := n.cache.Stat(e.Object.ID)
	switch {
	case !ok, !info.InPlace && !info.Complete && info.LocalBytes == 0: // it may be open, and read past the cache
		it.State = "remote"
	case info.InPlace:
		it.State = "in-place"
		if state, _, ok := n.cache.Source(e.Object.ID); ok {
			it.Source = state.String()
		}
	case info.Complete:
		it.State = "complete"
	default:
		it.State = "partial"
	}
	return it
}

// stat describes one path and who holds it. A store or peers that do not
// answer leave the providers out and say why.
func (n *Node) stat(ctx context.Context, p string) (*nodepb.StatReply, error) {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return nil, err
	}
	e := at.entry
	r := &nodepb.StatReply{Item: n.item(at.path, e), Inode: uint64(e.Inode), ExpiresNs: e.ExpiresNs}
	if e.Kind != meta.KindFile || e.Size == 0 {
		return r, nil
	}
	o := e.Object
	r.ChunkSize, r.BlockSize, r.Set, r.Blocks = o.ChunkSize, o.BlockSize, o.Set.String(), int64(o.Blocks())
	if info, _, ok := n.cache.Peek(o.ID); ok {
		r.LocalBytes, r.Source = info.LocalBytes, []byte(info.Path)
	}
	r.Pinned = n.cache.Pinned(o.ID)
	if r.Providers, err = n.providers(ctx, o); err != nil {
		r.Error = err.Error()
	}
	return r, nil
}

// providers asks every provider of an object's set how much of the object is
// there, at once. One that has none of it is left out.
func (n *Node) providers(ctx context.Context, o chunk.Object) ([]*nodepb.StatReply_Provider, error) {
	records, err := n.catalog.Providers(ctx, o.Set)
	if err != nil {
		return n.selfProvider(o, nil), err
	}
	out := make([]*nodepb.StatReply_Provider, len(records))
	var wg sync.WaitGroup
	for i, rec := range records {
		out[i] = &nodepb.StatReply_Provider{
			Node: rec.Node.String(), Name: rec.Name, Zone: rec.Zone, Addrs: rec.Addrs,
			Keeper: rec.Keeper, Alive: rec.Alive, Self: rec.Node == n.id,
		}
		if rec.Node == n.id || !rec.Alive {
			continue
		}
		wg.Go(func() {
			blocks, keeper, err := n.peers.holds(ctx, rec.Peer, o)
			switch {
			case errors.Is(err, chunk.ErrNotHeld): // of the set it holds something else
				out[i] = nil
				return
			case err != nil:
				out[i].Alive = false
				return
			}
			out[i].Blocks, out[i].Complete, out[i].Keeper = int64(blocks), blocks == o.Blocks(), keeper
		})
	}
	wg.Wait()
	out = slices.DeleteFunc(out, func(p *nodepb.StatReply_Provider) bool { return p == nil })
	return n.selfProvider(o, out), nil
}

// selfProvider fills in what this node holds itself.
func (n *Node) selfProvider(o chunk.Object, out []*nodepb.StatReply_Provider) []*nodepb.StatReply_Provider {
	info, held, ok := n.cache.Peek(o.ID)
	if !ok || !info.InPlace && !info.Keeper && held.Have().Count() == 0 {
		return slices.DeleteFunc(out, func(p *nodepb.StatReply_Provider) bool { return p.Self })
	}
	var me *nodepb.StatReply_Provider
	for _, p := range out {
		if p.Self {
			me = p
		}
	}
	if me == nil {
		me = &nodepb.StatReply_Provider{Node: n.id.String(), Self: true}
		out = append(out, me)
	}
	me.Name, me.Zone, me.Addrs, me.Alive = n.cfg.Name, n.cfg.Zone, n.addrs, true
	me.Blocks, me.Complete = int64(held.Have().Count()), info.Complete
	me.Keeper = info.Keeper
	if state, _, ok := n.cache.Source(o.ID); ok && state != cache.SourceOK { // it serves nothing
		me.Blocks, me.Complete = 0, false
	}
	return out
}
