package node

import (
	"context"
	"errors"
	"time"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/journal"
)

// follow keeps the journal right while the store is well: it finds the ways to
// directories that others made, and takes in what others did to names that this
// node wrote.
func (r *restorer) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.journal.Lacks():
			for _, d := range r.journal.TakeLacking() {
				if err := r.findWay(ctx, d); err != nil {
					r.log.Debug("the way to a directory is not known", "err", err)
				}
			}
		case at := <-r.changes:
			if err := r.compareName(ctx, at); err != nil {
				r.log.Debug("name not compared", "err", err)
			}
		}
	}
}

// findWay notes where a directory's name is, and those above it.
func (r *restorer) findWay(ctx context.Context, dir meta.InodeID) error {
	for id := dir; !r.journal.HasWay(id) && !r.catalog.Held(); {
		bound, cancel := context.WithTimeout(ctx, r.timeout)
		parent, err := r.way(bound, id)
		cancel()
		if err != nil {
			return err
		}
		id = parent
	}
	return nil
}

// way notes where one directory's name is, and returns its parent.
func (r *restorer) way(ctx context.Context, id meta.InodeID) (meta.InodeID, error) {
	d, err := r.catalog.Dir(ctx, id)
	if err != nil {
		return 0, err
	}
	entries, err := r.listed(ctx, d.Parent)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.Kind != meta.KindDir || e.Inode != id {
			continue
		}
		s, err := r.catalog.Survey(ctx, d.Parent, e.Name)
		if err != nil {
			return 0, err
		}
		if now, ok := s.Names[e.Name]; ok && now.Entry.Inode == id {
			now.Entry.Version = now.Origin.Version
			r.journal.Way(d.Parent, now.Origin.Epoch, now.Entry)
			return d.Parent, nil
		}
	}
	return 0, errors.New("no name leads to it")
}

// compareName takes in what another node did to a name that this one wrote.
func (r *restorer) compareName(ctx context.Context, at meta.Place) error {
	own, ok := r.journal.Name(at.Dir, at.Name)
	if !ok || own.Gone || r.catalog.Held() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	s, err := r.catalog.Survey(ctx, at.Dir, at.Name)
	if err != nil {
		return err
	}
	r.compare(at.Dir, s, own)
	r.findStrays(ctx)
	return nil
}

// compare holds one name of the journal against the store; false if the store
// is behind.
func (r *restorer) compare(dir meta.InodeID, s meta.Survey, own meta.Offer) bool {
	now, there := s.Names[own.Name]
	if s.Version != 0 && now.Entry.Object.ID != own.Entry.Object.ID {
		r.moved(own.Entry.Object)
	}
	switch {
	case own.Origin.Epoch == s.Epoch && s.Version < own.Origin.Version, there && r.catalog.Later(own.Origin, now.Origin):
		return false
	case there && now.Origin == own.Origin:
	case there:
		now.Entry.Version = now.Origin.Version
		if err := r.journal.Wrote(dir, now.Origin.Epoch, now.Entry); err != nil {
			r.log.Warn("name not in the journal", "err", err)
		}
	case s.Version == 0: // it never was in this store: it waits for its directory
	case !s.Alive:
		r.journal.Changed(dir, meta.Origin{Epoch: s.Epoch, Version: s.Version}, []meta.Set{{Field: meta.SelfField}})
	default:
		r.journal.Removed(dir, own.Name, meta.Origin{Epoch: s.Epoch, Version: s.Version})
	}
	return true
}

// errBehind: the store does not know what it said.
var errBehind = errors.New("the store is behind")

// look compares the whole journal with the store, and ends tombstones that are
// old enough. A store that turns out to be behind is restored.
func (r *restorer) look(ctx context.Context) {
	if r.stale || r.catalog.Held() {
		return
	}
	if r.lostChanges(ctx) { // else what it lost would count as removed
		r.restore(ctx, "a fail-over of the store lost changes", r.settle, true)
		return
	}
	back := r.rolledBack(ctx, recentDirs)
	var err error
	if !back {
		err = r.lookAll(ctx)
		back = errors.Is(err, errBehind)
	}
	if back {
		r.restore(ctx, "the store was restored from a copy", r.settle, true)
		return
	}
	if err != nil {
		r.log.Debug("the journal was not compared with the store", "err", err)
		return
	}
	r.touch()
	if err := r.journal.Clean(time.Now().Add(-journal.TombstonesFor)); err != nil {
		r.log.Warn("old tombstones stay in the journal", "err", err)
	}
}

func (r *restorer) lookAll(ctx context.Context) error {
	dirs, err := r.journal.Dirs()
	if err != nil {
		return err
	}
	var waits []meta.InodeID
	for _, d := range dirs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.lookDir(ctx, d, &waits); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.waits = waits
	r.mu.Unlock()
	r.findStrays(ctx)
	return nil
}

// lookDir compares one directory of the journal; into waits go directories that
// are not there, and may come.
func (r *restorer) lookDir(ctx context.Context, d journal.Dir, waits *[]meta.InodeID) error {
	if d.ID != meta.RootDir {
		if err := r.lookWay(ctx, d, waits); err != nil {
			return err
		}
	}
	if !d.Names {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := r.catalog.Survey(bound, d.ID)
	if err != nil {
		return err
	}
	if s.Version == 0 {
		*waits = append(*waits, d.ID)
	}
	for after := ""; ; {
		page, err := r.journal.Names(d.ID, after, offerPage)
		if err != nil || len(page) == 0 {
			break
		}
		after = page[len(page)-1].Name
		for _, own := range page {
			if own.Gone || r.compare(d.ID, s, own) {
				continue
			}
			if err := r.compareAgain(bound, d.ID, own); err != nil {
				return err
			}
		}
	}
	return r.catalog.CleanGone(bound, d.ID, time.Now().Add(-goneFor))
}

// compareAgain asks the store once more for a name that it seemed to be behind
// with: the name may have come into the journal after the store was asked.
func (r *restorer) compareAgain(ctx context.Context, dir meta.InodeID, own meta.Offer) error {
	s, err := r.catalog.Survey(ctx, dir, own.Name)
	if err == nil && !r.compare(dir, s, own) {
		err = errBehind
	}
	return err
}

// lookWay makes sure that the way to a directory is the one it is at now.
func (r *restorer) lookWay(ctx context.Context, d journal.Dir, waits *[]meta.InodeID) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if d.Known {
		s, err := r.catalog.Survey(ctx, d.Parent, d.Way.Name)
		if err != nil {
			return err
		}
		if now, ok := s.Names[d.Way.Name]; ok && now.Entry.Inode == d.ID {
			return nil
		}
		if s.Version == 0 {
			*waits = append(*waits, d.Parent)
		}
	}
	parent, err := r.way(ctx, d.ID)
	if err == nil {
		if err = r.journal.Flush(); err == nil {
			err = r.findWay(ctx, parent)
		}
	}
	if errors.Is(err, meta.ErrUnavailable) {
		return err
	}
	return nil // a directory that was removed goes when its names are compared
}
