package staging

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// file is one file that is written here, or that has a name only here.
type file struct {
	a  *Area
	id meta.InodeID
	// outdated: another node has published it since, and the tables know it no
	// more. Set with Area.mu held, and never taken back.
	outdated atomic.Bool

	// pub is held over a whole publish: one at a time.
	pub sync.Mutex
	// name is held over the steps in the store that depend on the file's name,
	// and over a change of that name.
	name sync.Mutex
	// io is held shared by who changes the content, alone by who exchanges it:
	// a write waits while the bytes it would change are sealed.
	io sync.RWMutex
	// reads is held shared by who reads, alone by who closes what may be read:
	// reads do not wait for a seal.
	reads sync.RWMutex

	// Guarded by Area.mu.
	at       meta.Place
	removed  bool         // its name is gone, here or by another file that got it
	broken   bool         // it has given its name back, and is to be recovered
	refs     int          // uses
	disputes int          // changes of its name that the View told of, not looked at
	hides    meta.InodeID // not published: the published file it was put over; 0: none

	mu        sync.Mutex
	attrs     meta.Entry   // file id and attributes; no name, no size, no object
	draft     *draft       // the content, if it is being written
	sealed    *sealed      // else: the content, if the store does not know it yet
	object    chunk.Object // else: the content as published; zero: an empty file
	last      *draft       // that object was made of; nil: of none of ours
	reader    fs.Reader    // of object, where last is nil
	spent     []*draft     // older ones, that reads may still use
	published bool         // the file id has been published
	before    *note        // of what is being recovered: what its note said; nil: it is not
	exclusive bool         // the first publish must not find the name taken
	entry     *meta.Entry  // what the store has under the name, as far as is known; nil: nothing
	closed    bool         // a publish was asked for since the last change
	failed    error        // why the last publish failed
	sentTo    []meta.Place // not published, as far as is known: names that may stand for it in the store
}

var _ fs.WriteFile = (*file)(nil)

// sealed is content that the store does not know yet.
type sealed struct {
	object chunk.Object // zero: an empty file
	facts  cache.Sealed
	draft  *draft // that was sealed: it has the note
	done   func() // gives the set back

	// Guarded by file.name, or by being the only user; sent by file.mu, too.
	tried   bool // a publish of it failed: what its note, and the record of the object, say may be old
	earlier bool // it was sealed before: its facts are not read, nor is its set announced
	sent    bool // the store may have given it a name: whether it has was not answered
}

// place returns the file's name here; ok is false if it has none any more.
func (f *file) place() (at meta.Place, ok bool) {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return f.at, !f.removed && !f.broken
}

// Entry implements fs.WriteFile.
func (f *file) Entry() meta.Entry {
	at, _ := f.place()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entryLocked(at.Name)
}

// entryLocked returns the file as of now; f.mu is held.
func (f *file) entryLocked(name string) meta.Entry {
	e := f.attrs
	e.Name = name
	switch {
	case f.draft != nil:
		e.Size = f.draft.Size()
	case f.sealed != nil:
		e.Size = f.sealed.object.Size
	default:
		e.Size, e.Object = f.object.Size, f.object
	}
	return e
}

// pending returns the size of what is not published.
func (f *file) pending() (size int64, unpublished bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entryLocked("").Size, f.unpublishedLocked()
}

func (f *file) unpublishedLocked() bool { return f.draft != nil || f.sealed != nil }

// never reports whether the file has a name only here.
func (f *file) never() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.published
}

// noteLocked returns the note of the file as it is; f.mu is held.
func (f *file) noteLocked(at meta.Place, s state) note {
	n := note{
		state: s, dir: at.Dir, entry: f.attrs, exclusive: f.exclusive && !f.published, published: f.published,
		base: f.object.ID, whenNs: time.Now().UnixNano(),
	}
	n.entry.Name = at.Name
	if f.sealed != nil && f.draft == nil && f.sealed.object.Size > 0 {
		n.object = f.sealed.object
	}
	n.sent = f.sealed != nil && f.draft == nil && f.sealed.sent
	if f.before != nil { // as long as nothing of it is published
		n.base, n.published = f.before.base, n.published || f.before.published
	}
	if f.failed != nil {
		n.reason = f.failed.Error()
	}
	return n
}

// touch notes that the content has changed.
func (f *file) touch() {
	now := time.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attrs.MtimeNs, f.attrs.CtimeNs = now, now
	f.closed = false
}

// Close implements fs.WriteFile.
func (f *file) Close() {
	a := f.a
	a.mu.Lock()
	f.refs--
	if f.refs > 0 || a.closed {
		a.mu.Unlock()
		return
	}
	at, removed, broken := f.at, f.removed, f.broken
	f.mu.Lock()
	keep := !removed && !broken && !f.published && a.private(at.Name)
	unpublished := f.unpublishedLocked()
	f.mu.Unlock()
	if !keep {
		a.dropLocked(f)
	}
	a.mu.Unlock()
	switch {
	case keep:
		f.rest(at)
	case removed:
		f.discard()
	case broken:
		f.leaveBroken()
	case unpublished:
		a.cfg.Changed(at.Dir, at.Name)
		if err := f.abandon("closed without being published", false); err != nil {
			a.log.Error("a closed file could not be noted for recovery", "name", at.Name, "err", err)
		}
	default:
		f.release()
	}
}

// rest notes that a private file is closed, and parks its bytes.
func (f *file) rest(at meta.Place) {
	defer f.lockAll()()
	f.mu.Lock()
	noted := f.closed
	f.closed = true
	d := f.draft
	f.mu.Unlock()
	if d == nil {
		return
	}
	if !noted {
		if err := f.note(at, statePrivate, false); err != nil {
			f.a.log.Warn("a private file may not be found again after a restart", "name", at.Name, "err", err)
		}
	}
	if !f.idle() {
		return // opened again meanwhile
	}
	if err := d.park(f.a); err != nil {
		f.a.log.Warn("a private file is not closed cleanly", "name", at.Name, "err", err)
	}
}

// lockAll keeps everybody from the content until the returned function is
// called.
func (f *file) lockAll() (unlock func()) {
	f.io.Lock()
	f.reads.Lock()
	return func() {
		f.reads.Unlock()
		f.io.Unlock()
	}
}

func (f *file) idle() bool {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return f.refs == 0
}

// discard throws away what is not published.
func (f *file) discard() {
	defer f.lockAll()()
	f.mu.Lock()
	d, s := f.draft, f.sealed
	f.draft, f.sealed = nil, nil
	f.mu.Unlock()
	var errs []error
	if d != nil {
		errs = append(errs, d.Discard(), d.Close())
	}
	if s != nil {
		errs = append(errs, f.a.drop(context.Background(), s), s.draft.Close())
	}
	if err := errors.Join(append(errs, f.letGo())...); err != nil {
		f.a.log.Warn("a removed file leaves bytes behind", "err", err)
	}
}

// release lets go of a file whose every byte is published.
func (f *file) release() {
	defer f.lockAll()()
	if err := f.letGo(); err != nil {
		f.a.log.Debug("close a staged file", "err", err)
	}
}

// letGo closes what published content was read from; see lockAll.
func (f *file) letGo() error {
	f.mu.Lock()
	r, olds := f.reader, f.spent
	if f.last != nil {
		olds = append(olds, f.last)
	}
	f.reader, f.last, f.spent = nil, nil, nil
	f.mu.Unlock()
	var errs []error
	if r != nil {
		errs = append(errs, r.Close())
	}
	for _, d := range olds {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
