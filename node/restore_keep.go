package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

const (
	// findHinted is how many objects are asked about one by one before the
	// whole tree is looked through for the rest.
	findHinted = 1000
	// findRetry is how long a look for names that failed waits for the next,
	// at first and at most.
	findRetry, findRetryMax = 10 * time.Second, 5 * time.Minute
)

// keepGuard is what the restorer needs to make sure that bytes do not go
// because a name was lost.
type keepGuard struct {
	place   func(cache.Info) meta.Place // where the name of an object is known to have been
	spare   func(chunk.ObjectID) bool   // it stays without a name
	held    heldBack
	settled chan struct{} // every name that will come back is back
	soon    chan struct{} // look for names now
}

// moved notes that a name of an object is gone, by another node: it may have
// another, which that node may not live to note down. mu is not held.
func (r *restorer) moved(o chunk.Object) {
	if info, ok := r.cache.Stat(o.ID); !ok || !info.Keeper && !info.InPlace {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.strays) < changesMax {
		r.strays = append(r.strays, o.ID)
	}
}

// findStrays notes where the objects that moved told of are now. A rename
// leaves the new name in the object's record.
func (r *restorer) findStrays(ctx context.Context) {
	r.mu.Lock()
	ids := r.strays
	r.strays = nil
	r.mu.Unlock()
	for _, id := range ids {
		if _, err := r.findNamed(ctx, id, meta.Place{}); err != nil {
			r.log.Debug("names of an object not found", "object", id.Short(), "err", err)
		}
	}
}

// findNamed looks for the name of one object where it is known to have been,
// and where its record says, and puts it into the journal.
func (r *restorer) findNamed(ctx context.Context, id chunk.ObjectID, at meta.Place) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var places []meta.Place
	if at.Dir != 0 {
		places = append(places, at)
	}
	rec, err := r.catalog.Object(ctx, id)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return false, err
	}
	for _, ref := range slices.Backward(rec.References) {
		places = append(places, meta.Place{Dir: ref.Dir, Name: ref.Name})
	}
	found := false
	for _, p := range places {
		s, err := r.catalog.Survey(ctx, p.Dir, p.Name)
		if err != nil {
			return false, err
		}
		if now, ok := s.Names[p.Name]; ok && now.Entry.Object.ID == id {
			found = true
			r.adopt(p.Dir, now)
		}
	}
	return found, nil
}

// adopt puts a name as the store has it into the journal, unless that knows
// better. The way to its directory is looked up by follow.
func (r *restorer) adopt(dir meta.InodeID, now meta.Offer) {
	if own, ok := r.journal.Name(dir, now.Name); ok && !r.catalog.Later(now.Origin, own.Origin) {
		return
	}
	now.Entry.Version = now.Origin.Version
	if err := r.journal.Wrote(dir, now.Origin.Epoch, now.Entry); err != nil {
		r.log.Warn("name not in the journal", "err", err)
	}
}

// complete finds the names of what is kept here that the journal does not have,
// since this node was killed before it wrote them down, say, and puts them into
// it. It returns what has no name that it knows of. all: also of what the journal
// has names for.
func (r *restorer) complete(ctx context.Context, all bool) (map[chunk.ObjectID]bool, error) {
	missing := map[chunk.ObjectID]bool{}
	places := map[chunk.ObjectID]meta.Place{}
	err := r.cache.Objects(ctx, func(i cache.Info) bool {
		if i.Keeper || i.InPlace {
			missing[i.Object.ID] = true
			places[i.Object.ID] = r.guard.place(i)
		}
		return ctx.Err() == nil
	})
	live := map[chunk.ObjectID]bool{} // of those that are held
	if err == nil && !all && len(missing) > 0 {
		err = r.journal.Live(func(id chunk.ObjectID) {
			if r.guard.held.has(id) {
				live[id] = true
			} else {
				delete(missing, id)
			}
		})
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	var named []chunk.ObjectID
	found := func(id chunk.ObjectID) {
		delete(missing, id)
		named = append(named, id)
	}
	if len(missing) <= findHinted {
		for id := range maps.Clone(missing) {
			yes, err := r.findNamed(ctx, id, places[id])
			if err != nil {
				return nil, err
			}
			if yes {
				found(id)
			}
		}
	}
	// Twice: what is moved meanwhile may slip past once.
	for range 2 {
		if len(missing) == 0 {
			break
		}
		if err := r.search(ctx, missing, found); err != nil {
			return nil, err
		}
	}
	if !all {
		for id := range missing { // removed since, though it had no name: it was on its way back
			if r.guard.held.has(id) && !live[id] && r.journal.Ended(id) {
				named = append(named, id)
			}
		}
	}
	r.unhold(named)
	return missing, nil
}

// unhold ends the hold on objects.
func (r *restorer) unhold(ids []chunk.ObjectID) {
	if err := r.journal.Unhold(r.guard.held.remove(ids)); err != nil {
		r.log.Warn("what was held is held again after the next start", "err", err)
	}
}

// search looks through the whole tree for names of objects.
func (r *restorer) search(ctx context.Context, missing map[chunk.ObjectID]bool, found func(chunk.ObjectID)) error {
	for dirs := []meta.InodeID{meta.RootDir}; len(dirs) > 0 && len(missing) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		var here []string
		_, err := r.catalog.List(ctx, dir, func(page []meta.Entry) error {
			for _, e := range page {
				switch {
				case e.Kind == meta.KindDir:
					dirs = append(dirs, e.Inode)
				case missing[e.Object.ID]:
					here = append(here, e.Name)
				}
			}
			return nil
		})
		if errors.Is(err, meta.ErrNotFound) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for names := range slices.Chunk(here, meta.MaxSets) {
			s, err := r.catalog.Survey(ctx, dir, names...)
			if err != nil {
				return err
			}
			for _, now := range s.Names {
				if missing[now.Entry.Object.ID] {
					found(now.Entry.Object.ID)
					r.adopt(dir, now)
				}
			}
		}
	}
	return nil
}

// beginGuard reads what is held, and holds everything if it was not found out
// yet what has to be in this epoch.
func (r *restorer) beginGuard() error {
	held, err := r.journal.Held()
	if err != nil {
		return fmt.Errorf("read what is held after a restoration: %w", err)
	}
	r.guard.held.add(held)
	r.guard.settled, r.guard.soon = make(chan struct{}, 1), make(chan struct{}, 1)
	if info, ok := r.catalog.Joined(); ok && len(info.Epochs) > 0 && r.journal.HeldFor() != info.Epoch {
		r.hold(heldWhy)
		r.awaited, r.restored = r.roll(), time.Now()
	}
	return nil
}

// guardKept keeps the journal complete, and holds what lost its name, until ctx
// ends.
func (r *restorer) guardKept(ctx context.Context) {
	wait, retry := r.settle, findRetry
	settling := false
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-r.guard.settled:
			settling = true
		case <-r.guard.soon:
		case <-t.C:
		}
		t.Stop()
		err := r.guardOnce(ctx, settling)
		if err == nil {
			settling, wait, retry = false, reconcileEvery, findRetry
			continue
		}
		r.log.Debug("the journal was not compared with what is kept", "err", err)
		wait, retry = retry, min(2*retry, findRetryMax)
	}
}

var errHeldBack = errors.New("names are being brought back")

func (r *restorer) guardOnce(ctx context.Context, settling bool) error {
	if r.catalog.Held() {
		return errHeldBack
	}
	if settling {
		return r.holdNameless(ctx)
	}
	if err := r.catalog.CheckStore(ctx); err != nil {
		return err
	}
	_, err := r.complete(ctx, false)
	return err
}

// holdNameless lets what has no name be collected again after a restoration,
// all but what has none now and is not known to have been removed: from now on,
// who has no name any more lost it in this epoch, where removals are known.
func (r *restorer) holdNameless(ctx context.Context) error {
	r.mu.Lock()
	round := r.round
	r.mu.Unlock()
	info, ok := r.catalog.Joined()
	if !ok {
		return errHeldBack
	}
	if !r.stale { // what others removed meanwhile
		if err := r.lookAll(ctx); err != nil {
			return err
		}
	}
	// Names in directories whose way is not known are in the journal, and
	// nowhere else.
	missing, err := r.complete(ctx, true)
	if err == nil {
		err = r.journal.Flush()
	}
	if err == nil {
		err = r.catalog.CheckStore(ctx) // the answers were of this store
	}
	if err != nil {
		return err
	}
	live := map[chunk.ObjectID]bool{}
	if err := r.journal.Live(func(id chunk.ObjectID) { live[id] = missing[id] }); err != nil {
		return err
	}
	var held []chunk.ObjectID
	for id := range missing {
		if !r.guard.spare(id) && (live[id] || !r.journal.Ended(id)) {
			held = append(held, id)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, _ := r.catalog.Joined(); r.round != round || now.Epoch != info.Epoch || r.catalog.Held() {
		return errHeldBack
	}
	if err := r.journal.Hold(info.Epoch, held); err != nil {
		return err
	}
	if len(held) > 0 {
		r.log.Warn("files that are kept here have no name since the metadata store was lost, and nobody is known to have removed them: they stay", "files", len(held))
	}
	r.guard.held.add(held)
	r.release()
	return nil
}

// wake sends without waiting.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
