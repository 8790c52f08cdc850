package staging

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Publish implements fs.WriteFile. The order is: a durable note, the bytes and
// their sums durable as a kept object, the object's record, who keeps it, and
// the name last. Where it fails the file stays as far as it came, and the next
// publish goes on from there.
func (f *file) Publish(ctx context.Context) error {
	f.pub.Lock()
	defer f.pub.Unlock()
	at, named := f.place()
	f.mu.Lock()
	todo := named && f.unpublishedLocked()
	private := todo && !f.published && f.a.private(at.Name)
	if todo {
		f.closed = true
	}
	f.mu.Unlock()
	switch {
	case f.isBroken():
		return fmt.Errorf("publish %q: its writer was killed: %w", at.Name, meta.ErrStale)
	case !todo:
		return nil
	case private:
		f.io.RLock()
		defer f.io.RUnlock()
		return f.note(at, statePrivate, false)
	}
	return f.publish(ctx)
}

// publish is Publish of what has to be published; f.pub is held.
func (f *file) publish(ctx context.Context) error {
	err := f.seal(ctx)
	if err == nil {
		f.name.Lock()
		err = f.commit(ctx)
		f.name.Unlock()
	}
	if err != nil {
		f.fail(context.WithoutCancel(ctx), err)
	}
	return err
}

// seal makes the draft an object that is kept here, and that nobody else knows
// of yet. Writes wait until it is done.
func (f *file) seal(ctx context.Context) error {
	f.io.Lock()
	defer f.io.Unlock()
	d := f.drafted()
	at, named := f.place()
	if d == nil || !named {
		return nil
	}
	s, err := f.sealDraft(ctx, d)
	if err != nil {
		return fmt.Errorf("seal %q: %w", at.Name, err)
	}
	f.mu.Lock()
	old := f.sealed
	f.draft, f.sealed = nil, s
	f.mu.Unlock()
	if old != nil { // its publish failed, and there is a newer one now
		if err := f.a.drop(ctx, old); err != nil {
			f.a.log.Warn("bytes that were replaced stay on the disk", "name", at.Name, "err", err)
		}
		f.outdate(old.draft)
	}
	return nil
}

// spentMost bounds the drafts that a long open file keeps for reads that may
// still use them: they are answered long before so many publishes later.
const spentMost = 8

// outdate keeps a draft that is the content no more until no read can use it.
func (f *file) outdate(d *draft) {
	f.mu.Lock()
	f.spent = append(f.spent, d)
	var over *draft
	if len(f.spent) > spentMost {
		over, f.spent = f.spent[0], f.spent[1:]
	}
	f.mu.Unlock()
	if over == nil {
		return
	}
	f.reads.Lock()
	defer f.reads.Unlock()
	if err := over.Close(); err != nil {
		f.a.log.Debug("close a staged file", "err", err)
	}
}

// sealDraft makes an object of a draft. Its note, which the seal makes durable,
// says before which object that is.
func (f *file) sealDraft(ctx context.Context, d *draft) (*sealed, error) {
	a := f.a
	o := chunk.Object{ID: chunk.NewObjectID(), Size: d.Size(), ChunkSize: a.cfg.ChunkSize}
	o.BlockSize = chunk.BlockSizeFor(o.ChunkSize, o.Size)
	s := &sealed{draft: d, done: func() {}}
	var err error
	if o.Set, s.done, err = a.setFor(ctx, o); err != nil {
		return nil, err
	}
	a.hold(o.ID, true)
	if err = f.noteSealing(d, o); err == nil {
		s.facts, err = d.Publish(ctx, o)
	}
	if err != nil || s.facts.Object.Size == 0 {
		a.hold(o.ID, false)
		s.done()
		s.done = func() {}
		return s, err
	}
	s.object = s.facts.Object
	s.object.Sparse = s.object.Sparse && s.object.Blocks() > 1 // where the store tells which
	return s, nil
}

// setFor returns the set that an object is published into; done is called when
// the publish has ended.
func (a *Area) setFor(ctx context.Context, o chunk.Object) (set chunk.SetID, done func(), err error) {
	if o.Size == 0 || o.Blocks() > 1 {
		return chunk.NewSetID(), func() {}, nil
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return a.sets.take(ctx)
}

// noteSealing says which object the draft becomes.
func (f *file) noteSealing(d *draft, o chunk.Object) error {
	at, _ := f.place()
	f.mu.Lock()
	n := f.noteLocked(at, statePublishing)
	f.mu.Unlock()
	n.reason = ""
	if o.Size > 0 {
		n.object = o
	}
	return d.note(n, false)
}

// commit tells the store of what is sealed: the object, its keeper, its name.
// f.name is held.
func (f *file) commit(ctx context.Context) error {
	at, named := f.place()
	f.mu.Lock()
	s, e := f.sealed, f.attrs
	p := meta.PublishIf{Over: f.entry, Known: f.published, Exclusive: f.exclusive}
	f.mu.Unlock()
	if s == nil || !named {
		return nil
	}
	e.Name, e.Size, e.Object = at.Name, s.object.Size, s.object
	if err := f.noteAgain(at, s); err != nil {
		return err
	}
	defer func() { s.tried = true }()
	ctx, cancel := f.a.bound(ctx)
	defer cancel()
	if err := f.a.record(ctx, at, s); err != nil {
		return err
	}
	e.ExpiresNs = meta.Expiry(f.a.cfg.KeyTTL)
	settled := f.send(s, at)
	e, _, err := f.a.cfg.Catalog.Publish(ctx, at.Dir, e, p)
	settled(err)
	if err != nil {
		return err
	}
	f.a.cfg.View.Wrote(at.Dir, e)
	f.committed(s, e)
	return nil
}

// committed takes note of a publish that has happened: e is in the store.
func (f *file) committed(s *sealed, e meta.Entry) {
	a := f.a
	a.mu.Lock()
	f.mu.Lock()
	f.published, f.failed, f.hides = true, nil, 0
	old := f.last
	f.object, f.last, f.entry = s.object, s.draft, &e
	f.attrs.Mode, f.attrs.UID, f.attrs.GID, f.attrs.XAttrs = e.Mode, e.UID, e.GID, e.XAttrs // others may have changed them
	f.attrs.ExpiresNs = e.ExpiresNs
	if f.sealed == s {
		f.sealed = nil
	}
	f.mu.Unlock()
	delete(a.using, s.object.ID)
	a.mu.Unlock()
	if old != nil {
		f.outdate(old)
	}
	s.done()
	if err := s.draft.Discard(); err != nil { // found again at the next start, and seen to be published
		a.log.Warn("the note of a published file stays", "name", e.Name, "err", err)
	}
	a.publishedBytes.Add(uint64(e.Size))
	a.publishes.Add(1) // last: whoever sees it counted finds nothing under way
}

// fail takes note, durably, of a publish that did not happen.
func (f *file) fail(ctx context.Context, err error) {
	a := f.a
	defer a.failures.Add(1) // when the note of it is there
	f.io.RLock()
	defer f.io.RUnlock()
	f.mu.Lock()
	f.failed = err
	f.mu.Unlock()
	if e := f.keepFailed(ctx); e != nil {
		at, _ := f.place()
		a.log.Error("a file that could not be published may not outlive a crash", "name", at.Name, "err", errors.Join(err, e))
	}
}

// keepFailed makes durable what is not published, and a note of it; f.io is
// held.
func (f *file) keepFailed(ctx context.Context) error {
	at, _ := f.place()
	f.mu.Lock()
	d, s, n := f.draft, f.sealed, f.noteLocked(at, stateFailed)
	f.mu.Unlock()
	switch {
	case d != nil:
		return errors.Join(d.Sync(ctx), d.note(n, true))
	case s != nil:
		return s.draft.note(n, true)
	}
	return nil
}

// note writes the note of what is not published; f.io is held.
func (f *file) note(at meta.Place, as state, durable bool) error {
	f.mu.Lock()
	d, n := f.draft, f.noteLocked(at, as)
	if d == nil && f.sealed != nil {
		d = f.sealed.draft
	}
	f.mu.Unlock()
	if d == nil {
		return nil
	}
	return d.note(n, durable)
}

// noteNow writes the note of what is not published as it is now.
func (f *file) noteNow(at meta.Place, durable bool) error {
	f.io.RLock()
	defer f.io.RUnlock()
	f.mu.Lock()
	as := f.stateLocked(at.Name)
	f.mu.Unlock()
	return f.note(at, as, durable)
}

// hold notes that an object is here which no name stands for yet, or no more.
func (a *Area) hold(id chunk.ObjectID, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if yes {
		a.using[id] = true
	} else {
		delete(a.using, id)
	}
}

// drop gives up what was sealed and is not wanted any more. Where a name may
// stand for it the bytes stay: the collection asks the store before it takes
// them.
func (a *Area) drop(ctx context.Context, s *sealed) error {
	s.done()
	if s.object.Size == 0 {
		return s.draft.Discard()
	}
	a.hold(s.object.ID, false)
	if s.sent {
		return s.draft.Discard()
	}
	if err := a.cfg.Bytes.Drop(ctx, s.object.ID); err != nil {
		return fmt.Errorf("drop object %s: %w", s.object.ID.Short(), err)
	}
	return s.draft.Discard()
}
