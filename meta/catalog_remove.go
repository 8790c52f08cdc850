package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Unlink removes the name of a file or symlink if its record has version
// ifVersion; 0: whatever version it has. It returns what was removed, and the
// directory's version then. ErrNotFound, ErrIsDir, ErrConflict.
func (c *Catalog) Unlink(ctx context.Context, dir InodeID, name string, ifVersion uint64) (Entry, uint64, error) {
	for {
		e, err := c.Lookup(ctx, dir, name)
		switch {
		case err != nil && !errors.Is(err, ErrFormat):
			return Entry{}, 0, err
		case err != nil:
			return Entry{}, 0, fmt.Errorf("remove %q: %w", name, err)
		case e.Kind == KindDir:
			return Entry{}, 0, fmt.Errorf("remove %q: %w", name, ErrIsDir)
		case ifVersion != 0 && e.Version != ifVersion:
			return Entry{}, 0, fmt.Errorf("remove %q: %w", name, ErrConflict)
		}
		at, err := c.slots.Apply(ctx, dirSlot(dir), []If{{Field: name, Version: e.Version}}, []Set{{Field: name}})
		if errors.Is(err, ErrConflict) && ifVersion == 0 {
			continue
		}
		if err != nil {
			return Entry{}, 0, fmt.Errorf("remove %q: %w", name, err)
		}
		return e, at, nil
	}
}

// DiscardDir removes an empty directory's own record; one that is gone already
// is no error. ErrNotEmpty. It is for directories that no name stands for:
// else use Rmdir.
func (c *Catalog) DiscardDir(ctx context.Context, id InodeID) error {
	if id == RootDir {
		return fmt.Errorf("the root directory cannot be removed: %w", ErrNotEmpty)
	}
	for {
		_, err := c.slots.Apply(ctx, dirSlot(id), []If{{NoOthers: true}}, []Set{{Field: self}})
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if _, err := c.clearDecisions(ctx, id); err != nil {
			return err
		}
	}
}

// DiscardTree removes a directory that no name leads to, and all under it.
func (c *Catalog) DiscardTree(ctx context.Context, id InodeID) error {
	r := &treeRemoval{c: c, want: func(string, Entry) bool { return true }, removed: func(string, Entry) {}}
	_, err := c.List(ctx, id, func(page []Entry) error { return r.entries(ctx, id, "", page) })
	if err == nil {
		err = c.DiscardDir(ctx, id)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("discard directory %x: %w", uint64(id), err)
	}
	return nil
}

// Removed counts what RemoveTree did.
type Removed struct {
	Files int64 // files and symlinks removed
	Dirs  int64 // directories removed
	Kept  int64 // entries left, because want refused them or others changed them
}

// RemoveTree removes a name and, if it is a directory, what lies below it: the
// files and symlinks that want accepts, then the directories left empty. What
// want refuses or others add meanwhile stays, and with it the directories
// above. Memory is bounded by the depth, not the number of names; an error
// leaves the rest, and a second call goes on. want gets the path from name
// down; nil accepts all. removed, if not nil, is told each file and symlink
// once its name is gone. Neither is called concurrently.
func (c *Catalog) RemoveTree(ctx context.Context, dir InodeID, name string, want func(path string, e Entry) bool, removed func(path string, e Entry)) (Removed, error) {
	r := &treeRemoval{c: c, want: want, removed: removed}
	if r.want == nil {
		r.want = func(string, Entry) bool { return true }
	}
	if r.removed == nil {
		r.removed = func(string, Entry) {}
	}
	e, err := c.Lookup(ctx, dir, name)
	if err == nil {
		err = r.entries(ctx, dir, "", []Entry{e})
	}
	if err != nil {
		return r.n, fmt.Errorf("remove tree %q: %w", name, err)
	}
	return r.n, nil
}

// treeRemoval is one RemoveTree under way.
type treeRemoval struct {
	c       *Catalog
	want    func(string, Entry) bool
	removed func(string, Entry)

	mu sync.Mutex // held while files of one directory are removed, several at once
	n  Removed
}

// entries removes some entries of the directory at path.
func (r *treeRemoval) entries(ctx context.Context, dir InodeID, path string, entries []Entry) error {
	var files []Entry
	for _, e := range entries {
		switch {
		case e.Kind == KindDir:
			if err := r.dir(ctx, dir, path, e); err != nil {
				return err
			}
		case !r.want(path+e.Name, e):
			r.n.Kept++
		default:
			files = append(files, e)
		}
	}
	// In a store that was lost before each leaves a tombstone.
	n := MaxSets / 2
	if info := r.c.store.Load(); info != nil && len(info.Epochs) == 0 {
		n = MaxSets
	}
	return inParallel(ctx, inFlight, slices.Chunk(files, n), func(ctx context.Context, part []Entry) error {
		return r.files(ctx, dir, path, part)
	})
}

// dir removes what lies below the directory e, then e if it is empty.
func (r *treeRemoval) dir(ctx context.Context, parent InodeID, path string, e Entry) error {
	below := path + e.Name + "/"
	_, err := r.c.List(ctx, e.Inode, func(page []Entry) error {
		return r.entries(ctx, e.Inode, below, page)
	})
	if err != nil {
		return err
	}
	_, err = r.c.Rmdir(ctx, parent, e.Name)
	switch {
	case err == nil:
		r.n.Dirs++
	case errors.Is(err, ErrNotEmpty), errors.Is(err, ErrConflict), errors.Is(err, ErrNotDir):
		r.n.Kept++
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return nil
}

// files removes at most MaxSets names in one step, or one by one where another
// changed some of them, or the store was lost meanwhile.
func (r *treeRemoval) files(ctx context.Context, dir InodeID, path string, files []Entry) error {
	conds := make([]If, 0, len(files))
	sets := make([]Set, 0, len(files))
	for _, e := range files {
		conds = append(conds, If{Field: e.Name, Version: e.Version})
		sets = append(sets, Set{Field: e.Name})
	}
	_, err := r.c.slots.Apply(ctx, dirSlot(dir), conds, sets)
	switch {
	case err == nil:
		for _, e := range files {
			r.gone(path, e)
		}
		return nil
	case !errors.Is(err, ErrConflict) && !errors.Is(err, errTooMany):
		return err
	}
	for _, e := range files {
		_, _, err := r.c.Unlink(ctx, dir, e.Name, e.Version)
		switch {
		case err == nil:
			r.gone(path, e)
		case errors.Is(err, ErrConflict), errors.Is(err, ErrIsDir):
			r.mu.Lock()
			r.n.Kept++
			r.mu.Unlock()
		case !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return nil
}

func (r *treeRemoval) gone(path string, e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n.Files++
	r.removed(path+e.Name, e)
}
