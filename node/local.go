package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// drop gives up the local copies of a file, or of every file under a
// directory. Registered files are kept copies and are left alone.
func (n *Node) drop(ctx context.Context, p string) (*nodepb.DropReply, error) {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return nil, err
	}
	r := &nodepb.DropReply{}
	err = walkFiles(ctx, n.view, at, func(p string, e meta.Entry) error {
		info, ok := n.cache.Stat(e.Object.ID)
		if !ok {
			return nil
		}
		if info.InPlace {
			if at.entry.Kind == meta.KindDir {
				return nil
			}
			return fmt.Errorf("%q is registered here from %s: unregister it instead", "/"+p, info.Path)
		}
		freed, err := n.cache.Drop(ctx, e.Object.ID)
		if err != nil {
			return fmt.Errorf("drop %q: %w", "/"+p, err)
		}
		r.FreedBytes += freed
		r.Files++
		return nil
	})
	return r, err
}

// unregister takes away the names of what this node registered, then its part
// in serving it. The registered files themselves are never touched.
func (n *Node) unregister(ctx context.Context, p string, force bool) (files int64, err error) {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return 0, err
	}
	if at.dir == 0 {
		return 0, errors.New("the mountpoint itself cannot be unregistered")
	}
	var objects []chunk.ObjectID
	sets := map[chunk.SetID]bool{}
	dirs, err := dirsOf(ctx, n.view, at)
	if err != nil {
		return 0, err
	}
	err = walkFiles(ctx, n.view, at, func(p string, e meta.Entry) error {
		files++
		if e.Size == 0 {
			return nil
		}
		info, ok := n.cache.Stat(e.Object.ID)
		if ok && info.InPlace {
			objects = append(objects, e.Object.ID)
			sets[e.Object.Set] = true
			return nil
		}
		if force {
			return nil
		}
		return fmt.Errorf("%q was registered on another node; run unregister there, or add --force to take the name away", "/"+p)
	})
	if err != nil {
		return 0, err
	}
	removed, err := n.catalog.RemoveTree(ctx, at.dir, at.entry.Name, nil, nil)
	if err != nil {
		return 0, fmt.Errorf("remove %q: %w", "/"+at.path, err)
	}
	if removed.Kept == 0 {
		for _, dir := range dirs { // their names would fill the table for ever
			n.storage.table.PutDir(dir, 0, nil)
		}
	}
	if err := n.cache.ForgetInPlace(ctx, objects); err != nil {
		return 0, fmt.Errorf("forget the registered files: %w", err)
	}
	return files, n.withdrawGone(ctx, sets)
}

// withdrawGone takes this node's provider record off the sets it holds nothing
// of any more.
func (n *Node) withdrawGone(ctx context.Context, sets map[chunk.SetID]bool) error {
	held, err := n.cache.Sets(ctx)
	if err != nil {
		return fmt.Errorf("list what is held here: %w", err)
	}
	for _, s := range held {
		delete(sets, s.Set)
	}
	for set := range sets {
		if err := n.registry.withdraw(ctx, set); err != nil {
			return err
		}
	}
	return nil
}
