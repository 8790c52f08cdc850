package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/journal"
)

const (
	// offerPage is how many names of a directory are offered at once.
	offerPage = 2000
	// offerDirs is how many directories, and offerObjects how many objects
	// are brought back side by side.
	offerDirs    = 8
	offerObjects = 16
	// offerPasses bounds how often directories that moved meanwhile are
	// followed.
	offerPasses = 8
)

// offering is one time that the journal is brought into a store: objects, then
// the directories from the root down, each with its names before those below
// it.
type offering struct {
	r        *restorer
	dirs     map[meta.InodeID]journal.Dir
	children map[meta.InodeID][]meta.InodeID

	mu     sync.Mutex
	placed map[meta.InodeID]meta.InodeID // where a directory's names belong; 0: it was removed
	before map[meta.InodeID]meta.InodeID // placed, in the pass before
	own    map[meta.InodeID]bool         // whose own name was offered in this pass
	again  bool                          // a directory went away under our hands
	waits  []meta.InodeID                // directories that are not there, and may come
	count  restoration
}

func newOffering(r *restorer) *offering {
	return &offering{
		r: r, dirs: map[meta.InodeID]journal.Dir{}, children: map[meta.InodeID][]meta.InodeID{},
		before: map[meta.InodeID]meta.InodeID{},
	}
}

func (o *offering) run(ctx context.Context) error {
	dirs, err := o.r.journal.Dirs()
	if err != nil {
		return fmt.Errorf("read the journal of names: %w", err)
	}
	for _, d := range dirs {
		o.dirs[d.ID] = d
		if d.Known && d.ID != meta.RootDir {
			o.children[d.Parent] = append(o.children[d.Parent], d.ID)
		}
	}
	if err := o.objects(ctx); err != nil {
		return err
	}
	return o.offer(ctx)
}

// offer offers what was not offered yet. Directories that others have to bring
// back may be there when it is called again.
func (o *offering) offer(ctx context.Context) error {
	// The second pass finds what others moved while the first was under way, and
	// one more what they brought back after it.
	for pass := 0; ; pass++ {
		o.placed, o.own, o.again = map[meta.InodeID]meta.InodeID{}, map[meta.InodeID]bool{}, false
		if err := o.pass(ctx); err != nil {
			return err
		}
		same := !o.again && len(o.placed) == len(o.before)
		for d, to := range o.placed {
			same = same && o.before[d] == to
		}
		o.before = o.placed
		if !same && pass < offerPasses {
			continue
		}
		late, err := o.unplaced(ctx)
		if err != nil {
			return err
		}
		if !late || pass >= offerPasses {
			break
		}
	}
	o.count.Waiting = len(o.waits)
	return o.tidy(ctx)
}

// pass offers every directory that can be reached: from the root, and from those
// that nobody told the way to, but others have brought back.
func (o *offering) pass(ctx context.Context) error {
	o.placed[meta.RootDir] = meta.RootDir
	found := []meta.InodeID{meta.RootDir}
	for len(found) > 0 {
		if err := o.each(ctx, found, o.dir); err != nil {
			return err
		}
		if err := o.below(ctx, found); err != nil {
			return err
		}
		var err error
		if found, err = o.loose(ctx); err != nil {
			return err
		}
		if len(found) == 0 {
			if found, err = o.astray(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// below offers what is below some directories that are placed, the names of those
// included that others have brought back elsewhere: what is known here of the ways
// to directories may be out of date, and lead in a circle, and still the name of one
// of them in another be the last that it was given.
func (o *offering) below(ctx context.Context, level []meta.InodeID) error {
	for len(level) > 0 {
		var next, unseen []meta.InodeID
		for _, d := range level {
			if o.placed[d] == 0 {
				continue
			}
			for _, c := range o.children[d] {
				if o.own[c] {
					continue
				}
				o.own[c] = true
				next = append(next, c)
				if _, there := o.placed[c]; !there {
					o.placed[c] = 0
					unseen = append(unseen, c)
				}
			}
		}
		if err := o.each(ctx, next, o.place); err != nil {
			return err
		}
		if err := o.each(ctx, unseen, o.dir); err != nil {
			return err
		}
		level = unseen
	}
	return nil
}

// loose places directories whose way is not known, or leads through one that
// was removed, if others have brought them back, and returns them. Those that are
// not there wait; what is below them is placed after them, and nowhere else.
func (o *offering) loose(ctx context.Context) (found []meta.InodeID, err error) {
	var ids []meta.InodeID
	for id := range o.children {
		if _, known := o.dirs[id]; !known { // there only as the place of others
			ids = append(ids, id)
		}
	}
	for id, d := range o.dirs {
		to, seen := o.placed[d.Parent]
		if through := seen && to == 0; !d.Known || through && d.Names {
			ids = append(ids, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id meta.InodeID) bool {
		_, seen := o.placed[id]
		return seen
	})
	found, o.waits, err = o.where(ctx, ids)
	return found, err
}

// astray places directories that others have brought back elsewhere than below
// the parent that is known here, which waits or was removed, and returns them: who
// moved them, or removed that parent, need not have told this node.
func (o *offering) astray(ctx context.Context) ([]meta.InodeID, error) {
	var ids []meta.InodeID
	for id, d := range o.dirs {
		if _, seen := o.placed[id]; !seen && (d.Names || len(o.children[id]) > 0) {
			ids = append(ids, id)
		}
	}
	found, _, err := o.where(ctx, ids)
	return found, err
}

// where places those directories where they are that are in the store, and
// returns them, and the others.
func (o *offering) where(ctx context.Context, ids []meta.InodeID) (found, missing []meta.InodeID, err error) {
	err = o.each(ctx, ids, func(ctx context.Context, id meta.InodeID) error {
		_, err := o.r.catalog.Dir(ctx, id)
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err == nil:
			o.placed[id] = id
			found = append(found, id)
		case errors.Is(err, meta.ErrNotFound):
			missing = append(missing, id)
		default:
			return err
		}
		return nil
	})
	return found, missing, err
}

// each calls fn with some directories, several at a time.
func (o *offering) each(ctx context.Context, dirs []meta.InodeID, fn func(context.Context, meta.InodeID) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(offerDirs)
	for _, d := range dirs {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return fn(gctx, d) })
	}
	return errors.Join(g.Wait(), ctx.Err())
}

// place brings the name of one directory back into its parent. One that was found
// elsewhere stays placed there, whatever becomes of its name.
func (o *offering) place(ctx context.Context, id meta.InodeID) error {
	d := o.dirs[id]
	o.mu.Lock()
	parent := o.placed[d.Parent]
	o.mu.Unlock()
	to, fate, err := o.r.catalog.OfferDir(ctx, parent, d.Way, d.Self)
	gone := errors.Is(err, meta.ErrNotFound)
	if err != nil && !gone {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.again = o.again || gone
	if o.placed[id] == 0 {
		o.placed[id] = to
	}
	if fate == meta.FateTaken {
		o.count.Dirs++
	}
	return nil
}

// dir offers the names of one directory, if they were not offered there in the
// pass before.
func (o *offering) dir(ctx context.Context, id meta.InodeID) error {
	o.mu.Lock()
	to := o.placed[id]
	same := o.before[id] == to
	o.mu.Unlock()
	if to == 0 || same || !o.dirs[id].Names {
		return nil
	}
	err := o.allNames(ctx, id, to)
	if errors.Is(err, meta.ErrNotFound) { // removed, or never placed
		o.mu.Lock()
		o.again = true
		delete(o.placed, id)
		o.mu.Unlock()
		return nil
	}
	return err
}

// unplaced offers names in directories that have no place here, but which others
// have brought back: those that lost the name they are known under here. Names
// that are missing there would count as removed, and removed ones would be back.
// Those that are not there wait, whatever became of their parent. late: some had
// no place a moment ago, so that what is below them was not offered yet.
func (o *offering) unplaced(ctx context.Context) (late bool, err error) {
	var ids []meta.InodeID
	for id, d := range o.dirs {
		if o.placed[id] == 0 && d.Names {
			ids = append(ids, id)
		}
	}
	err = o.each(ctx, ids, func(ctx context.Context, id meta.InodeID) error {
		_, err := o.r.catalog.Dir(ctx, id)
		if err == nil {
			err = o.allNames(ctx, id, id)
		}
		if err != nil && !errors.Is(err, meta.ErrNotFound) {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err == nil:
			late = true
		case !slices.Contains(o.waits, id):
			o.waits = append(o.waits, id)
		}
		return nil
	})
	return late, err
}

// allNames offers what the journal holds of directory id into directory to.
func (o *offering) allNames(ctx context.Context, id, to meta.InodeID) error {
	for after := ""; ; {
		page, err := o.r.journal.Names(id, after, offerPage)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].Name
		if err := o.names(ctx, id, to, page); err != nil {
			return err
		}
	}
}

// names offers some names of a directory; those of directories have places.
func (o *offering) names(ctx context.Context, id, to meta.InodeID, page []meta.Offer) error {
	offers := page[:0]
	for _, n := range page {
		if n.Gone || n.Entry.Kind != meta.KindDir {
			offers = append(offers, n)
		}
	}
	if err := o.references(ctx, to, offers); err != nil {
		return err
	}
	fates, err := o.r.catalog.Offer(ctx, to, offers)
	if err != nil {
		return err
	}
	var stale []meta.Offer
	o.mu.Lock()
	for i, f := range fates {
		switch {
		case f == meta.FateTaken && offers[i].Gone:
			o.count.Removed++
		case f == meta.FateTaken:
			o.count.Names++
		case f == meta.FateKnown && !offers[i].Gone:
			o.count.Known++
		case f == meta.FateGone, f == meta.FateOlder:
			o.count.Gone++
			stale = append(stale, offers[i])
		}
	}
	o.mu.Unlock()
	o.r.journal.Forget(id, stale)
	return nil
}

// tidy makes the journal say where the names of directories are now that were
// made anew by others.
func (o *offering) tidy(ctx context.Context) error {
	info, _ := o.r.catalog.Joined()
	for id, to := range o.placed {
		if to == 0 || to == id {
			continue
		}
		d := o.dirs[id]
		e, err := o.r.catalog.Lookup(ctx, o.placed[d.Parent], d.Way.Name)
		if errors.Is(err, meta.ErrNotFound) || err == nil && e.Inode != to {
			continue
		}
		if err != nil {
			return err
		}
		o.r.journal.Way(o.placed[d.Parent], info.Epoch, e)
		o.r.journal.Moved(id, to)
	}
	return nil
}

// objects brings back the records of what this node keeps: those of more than
// one block have one, with zero blocks and checksums.
func (o *offering) objects(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(offerObjects)
	err := o.r.cache.Objects(gctx, func(i cache.Info) bool {
		if (i.Keeper || i.InPlace) && i.Object.Blocks() > 1 {
			g.Go(func() error { return o.object(gctx, i) })
		}
		return gctx.Err() == nil
	})
	return errors.Join(g.Wait(), err)
}

func (o *offering) object(ctx context.Context, i cache.Info) error {
	rec := meta.ObjectRecord{Object: i.Object, Damaged: i.Damaged}
	_, held, ok := o.r.cache.Peek(i.Object.ID)
	if !ok {
		return nil // it left meanwhile
	}
	rec.Zeros, _ = o.r.cache.Zeros(ctx, i.Object.ID)
	n := i.Object.Blocks()
	rec.Sums = make([]uint32, n)
	known := chunk.NewBitmap(n)
	for b := range n {
		if s, ok := held.Sum(b); ok {
			rec.Sums[b] = s
			known.Set(b)
		}
	}
	if err := o.r.catalog.OfferObject(ctx, rec, known.Has); err != nil {
		return err
	}
	o.mu.Lock()
	o.count.Objects++
	o.mu.Unlock()
	return nil
}

// references says in the records of objects which names stand for them, where
// their keepers cannot know it: an object of one block whose keeper named it
// itself needs no record.
func (o *offering) references(ctx context.Context, dir meta.InodeID, offers []meta.Offer) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(offerObjects)
	for _, n := range offers {
		if n.Gone || n.Entry.Object.ID.IsZero() {
			continue
		}
		info, ok := o.r.cache.Stat(n.Entry.Object.ID)
		kept := ok && (info.Keeper || info.InPlace)
		at, name, noted := placeOf(info.Note)
		if kept && n.Entry.Object.Blocks() == 1 && noted && at == dir && name == n.Name {
			continue
		}
		g.Go(func() error {
			return o.r.catalog.OfferObject(gctx, meta.ObjectRecord{
				Object: n.Entry.Object, References: []meta.Reference{{Dir: dir, Name: n.Name, Version: n.Origin.Version}},
			}, nil)
		})
	}
	return g.Wait()
}
