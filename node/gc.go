package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

const (
	// collectEvery is how often what this node keeps is looked through.
	collectEvery = 5 * time.Minute
	// collectGrace is how long an object is kept after it was first found
	// without a name: those who have it open make themselves known, and a
	// name that was being given appears.
	collectGrace = time.Minute
	// interestCap is how long readers that never close can hold it.
	interestCap = 24 * time.Hour
	// collectPause is the least time between passes that nobody asked for.
	collectPause = 5 * time.Second
	// collectAtOnce is how many objects are looked at side by side.
	collectAtOnce = 8
)

// collection removes what this node keeps and no name stands for. Its zero
// value has found nothing yet, and removes nothing while it is held back. Safe
// for concurrent use.
type collection struct {
	pass chan struct{} // holds a token while a pass runs
	soon chan struct{} // a pass is wanted now

	mu      sync.Mutex
	held    string                       // why nothing may be removed; empty: it may
	since   map[chunk.ObjectID]time.Time // when an object was first found without a name
	checked map[meta.InodeID]dirCheck
	// names of these were taken away here, and when
	dismissed map[chunk.ObjectID]dismissal
	places    map[chunk.ObjectID]meta.Place // where names were seen, of objects that have no note
}

// dismissal is a registered file that is served on for those who have it open.
type dismissal struct {
	object chunk.Object
	at     time.Time
}

// dirCheck says that at a version of a directory every object that was kept
// under its names had its name.
type dirCheck struct {
	version uint64
	kept    keptIn
}

// keptIn tells one selection of kept objects from another.
type keptIn struct {
	count int
	mix   chunk.ObjectID
}

func (k *keptIn) add(id chunk.ObjectID) {
	k.count++
	for i := range id {
		k.mix[i] ^= id[i]
	}
}

func newCollection() *collection {
	return &collection{
		pass: make(chan struct{}, 1), soon: make(chan struct{}, 1),
		since: map[chunk.ObjectID]time.Time{}, checked: map[meta.InodeID]dirCheck{},
		places: map[chunk.ObjectID]meta.Place{}, dismissed: map[chunk.ObjectID]dismissal{},
	}
}

// hold keeps everything until release: names are missing that will come back,
// since the store lost them, say. why is for people.
func (c *collection) hold(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = why
}

// release ends a hold. What was found before it is looked for anew.
func (c *collection) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = ""
	clear(c.since)
	clear(c.checked)
}

func (c *collection) holding() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// unnamed notes that an object has no name and returns since when.
func (c *collection) unnamed(id chunk.ObjectID, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.since[id]
	if !ok {
		at = now
		c.since[id] = now
	}
	return at
}

// forget ends what is known of an object: it has a name, or is gone.
func (c *collection) forget(id chunk.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, id)
}

// forgetUnless ends what is known of objects without a name that are not kept
// any more.
func (c *collection) forgetUnless(kept func(chunk.ObjectID) bool) {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.since))
	c.mu.Unlock()
	for _, id := range ids {
		if !kept(id) {
			c.gone(id)
		}
	}
}

// seenAt notes where the name of a kept object was made or found.
func (c *collection) seenAt(id chunk.ObjectID, at meta.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[id] = at
}

// placeOf returns where the name of an object was seen last; the zero Place if
// that is not known.
func (c *collection) placeOf(id chunk.ObjectID) meta.Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[id]
}

// keptNames is the view of the names for those who publish: collection has to
// know where the names of small objects are, which have no record that says so.
type keptNames struct {
	*meta.View
	collection *collection
}

// Wrote implements staging.View.
func (v keptNames) Wrote(dir meta.InodeID, e meta.Entry) {
	if e.Kind == meta.KindFile && e.Size > 0 && e.Object.Blocks() == 1 {
		v.collection.seenAt(e.Object.ID, meta.Place{Dir: dir, Name: e.Name})
	}
	v.View.Wrote(dir, e)
}

// gone forgets all about an object that was removed.
func (c *collection) gone(id chunk.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, id)
	delete(c.places, id)
}

// pending returns how many objects are known to have no name.
func (c *collection) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.since) + len(c.dismissed)
}

// dismiss notes registered files whose names have just been taken away: they
// are served on for the grace, and for those who have them open.
func (c *collection) dismiss(objects []chunk.Object) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		c.dismissed[o.ID] = dismissal{o, now}
	}
}

// undismiss ends that: they are served no more, or have a name again.
func (c *collection) undismiss(objects []chunk.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		delete(c.dismissed, o.ID)
	}
}

func (c *collection) isDismissed(id chunk.ObjectID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.dismissed[id]
	return ok
}

func (c *collection) eachDismissed(fn func(o chunk.Object, at time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.dismissed {
		fn(d.object, d.at)
	}
}

// collectSoon asks for a pass: a name has gone.
func (n *Node) collectSoon() {
	select {
	case n.collection.soon <- struct{}{}:
	default:
	}
}

// runCollection looks through what is kept until ctx ends.
func (n *Node) runCollection(ctx context.Context) error {
	for {
		wait := collectEvery
		if n.collection.pending() > 0 {
			wait = collectGrace
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-n.collection.soon:
		}
		r, err := n.collectPass(ctx, collectGrace, false)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.log.Debug("nothing collected", "err", err)
		case r.Removed+r.Forgotten > 0:
			n.log.Info("removed what had no name any more", "objects", r.Removed, "registered", r.Forgotten, "bytes", r.FreedBytes)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(collectPause):
		}
	}
}

// collect is one pass for a person, without the grace.
func (n *Node) collect(ctx context.Context, dryRun bool) (*nodepb.CollectReply, error) {
	if n.cfg.ReadOnly && !dryRun {
		return nil, errors.New("the node is mounted read-only")
	}
	return n.collectPass(ctx, 0, dryRun)
}

func (n *Node) publishing(id chunk.ObjectID) bool {
	return n.publishes != nil && n.publishes(id)
}

func (c *collection) checkedAt(dir meta.InodeID) dirCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checked[dir]
}

func (c *collection) check(dir meta.InodeID, at dirCheck) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked[dir] = at
}

// keeps reports whether the last pass found names of kept objects in a
// directory.
func (c *collection) keeps(dir meta.InodeID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.checked[dir]
	return ok
}

// prune forgets the directories under which nothing is kept any more.
func (c *collection) prune(kept map[meta.InodeID]keptIn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for dir := range c.checked {
		if _, ok := kept[dir]; !ok {
			delete(c.checked, dir)
		}
	}
}
