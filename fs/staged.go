package fs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// staged is what the handles of a file that is being written share. Changes are
// counted, so that a handle can tell whether its own were published.
type staged struct {
	write WriteFile

	mu      sync.Mutex
	seq     uint64 // of the last change
	done    uint64 // of the last change that was published
	told    uint64 // of the last change whose failed publish a close was told of
	mapped  uint64 // of the last change that no handle can be named for
	path    uint64 // of the last change that was made by a path
	bare    uint64 // of the last time it was made or cut to nothing
	broke   uint64 // of the last change through a handle that broke
	writers int    // handles that may write

	broken bool // its file has no name any more; guarded by table.mu
}

// marks are what was done with one handle. Guarded by staged.mu.
type marks struct {
	wrote  uint64 // the last change
	bare   uint64 // made or cut to nothing by the open
	closed uint64 // of the last change when a descriptor was last closed, unless by a kill
	parted parting
}

// errMixed is answered by ESTALE: the kernel looks the name up again, and finds
// an inode that can be opened for writing.
var errMixed = errors.New("the inode is open in another way than for writing")

// wrote counts a change through a handle.
func (s *staged) wrote(m *marks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	m.wrote = s.seq
}

// wroteMapped counts a change that came through a mapping: every writer that
// closes publishes it.
func (s *staged) wroteMapped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.mapped = s.seq
}

// wroteByPath counts a change that was made by a path: as wroteMapped.
func (s *staged) wroteByPath() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.mapped, s.path = s.seq, s.seq
}

// bared counts that the file was made or cut to nothing. m is nil when it was
// done by a path.
func (s *staged) bared(m *marks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.bare = s.seq
	if m != nil {
		m.bare = s.seq
	} else {
		s.path = s.seq
	}
}

// join counts one more handle that may write.
func (s *staged) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers++
}

// alone reports whether no handle that may write is open.
func (s *staged) alone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers == 0
}

// due reports whether a close by the opener has something to publish. bare says
// that it is only the emptiness of a new file, or of one that was cut.
func (s *staged) due(m *marks) (due, bare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.wrote > s.done || s.mapped > s.done {
		return true, false
	}
	bare = max(m.bare, s.bare) > s.done
	return bare, bare
}

// latest returns the count that a publish beginning now will cover.
func (s *staged) latest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// published records that the changes up to a count were published.
func (s *staged) published(at uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = max(s.done, at)
}

// complained records that a close was told that they were not.
func (s *staged) complained(at uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = max(s.told, at)
}

// The kernel tries an open only twice. So once an open for writing has failed
// with ESTALE, the name is wanted for a while: its next lookup makes an inode
// that can be opened for writing, and a reader who is faster opens that one as
// a writer would.
const (
	wantLasts = 5 * time.Second
	wantsKept = 1000
)

// want records that a name is to be opened for writing. t.mu is held.
func (t *table) want(n *inode, now time.Time) {
	prune(t.wants, wantsKept, func(until time.Time) bool { return now.After(until) })
	t.wants[kid{n.dir, n.entry.Name}] = now.Add(wantLasts)
}

// wanted reports whether a name is to be opened for writing, whoever opens it.
// t.mu is held.
func (t *table) wanted(dir meta.InodeID, name string, now time.Time) bool {
	if len(t.wants) == 0 {
		return false
	}
	until, ok := t.wants[kid{dir, name}]
	return ok && now.Before(until)
}

// isWanted is wanted for an inode's name.
func (t *table) isWanted(n *inode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted(n.dir, n.entry.Name, time.Now())
}

// mixes reports whether the inode is open in a way that excludes writing.
// table.mu is held.
func (n *inode) mixes() bool {
	return n.file != nil && n.file.handles > 0 && n.file.nature != natureStaged
}

// pin counts one more handle of an inode that is being written and returns what
// its handles share; ok is false when it is not. depart undoes it.
func (t *table) pin(n *inode) (s *staged, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !n.written() {
		return nil, false
	}
	n.file.handles++
	return n.file.staged, true
}

// written reports whether the inode is open and its bytes are those of a
// WriteFile. table.mu is held.
func (n *inode) written() bool {
	return n.file != nil && n.file.handles > 0 && n.file.nature == natureStaged
}

// outdated reports whether the inode is being written, or was and is still open,
// and another node has published its file since. table.mu is held.
func (n *inode) outdated() bool { return n.written() && n.file.staged.write.Outdated() }

// live returns the entry of an inode as it is now when it is being written.
func (f *FS) live(n *inode) (e meta.Entry, ok bool) {
	s, ok := f.table.pin(n)
	if !ok {
		return e, false
	}
	defer f.depart(n)
	return s.write.Entry(), true
}

// stage returns the way to a file that is being written or is to be; ok is
// false when it is neither.
func (f *FS) stage(ctx context.Context, n *inode, in intent) (w way, ok bool, err error) {
	if f.readOnly() {
		return way{}, false, nil
	}
	dir, e := f.table.where(n)
	write, found := f.cfg.Changes.Find(dir, e)
	if !found {
		if !in.write && !f.table.isWanted(n) {
			return way{}, false, nil
		}
		write, err = f.cfg.Changes.Change(ctx, dir, e, in.truncate)
		switch {
		case err != nil && in.write:
			return way{}, false, err
		case err != nil: // who only reads does without
			return way{}, false, nil
		}
	}
	return wayTo(write, in.truncate && !found), true, nil
}

// wayTo is the way to a WriteFile, which it owns. cut says that it was emptied
// for this open.
func wayTo(write WriteFile, cut bool) way {
	return way{
		nature: natureStaged, staged: &staged{write: write}, release: write.Close,
		entry: write.Entry(), cut: cut,
	}
}

// isWritten reports whether an inode is open and being written.
func (t *table) isWritten(n *inode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.written()
}
