package meta

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

// knowledge is what memory says of a name.
type knowledge int

const (
	unknown knowledge = iota
	present
	absent // it was removed here, or its directory is wholly known, and it is not in it
)

// known is a single name in the cache of names. It holds only while d is the
// directory's cache and gen its generation.
type known struct {
	d     *dirCache
	gen   uint64
	entry Entry
}

// dirCache is one watched directory.
type dirCache struct {
	id     InodeID
	ctx    context.Context // ends when it is evicted, or the View closed
	cancel context.CancelFunc

	// Guarded by View.mu.
	elem     *list.Element
	size     int       // entries counted against the limit
	used     time.Time // the last time that anybody asked for it
	compared time.Time // the last time that its watch was compared with the store

	mu      sync.Mutex
	state   dirState
	gen     uint64        // grows when what was known became void
	version uint64        // of the directory, as far as the watch has told
	since   uint64        // the version that the watch tells what comes after
	heard   uint64        // the latest version that any answer of the store had
	moved   chan struct{} // closed and replaced when version grows
	listing *listing      // nil: not wholly known
	loading bool          // a listing is being read; events are kept in pending
	pending []DirEvent
	own     map[string]word   // what this process did, or read since, and the watch has not told yet
	moving  map[string]uint64 // names under way to other directories, since which version
	anew    func()            // ends the watch under way, so that another begins
	behind  uint64            // a version that the store had come to then, and the watch had not; 0: none
}

// dirState says whether what the store says may be remembered.
type dirState int

const (
	dirNew   dirState = iota // not watched yet
	dirReady                 // watched: every change after version is told
	dirLost                  // events were lost; not watched
)

// dir returns the cache of a directory, made if there is none, and marks it as
// just used. It returns nil when the View is closed.
func (v *View) dir(id InodeID) *dirCache {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	d := v.dirs[id]
	if d == nil {
		d = &dirCache{id: id, moved: make(chan struct{})}
		d.ctx, d.cancel = context.WithCancel(v.ctx)
		d.elem = v.lru.PushFront(d)
		v.dirs[id] = d
		v.evict(d)
	} else {
		v.lru.MoveToFront(d.elem)
	}
	d.used = time.Now()
	return d
}

// known returns the cache of a directory if there is one.
func (v *View) known(id InodeID) *dirCache {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.dirs[id]
	if d != nil {
		v.lru.MoveToFront(d.elem)
		d.used = time.Now()
	}
	return d
}

// evict lets go of the directories used longest ago while there are too many,
// but not of keep. Their watches tell the gap. v.mu is held.
func (v *View) evict(keep *dirCache) {
	for el := v.lru.Back(); el != nil && (len(v.dirs) > v.cfg.MaxDirs || v.entries > v.cfg.MaxEntries); {
		d := el.Value.(*dirCache)
		el = el.Prev()
		if d == keep {
			continue
		}
		v.drop(d)
	}
}

// drop forgets a directory. v.mu is held.
func (v *View) drop(d *dirCache) {
	v.lru.Remove(d.elem)
	delete(v.dirs, d.id)
	v.entries -= d.size
	d.cancel()
}

// told returns the latest version that the store has said of d, in whatever
// answer; 0 for none.
func (d *dirCache) told() uint64 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	told := max(d.version, d.heard)
	if d.listing != nil {
		told = max(told, d.listing.at)
	}
	return told
}

// checkHistory forgets a directory that the store says is at a version before
// the one it had told when it was asked: the store was rolled back or made
// anew, and its watch may wait for ever for versions to come.
func (v *View) checkHistory(d *dirCache, told, at uint64) {
	if d == nil || at >= told {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dirs[d.id] != d { // what it was told may be of another history
		return
	}
	v.drop(d)
	v.cat.tellBehind(d.id, told)
	v.log.Warn("the metadata store is behind what it said before: was it restored from a copy?", "dir", fmt.Sprintf("%016x", uint64(d.id)), "told", told, "now", at)
}

// resize counts the entries that d holds now.
func (v *View) resize(d *dirCache, size int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dirs[d.id] != d {
		return
	}
	v.entries += size - d.size
	d.size = size
	v.evict(d)
}

// nameKey is the key of a name in the cache of names.
func nameKey(dir InodeID, name string) string {
	b := make([]byte, 0, 8+NameMax)
	b = binary.BigEndian.AppendUint64(b, uint64(dir))
	return string(append(b, name...))
}

// recall returns what memory knows of a name, and keeps right.
func (v *View) recall(dir InodeID, name string) (Entry, knowledge) {
	d := v.known(dir)
	if d == nil {
		return Entry{}, unknown
	}
	d.mu.Lock()
	e, know := v.recallFrom(d, name)
	d.mu.Unlock()
	if know == present && e.Ended(time.Now()) {
		return Entry{}, unknown // it may have been published again
	}
	return e, know
}

// recallFrom is recall with d.mu held, that also tells of what is over.
func (v *View) recallFrom(d *dirCache, name string) (Entry, knowledge) {
	if w, ok := d.own[name]; ok && w.gone {
		return Entry{}, absent
	} else if ok {
		return w.entry, present
	}
	if d.listing != nil {
		if e, ok := d.listing.get(name); ok {
			return e, present
		}
		return Entry{}, absent
	}
	k, ok := v.names.Get(nameKey(d.id, name))
	if !ok || k.d != d || k.gen != d.gen || d.state != dirReady {
		return Entry{}, unknown
	}
	return k.entry, present
}

// learn remembers what the store said of a name when the directory had version
// at; a nil entry: it is not there. The first word of a directory starts its
// watch. The table is told under the same lock, so that an older word never
// comes to it after a newer one.
func (v *View) learn(dir InodeID, name string, e *Entry, at uint64) {
	d := v.dir(dir)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == dirNew {
		v.startWatch(d, at)
	}
	if at < d.version || at < d.own[name].at || d.listing != nil && at < d.listing.at {
		return // an older word than what was told may be wrong by now
	}
	w := word{gone: e == nil, at: at, read: true}
	if e != nil {
		w.entry = *e
	}
	if _, did := d.own[name]; did { // somebody may have changed it since
		d.own[name] = w
		v.write(d, name, w)
		return
	}
	old, know := v.recallFrom(d, name)
	if e == nil && know == absent || e != nil && know == present && old == *e {
		if d.listing != nil {
			d.listing.set(name, e, at, at > d.version)
		}
		return // the table holds it, too
	}
	v.write(d, name, w)
}

// startWatch begins to watch after a version. d.mu is held.
func (v *View) startWatch(d *dirCache, since uint64) {
	d.state, d.version, d.since = dirReady, since, since
	// Not v.spawn, which takes v.mu: that comes before d.mu. The caller is a
	// goroutine that Close waits for, so the group is not empty.
	v.wg.Go(func() { v.watch(d, since) })
}

// watchLater sees to it that whoever remembers what the table said of a directory,
// while the store is out of reach, is told when it is back: a directory that is not
// watched would stay as it was.
func (v *View) watchLater(dir InodeID) {
	d := v.dir(dir)
	if d == nil {
		return
	}
	d.mu.Lock()
	begin := d.state == dirNew
	if begin {
		d.state = dirLost
	}
	d.mu.Unlock()
	if !begin {
		return
	}
	v.spawn(func() {
		v.health.back(d.ctx)
		since, ok := v.restart(d)
		if ok {
			v.cfg.OnChange(Change{Dir: d.id, Gap: true})
			v.watch(d, since)
		} else if v.ctx.Err() == nil {
			v.cfg.OnChange(Change{Dir: d.id, Gap: true})
		}
	})
}

// watch keeps d right until it is evicted or the View closed.
func (v *View) watch(d *dirCache, since uint64) {
	for {
		err := v.follow(d, since)
		if d.ctx.Err() != nil {
			break
		}
		if err != nil && !errors.Is(err, ErrGap) {
			v.log.Error("watch of a directory ended", "err", err)
		}
		if !v.awaitStore(d) { // another store's gaps say nothing of ours
			break
		}
		v.lose(d)
		var ok bool
		if since, ok = v.restart(d); !ok {
			break
		}
		v.cfg.OnChange(Change{Dir: d.id, Gap: true})
	}
	if v.ctx.Err() == nil { // evicted: changes will not be told any more
		v.cfg.OnChange(Change{Dir: d.id, Gap: true})
	}
}

// follow takes in what is told of d until events are lost, or it is another
// store that tells them: that shows in an outage, when the first to come back
// may be the wrong one.
func (v *View) follow(d *dirCache, since uint64) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	d.mu.Lock()
	d.anew, d.behind = cancel, 0
	d.mu.Unlock()
	return v.cat.Watch(ctx, d.id, since, func(at uint64, events []DirEvent) {
		if v.health.down() && errors.Is(v.cat.CheckStore(ctx), ErrOtherStore) {
			cancel()
		}
		if ctx.Err() == nil {
			v.take(d, at, events)
		}
	})
}

// lose voids what is known of d after a gap.
func (v *View) lose(d *dirCache) {
	d.mu.Lock()
	d.state = dirLost
	d.gen++
	d.listing, d.pending, d.moving = nil, nil, nil
	d.mu.Unlock()
	v.resize(d, 0)
	v.local.ForgetDir(d.id)
}

// restart finds a version to watch from, however long the store is away.
func (v *View) restart(d *dirCache) (since uint64, ok bool) {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, v.cfg.Timeout)
		since, err := v.cat.DirVersion(ctx, d.id)
		if err == nil { // a version of another store says nothing
			err = v.cat.CheckStore(ctx)
		}
		cancel()
		v.health.report(err)
		if err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if since < d.version {
				v.cat.tellBehind(d.id, d.version)
				d.own, d.heard = nil, 0 // of another history
			}
			d.state, d.version, d.since = dirReady, since, since
			d.reached()
			return since, true
		}
		select {
		case <-d.ctx.Done():
			return 0, false
		case <-time.After(probePause):
		}
	}
}

// take takes a change in and tells it.
func (v *View) take(d *dirCache, at uint64, events []DirEvent) {
	var told []DirEvent
	d.mu.Lock()
	for _, ev := range events {
		own := d.own[ev.Name]
		if ev.At > own.at { // else it is older than what was done here, or that itself
			v.takeEvent(d, ev)
		} else if !own.read {
			continue
		}
		told = append(told, ev)
	}
	if d.loading {
		d.pending = append(d.pending, events...)
	}
	d.version = at
	d.reached()
	close(d.moved)
	d.moved = make(chan struct{})
	d.mu.Unlock()
	for _, ev := range told {
		if ev.Moving {
			v.finishLater(d, ev.Name, ev.At)
		}
		v.cfg.OnChange(Change{Dir: d.id, Name: ev.Name})
	}
}

// takeEvent puts an event where names are remembered. d.mu is held.
func (v *View) takeEvent(d *dirCache, ev DirEvent) {
	if d.listing != nil {
		d.listing.apply(ev)
	} else {
		v.names.Del(nameKey(d.id, ev.Name))
	}
	if ev.Gone {
		v.local.Remove(d.id, ev.Name)
	} else {
		v.local.Put(d.id, ev.Entry)
	}
	if !ev.Moving {
		delete(d.moving, ev.Name)
		return
	}
	if d.moving == nil {
		d.moving = make(map[string]uint64)
	}
	d.moving[ev.Name] = ev.At
}
