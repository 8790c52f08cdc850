package staging

import (
	"context"
	"errors"

	"github.com/p2pfs/p2pfs/meta"
)

// strand hands private files whose directory another node has removed over to
// those who recover: no path leads to them any more. Who has one open keeps it.
func (a *Area) strand(ctx context.Context) {
	all := a.resting()
	if len(all) == 0 || a.gone(ctx, meta.RootDir) { // a store that lost its records cannot say
		return
	}
	for dir, files := range all {
		if dir == meta.RootDir || !a.gone(ctx, dir) {
			continue
		}
		for _, f := range files {
			if err := f.strand(dir); err != nil {
				a.log.Error("a private file of a removed directory could not be noted for recovery", "id", f.id, "err", err)
			}
		}
	}
}

// resting returns the private files that nobody has open, by directory.
func (a *Area) resting() map[meta.InodeID][]*file {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[meta.InodeID][]*file{}
	for _, f := range a.files {
		if f.restsLocked() {
			out[f.at.Dir] = append(out[f.at.Dir], f)
		}
	}
	return out
}

// restsLocked reports whether the file is private and nobody has it open;
// Area.mu is held.
func (f *file) restsLocked() bool {
	return f.refs == 0 && !f.removed && !f.broken && f.never() && f.a.private(f.at.Name)
}

// gone reports whether a directory was removed; not if the store cannot say.
func (a *Area) gone(ctx context.Context, dir meta.InodeID) bool {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	_, err := a.cfg.Catalog.Dir(ctx, dir)
	return errors.Is(err, meta.ErrNotFound)
}

// strand takes the file out of the tables and keeps its bytes to be recovered,
// unless it has been opened or moved meanwhile.
func (f *file) strand(dir meta.InodeID) error {
	f.pub.Lock()
	defer f.pub.Unlock()
	f.name.Lock()
	defer f.name.Unlock()
	a := f.a
	a.mu.Lock()
	name := f.at.Name
	rests := f.at.Dir == dir && a.files[f.id] == f && f.restsLocked()
	if rests {
		a.dropLocked(f)
		f.removed = true // whoever waits for its name finds it gone
	}
	a.mu.Unlock()
	if !rests {
		return nil
	}
	a.cfg.Changed(dir, name)
	return f.abandon("its directory was removed", false)
}
