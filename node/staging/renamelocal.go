package staging

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/meta"
)

// renameLocal renames a file that has a name only here. If it is closed and
// the new name is not private, that publishes it, and errors are the
// publish's; if it is being written, its next close does. f.pub and f.name are
// held, and over.name if there is one.
func (a *Area) renameLocal(ctx context.Context, f *file, to meta.Place, over *file, noReplace bool) (meta.Entry, error) {
	target, err := a.target(ctx, to, over)
	if err != nil {
		return meta.Entry{}, err
	}
	if target != nil && noReplace {
		return meta.Entry{}, meta.ErrExist
	}
	undo := f.stand(to, over, target, noReplace)
	if err := a.settleAt(ctx, f, to, target); err != nil {
		undo()
		f.noteBack()
		return meta.Entry{}, err
	}
	if over != nil {
		over.unname()
	}
	return f.Entry(), nil
}

// target returns what the store has under a name that a file is to get; nil:
// nothing.
func (a *Area) target(ctx context.Context, to meta.Place, over *file) (*meta.Entry, error) {
	if over != nil && over.localOnly(to) {
		return nil, nil
	}
	e, err := a.cfg.View.Lookup(ctx, to.Dir, to.Name)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case e.Kind == meta.KindDir:
		return nil, meta.ErrIsDir
	}
	return &e, nil
}

// stand gives a file its new name here, over what has it, and returns what
// takes that back.
func (f *file) stand(to meta.Place, over *file, target *meta.Entry, exclusive bool) (undo func()) {
	a := f.a
	a.mu.Lock()
	defer a.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	from, hides, entry, excl := f.at, f.hides, f.entry, f.exclusive
	a.unnameLocked(f)
	a.nameLocked(f, to)
	f.entry, f.exclusive, f.hides = target, exclusive, 0
	if target != nil {
		f.hides = target.Inode
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.unnameLocked(f)
		a.nameLocked(f, from)
		if over != nil && !over.removed {
			a.nameLocked(over, to)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hides, f.entry, f.exclusive = hides, entry, excl
	}
}

// noteBack makes durable that a file, sealed perhaps, has its old name again.
func (f *file) noteBack() {
	at, _ := f.place()
	if err := f.noteNow(at, true); err != nil {
		f.a.log.Error("a file that could not be renamed may not be found again after a restart", "name", at.Name, "err", err)
	}
}

// settleAt makes the new name of a file what it has to be: published, if the
// file is closed and the name is not private.
func (a *Area) settleAt(ctx context.Context, f *file, to meta.Place, target *meta.Entry) error {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	private := a.private(to.Name)
	// A private name hides what was published under it, and a symlink is not
	// published over: in both cases it goes first.
	if target != nil && (private || closed && target.Kind == meta.KindSymlink) {
		if err := a.unlink(ctx, to); err != nil && !errors.Is(err, meta.ErrNotFound) {
			return err
		}
		f.replacesNothing()
	}
	switch {
	case !closed:
		f.io.RLock()
		defer f.io.RUnlock()
		return f.note(to, stateOpen, false)
	case private:
		f.io.RLock()
		defer f.io.RUnlock()
		return f.note(to, statePrivate, false)
	}
	err := f.seal(ctx)
	if err == nil {
		err = f.commit(ctx)
	}
	if err != nil {
		a.failures.Add(1)
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// replacesNothing notes that the name of a file is free in the store.
func (f *file) replacesNothing() {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entry, f.hides = nil, 0
}
