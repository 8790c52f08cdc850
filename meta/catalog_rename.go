package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// RenameOptions of a Rename.
type RenameOptions struct {
	// NoReplace: ErrExist if anything has the new name.
	NoReplace bool
}

// Moved is what a Rename did.
type Moved struct {
	Entry    Entry  // under its new name
	Replaced *Entry // what had that name; nil: nothing
	// GoneAt is the version of the old name's directory when the name had
	// gone; 0 if that is not known, or the name is still there: it was
	// renamed onto itself.
	GoneAt uint64
}

// Rename gives what stands at one place another one, over a file, a symlink or
// an empty directory there. Within a directory that is one change; across
// directories both names are there for a moment, and a caller that ends in the
// middle leaves a move that whoever meets it finishes. A directory is moved to
// another one under a lock of the cluster, for which it waits until ctx ends.
//
// ErrNotFound: there is nothing, or the new place's directory was removed.
// ErrExist: see RenameOptions. ErrIsDir, ErrNotDir: one is a directory and the
// other is not. ErrNotEmpty. ErrLoop. An error of the store may mean that it
// was renamed, or will be.
func (c *Catalog) Rename(ctx context.Context, from, to Place, opts RenameOptions) (Moved, error) {
	m, err := c.rename(ctx, from, to, opts)
	if err != nil {
		return Moved{}, fmt.Errorf("rename %q to %q: %w", from.Name, to.Name, err)
	}
	return m, nil
}

func (c *Catalog) rename(ctx context.Context, from, to Place, opts RenameOptions) (Moved, error) {
	for _, p := range []Place{from, to} {
		if err := CheckName(p.Name); err != nil {
			return Moved{}, err
		}
	}
	r := &renaming{c: c, from: from, to: to, opts: opts}
	defer func() { r.unlock(ctx) }()
	for try := 0; ; try++ {
		m, err := r.try(ctx)
		if !errors.Is(err, ErrConflict) {
			if err == nil {
				c.Timed(to.Dir, m.Entry.ExpiresNs)
				r.forget(ctx, m)
			}
			return m, err
		}
		if err := pause(ctx, try); err != nil {
			return Moved{}, err
		}
	}
}

// renaming is one Rename under way.
type renaming struct {
	c        *Catalog
	from, to Place
	opts     RenameOptions
	lock     *dirLock // once it is needed

	src, dst   Record // as read last
	entry      Entry  // of src
	over       *Entry // of dst; nil: there is none
	cleared    bool   // an empty directory may have gone for one that is renamed
	referenced chunk.ObjectID
	oldRef     Reference // of the object referenced; zero: not recorded
}

// try renames once. ErrConflict: others changed something meanwhile.
func (r *renaming) try(ctx context.Context) (Moved, error) {
	if err := r.read(ctx); err != nil {
		return Moved{}, err
	}
	if r.opts.NoReplace && r.over != nil {
		return Moved{}, ErrExist
	}
	if r.from == r.to {
		return Moved{Entry: r.entry}, nil
	}
	across := r.from.Dir != r.to.Dir
	if across && r.entry.Kind == KindDir && r.lock == nil {
		var err error
		if r.lock, err = r.c.lockDirs(ctx); err != nil {
			return Moved{}, err
		}
		if err := r.read(ctx); err != nil { // it may have waited for long
			return Moved{}, err
		}
	}
	if err := r.fits(); err != nil {
		return Moved{}, err
	}
	if err := r.refer(ctx); err != nil {
		return Moved{}, err
	}
	if across {
		return r.across(ctx)
	}
	return r.within(ctx)
}

// read reads both places, and finishes what it finds half done there.
func (r *renaming) read(ctx context.Context) error {
	for {
		recs, err := r.c.slots.Get(ctx, Key{dirSlot(r.from.Dir), r.from.Name}, Key{dirSlot(r.to.Dir), r.to.Name})
		if err != nil {
			return err
		}
		r.src, r.dst, r.over = recs[0], recs[1], nil
		if r.src.Value == nil {
			return ErrNotFound
		}
		e, again, err := r.c.stand(ctx, r.from.Dir, r.src)
		if err == nil && !again && r.dst.Value != nil {
			var o Entry
			o, again, err = r.c.stand(ctx, r.to.Dir, r.dst)
			r.over = &o
		}
		if again {
			continue
		}
		if err == nil && r.cleared && e.Kind != KindDir {
			// No file takes the place of a directory in one step.
			err = fmt.Errorf("the directory to rename has gone: %w", ErrNotFound)
		}
		r.entry = e
		return err
	}
}

// fits reports why what is at the one place cannot take the other, but for a
// directory that is not empty.
func (r *renaming) fits() error {
	switch {
	case r.opts.NoReplace && r.over != nil:
		return ErrExist
	case r.over == nil:
		return nil
	case r.over.Kind == KindDir && r.entry.Kind != KindDir:
		return ErrIsDir
	case r.over.Kind != KindDir && r.entry.Kind == KindDir:
		return ErrNotDir
	}
	return nil
}

// clear makes the directory that is to be replaced dead, as Rmdir does: if this
// process ends now, its name is taken away by whoever meets it. What has become
// of the place to move from meanwhile shows later: if that ends the rename, the
// empty directory is gone all the same.
func (r *renaming) clear(ctx context.Context) error {
	if r.over == nil || r.over.Kind != KindDir {
		return nil
	}
	marked, mv, err := r.c.markRemoval(ctx, r.to, r.dst, r.over.Inode)
	if errors.Is(err, ErrNotEmpty) { // it is no error of this rename if there was nothing to rename by then
		err = cmp.Or(r.c.unchanged(ctx, r.src), err)
	}
	if err != nil {
		return err
	}
	r.cleared = true
	dead, err := r.c.removeMarked(ctx, r.over.Inode, mv)
	if err == nil && !dead {
		err = r.c.settle(ctx, r.to, marked, mv)
		err = errors.Join(err, ErrConflict)
	}
	r.dst = marked
	return err
}

// within renames in one directory.
func (r *renaming) within(ctx context.Context) (Moved, error) {
	e := r.entry
	e.Name, e.CtimeNs = r.to.Name, time.Now().UnixNano()
	b, err := MarshalEntry(e, r.src.Value)
	if err != nil {
		return Moved{}, err
	}
	if err := r.clear(ctx); err != nil {
		return Moved{}, err
	}
	conds := []If{{Field: r.from.Name, Version: r.src.Version}, {Field: r.to.Name, Version: r.dst.Version}}
	if r.over == nil {
		conds[1] = If{Field: r.to.Name, Absent: true}
	}
	at, err := r.c.slots.Apply(ctx, dirSlot(r.from.Dir), conds, []Set{{Field: r.from.Name}, {r.to.Name, b}})
	if err != nil {
		return Moved{}, err
	}
	e.Version = at
	return Moved{Entry: e, Replaced: r.over, GoneAt: at}, nil
}

// refer writes the new name into the object's record before the name is there.
func (r *renaming) refer(ctx context.Context) error {
	o := r.entry.Object
	if o.ID.IsZero() || o.ID == r.referenced {
		return nil
	}
	refs, err := r.c.addReference(ctx, o, r.to)
	if err != nil {
		return err
	}
	r.referenced, r.oldRef = o.ID, Reference{}
	for _, ref := range refs {
		if (Place{ref.Dir, ref.Name}) == r.from {
			r.oldRef = ref
		}
	}
	return nil
}

// forget takes the old name out of the object's record. One that stays there
// does no harm.
func (r *renaming) forget(ctx context.Context, m Moved) {
	if r.from == r.to || m.Entry.Object.ID.IsZero() || m.Entry.Object.ID != r.referenced || r.oldRef.Name == "" {
		return
	}
	if err := r.c.RemoveReference(ctx, r.referenced, r.oldRef); err != nil {
		r.c.log.Debug("an old reference stays", "err", err)
	}
}

func (r *renaming) unlock(ctx context.Context) {
	if r.lock != nil {
		r.lock.unlock(ctx)
		r.lock = nil
	}
}
