package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// The states of a Lost file.
const (
	LostClosed     = "closed"     // closed, and its publish failed
	LostOpen       = "open"       // the node ended, or who wrote it was killed, while it was being written
	LostUnknown    = "unknown"    // the node ended while it was being published, and the store cannot say yet
	LostUnreadable = "unreadable" // its note was lost: nobody knows its name
)

// Lost is a file whose bytes are here and not published.
type Lost struct {
	ID     uint64
	At     meta.Place // zero if it is unreadable
	Size   int64
	When   time.Time // it came to its state
	State  string
	Reason string
}

// Lost returns the files that wait to be recovered, the oldest first.
func (a *Area) Lost(ctx context.Context) []Lost {
	a.resolve(ctx)
	a.strand(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Lost, 0, len(a.lost))
	for _, l := range a.lost {
		out = append(out, l.show())
	}
	slices.SortFunc(out, func(x, y Lost) int {
		return cmp.Or(x.When.Compare(y.When), cmp.Compare(x.ID, y.ID))
	})
	return out
}

func (l *lost) show() Lost {
	s := Lost{
		ID: l.id, At: meta.Place{Dir: l.note.dir, Name: l.note.entry.Name}, Size: l.size,
		When: time.Unix(0, l.note.whenNs), State: LostClosed, Reason: l.note.reason,
	}
	switch {
	case l.broken != nil:
		s.State, s.Reason, s.When = LostUnreadable, l.broken.Error(), time.Time{}
	case l.doubtful:
		s.State = LostUnknown
	case l.note.state == stateOpen:
		s.State = LostOpen
	}
	if s.Reason == "" {
		s.Reason = "the node ended"
	}
	return s
}

// claim takes a lost file for one who recovers; free gives it back.
func (a *Area) claim(id uint64) (l *lost, free func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l = a.lost[id]
	switch {
	case l == nil:
		return nil, nil, fmt.Errorf("staged file %016x: %w", id, meta.ErrNotFound)
	case l.busy:
		return nil, nil, fmt.Errorf("staged file %016x is being recovered: %w", id, meta.ErrConflict)
	}
	l.busy = true
	return l, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		l.busy = false
	}, nil
}

// Recover publishes a lost file: under its own name if to is zero. A name that
// another file, or a later publish, has got is refused with meta.ErrExist
// unless replace.
func (a *Area) Recover(ctx context.Context, id uint64, to meta.Place, replace bool) (meta.Entry, error) {
	l, free, err := a.claim(id)
	if err != nil {
		return meta.Entry{}, err
	}
	defer free()
	if to == (meta.Place{}) {
		if l.broken != nil {
			return meta.Entry{}, fmt.Errorf("nobody knows its name; say where it is to go: %w", l.broken)
		}
		to = meta.Place{Dir: l.note.dir, Name: l.note.entry.Name}
	}
	if a.has(to) {
		return meta.Entry{}, fmt.Errorf("a file of that name is being written here: %w", meta.ErrExist)
	}
	over, err := a.over(ctx, l, to, replace)
	if err != nil {
		return meta.Entry{}, err
	}
	if over != nil && over.Inode == l.note.entry.Inode && l.sealed && over.Object.ID == l.note.object.ID {
		return *over, a.done(l) // it had been published
	}
	return a.republish(ctx, l, to, over)
}

// over returns what a lost file is to be published over; nil: nothing.
func (a *Area) over(ctx context.Context, l *lost, to meta.Place, replace bool) (*meta.Entry, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	e, err := a.cfg.Catalog.Lookup(ctx, to.Dir, to.Name)
	own := e.Inode == l.note.entry.Inode && (e.Object.ID == l.note.base || e.Object.ID == l.note.object.ID)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case e.Kind == meta.KindDir:
		return nil, meta.ErrIsDir
	case own:
		return &e, nil
	case !replace:
		return nil, fmt.Errorf("a newer file has the name: %w", meta.ErrExist)
	case e.Kind != meta.KindFile:
		return nil, a.unlink(ctx, to)
	}
	return &e, nil
}

// republish publishes a lost file over what was found.
func (a *Area) republish(ctx context.Context, l *lost, to meta.Place, over *meta.Entry) (meta.Entry, error) {
	f := &file{a: a, id: l.note.entry.Inode, at: to, closed: true, attrs: l.note.entry, entry: over}
	f.attrs.Name = ""
	before := l.note
	f.before = &before
	if l.broken != nil {
		now := time.Now().UnixNano()
		f.attrs = meta.Entry{Kind: meta.KindFile, Mode: 0o600, MtimeNs: now, CtimeNs: now}
	}
	// A file id that was published may stand under another name by now.
	f.published = over != nil && over.Inode == f.id
	if !f.published && (l.note.published || l.note.sent || l.broken != nil) {
		f.id = meta.NewInodeID()
	}
	f.attrs.Inode = f.id
	f.exclusive = over == nil
	d := a.parkedDraft(l)
	if l.sealed {
		f.sealed = l.resealed(d)
	} else {
		f.draft = d
	}
	f.pub.Lock()
	defer f.pub.Unlock()
	if err := f.publish(ctx); err != nil {
		l.failed(f, to)
		return meta.Entry{}, errors.Join(err, d.Close())
	}
	f.release()
	a.mu.Lock()
	delete(a.lost, l.id)
	a.mu.Unlock()
	return f.Entry(), nil
}

// resealed returns what a seal of an earlier publish made.
func (l *lost) resealed(d *draft) *sealed {
	return &sealed{object: l.note.object, draft: d, done: func() {}, tried: true, earlier: true, sent: l.note.sent}
}

// failed takes in what came of a recovery that failed.
func (l *lost) failed(f *file, at meta.Place) {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.broken == nil {
		l.note = f.noteLocked(at, stateFailed)
	}
	if f.sealed != nil {
		l.sealed, l.size, l.note.object, l.note.sent = true, f.sealed.object.Size, f.sealed.object, f.sealed.sent
	}
}

// Discard throws a lost file away.
func (a *Area) Discard(ctx context.Context, id uint64) error {
	l, free, err := a.claim(id)
	if err != nil {
		return err
	}
	defer free()
	if l.doubtful {
		return fmt.Errorf("whether it was published is not known before the store answers: %w", meta.ErrUnavailable)
	}
	// Where a name may stand for it, found or not, the collection asks first.
	if l.sealed && l.size > 0 && !l.note.sent {
		if err := a.cfg.Bytes.Drop(ctx, l.note.object.ID); err != nil {
			return fmt.Errorf("drop object %s: %w", l.note.object.ID.Short(), err)
		}
	}
	return a.done(l)
}

// CopyOut writes the bytes of a lost file to w.
func (a *Area) CopyOut(ctx context.Context, id uint64, w io.Writer) (err error) {
	l, free, err := a.claim(id)
	if err != nil {
		return err
	}
	defer free()
	r := a.parkedDraft(l)
	defer func() { err = errors.Join(err, r.Close()) }()
	buf := make([]byte, min(l.size, chunk.DefaultBlockSize))
	for off := int64(0); off < l.size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), l.size-off)]
		if err := readFull(ctx, r, off, p); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}
