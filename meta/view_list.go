package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// List returns the entries of a directory, sorted by name. The slice is shared:
// nobody may change it. From memory if the directory is wholly known there,
// which under ConsistencyOpen one read of its version confirms; else read from
// the store. Errors as of Lookup; a directory that was removed is empty.
func (v *View) List(ctx context.Context, dir InodeID) ([]Entry, error) {
	entries, err := v.list(ctx, dir)
	if err == nil {
		return lasting(entries), nil
	}
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) {
		if entries, ok := v.rememberList(dir); ok {
			return lasting(entries), nil
		}
	}
	return nil, fmt.Errorf("list directory %016x: %w", uint64(dir), err)
}

func (v *View) list(ctx context.Context, dir InodeID) ([]Entry, error) {
	if v.health.down() {
		if entries, ok := v.rememberList(dir); ok {
			return entries, nil
		}
		if err := v.health.await(ctx); err != nil {
			return nil, err
		}
	}
	if d := v.known(dir); d != nil && d.whole() {
		at, err := v.confirmedVersion(ctx, d)
		if err != nil {
			return nil, err
		}
		if entries, ok := d.reach(ctx, at); ok && d.ctx.Err() == nil {
			return entries, nil
		}
		// The store has what its watch did not tell.
		d.late(at)
		if err := v.recheck(ctx); err != nil {
			return nil, err
		}
	}
	return v.loads.do(ctx, dir, func() ([]Entry, error) { return v.load(dir) })
}

// confirmedVersion returns the version that a listing from memory must have.
func (v *View) confirmedVersion(ctx context.Context, d *dirCache) (uint64, error) {
	if v.cfg.Consistency == ConsistencyWatch {
		return 0, nil
	}
	return v.versions.do(ctx, d.id, func() (uint64, error) {
		ctx, cancel := context.WithTimeout(v.ctx, v.cfg.Timeout)
		defer cancel()
		asked := v.ask(d)
		at, err := v.cat.DirVersion(ctx, d.id)
		if err == nil {
			err = v.doubt(ctx, asked, at)
		}
		v.health.report(err)
		if err == nil {
			v.checkHistory(d, asked.told, at)
		}
		return at, err
	})
}

// rememberList answers for a store that is out of reach.
func (v *View) rememberList(dir InodeID) ([]Entry, bool) {
	entries, ok := []Entry(nil), false
	if d := v.known(dir); d != nil {
		entries, ok = d.reach(v.ctx, 0)
	}
	if !ok {
		if entries, ok = v.local.List(dir); ok {
			v.watchLater(dir)
		}
	}
	if ok {
		v.health.stale.Add(1)
	}
	return entries, ok
}

// whole reports whether the directory is wholly known.
func (d *dirCache) whole() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listing != nil
}

// held returns how many entries the listing holds, long ones counted as more.
func (d *dirCache) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listing == nil {
		return 0
	}
	return d.listing.size
}

// reach returns the listing once it has come to version at; false if the
// directory is not wholly known, or its watch lags too far behind.
func (d *dirCache) reach(ctx context.Context, at uint64) ([]Entry, bool) {
	t := time.NewTimer(catchUp)
	defer t.Stop()
	for {
		d.mu.Lock()
		if d.listing == nil {
			d.mu.Unlock()
			return nil, false
		}
		if max(d.version, d.listing.at) >= at {
			entries := d.listing.all(d.version)
			d.mu.Unlock()
			return entries, true
		}
		moved := d.moved
		d.mu.Unlock()
		select {
		case <-moved:
		case <-t.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// load reads a whole directory from the store and remembers it.
func (v *View) load(dir InodeID) ([]Entry, error) {
	const tries = 3
	for try := 1; ; try++ {
		entries, err := v.loadOnce(dir)
		if !errors.Is(err, ErrGap) || try == tries {
			return entries, err
		}
	}
}

func (v *View) loadOnce(dir InodeID) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(v.ctx, loadTimeout)
	defer cancel()
	d := v.dir(dir)
	if d == nil {
		return nil, ErrUnavailable
	}
	gen, asked := d.startLoad(), v.ask(d)
	entries := []Entry{}
	at, err := v.cat.List(ctx, dir, func(page []Entry) error {
		entries = append(entries, page...)
		return nil
	})
	if err == nil {
		err = v.doubt(ctx, asked, at)
	}
	v.health.report(err)
	if err == nil && at < asked.told { // what is remembered of it is void
		v.checkHistory(d, asked.told, at)
		err = ErrGap
	}
	all, sound := v.endLoad(d, gen, entries, at, err)
	if err != nil {
		return nil, err
	}
	if sound {
		v.resize(d, d.held())
	}
	return all, nil
}

// startLoad begins to keep the events that a listing may not show, and returns
// the generation it belongs to.
func (d *dirCache) startLoad() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loading, d.pending = true, nil
	return d.gen
}

// endLoad returns what was read with what changed since. It is sound if no
// event was lost meanwhile; then it becomes the directory's listing, unless it
// is too long to keep.
func (v *View) endLoad(d *dirCache, gen uint64, entries []Entry, at uint64, err error) (all []Entry, sound bool) {
	l := (*listing)(nil)
	if err == nil {
		l = newListing(entries, at)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	pending := d.pending
	d.loading, d.pending = false, nil
	if err != nil {
		return nil, false
	}
	if d.state == dirNew {
		v.startWatch(d, at)
	}
	for _, ev := range pending {
		l.apply(ev)
	}
	for name, w := range d.own { // the listing may be of before
		if w.gone {
			l.set(name, nil, w.at, true)
		} else {
			l.set(name, &w.entry, w.at, true)
		}
	}
	all = l.all(d.version)
	// A watch that began after what was read tells nothing of what lies between.
	if d.state != dirReady || d.gen != gen || at < d.since {
		return all, false
	}
	if d.listing = l; l.size > v.cfg.MaxEntries {
		d.listing = nil
		d.gen++ // no event has taken single names away while there was one
	}
	v.local.PutDir(d.id, at, all)
	for name, w := range d.own { // the table may take what it holds for the same
		if w.gone {
			v.local.Remove(d.id, name)
		} else {
			v.local.Put(d.id, w.entry)
		}
	}
	return all, true
}
