package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// lost is a staged file that nobody uses and that is not published: its bytes
// wait to be recovered.
type lost struct {
	id     uint64
	note   note
	size   int64
	sealed bool         // the bytes are an object of the cache, note.object, or none are left of an empty file
	base   chunk.Object // it began as a copy of; zero: none
	// doubtful: the node ended while it was being published, and the store has
	// not been asked yet whether it was.
	doubtful bool
	broken   error // why the note cannot be read; nil: it can
	busy     bool  // being recovered; guarded by Area.mu
}

// lose hands a draft over to those who recover.
func (a *Area) lose(d *draft, n note, s *sealed) error {
	l := &lost{id: d.id, note: n, size: d.Size(), sealed: s != nil}
	if d.base != nil {
		l.base = d.base.object
	}
	if l.sealed {
		l.size = s.object.Size
	}
	err := errors.Join(d.note(n, true), d.Close())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost[l.id] = l
	return err
}

// load takes in what an earlier run left.
func (a *Area) load() error {
	infos, err := a.cfg.Bytes.Staged()
	if err != nil {
		return fmt.Errorf("look for staged files: %w", err)
	}
	all := make([]*lost, len(infos))
	for i, in := range infos {
		n, err := decodeNote(in.Note)
		n.sent = n.sent || n.state == statePublishing
		l := &lost{id: in.ID, note: n, size: in.Size, base: in.Base, broken: err}
		if l.sealed = in.Published && err == nil; l.sealed {
			l.size = n.object.Size
		}
		all[i] = l
	}
	// What was written to a private file after a seal has the name, not the seal.
	slices.SortStableFunc(all, func(x, y *lost) int { return cmp.Compare(y.note.whenNs, x.note.whenNs) })
	for _, l := range all {
		switch {
		case l.broken != nil:
			a.log.Warn("a staged file is of unknown origin", "id", l.id, "err", l.broken)
		case l.note.state == statePrivate && a.restore(l):
			continue
		default:
			l.doubtful = l.note.state == statePublishing
		}
		if l.sealed && l.size > 0 {
			a.using[l.note.object.ID] = true
		}
		a.lost[l.id] = l
	}
	if len(a.lost) > 0 {
		a.log.Warn("files wait to be recovered: see p2pfs recover", "files", len(a.lost))
	}
	return nil
}

// restore gives a private file its name again; false if another file has it.
func (a *Area) restore(l *lost) bool {
	n := l.note
	at := meta.Place{Dir: n.dir, Name: n.entry.Name}
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.files[n.entry.Inode]
	older := f != nil && f.at == at && l.sealed && f.sealed == nil // than what was written after the seal, as a copy
	switch {
	case older:
	case f != nil, a.names[at.Dir][at.Name] != nil:
		return false
	default:
		f = &file{a: a, id: n.entry.Inode, at: at, exclusive: n.exclusive, closed: true, attrs: n.entry}
		f.attrs.Name = ""
		f.disputes = 1 // others may have published the name meanwhile
		a.enterLocked(f)
	}
	d := a.parkedDraft(l)
	if !l.sealed {
		f.draft = d
		return true
	}
	f.sealed = l.resealed(d) // a rename that was to publish it failed
	if l.size > 0 {
		a.using[n.object.ID] = true
	}
	return true
}

// parkedDraft returns the draft of a staged file that is not open.
func (a *Area) parkedDraft(l *lost) *draft {
	d := &draft{id: l.id}
	if l.sealed {
		d.Draft = &past{bytes: a.cfg.Bytes, id: l.id, object: l.note.object, open: a.cfg.Open}
		return d
	}
	p := &parked{bytes: a.cfg.Bytes, id: l.id, unit: a.blockUnit(), size: l.size}
	if l.base.Size > 0 {
		d.base = &baseReader{open: a.cfg.Open, object: l.base}
		p.base = d.base.read
	}
	d.Draft = p
	return d
}

// Run asks the store, as soon as it answers, whether what was on its way to it
// when the node ended has arrived. It returns when that is known, or ctx ends.
func (a *Area) Run(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		left := a.resolve(ctx)
		if left == 0 || ctx.Err() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// resolve asks about each file that may have been published, and returns of how
// many the node does not know yet how they were left.
func (a *Area) resolve(ctx context.Context) (left int) {
	a.mu.Lock()
	var all []lost
	for _, l := range a.lost {
		if (l.doubtful || l.note.sent) && !l.busy {
			all = append(all, *l)
		}
	}
	a.mu.Unlock()
	for _, l := range all {
		arrived, err := a.arrived(ctx, l.note)
		switch {
		case err != nil:
			a.log.Debug("whether a file was published is not known yet", "name", l.note.entry.Name, "err", err)
			if l.doubtful {
				left++
			}
		case arrived:
			a.found(l.id)
		default:
			a.mu.Lock()
			if l := a.lost[l.id]; l != nil {
				l.doubtful = false
			}
			a.mu.Unlock()
		}
	}
	return left
}

// found forgets a lost file that turned out to be published.
func (a *Area) found(id uint64) {
	l, free, err := a.claim(id)
	if err != nil {
		return // who recovers it finds out, too
	}
	defer free()
	if err := a.done(l); err != nil {
		a.log.Warn("the note of a published file stays", "name", l.note.entry.Name, "err", err)
	}
}

// arrived reports whether a publish that was under way reached its end.
func (a *Area) arrived(ctx context.Context, n note) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	e, err := a.cfg.Catalog.Lookup(ctx, n.dir, n.entry.Name)
	if errors.Is(err, meta.ErrNotFound) {
		return false, nil
	}
	return err == nil && e.Inode == n.entry.Inode && e.Object.ID == n.object.ID, err
}

// done forgets a file that is published, or thrown away.
func (a *Area) done(l *lost) error {
	d := a.parkedDraft(l)
	err := errors.Join(d.Discard(), d.Close())
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.lost, l.id)
	if l.sealed {
		delete(a.using, l.note.object.ID)
	}
	return err
}
