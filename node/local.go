package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// drop gives up the local copies of a file, or of every file under a
// directory. A kept one goes when another node keeps it, or by force; the
// others are given up all the same. Registered files are left alone.
func (n *Node) drop(ctx context.Context, p string, force bool) (*nodepb.DropReply, error) {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return nil, err
	}
	r, hand := &nodepb.DropReply{}, n.handover()
	sets := map[chunk.SetID]bool{}
	var kept refusals
	err = walkFiles(ctx, n.view, at, func(p string, e meta.Entry) error {
		info, ok := n.cache.Stat(e.Object.ID)
		if e.Size == 0 || !ok {
			return nil
		}
		if info.InPlace {
			if at.entry.Kind == meta.KindDir {
				return nil
			}
			return fmt.Errorf("%q is registered here from %s: unregister it instead", "/"+p, info.Path)
		}
		freed, err := n.dropOne(ctx, hand, info, force)
		if errors.Is(err, errLastCopy) || errors.Is(err, errBusy) || errors.Is(err, errPinned) {
			kept.add(p, err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop %q: %w", "/"+p, err)
		}
		if info.Keeper {
			sets[info.Object.Set] = true
		}
		r.FreedBytes += freed
		r.Files++
		return nil
	})
	return r, errors.Join(err, n.settle(context.WithoutCancel(ctx), sets), kept.err("drop"))
}

// errBusy: a copy is being changed just now.
var errBusy = errors.New("it is being published")

func (n *Node) dropOne(ctx context.Context, hand *handover, info cache.Info, force bool) (freed int64, err error) {
	if id := info.Object.ID; n.cache.Pinned(id) {
		if !force {
			return 0, errPinned
		}
		if err := n.cache.Unpin(ctx, []chunk.ObjectID{id}); err != nil {
			return 0, err
		}
	}
	switch {
	case !info.Keeper:
		return n.cache.Drop(ctx, info.Object.ID)
	case n.publishing(info.Object.ID):
		return 0, errBusy
	}
	return hand.giveUp(ctx, info, force)
}

// refusals gathers the files of a tree that something was not done for.
type refusals struct {
	first string
	why   error
	more  int
}

func (r *refusals) add(p string, why error) {
	if r.why == nil {
		r.first, r.why = p, why
		return
	}
	r.more++
}

func (r *refusals) err(what string) error {
	switch {
	case r.why == nil:
		return nil
	case r.more == 0:
		return fmt.Errorf("%s %q: %w", what, "/"+r.first, r.why)
	}
	return fmt.Errorf("%s %q: %w; %d more were refused", what, "/"+r.first, r.why, r.more)
}

// unregister takes away the names of what this node registered. Its part in
// serving it ends some time after, so that those who have it open elsewhere can
// read it to its end. The registered files themselves are never touched.
func (n *Node) unregister(ctx context.Context, p string, force bool) (files int64, err error) {
	if n.cfg.ReadOnly {
		return 0, errors.New("the node is mounted read-only; unregister on another or mount without --read-only")
	}
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return 0, err
	}
	if at.dir == 0 {
		return 0, errors.New("the mountpoint itself cannot be unregistered")
	}
	u := &unregistering{node: n, force: force, placed: map[chunk.ObjectID]bool{}}
	if err := u.look(ctx, at); err != nil {
		return 0, err
	}
	var gone []chunk.Object
	removed, err := n.catalog.RemoveTree(ctx, at.dir, at.entry.Name, nil, func(_ string, e meta.Entry) {
		if u.placed[e.Object.ID] {
			gone = append(gone, e.Object)
		}
	})
	n.collection.dismiss(gone)
	n.collectSoon()
	if err != nil {
		return 0, fmt.Errorf("remove %q: %w", "/"+at.path, err)
	}
	if removed.Kept == 0 {
		for _, dir := range u.dirs { // their names would fill the table for ever
			n.storage.table.PutDir(dir, 0, nil)
		}
	}
	return u.files, nil
}

// unregistering is what an unregister finds under a name.
type unregistering struct {
	node   *Node
	force  bool
	files  int64
	dirs   []meta.InodeID
	placed map[chunk.ObjectID]bool // registered here
}

// look walks all that is under a name, once.
func (u *unregistering) look(ctx context.Context, at place) error {
	if err := u.one(at.path, at.entry); err != nil || at.entry.Kind != meta.KindDir {
		return err
	}
	return walk(ctx, u.node.view, at.entry.Inode, at.path, u.one)
}

func (u *unregistering) one(p string, e meta.Entry) error {
	switch e.Kind {
	case meta.KindDir:
		u.dirs = append(u.dirs, e.Inode)
		return nil
	case meta.KindFile:
	default:
		return nil
	}
	u.files++
	if e.Size == 0 {
		return nil
	}
	info, ok := u.node.cache.Stat(e.Object.ID)
	switch {
	case ok && info.InPlace:
		u.placed[e.Object.ID] = true
		return nil
	case ok && info.Keeper || u.force:
		return nil
	}
	return fmt.Errorf("%q is kept by other nodes; run unregister on one of them ('p2pfs stat' names them), or add --force to take the name away", "/"+p)
}

// release gives up this node's registered copies of a file, or of every file
// under a directory, and leaves the names: another keeper of each lives, or is
// made one, or it is forced.
func (n *Node) release(ctx context.Context, p string, force bool) (files int64, err error) {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return 0, err
	}
	hand, sets := n.handover(), map[chunk.SetID]bool{}
	var kept refusals
	err = walkFiles(ctx, n.view, at, func(p string, e meta.Entry) error {
		info, ok := n.cache.Stat(e.Object.ID)
		switch {
		case e.Size == 0:
			return nil
		case !ok || !info.InPlace:
			if at.entry.Kind == meta.KindDir {
				return nil
			}
			return fmt.Errorf("%q is not registered on this node", "/"+p)
		}
		_, err := hand.giveUp(ctx, info, force)
		switch {
		case errors.Is(err, errLastCopy):
			kept.add(p, err)
			return nil
		case err != nil:
			return fmt.Errorf("give up %q: %w", "/"+p, err)
		}
		sets[info.Object.Set] = true
		files++
		return nil
	})
	return files, errors.Join(err, n.settle(context.WithoutCancel(ctx), sets), kept.err("unregister"))
}
