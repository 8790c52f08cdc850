package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/journal"
)

const (
	// settleFor is how long a node that lost its store while it ran waits at
	// least for others to notice: what they have to bring back counts as known
	// until they have. Within settleLong all of them have asked the store.
	settleFor  = 3 * time.Second
	settleLong = 6500 * time.Millisecond
	// settleMax bounds the wait for others that bring names back.
	settleMax = time.Minute
	// othersEvery is how often it is looked how far the others are.
	othersEvery = 250 * time.Millisecond
	// reconcileEvery is how often the journal is compared with the store, so
	// that names which others removed leave it long before their tombstones go.
	reconcileEvery = time.Hour
	// goneFor is how long tombstones stay in the store: longer than a journal
	// may be out of touch and still be offered.
	goneFor = journal.TombstonesFor + 24*time.Hour
	// recentDirs is how many directories tell whether the store is behind.
	recentDirs = 64
	// touchEvery is how often the journal is told that the store was there.
	touchEvery = 10 * time.Minute
	// awaitEvery is how often it is looked whether nodes that were away are
	// back, and awaitMax for how long what has no name is kept for them.
	awaitEvery = 10 * time.Second
	awaitMax   = 24 * time.Hour
	// lateDirs is how many directories that others have to bring back are looked
	// for at once, every awaitEvery.
	lateDirs = 64
	// changesMax is how many changed names wait to be compared.
	changesMax = 4096
)

// restorer brings back what this node knows into a store that lost it: the
// store's own record, objects, providers, this node's record and, from the
// journal, names. Run does it; what it needs of the node are functions, so that
// it can be tried without one.
type restorer struct {
	catalog *meta.Catalog
	journal *journal.Journal
	cache   heldObjects
	self    chunk.NodeID
	log     *slog.Logger
	timeout time.Duration // of one request
	settle  time.Duration // settleFor
	allowed bool          // the user says that this is the store, though it is empty

	save     func(meta.StoreInfo) error  // for the next start
	rejoin   func(context.Context) error // this node's record
	announce func(context.Context) error // provider records of all that is here
	forget   func()                      // what was remembered of the store
	hold     func(why string)            // nothing is collected
	release  func()                      // of that
	roll     func() []chunk.NodeID       // who was in the cluster, as far as is known
	listed   func(context.Context, meta.InodeID) ([]meta.Entry, error)

	changes chan meta.Place
	stale   bool // the journal is too old to be offered
	// awaited are the nodes whose names may be missing since restored; used by
	// Run alone.
	awaited  []chunk.NodeID
	restored time.Time

	guard keepGuard

	mu     sync.Mutex
	last   restoration
	round  int              // restorations that were begun
	strays []chunk.ObjectID // kept here, and a name of theirs is gone
	waits  []meta.InodeID   // directories that are not there, and may come
}

// heldObjects is what the restorer needs of the cache.
type heldObjects interface {
	Stat(chunk.ObjectID) (cache.Info, bool)
	Peek(chunk.ObjectID) (cache.Info, chunk.Held, bool)
	Objects(context.Context, func(cache.Info) bool) error
	Zeros(context.Context, chunk.ObjectID) (chunk.Bitmap, bool)
}

// restoration is one time that names were brought back.
type restoration struct {
	At      time.Time
	Why     string
	Dirs    int // placed
	Names   int // written into the store
	Known   int // were there
	Gone    int // were removed, or replaced, since
	Removed int // tombstones that took a name away
	Objects int
	Waiting int // directories of others, with names of this node, that are not back
}

// report returns the last restoration; false if there was none.
func (r *restorer) report() (restoration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, !r.last.At.IsZero()
}

// begin decides, at the start, whether the journal has to be offered: until
// that is done the store does not count.
func (r *restorer) begin() error {
	if err := r.beginGuard(); err != nil {
		return err
	}
	info, ok := r.catalog.Joined()
	if !ok {
		return nil
	}
	if err := r.journal.Epochs(epochsOf(info)); err != nil {
		return err
	}
	offered := r.journal.Offered()
	if offered == (meta.Epoch{}) { // a new journal: nothing of earlier epochs is in it
		offered = info.Epoch
		if err := r.journal.SetOffered(offered); err != nil {
			return err
		}
	}
	if offered == info.Epoch {
		if r.catalog.Live() {
			r.touch()
		}
		return nil
	}
	touched, ok := r.journal.Touched()
	if age := time.Since(touched); ok && age > journal.TombstonesFor && !r.allowed {
		r.stale = true
		r.log.Error("the metadata store was lost while this node was away for too long to know what was removed since: its names are not brought back; to bring them back all the same, start with --restore-store", "away", age.Round(time.Hour))
		return nil
	}
	r.catalog.Hold()
	r.hold(heldWhy)
	return nil
}

const heldWhy = "the metadata store was lost: names may still be on their way back"

// changed notes that a name may have been changed by another node.
func (r *restorer) changed(c meta.Change) {
	if c.Gap {
		return
	}
	select {
	case r.changes <- meta.Place{Dir: c.Dir, Name: c.Name}:
	default: // found out within the hour
	}
}

// Run watches over the store until ctx ends.
func (r *restorer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.watch(ctx) })
	wg.Go(func() { r.follow(ctx) })
	wg.Go(func() { r.guardKept(ctx) })
	if r.catalog.Held() {
		r.restore(ctx, "this node was away when the store was lost", 0, false)
	}
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	soon := time.NewTimer(r.settle)
	defer soon.Stop()
	touched := time.Now()
	back := time.NewTicker(awaitEvery)
	defer back.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.catalog.Lost():
			if r.needed(ctx) {
				r.restore(ctx, "the store lost its records", r.settle, false)
			}
		case <-r.catalog.Behind():
			if r.rolledBack(ctx, recentDirs) {
				r.restore(ctx, "the store was restored from a copy", r.settle, true)
			}
		case <-back.C:
			r.await(ctx)
			if err := r.offerLate(ctx); err != nil {
				r.log.Debug("names still wait for the directories of others", "err", err)
			}
			// A store that is exchanged within a moment is seen by nobody who
			// does not ask: one small read does.
			if !r.stale && r.rolledBack(ctx, 1) {
				r.restore(ctx, "the store was restored from a copy", r.settle, true)
			}
			if !r.stale && r.lostChanges(ctx) {
				r.restore(ctx, "a fail-over of the store lost changes", r.settle, true)
			}
			if time.Since(touched) > touchEvery && !r.stale && r.catalog.CheckStore(ctx) == nil {
				r.touch()
				touched = time.Now()
			}
		case <-soon.C:
			r.look(ctx)
		case <-tick.C:
			r.look(ctx)
		}
	}
}

// watch waits for changes of the store's own record.
func (r *restorer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.catalog.WatchStore(ctx); err != nil {
			r.log.Debug("the store's own record is not watched", "err", err)
		}
		pause(ctx, time.Second)
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// needed reports whether the store is ours and has to be restored, and by whom:
// a store without a record by a node that saw it with one.
func (r *restorer) needed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	joined, ok := r.catalog.Joined()
	if !ok {
		return false
	}
	now, found, err := r.catalog.StoreRecord(ctx)
	switch {
	case err != nil:
		return false
	case !found:
		return r.catalog.Live() || r.allowed
	}
	return now.Cluster == joined.Cluster && now.Epoch != joined.Epoch
}

// rolledBack reports whether the store is behind what it told in this epoch,
// going by at most n directories that were changed here last.
func (r *restorer) rolledBack(ctx context.Context, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	joined, ok := r.catalog.Joined()
	if !ok {
		return false
	}
	epoch, recent := r.journal.Recent()
	if epoch != joined.Epoch {
		recent = nil
	}
	for len(recent) > n {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(recent)), func(a, b meta.InodeID) int { return cmp.Compare(recent[a], recent[b]) })
		delete(recent, oldest)
	}
	back, err := r.catalog.RolledBack(ctx, recent)
	if err != nil {
		r.log.Debug("cannot tell whether the metadata store was restored from a copy", "err", err)
	}
	return back
}

// restore brings everything back, however often it takes, until ctx ends or
// the store turns out to be another one. A store that is behind goes on in a new
// epoch: the versions that it gives out now were given out before.
func (r *restorer) restore(ctx context.Context, why string, settle time.Duration, behind bool) {
	r.mu.Lock()
	r.round++
	r.catalog.Hold()
	r.hold(heldWhy)
	r.mu.Unlock()
	r.log.Warn("bringing back what the metadata store lost", "why", why)
	r.awaited = r.roll()
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		var o *offering
		err := r.enter(ctx, behind)
		if err == nil {
			behind = false
			o, err = r.attempt(ctx, why, settle)
		}
		switch {
		case err == nil:
			r.forget()
			r.catalog.Release()
			r.waiting(o)
			r.restored = time.Now()
			wake(r.guard.soon)
			r.await(ctx)
			done, _ := r.report()
			r.log.Info("what the metadata store lost is back", "names", done.Names, "known", done.Known, "removed since", done.Gone,
				"removed", done.Removed, "directories", done.Dirs, "objects", done.Objects, "waiting", done.Waiting, "took", time.Since(done.At))
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, meta.ErrOtherStore) && !r.needed(ctx): // it is another cluster's, or out of reach
			if _, found, serr := r.catalog.StoreRecord(ctx); serr == nil && found {
				r.log.Error("the metadata store is another cluster's", "err", err)
				r.catalog.Release() // CheckStore keeps it out of reach
				return
			}
		}
		r.log.Warn("what the metadata store lost is not back yet", "err", err)
		if !pause(ctx, wait) {
			return
		}
	}
}

// enter takes on the epoch that the store is in, and gives it one if it has
// none.
func (r *restorer) enter(ctx context.Context, behind bool) error {
	known, ok := r.catalog.Joined()
	if !ok {
		return errors.New("the cluster has not been joined")
	}
	ask := r.catalog.Restore
	if behind {
		ask = r.catalog.NewEpoch
	}
	info, err := ask(ctx, known)
	if err != nil {
		return err
	}
	if err := r.journal.Epochs(epochsOf(info)); err != nil {
		return fmt.Errorf("number the epochs of the store: %w", err)
	}
	r.catalog.UseStore(info)
	r.catalog.ForgetBehind()
	if err := r.save(info); err != nil {
		return fmt.Errorf("remember the store: %w", err)
	}
	return nil
}

// epochsOf returns the epochs that a store has been in, the first one first.
func epochsOf(s meta.StoreInfo) []meta.Epoch { return append(slices.Clone(s.Epochs), s.Epoch) }

// attempt is one try of restore. All of it may be done again.
func (r *restorer) attempt(ctx context.Context, why string, settle time.Duration) (*offering, error) {
	began := time.Now()
	info, _ := r.catalog.Joined()
	if err := r.catalog.SetRestoring(ctx, r.self, true); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{r.rejoin, r.announce} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	o := newOffering(r)
	o.count.At, o.count.Why = began, why
	if err := o.run(ctx); err != nil {
		return nil, err
	}
	if err := r.offerWaiting(ctx, o, began, settle); err != nil {
		return nil, err
	}
	// Whatever was offered into a store that was lost once more is to be
	// offered again.
	if now, found, err := r.catalog.StoreRecord(ctx); err != nil || !found || now.Epoch != info.Epoch {
		return nil, errors.Join(err, errors.New("the metadata store was lost again"))
	}
	if err := r.journal.SetOffered(info.Epoch); err != nil {
		return nil, err
	}
	r.touch()
	if err := r.catalog.SetRestoring(ctx, r.self, false); err != nil {
		return nil, err
	}
	return o, r.awaitOthers(ctx, began, settle)
}

// offerWaiting offers again, for as long as settle, what waits for directories
// that others bring back meanwhile. This node counts as restoring until then,
// so that nobody takes its names for gone.
func (r *restorer) offerWaiting(ctx context.Context, o *offering, began time.Time, settle time.Duration) error {
	for len(o.waits) > 0 && time.Since(began) < settle {
		if !pause(ctx, othersEvery) {
			return ctx.Err()
		}
		back, err := r.anyBack(ctx, o.waits)
		if err == nil && back {
			err = o.offer(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// anyBack reports whether one of some directories is in the store.
func (r *restorer) anyBack(ctx context.Context, dirs []meta.InodeID) (bool, error) {
	for _, id := range dirs {
		if _, err := r.catalog.Dir(ctx, id); !errors.Is(err, meta.ErrNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// waiting notes what an offering has done, and what it could not do yet.
func (r *restorer) waiting(o *offering) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = o.waits
	r.last = o.count
}

// offerLate offers what waits for directories once one of them is back: whoever
// made it was away when the store was lost.
func (r *restorer) offerLate(ctx context.Context) error {
	r.mu.Lock()
	some := r.waits[:min(len(r.waits), lateDirs)]
	r.waits = append(slices.Clone(r.waits[len(some):]), some...) // others next time
	r.mu.Unlock()
	if len(some) == 0 || r.catalog.Held() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	back, err := r.anyBack(ctx, some)
	if err != nil || !back {
		return err
	}
	o := newOffering(r)
	if last, ok := r.report(); ok {
		o.count = last
	}
	if err := o.run(ctx); err != nil {
		return err
	}
	r.waiting(o)
	return nil
}

// awaitOthers waits until the others have brought back what they have, too.
func (r *restorer) awaitOthers(ctx context.Context, began time.Time, settle time.Duration) error {
	for {
		busy, err := r.catalog.Restoring(ctx)
		if err != nil {
			return err
		}
		if waited := time.Since(began); waited >= settle && (busy == 0 || waited >= settleMax) {
			return nil
		}
		if !pause(ctx, othersEvery) {
			return ctx.Err()
		}
	}
}

// await lets what has no name be collected again once every node that was in
// the cluster has been there since, or for long enough not.
func (r *restorer) await(ctx context.Context) {
	if r.restored.IsZero() {
		return
	}
	if time.Since(r.restored) < awaitMax && len(r.awaited) > 0 {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		nodes, err := r.catalog.Nodes(ctx)
		if err != nil {
			return
		}
		for _, n := range nodes {
			r.awaited = slices.DeleteFunc(r.awaited, func(id chunk.NodeID) bool { return id == n.Node })
		}
		if len(r.awaited) > 0 {
			return
		}
	}
	r.restored, r.awaited = time.Time{}, nil
	wake(r.guard.settled) // holdNameless releases
}

func (r *restorer) touch() {
	if err := r.journal.Touch(time.Now()); err != nil {
		r.log.Warn("the journal does not know that the store was seen", "err", err)
	}
}
