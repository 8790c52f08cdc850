package staging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// Create implements fs.Changes.
func (a *Area) Create(ctx context.Context, dir meta.InodeID, name string, at meta.Attrs, exclusive bool) (fs.WriteFile, error) {
	if err := meta.CheckName(name); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	now := time.Now().UnixNano()
	f := &file{a: a, id: meta.NewInodeID(), at: meta.Place{Dir: dir, Name: name}, refs: 1, exclusive: exclusive}
	f.attrs = meta.Entry{
		Kind: meta.KindFile, Inode: f.id, Mode: at.Mode, UID: at.UID, GID: at.GID, MtimeNs: at.MtimeNs, CtimeNs: now,
	}
	if f.attrs.MtimeNs == 0 {
		f.attrs.MtimeNs = now
	}
	if err := a.free(f.at); err != nil { // asked again below: here, so that nothing is made for nothing
		return nil, fmt.Errorf("create %q: %w", name, err)
	}
	d, err := a.newDraft(ctx, chunk.Object{}, true)
	if err == nil {
		err = f.adopt(d)
	}
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", name, err)
	}
	a.mu.Lock()
	if err = a.freeLocked(f.at); err == nil {
		a.enterLocked(f)
	}
	a.mu.Unlock()
	if err != nil {
		f.discard()
		return nil, fmt.Errorf("create %q: %w", name, err)
	}
	return f, nil
}

func (a *Area) free(at meta.Place) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.freeLocked(at)
}

// freeLocked reports why a file cannot get a name here; a.mu is held.
func (a *Area) freeLocked(at meta.Place) error {
	f := a.names[at.Dir][at.Name]
	switch {
	case a.closed:
		return chunk.ErrClosed
	case a.going[at.Dir] > 0:
		return fmt.Errorf("its directory is being removed: %w", meta.ErrNotFound)
	case f != nil && f.never() && f.disputes == 0:
		return meta.ErrExist
	}
	return nil
}

// Change implements fs.Changes. Nothing is copied before the first write.
func (a *Area) Change(ctx context.Context, dir meta.InodeID, e meta.Entry, truncate bool) (fs.WriteFile, error) {
	if e.Kind != meta.KindFile {
		return nil, fmt.Errorf("change %q: %w", e.Name, meta.ErrIsDir)
	}
	f, err := a.take(dir, e)
	if err == nil && truncate {
		if err = f.Resize(ctx, 0); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("change %q: %w", e.Name, err)
	}
	return f, nil
}

// take returns the file of a published entry, with one use more.
func (a *Area) take(dir meta.InodeID, e meta.Entry) (*file, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, chunk.ErrClosed
	}
	if f := a.currentLocked(dir, &e); f != nil {
		f.refs++
		return f, nil
	}
	f := &file{a: a, id: e.Inode, at: meta.Place{Dir: dir, Name: e.Name}, refs: 1, published: true, object: e.Object, attrs: e, entry: &e}
	f.attrs.Name, f.attrs.Size, f.attrs.Object, f.attrs.Version = "", 0, chunk.Object{}, 0
	a.files[f.id] = f
	if g := a.names[dir][e.Name]; g == nil || !g.never() { // else a file that is not published has it
		a.nameLocked(f, f.at)
	}
	return f, nil
}

// abandon keeps what is not published to be recovered, and lets go of the file,
// which nobody uses any more.
func (f *file) abandon(why string, open bool) error {
	defer f.lockAll()()
	at, _ := f.place()
	f.mu.Lock()
	d, s := f.draft, f.sealed
	if f.failed == nil {
		f.failed = errors.New(why)
	}
	as := stateFailed
	if open && !f.closed {
		as = stateOpen
	}
	n := f.noteLocked(at, as)
	f.draft, f.sealed = nil, nil
	f.mu.Unlock()
	var errs []error
	if s != nil {
		n.object, n.sent = s.object, s.sent
		errs = append(errs, f.a.lose(s.draft, n, s))
		s.done()
	}
	if d != nil {
		n.object, n.sent = chunk.Object{}, false
		errs = append(errs, d.Sync(context.Background()), f.a.lose(d, n, nil))
	}
	return errors.Join(append(errs, f.letGo())...)
}

// part lets go of the file at the node's end: what is open is noted as such.
func (f *file) part() error {
	at, named := f.place()
	f.a.mu.Lock()
	used := f.refs > 0
	f.a.mu.Unlock()
	f.mu.Lock()
	unpublished, never := f.unpublishedLocked(), !f.published
	f.mu.Unlock()
	switch {
	case !named:
		f.discard()
		return nil
	case !unpublished:
		f.release()
		return nil
	case !used && never && f.a.private(at.Name):
		defer f.lockAll()()
		if d := f.bytes(); d != nil {
			return d.Close()
		}
		return nil
	}
	return f.abandon("open when the node ended", true)
}
