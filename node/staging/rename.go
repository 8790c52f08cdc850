package staging

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/meta"
)

// Rename implements fs.Changes.
func (a *Area) Rename(ctx context.Context, from, to meta.Place, noReplace bool) (meta.Entry, error) {
	e, err := a.rename(ctx, from, to, noReplace)
	if err != nil {
		return meta.Entry{}, fmt.Errorf("rename %q to %q: %w", from.Name, to.Name, err)
	}
	return e, nil
}

func (a *Area) rename(ctx context.Context, from, to meta.Place, noReplace bool) (meta.Entry, error) {
	if err := meta.CheckName(to.Name); err != nil {
		return meta.Entry{}, err
	}
	for {
		e, err := a.renameOnce(ctx, from, to, noReplace)
		if !errors.Is(err, errMoved) {
			return e, err
		}
	}
}

// errMoved: what was to be locked has another name now.
var errMoved = errors.New("renamed or removed meanwhile")

func (a *Area) renameOnce(ctx context.Context, from, to meta.Place, noReplace bool) (meta.Entry, error) {
	f, err := a.shownAt(ctx, from)
	if err != nil {
		return meta.Entry{}, err
	}
	if f != nil && from == to {
		return f.Entry(), nil
	}
	over, err := a.shownAt(ctx, to)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return meta.Entry{}, err
	}
	if over == f {
		over = nil
	}
	if f != nil && f.never() { // it may be published here
		if !a.useAt(f, from) {
			return meta.Entry{}, errMoved
		}
		// Whoever wrote it may have closed it a moment ago: what the last Close does
		// with it is for when it has the one name or the other.
		defer f.Close()
		f.pub.Lock()
		defer f.pub.Unlock()
	}
	defer lockNames(f, over)()
	if f != nil && !f.standsAt(from) || over != nil && !over.standsAt(to) {
		return meta.Entry{}, errMoved
	}
	if noReplace && over != nil {
		return meta.Entry{}, meta.ErrExist
	}
	if f != nil && f.never() {
		if err := f.learn(ctx, from); err != nil {
			return meta.Entry{}, err
		}
	}
	if f != nil && f.never() {
		return a.renameLocal(ctx, f, to, over, noReplace)
	}
	return a.renamePublished(ctx, f, from, to, over, noReplace)
}

func (f *file) standsAt(at meta.Place) bool {
	now, ok := f.place()
	return ok && now == at
}

// lockNames holds the names of one or two files.
func lockNames(f, g *file) (unlock func()) {
	if f == nil {
		f, g = g, nil
	}
	switch {
	case f == nil:
		return func() {}
	case g == nil:
		f.name.Lock()
		return f.name.Unlock
	case g.id < f.id:
		f, g = g, f
	}
	f.name.Lock()
	g.name.Lock()
	return func() {
		g.name.Unlock()
		f.name.Unlock()
	}
}

// renamePublished renames what the store knows. f is its file if it is being
// written here, over the file that has the new name here; both may be nil.
func (a *Area) renamePublished(ctx context.Context, f *file, from, to meta.Place, over *file, noReplace bool) (meta.Entry, error) {
	if over != nil && over.never() {
		e, err := a.cfg.View.Lookup(ctx, from.Dir, from.Name)
		if err == nil && e.Kind == meta.KindDir {
			err = meta.ErrNotDir
		}
		if err != nil {
			return meta.Entry{}, err
		}
	}
	moved, err := a.move(ctx, from, to, noReplace)
	if err != nil {
		return meta.Entry{}, err
	}
	a.cfg.View.Renamed(from, to, moved)
	if over != nil && moved.Entry.Inode != over.id {
		over.unname()
	}
	if f == nil || moved.Entry.Inode != f.id {
		return moved.Entry, nil
	}
	f.rename(to)
	f.mu.Lock()
	e := moved.Entry
	f.entry = &e
	f.mu.Unlock()
	return f.Entry(), nil
}

// move renames in the store. An empty directory that would be replaced must be
// empty here, too.
func (a *Area) move(ctx context.Context, from, to meta.Place, noReplace bool) (moved meta.Moved, err error) {
	do := func() error {
		ctx, cancel := a.bound(ctx)
		defer cancel()
		moved, err = a.cfg.Catalog.Rename(ctx, from, to, meta.RenameOptions{NoReplace: noReplace})
		return err
	}
	e, lookErr := a.cfg.View.Lookup(ctx, to.Dir, to.Name)
	if lookErr == nil && e.Kind == meta.KindDir {
		return moved, a.emptied(e.Inode, do)
	}
	return moved, do()
}

// rename gives the file another name here; f.name is held.
func (f *file) rename(to meta.Place) {
	a := f.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unnameLocked(f)
	a.nameLocked(f, to)
	f.disputes = 0
}
