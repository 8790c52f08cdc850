package staging

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// noteAgain says that what was sealed is on its way to the store, where an
// earlier publish of it failed and its note says so. f.name is held.
func (f *file) noteAgain(at meta.Place, s *sealed) error {
	if !s.tried {
		return nil
	}
	f.mu.Lock()
	n := f.noteLocked(at, statePublishing)
	f.mu.Unlock()
	n.reason, n.object, n.sent = "", s.object, s.sent
	return s.draft.note(n, true)
}

// record writes what the store has to hold of an object before a name stands
// for it. Of one of a single block that is nothing.
func (a *Area) record(ctx context.Context, at meta.Place, s *sealed) error {
	if s.earlier {
		if err := a.revive(ctx, s); err != nil {
			return err
		}
	}
	if s.object.Size == 0 || s.object.Blocks() == 1 {
		return nil
	}
	r := meta.ObjectRecord{
		Object: s.object, Zeros: s.facts.Zeros, Sums: s.facts.Sums, References: []meta.Reference{{Dir: at.Dir, Name: at.Name}},
	}
	if err := a.cfg.Catalog.PutObjects(ctx, []meta.ObjectRecord{r}); err != nil {
		return err
	}
	if s.tried { // the record may be there, with another name
		if _, err := a.cfg.Catalog.AddReference(ctx, s.object, at); err != nil {
			return err
		}
	}
	return a.announce(ctx, s.object.Set)
}

// revive finds out what a seal of an earlier publish told. The record of a small
// object's set may have been withdrawn since; of others it comes with the
// object's.
func (a *Area) revive(ctx context.Context, s *sealed) error {
	if s.object.Size > 0 {
		facts, err := a.cfg.Bytes.Sealed(ctx, s.object)
		if err != nil {
			return fmt.Errorf("look at object %s: %w", s.object.ID.Short(), err)
		}
		s.facts = facts
		if s.object.Blocks() == 1 {
			if err := a.announce(ctx, s.object.Set); err != nil {
				return err
			}
		}
	}
	s.earlier = false
	return nil
}

// announce says that this node keeps all there is of a set.
func (a *Area) announce(ctx context.Context, set chunk.SetID) error {
	return a.cfg.Catalog.Announce(ctx, set, a.cfg.Node, true, true)
}

// send notes that the store is asked to let a name stand for what is sealed.
// settled is to be told how that ended: only a refusal says that it does not.
func (f *file) send(s *sealed, at meta.Place) (settled func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent, to := s.sent, slices.Contains(f.sentTo, at)
	s.sent = true
	if !to {
		f.sentTo = append(f.sentTo, at)
	}
	return func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case err == nil:
			f.sentTo = nil
		case !refused(err): // it may have happened
		case !to:
			s.sent = sent
			f.sentTo = f.sentTo[:len(f.sentTo)-1]
		default:
			s.sent = sent
		}
	}
}

// refused reports whether a publish is known not to have happened.
func refused(err error) bool {
	for _, e := range []error{meta.ErrExist, meta.ErrStale, meta.ErrNotFound, meta.ErrIsDir} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// localOnly reports whether the store cannot have the file under a name that it
// has here, nor another one that it hides.
func (f *file) localOnly(at meta.Place) bool {
	return f.never() && f.hidden() == 0 && !f.sentAs(at)
}

// sentAs reports whether the store may have let a name stand for the file, and
// did not say so.
func (f *file) sentAs(at meta.Place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.sentTo, at)
}

// learn asks the store whether it let the file's name stand for it, where it
// was asked to and did not answer. f.pub and f.name are held.
func (f *file) learn(ctx context.Context, at meta.Place) error {
	if !f.sentAs(at) {
		return nil
	}
	ctx, cancel := f.a.bound(ctx)
	defer cancel()
	e, err := f.a.cfg.Catalog.Lookup(ctx, at.Dir, at.Name)
	if errors.Is(err, meta.ErrNotFound) || err == nil && e.Inode != f.id {
		return nil
	}
	if err != nil {
		return err
	}
	f.a.cfg.View.Wrote(at.Dir, e)
	f.mu.Lock()
	s := f.sealed
	f.mu.Unlock()
	if s != nil && s.object.ID == e.Object.ID {
		f.committed(s, e)
		return nil
	}
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	f.mu.Lock() // what was sent before the last change
	defer f.mu.Unlock()
	f.published, f.object, f.entry, f.hides = true, e.Object, &e, 0
	return nil
}
