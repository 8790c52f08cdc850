package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// collectPause is the least time between passes that nobody asked for, and
	// collectShare the most of the time that they take, one part in so many.
	collectPause = 5 * time.Second
	collectShare = 20
	// collectAtOnce is how many objects are looked at side by side.
	collectAtOnce = 8
)

// collection removes what this node keeps and no name stands for. Its zero
// value has found nothing yet, and removes nothing while it is held back. Safe
// for concurrent use.
type collection struct {
	pass  chan struct{} // holds a token while a pass runs
	soon  chan struct{} // a pass is wanted now
	freed atomic.Uint64 // kept copies that were removed

	mu      sync.Mutex
	held    string                       // why nothing may be removed; empty: it may
	since   map[chunk.ObjectID]time.Time // when an object was first found without a name
	checked map[meta.InodeID]dirCheck
	// names of these were taken away here, and when
	dismissed map[chunk.ObjectID]dismissal
	places    map[chunk.ObjectID]meta.Place // where names were seen, of objects that have no note
	in        map[meta.InodeID]int          // how many of places lie in a directory
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
		places: map[chunk.ObjectID]meta.Place{}, in: map[meta.InodeID]int{}, dismissed: map[chunk.ObjectID]dismissal{},
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
	c.leavePlace(id)
	c.places[id] = at
	c.in[at.Dir]++
}

// leavePlace forgets where a name was; mu is held.
func (c *collection) leavePlace(id chunk.ObjectID) {
	at, ok := c.places[id]
	if !ok {
		return
	}
	delete(c.places, id)
	if c.in[at.Dir]--; c.in[at.Dir] == 0 {
		delete(c.in, at.Dir)
	}
}

// misplaced forgets a place that the object's name was not found at: it has
// another.
func (c *collection) misplaced(id chunk.ObjectID, at meta.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places[id] == at {
		c.leavePlace(id)
	}
}

// sparePlaces is how many places of objects that are not kept may be known:
// what changes the names of files that lie elsewhere leaves them.
const sparePlaces = 10000

// prunePlaces forgets the places of what is not kept, if they are many more
// than what is.
func (c *collection) prunePlaces(checked int, kept func(chunk.ObjectID) bool) {
	c.mu.Lock()
	if len(c.places) <= checked+sparePlaces {
		c.mu.Unlock()
		return
	}
	ids := slices.Collect(maps.Keys(c.places))
	c.mu.Unlock()
	for _, id := range ids {
		if kept(id) {
			continue
		}
		c.mu.Lock()
		c.leavePlace(id)
		c.mu.Unlock()
	}
}

// placeOf returns where the name of an object was seen last; the zero Place if
// that is not known.
func (c *collection) placeOf(id chunk.ObjectID) meta.Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[id]
}

// gone forgets all about an object that was removed.
func (c *collection) gone(id chunk.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, id)
	c.leavePlace(id)
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
		began := time.Now()
		r, err := n.collectPass(ctx, collectGrace, false)
		pause := max(collectPause, collectShare*time.Since(began))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.log.Debug("nothing collected", "err", err)
		case r.Removed+r.Forgotten > 0:
			n.log.Info("removed what had no name any more", "objects", r.Removed, "registered", r.Forgotten, "bytes", r.FreedBytes)
		}
		if !sleep(ctx, pause) {
			return nil
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

// keeps reports whether names of kept objects are known to be in a directory.
func (c *collection) keeps(dir meta.InodeID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.checked[dir]
	return ok || c.in[dir] > 0
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
