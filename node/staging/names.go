package staging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// bound bounds the store's part in a change.
func (a *Area) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.cfg.Timeout)
}

// Mkdir implements fs.Changes.
func (a *Area) Mkdir(ctx context.Context, dir meta.InodeID, name string, at meta.Attrs) (meta.Entry, error) {
	if a.has(meta.Place{Dir: dir, Name: name}) {
		return meta.Entry{}, fmt.Errorf("make directory %q: %w", name, meta.ErrExist)
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	e, err := a.cfg.Catalog.Mkdir(ctx, dir, name, at)
	if err != nil {
		return meta.Entry{}, err
	}
	a.cfg.View.Wrote(dir, e)
	return e, nil
}

// Symlink implements fs.Changes.
func (a *Area) Symlink(ctx context.Context, dir meta.InodeID, name, target string, at meta.Attrs) (meta.Entry, error) {
	if a.has(meta.Place{Dir: dir, Name: name}) {
		return meta.Entry{}, fmt.Errorf("make symlink %q: %w", name, meta.ErrExist)
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	now := time.Now().UnixNano()
	if at.MtimeNs == 0 {
		at.MtimeNs = now
	}
	e, err := a.cfg.Catalog.Link(ctx, dir, meta.Entry{
		Name: name, Kind: meta.KindSymlink, Inode: meta.NewInodeID(), Target: target,
		Mode: at.Mode, UID: at.UID, GID: at.GID, MtimeNs: at.MtimeNs, CtimeNs: now, ExpiresNs: meta.Expiry(a.cfg.KeyTTL),
	})
	if err != nil {
		return meta.Entry{}, err
	}
	a.cfg.View.Wrote(dir, e)
	return e, nil
}

// Unlink implements fs.Changes. A file that is open here goes on, without a
// name; what it holds is never published.
func (a *Area) Unlink(ctx context.Context, dir meta.InodeID, name string) error {
	at := meta.Place{Dir: dir, Name: name}
	f, err := a.shownAt(ctx, at)
	if err != nil {
		return err
	}
	if f == nil {
		return a.unlink(ctx, at)
	}
	f.name.Lock()
	defer f.name.Unlock()
	if now, ok := f.place(); !ok || now != at {
		return fmt.Errorf("remove %q: %w", name, meta.ErrNotFound)
	}
	if !f.localOnly(at) {
		if err := a.unlink(ctx, at); err != nil && (!f.never() || !errors.Is(err, meta.ErrNotFound)) {
			return err
		}
	}
	f.unname()
	return nil
}

// unlink removes a published name.
func (a *Area) unlink(ctx context.Context, at meta.Place) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	_, version, err := a.cfg.Catalog.Unlink(ctx, at.Dir, at.Name, 0)
	if err != nil {
		return err
	}
	a.cfg.View.Removed(at.Dir, at.Name, version)
	return nil
}

// shownAt returns the file that a name shows here; nil: it shows what is
// published, which is not being written, or nothing.
func (a *Area) shownAt(ctx context.Context, at meta.Place) (*file, error) {
	f, disputes := a.named(at)
	switch {
	case f == nil:
		return nil, nil
	case f.never() && disputes == 0:
		return f, nil
	}
	// Another node may have given the name to another file, or have published
	// this one since.
	e, err := overlay{a}.Lookup(ctx, at.Dir, at.Name)
	if err != nil || e.Inode != f.id || f.Outdated() {
		return nil, err
	}
	return f, nil
}

// hidden returns the published file that f was put over; 0: none.
func (f *file) hidden() meta.InodeID {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return f.hides
}

// unname takes the file's name away for good; f.name is held.
func (f *file) unname() {
	a := f.a
	a.mu.Lock()
	a.unnameLocked(f)
	f.removed = true
	unused := f.refs == 0
	if unused {
		a.dropLocked(f)
	}
	a.mu.Unlock()
	if unused {
		f.discard()
	}
}

// Rmdir implements fs.Changes. A directory in which a file has a name only here
// is not empty.
func (a *Area) Rmdir(ctx context.Context, dir meta.InodeID, name string) error {
	if a.has(meta.Place{Dir: dir, Name: name}) {
		return fmt.Errorf("remove directory %q: %w", name, meta.ErrNotDir)
	}
	e, err := a.cfg.View.Lookup(ctx, dir, name)
	if err != nil {
		return err
	}
	if e.Kind != meta.KindDir {
		return fmt.Errorf("remove directory %q: %w", name, meta.ErrNotDir)
	}
	return a.emptied(e.Inode, func() error {
		ctx, cancel := a.bound(ctx)
		defer cancel()
		version, err := a.cfg.Catalog.Rmdir(ctx, dir, name)
		if err != nil {
			return err
		}
		a.cfg.View.Removed(dir, name, version)
		return nil
	})
}

// emptied runs what removes a directory while no file can get a name in it, if
// none has one.
func (a *Area) emptied(dir meta.InodeID, remove func() error) error {
	a.mu.Lock()
	if a.occupiedLocked(dir) {
		a.mu.Unlock()
		return fmt.Errorf("a file in it is not published: %w", meta.ErrNotEmpty)
	}
	a.going[dir]++
	a.mu.Unlock()
	err := remove()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going[dir]--; a.going[dir] <= 0 {
		delete(a.going, dir)
	}
	return err
}

// SetAttr implements fs.Changes.
func (a *Area) SetAttr(ctx context.Context, dir meta.InodeID, e meta.Entry, set meta.AttrChange) (meta.Entry, error) {
	if f := a.use(dir, e); f != nil {
		defer f.Close()
		return f.SetAttr(ctx, set)
	}
	return a.setAttr(ctx, meta.Place{Dir: dir, Name: e.Name}, e.Inode, set)
}

func (a *Area) setAttr(ctx context.Context, at meta.Place, id meta.InodeID, set meta.AttrChange) (meta.Entry, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	e, err := a.cfg.Catalog.SetAttr(ctx, at.Dir, at.Name, id, set)
	if err != nil {
		return meta.Entry{}, err
	}
	a.cfg.View.Wrote(at.Dir, e)
	return e, nil
}

// SetAttr implements fs.WriteFile. What is published changes everywhere; what
// is not is published with the change.
func (f *file) SetAttr(ctx context.Context, set meta.AttrChange) (meta.Entry, error) {
	f.name.Lock()
	defer f.name.Unlock()
	at, named := f.place()
	var now *meta.Entry
	if named && !f.never() {
		e, err := f.a.setAttr(ctx, at, f.id, set)
		if err != nil {
			return meta.Entry{}, err
		}
		now = &e
	}
	f.mu.Lock()
	if now != nil {
		f.entry = now // spares the next publish a look
		f.attrs.XAttrs, set.XAttr = now.XAttrs, nil
	}
	attrs, err := set.Apply(f.attrs)
	if err != nil {
		f.mu.Unlock()
		return meta.Entry{}, fmt.Errorf("set attributes of %q: %w", at.Name, err)
	}
	f.attrs = attrs
	f.attrs.Mode &= 0o7777
	resting := f.closed && !f.published
	f.mu.Unlock()
	if named && resting {
		return f.Entry(), f.noteNow(at, false)
	}
	return f.Entry(), nil
}
