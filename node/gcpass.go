package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// pass is one look through what is kept.
type pass struct {
	node   *Node
	grace  time.Duration
	dryRun bool

	mu      sync.Mutex
	reply   *nodepb.CollectReply
	sets    map[chunk.SetID]bool // of what was removed
	placed  []chunk.ObjectID     // registered files to be forgotten, together
	keepers map[chunk.SetID][]meta.ProviderInfo
	due     time.Time // when the first of those that wait for nothing but the grace goes; zero: none
}

// collectPass is a look of which only the outcome is wanted.
func (n *Node) collectPass(ctx context.Context, grace time.Duration, dryRun bool) (*nodepb.CollectReply, error) {
	p, err := n.look(ctx, grace, dryRun)
	if p == nil {
		return nil, err
	}
	return p.reply, err
}

// look removes what has no name. In doubt it removes nothing: the store
// must answer, and be the one this node joined.
func (n *Node) look(ctx context.Context, grace time.Duration, dryRun bool) (*pass, error) {
	select {
	case n.collection.pass <- struct{}{}:
		defer func() { <-n.collection.pass }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := &pass{node: n, grace: grace, dryRun: dryRun, reply: &nodepb.CollectReply{}, sets: map[chunk.SetID]bool{},
		keepers: map[chunk.SetID][]meta.ProviderInfo{},
	}
	p.reply.Held = n.heldCount()
	if why := n.collection.holding(); why != "" {
		p.reply.Note = why
		return p, nil
	}
	if err := n.catalog.CheckStore(ctx); err != nil {
		return nil, err
	}
	err := p.dismissed(ctx)
	if err == nil {
		err = p.run(ctx)
	}
	kept := func(id chunk.ObjectID) bool {
		info, ok := n.cache.Stat(id)
		return ok && (info.Keeper || info.InPlace)
	}
	if err == nil {
		n.collection.prunePlaces(int(p.reply.Checked), kept)
	}
	err = errors.Join(err, p.forgetPlaced(context.WithoutCancel(ctx)))
	if dryRun {
		clear(p.sets)
	}
	n.collection.forgetUnless(kept)
	if err == nil && !dryRun {
		err = n.unpinNameless(ctx)
	}
	return p, errors.Join(err, n.settle(context.WithoutCancel(ctx), p.sets))
}

// candidate is a kept object and where its name was made.
type candidate struct {
	info       cache.Info
	meta.Place // zero: not known
}

// run finds the directories in which something has changed since all that is
// kept under their names was found there, and looks at those alone.
func (p *pass) run(ctx context.Context) error {
	kept := map[meta.InodeID]keptIn{}
	err := p.each(ctx, func(c candidate) {
		p.reply.Checked++
		k := kept[c.Dir]
		k.add(c.info.Object.ID)
		kept[c.Dir] = k
	})
	if err != nil {
		return err
	}
	look := map[meta.InodeID]uint64{} // version before the look
	for dir, k := range kept {
		at := uint64(0)
		if dir != 0 {
			if at, err = p.node.catalog.DirVersion(ctx, dir); err != nil {
				return err
			}
		}
		if at == 0 || p.node.collection.checkedAt(dir) != (dirCheck{at, k}) {
			look[dir] = at
		}
	}
	p.node.collection.prune(kept)
	if len(look) == 0 {
		return nil
	}
	work := map[meta.InodeID][]candidate{}
	err = p.each(ctx, func(c candidate) {
		if _, ok := look[c.Dir]; ok {
			work[c.Dir] = append(work[c.Dir], c)
		}
	})
	if err != nil {
		return err
	}
	for dir, all := range work {
		rest, err := p.unlisted(ctx, dir, all)
		if dir == 0 && err == nil {
			rest, err = p.nameless(ctx, all)
		}
		if err != nil {
			return err
		}
		if err := p.decideAll(ctx, rest); err != nil {
			return err
		}
		if len(rest) == 0 && look[dir] != 0 {
			p.node.collection.check(dir, dirCheck{look[dir], kept[dir]})
		}
	}
	return nil
}

// each calls fn with all that this node keeps.
func (p *pass) each(ctx context.Context, fn func(candidate)) error {
	return p.node.cache.Objects(ctx, func(i cache.Info) bool {
		if (i.Keeper || i.InPlace) && !p.node.collection.isDismissed(i.Object.ID) && !p.node.restorer.guard.held.has(i.Object.ID) {
			fn(candidate{info: i, Place: p.node.lastPlace(i)})
		}
		return true
	})
}

// unlisted returns those whose name does not stand for them in the directory
// it was made in.
func (p *pass) unlisted(ctx context.Context, dir meta.InodeID, all []candidate) ([]candidate, error) {
	if dir == 0 {
		return all, nil
	}
	at := make(map[string][]int, len(all))
	for i, c := range all {
		at[c.Name] = append(at[c.Name], i)
	}
	named := make([]bool, len(all))
	_, err := p.node.catalog.List(ctx, dir, func(page []meta.Entry) error {
		for _, e := range page {
			p.node.catalog.Timed(dir, e.ExpiresNs) // an earlier start may have given it
			for _, i := range at[e.Name] {
				named[i] = named[i] || e.Object.ID == all[i].info.Object.ID
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rest := all[:0]
	for i, c := range all {
		if named[i] {
			p.node.collection.forget(c.info.Object.ID)
			continue
		}
		rest = append(rest, c)
	}
	return rest, nil
}

// nameless returns those of objects whose names were never seen here that have
// none. What the store lists the names of is left to decide; for the others the
// whole tree is looked through, twice: a directory that was moved meanwhile may
// have slipped past once. A rename of the object itself shows in its record.
func (p *pass) nameless(ctx context.Context, all []candidate) ([]candidate, error) {
	var rest []candidate
	unknown := map[chunk.ObjectID]candidate{}
	for _, c := range all {
		r, err := p.node.catalog.Object(ctx, c.info.Object.ID)
		switch {
		case err == nil && len(r.References) > 0:
			// Another of them may be the one; decide asks for all.
			last := r.References[len(r.References)-1]
			p.node.collection.seenAt(c.info.Object.ID, meta.Place{Dir: last.Dir, Name: last.Name})
			rest = append(rest, c)
		case err == nil, errors.Is(err, meta.ErrNotFound):
			unknown[c.info.Object.ID] = c
		default:
			return nil, err
		}
	}
	for range 2 {
		if len(unknown) == 0 {
			return rest, nil
		}
		if err := p.search(ctx, unknown); err != nil {
			return nil, err
		}
	}
	for _, c := range unknown {
		rest = append(rest, c)
	}
	return rest, nil
}

// search looks through the whole tree, and takes those out of unknown that it
// finds.
func (p *pass) search(ctx context.Context, unknown map[chunk.ObjectID]candidate) error {
	for dirs := []meta.InodeID{meta.RootDir}; len(dirs) > 0 && len(unknown) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		_, err := p.node.catalog.List(ctx, dir, func(page []meta.Entry) error {
			for _, e := range page {
				if e.Kind == meta.KindDir {
					dirs = append(dirs, e.Inode)
					continue
				}
				if _, ok := unknown[e.Object.ID]; ok && e.Size > 0 {
					p.node.collection.seenAt(e.Object.ID, meta.Place{Dir: dir, Name: e.Name})
					p.node.collection.forget(e.Object.ID)
					delete(unknown, e.Object.ID)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// decideAll asks about each one by itself.
func (p *pass) decideAll(ctx context.Context, all []candidate) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(collectAtOnce)
	for _, c := range all {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error { return p.decide(gctx, c) })
	}
	return group.Wait()
}

// decide removes one object if no name stands for it and nobody uses it.
func (p *pass) decide(ctx context.Context, c candidate) error {
	n, id := p.node, c.info.Object.ID
	if n.publishing(id) {
		n.collection.forget(id)
		return nil
	}
	at := n.lastPlace(c.info) // a publish that has ended since the object was found told of it
	named, err := n.catalog.Referenced(ctx, id, meta.Reference{Dir: at.Dir, Name: at.Name})
	if err != nil {
		return err
	}
	if named {
		n.collection.forget(id)
		if at == c.Place {
			n.collection.misplaced(id, at)
		}
		return nil
	}
	now := time.Now()
	since := n.collection.unnamed(id, now)
	idle := now.Sub(since)
	used := n.interest.has(id) || !c.info.InPlace && n.cache.InUse(id)
	if idle < p.grace || used && idle < interestCap {
		p.count(func(r *nodepb.CollectReply) {
			r.Waiting++
			if due := since.Add(p.grace); !used && !c.info.InPlace && (p.due.IsZero() || due.Before(p.due)) {
				p.due = due
			}
		})
		return nil
	}
	return p.remove(ctx, c)
}

func (p *pass) count(fn func(*nodepb.CollectReply)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p.reply)
}

// remove ends the keeping of an object: what the store says of it, unless
// another keeper has it, then what is here. Registered files are forgotten
// together at the end.
func (p *pass) remove(ctx context.Context, c candidate) error {
	n, o := p.node, c.info.Object
	freed := c.info.LocalBytes
	if !p.dryRun {
		if err := p.deleteRecord(ctx, o); err != nil {
			return err
		}
		if !c.info.InPlace {
			var err error
			if freed, err = n.dropKept(ctx, o.ID); err != nil {
				return fmt.Errorf("remove object %s: %w", o.ID.Short(), err)
			}
			n.collection.freed.Add(1)
		}
		n.collection.gone(o.ID)
	}
	p.count(func(r *nodepb.CollectReply) {
		if c.info.InPlace {
			r.Forgotten++
			p.placed = append(p.placed, o.ID)
		} else {
			r.Removed++
			r.FreedBytes += freed
		}
		p.sets[o.Set] = true
	})
	return nil
}

// dropKept gives up a kept copy. The file may be registered here besides.
func (n *Node) dropKept(ctx context.Context, id chunk.ObjectID) (freed int64, err error) {
	defer n.leaving.begin(id)()
	if err := n.cache.Loosen(ctx, id); err != nil {
		return 0, err
	}
	return n.cache.DropCopy(ctx, id)
}

// forgetPlaced forgets the registered files that were found to have no name.
func (p *pass) forgetPlaced(ctx context.Context) error {
	if p.dryRun || len(p.placed) == 0 {
		return nil
	}
	ids := p.placed
	p.placed = nil
	return p.node.cache.ForgetInPlace(ctx, ids)
}

// dismissed looks at the registered files whose names this node took away
// itself: nothing but their readers is to be asked about.
func (p *pass) dismissed(ctx context.Context) error {
	n := p.node
	var due []chunk.Object
	now := time.Now()
	n.collection.eachDismissed(func(o chunk.Object, at time.Time) {
		idle := now.Sub(at)
		if idle < p.grace || n.interest.has(o.ID) && idle < interestCap {
			p.reply.Waiting++
			return
		}
		due = append(due, o)
	})
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(collectAtOnce)
	for _, o := range due {
		p.reply.Forgotten++
		p.placed = append(p.placed, o.ID)
		p.sets[o.Set] = true
		if p.dryRun || gctx.Err() != nil {
			continue
		}
		group.Go(func() error { return p.deleteRecord(gctx, o) })
	}
	err := group.Wait()
	if err == nil {
		err = p.forgetPlaced(ctx)
	}
	if err == nil && !p.dryRun {
		n.collection.undismiss(due)
	}
	return err
}

// deleteRecord removes what the store holds of an object, unless another node
// keeps it, too.
func (p *pass) deleteRecord(ctx context.Context, o chunk.Object) error {
	others, err := p.otherKeepers(ctx, o)
	if err != nil || others {
		return err
	}
	return p.node.catalog.DeleteObject(ctx, o.ID)
}

// otherKeepers reports whether another node keeps an object, or may: one that
// does not answer counts. Records say who keeps something of a set.
func (p *pass) otherKeepers(ctx context.Context, o chunk.Object) (bool, error) {
	p.mu.Lock()
	providers, ok := p.keepers[o.Set]
	p.mu.Unlock()
	if !ok {
		var err error
		if providers, err = p.node.catalog.Providers(ctx, o.Set); err != nil {
			return false, err
		}
		providers = slices.DeleteFunc(providers, func(i meta.ProviderInfo) bool { return !i.Keeper || i.Node == p.node.id })
		p.mu.Lock()
		p.keepers[o.Set] = providers
		p.mu.Unlock()
	}
	for _, k := range providers {
		if k.Alive {
			if _, _, err := p.node.peers.holds(ctx, k.Peer, o); errors.Is(err, chunk.ErrNotHeld) {
				continue
			}
		}
		return true, nil
	}
	return false, nil
}
