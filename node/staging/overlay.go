package staging

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// overlay shows the names that exist only here before those of the View, and
// of files that are being written what they are now.
type overlay struct{ a *Area }

var _ fs.Names = overlay{}

// Names returns the names as a mount shows them.
func (a *Area) Names() fs.Names { return overlay{a} }

// Lookup implements fs.Names.
func (o overlay) Lookup(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error) {
	e, _, err := o.LookupBy(ctx, nil, dir, name)
	return e, err
}

// Confirm implements fs.Names. That a name is only here needs no asking.
func (o overlay) Confirm(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error) {
	e, _, err := o.ConfirmBy(ctx, nil, dir, name)
	return e, err
}

// LookupBy implements fs.Names.
func (o overlay) LookupBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, moved, err error) {
	e, _, moved, err = o.find(ctx, way, meta.Place{Dir: dir, Name: name}, o.a.cfg.View.LookupBy)
	return e, moved, err
}

// ConfirmBy implements fs.Names.
func (o overlay) ConfirmBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, moved, err error) {
	e, asked, moved, err := o.find(ctx, way, meta.Place{Dir: dir, Name: name}, o.a.cfg.View.ConfirmBy)
	if !asked && len(way) > 0 {
		moved = o.Standing(ctx, way)
	}
	return e, moved, err
}

// Standing implements fs.Names. Directories are never only here.
func (o overlay) Standing(ctx context.Context, way meta.Way) error {
	return o.a.cfg.View.Standing(ctx, way)
}

// Alive implements fs.Names.
func (o overlay) Alive(ctx context.Context, dir meta.InodeID) (bool, error) {
	return o.a.cfg.View.Alive(ctx, dir)
}

type lookup func(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, moved, err error)

// find returns what a name stands for, and what was learned of the way to it.
// asked: the View was.
func (o overlay) find(ctx context.Context, way meta.Way, at meta.Place, ask lookup) (e meta.Entry, asked bool, moved, err error) {
	f, disputes := o.a.named(at)
	never := f != nil && f.never()
	if never && disputes == 0 {
		return f.shown(at.Name), false, nil, nil
	}
	e, moved, err = ask(ctx, way, at.Dir, at.Name)
	switch {
	case !never:
		return o.live(at.Dir, e), true, moved, err
	case err == nil && !o.a.mine(f, e):
		return o.live(at.Dir, e), true, moved, nil // another node's, published meanwhile
	case err == nil, errors.Is(err, meta.ErrNotFound):
		o.a.settle(f, disputes)
	}
	return f.shown(at.Name), true, moved, nil
}

// named returns the file that has a name here, and how many changes that the
// View told of its name have not been looked at.
func (a *Area) named(at meta.Place) (f *file, disputes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f = a.names[at.Dir][at.Name]; f != nil {
		disputes = f.disputes
	}
	return f, disputes
}

// mine reports whether what is published under the name of a file is the file
// itself, or what it has been put over.
func (a *Area) mine(f *file, e meta.Entry) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.Inode == f.id || f.hides != 0 && e.Inode == f.hides
}

// settle takes note that the changes looked at gave the name to nobody else.
func (a *Area) settle(f *file, disputes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.disputes == disputes {
		f.disputes = 0
	}
}

// live returns an entry of a directory as it is now if its file is being
// written here.
func (o overlay) live(dir meta.InodeID, e meta.Entry) meta.Entry {
	if e.Kind != meta.KindFile {
		return e
	}
	o.a.mu.Lock()
	f := o.a.currentLocked(dir, &e)
	o.a.mu.Unlock()
	if f == nil || f.never() {
		return e
	}
	now := f.shown(e.Name)
	now.Version, now.ExpiresNs = e.Version, e.ExpiresNs
	return now
}

// shown returns the file's entry under a name.
func (f *file) shown(name string) meta.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entryLocked(name)
}

// List implements fs.Names.
func (o overlay) List(ctx context.Context, dir meta.InodeID) ([]meta.Entry, error) {
	entries, err := o.a.cfg.View.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	here := o.a.in(dir)
	if len(here) == 0 {
		return entries, nil
	}
	shared := entries
	entries = make([]meta.Entry, 0, len(shared)+len(here))
	for _, e := range shared {
		f := here[e.Name]
		delete(here, e.Name)
		switch {
		case f == nil:
		case f.never() && o.a.covers(f, e):
			e = f.shown(e.Name)
		case f.id == e.Inode:
			e = o.live(dir, e)
		}
		entries = append(entries, e)
	}
	for name, f := range here {
		if f.never() {
			entries = append(entries, f.shown(name))
		}
	}
	slices.SortFunc(entries, func(a, b meta.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

// covers reports whether a file that is not published is shown in place of
// what the View has under its name.
func (a *Area) covers(f *file, e meta.Entry) bool {
	if a.mine(f, e) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return f.disputes == 0
}

// in returns the files that have a name in a directory here.
func (a *Area) in(dir meta.InodeID) map[string]*file {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.names[dir])
}

// Learned takes in a change that the View tells of: another node may have
// published a name that a file has here. An empty name means any in dir. It
// does not wait.
func (a *Area) Learned(dir meta.InodeID, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name == "" {
		for _, f := range a.names[dir] {
			f.disputes++
		}
	} else if f := a.names[dir][name]; f != nil {
		f.disputes++
	}
}
