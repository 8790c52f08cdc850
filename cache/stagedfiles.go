package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// stagingDir is where staged files lie, in each root.
const stagingDir = "staging"

// StagedInfo is one staged file that has a note.
type StagedInfo struct {
	ID   uint64
	Note []byte // nil if it was torn by a power failure
	Size int64  // bytes
	Used int64  // bytes on disk
	// Base is the object whose bytes are in the file where nothing was
	// written; zero if there is none. They are not here, as a rule.
	Base chunk.Object
	// Published: Publish has ended, and the bytes are an object. The note is
	// all that is left: what had to follow may not have been done.
	Published bool
	// Doubtful: the file is from before the machine was started. What was
	// written and not synced may be missing.
	Doubtful bool
	Open     bool // by this process
}

// stagedTable is the staged files by id, open or not.
type stagedTable struct {
	bytes atomic.Int64 // on disk

	mu   sync.Mutex
	byID map[uint64]*stagedEntry
}

type stagedEntry struct {
	root      *root
	open      *Staged // nil: not open
	busy      bool    // being made, opened or removed
	published bool    // only the note is left
	used      int64   // bytes on disk, while not open
}

// claim takes an id for a file that is being made.
func (t *stagedTable) claim(id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[id] != nil {
		return fs.ErrExist
	}
	t.byID[id] = &stagedEntry{busy: true}
	return nil
}

func (t *stagedTable) drop(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

func (t *stagedTable) opened(id uint64, s *Staged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.byID[id] = stagedEntry{root: s.r, open: s}
}

// published notes that only a note is left of a file, or nothing.
func (t *stagedTable) published(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id].published = true
}

// closed notes that a file is open no more.
func (t *stagedTable) closed(s *Staged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[s.id]; e != nil && e.open == s {
		e.open, e.used = nil, s.charged
	}
}

// take makes an entry that is not open busy.
func (t *stagedTable) take(id uint64) (stagedEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	switch {
	case e == nil:
		return stagedEntry{}, fs.ErrNotExist
	case e.busy || e.open != nil:
		return stagedEntry{}, errors.New("it is open")
	}
	e.busy = true
	return *e, nil
}

func (t *stagedTable) untake(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[id]; e != nil {
		e.busy = false
	}
}

func (t *stagedTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.byID {
		if !e.published {
			n++
		}
	}
	return n
}

// StagedFiles returns the staged files that have a note, by id: those that are
// open, those that an earlier process left, and notes of published ones.
func (c *Cache) StagedFiles() ([]StagedInfo, error) {
	c.staged.mu.Lock()
	all := make(map[uint64]stagedEntry, len(c.staged.byID))
	for id, e := range c.staged.byID {
		if e.root != nil {
			all[id] = *e
		}
	}
	c.staged.mu.Unlock()
	infos := make([]StagedInfo, 0, len(all))
	for id, e := range all {
		i, ok, err := c.stagedInfo(id, e)
		if err != nil {
			return nil, fmt.Errorf("examine staged file %x: %w", id, err)
		}
		if ok {
			infos = append(infos, i)
		}
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].ID < infos[j].ID })
	return infos, nil
}

// stagedInfo reads what is on disk; false if there is no note.
func (c *Cache) stagedInfo(id uint64, e stagedEntry) (StagedInfo, bool, error) {
	i := StagedInfo{ID: id, Published: e.published, Open: e.open != nil}
	b, err := os.ReadFile(e.root.stagedPath(id, ".note"))
	if errors.Is(err, fs.ErrNotExist) {
		return i, false, nil
	}
	if err != nil {
		return i, false, err
	}
	if i.Note, err = decodeNotes(id, b); err != nil {
		c.log.Warn("note of a staged file was lost", "staged", stagedName(id), "root", e.root.dir, "err", err)
	}
	if e.published {
		return i, true, nil
	}
	var st unix.Stat_t
	err = unix.Lstat(e.root.stagedPath(id, ".data"), &st)
	if errors.Is(err, fs.ErrNotExist) { // published at this moment
		i.Published = true
		return i, true, nil
	}
	if err != nil {
		return i, false, err
	}
	i.Size, i.Used = st.Size, st.Blocks*512
	if h, _, err := c.readBaseMap(e.root.stagedPath(id, ".base")); err == nil {
		i.Base = h.obj
		i.Doubtful = h.boot != c.boot
	}
	return i, true, nil
}

// readBaseMap reads the map beside a private copy.
func (c *Cache) readBaseMap(path string) (header, *table, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return header{}, nil, err
	}
	return decodeMap(kindBase, b, c.zeros)
}

// OpenStaged opens a staged file that is not open, to go on with it, publish it
// or discard it. read gets the bytes of its base (StagedInfo.Base); it may be
// nil if there is none. fs.ErrNotExist; ErrSpent: only the note is left.
func (c *Cache) OpenStaged(id uint64, unit int64, read BaseRead) (*Staged, error) {
	e, err := c.staged.take(id)
	if err == nil && e.published {
		err = ErrSpent
		c.staged.untake(id)
	}
	if err != nil {
		return nil, fmt.Errorf("open staged file %x: %w", id, err)
	}
	s, err := c.reopenStaged(e, id, unit, read)
	if err != nil {
		c.staged.untake(id)
		return nil, fmt.Errorf("open staged file %x: %w", id, err)
	}
	c.staged.opened(id, s)
	return s, nil
}

func (c *Cache) reopenStaged(e stagedEntry, id uint64, unit int64, read BaseRead) (*Staged, error) {
	path := e.root.stagedPath(id, ".data")
	// A publish that died may have sealed it.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	data, err := c.openFD(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	s := &Staged{c: c, r: e.root, id: id, unit: unit, data: data, charged: e.used}
	st, err := data.Stat()
	if err == nil {
		s.size.Store(st.Size())
		_, err = os.Lstat(e.root.stagedPath(id, ".note"))
		s.noted = err == nil
		s.noteLoose, s.noteSolid = true, true
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = s.reopenBase(read)
	}
	if err == nil {
		err = s.recharge(0)
	}
	if err != nil {
		s.base.close()
		data.Close()
		return nil, err
	}
	return s, nil
}

// reopenBase reads the base map, if there is one.
func (s *Staged) reopenBase(read BaseRead) error {
	path := s.r.stagedPath(s.id, ".base")
	h, t, err := s.c.readBaseMap(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("what was written of it is not known: %w", err)
	}
	f, err := s.c.openFD(path, os.O_RDWR)
	if err != nil {
		return err
	}
	h.ident.Size = clipBase(h, s.size.Load())
	src := s.c.openBase(s.c.life, Base{Object: h.obj, Read: read})
	s.base = newBaseMap(s.c, f, h, t, src)
	return nil
}

// clipBase returns where the bytes of a base end in a file of that size. A
// truncation that died half way has cut the data only.
func clipBase(h header, size int64) int64 {
	return max(0, min(h.ident.Size, size, h.obj.Size))
}

// NoteStaged replaces the note of a staged file that is not open, also when only
// the note is left of it; see SetNote.
func (c *Cache) NoteStaged(id uint64, note []byte, durable bool) error {
	e, err := c.staged.take(id)
	if err != nil {
		return fmt.Errorf("note of staged file %x: %w", id, err)
	}
	defer c.staged.untake(id)
	s := Staged{c: c, r: e.root, id: id, noted: true, noteLoose: true, noteSolid: true}
	defer s.closeNotes()
	return s.SetNote(note, durable)
}

// DiscardStaged removes a staged file that is not open: its bytes and its note,
// or only the note if the bytes were published.
func (c *Cache) DiscardStaged(id uint64) error {
	e, err := c.staged.take(id)
	if err != nil {
		return fmt.Errorf("discard staged file %x: %w", id, err)
	}
	s := Staged{c: c, r: e.root, id: id, charged: e.used}
	s.spent.Store(e.published)
	if err := s.remove(); err != nil {
		c.staged.untake(id)
		return fmt.Errorf("discard staged file %x: %w", id, err)
	}
	s.discharge()
	c.staged.drop(id)
	return nil
}

// readStaging learns what is staged on a root, and removes what is left of
// deaths half way and files that nobody could know again.
func (c *Cache) readStaging(r *root) error {
	dir := filepath.Join(r.dir, stagingDir)
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read cache root: %w", err)
	}
	found := make(map[uint64]map[string]bool)
	for _, d := range names {
		base, suffix, _ := strings.Cut(d.Name(), ".")
		id, err := strconv.ParseUint(base, 16, 64)
		switch {
		case d.Name() == markName:
		case err != nil || base != stagedName(id) || (suffix != "data" && suffix != "note" && suffix != "base"):
			os.Remove(filepath.Join(dir, d.Name()))
		default:
			if found[id] == nil {
				found[id] = make(map[string]bool)
			}
			found[id][suffix] = true
		}
	}
	doubt := false
	for id, has := range found {
		if c.staged.byID[id] != nil || !has["note"] {
			c.log.Info("staged file without a note removed", "staged", stagedName(id), "root", r.dir)
			(&Staged{r: r, id: id}).remove()
			continue
		}
		e := &stagedEntry{root: r, published: !has["data"]}
		c.staged.byID[id] = e
		if e.published {
			doubt = true
			os.Remove(r.stagedPath(id, ".base"))
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(r.stagedPath(id, ".data"), &st); err == nil {
			e.used = st.Blocks * 512
		}
		c.used.Add(e.used)
		r.used.Add(e.used)
		c.staged.bytes.Add(e.used)
	}
	if doubt {
		// Killed after its rename, a publish may not be durable yet; whoever
		// reads the note goes by it.
		return r.syncAll()
	}
	return nil
}
