package cache

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// placed is one registered file that is being served, or was lately. Its
// table says which blocks have a sum bound ("have"), and which of those were
// verified under the file's current identity ("synced"); only both may be
// handed out without a read. Like object files it survives SIGKILL in the page
// cache: a lost sum is bound again from the same bytes.
type placed struct {
	p   *places
	rec record

	// Guarded by places.mu.
	refs    int
	lastUse time.Time
	inIdle  *list.Element

	detached atomic.Bool // leaves, or has left, places.live
	damaged  atomic.Pointer[string]
	ident    atomic.Pointer[Identity] // verified under; set by load

	// mu is held across the opening of the two files and the writing of
	// one sector of sums.
	mu      sync.Mutex
	src     *os.File
	sums    *os.File
	table   *table
	stale   bool // src is no longer worth keeping open
	flights map[int]*flight
	sector  [sectorSize]byte
}

// flight is one reading of a block that others wait for.
type flight struct {
	done chan struct{}
	err  error
}

// get returns a registered file with one user more; nil if there is none.
func (p *places) get(id chunk.ObjectID) (*placed, error) {
	if s := p.hold(id, nil); s != nil {
		return s, nil
	}
	r, ok, err := p.find(id)
	if !ok || err != nil {
		return nil, err
	}
	return p.hold(id, &r), nil
}

// hold adds a user to what is in memory, made from the record if there is one.
func (p *places) hold(id chunk.ObjectID, r *record) *placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.live[id]
	if s == nil {
		if r == nil {
			return nil
		}
		s = &placed{p: p, rec: *r, flights: make(map[int]*flight)}
		s.detached.Store(p.closed)
		if r.damaged != "" {
			s.damaged.Store(&r.damaged)
		}
		if !p.closed {
			p.live[id] = s
		}
	}
	s.refs++
	if s.inIdle != nil {
		p.idle.Remove(s.inIdle)
		s.inIdle = nil
	}
	return s
}

// release takes one user away. The last of a detached or stale one closes it.
func (p *places) release(s *placed) {
	s.mu.Lock()
	stale := s.stale
	s.mu.Unlock()
	p.mu.Lock()
	s.refs--
	s.lastUse = p.c.cfg.Now()
	var closing []*placed
	if s.refs == 0 {
		switch {
		case s.detached.Load():
			closing = append(closing, s)
		case stale:
			p.drop(s)
			closing = append(closing, s)
		default:
			s.inIdle = p.idle.PushBack(s)
		}
		for p.idle.Len() > p.c.cfg.OpenFiles {
			old := p.idle.Front().Value.(*placed)
			p.drop(old)
			closing = append(closing, old)
		}
	}
	p.mu.Unlock()
	for _, s := range closing {
		s.closeFiles()
	}
}

// drop takes s out of memory; its files are closed by the caller, or by its
// last user. p.mu is held.
func (p *places) drop(s *placed) {
	s.detached.Store(true)
	if p.live[s.rec.obj.ID] == s {
		delete(p.live, s.rec.obj.ID)
	}
	if s.inIdle != nil {
		p.idle.Remove(s.inIdle)
		s.inIdle = nil
	}
}

// detach makes the next user read the record again. Nothing is written to the
// file of sums by those who have the old one once another can be made.
func (p *places) detach(id chunk.ObjectID) {
	p.mu.Lock()
	s := p.live[id]
	p.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.detached.Store(true)
	s.mu.Unlock()
	p.mu.Lock()
	unused := s.refs == 0
	p.drop(s)
	p.mu.Unlock()
	if unused {
		s.closeFiles()
	}
}

// closeOld closes the files of those that nobody has used since.
func (p *places) closeOld(since time.Time) {
	for {
		p.mu.Lock()
		var s *placed
		if el := p.idle.Front(); el != nil && !el.Value.(*placed).lastUse.After(since) {
			s = el.Value.(*placed)
			p.drop(s)
		}
		p.mu.Unlock()
		if s == nil {
			return
		}
		s.closeFiles()
	}
}

// close lets go of everything that is not in use.
func (p *places) close() error {
	p.mu.Lock()
	p.closed = true
	var closing []*placed
	for _, s := range p.live {
		if s.refs == 0 {
			closing = append(closing, s)
		}
		p.drop(s)
	}
	p.mu.Unlock()
	for _, s := range closing {
		s.closeFiles()
	}
	if err := p.db.Close(); err != nil {
		return fmt.Errorf("close the table of registered files: %w", err)
	}
	return nil
}

func (s *placed) closeFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.src != nil {
		s.src.Close()
		s.src = nil
	}
	if s.sums != nil {
		s.sums.Close()
		s.sums = nil
	}
}

// prepare opens the registered file and its sums, once.
func (s *placed) prepare() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.loadSums(); err != nil {
		return nil, err
	}
	if s.src == nil {
		src, err := openSource(s.rec.path)
		if err != nil {
			return nil, err
		}
		s.src = src
	}
	return s.src, nil
}

// loadSums opens the file of sums and reads it. One that cannot be believed is
// begun anew: the bytes are still where they were. s.mu is held.
func (s *placed) loadSums() error {
	if s.sums != nil {
		return nil
	}
	o := s.rec.obj
	path := s.p.root.path(o.ID, ".sums")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return s.p.root.diskError("open sums", o.ID, err)
	}
	ident, t, err := s.readSums(f)
	if err == nil && t == nil {
		ident, t, err = s.beginSums(f)
	}
	if err != nil {
		f.Close()
		return s.p.root.diskError("read sums", o.ID, err)
	}
	s.foldZeros(t, ident)
	s.sums, s.table = f, t
	s.ident.Store(&ident)
	return nil
}

// readSums reads a file of sums; a nil table says that there is nothing to
// believe in it.
func (s *placed) readSums(f *os.File) (Identity, *table, error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return Identity{}, nil, err
	}
	if st.Size() != mapSize(s.rec.obj) {
		s.p.c.log.Warn("sums of a registered file are unreadable and begun anew", "object", s.rec.obj.ID, "bytes", st.Size())
		return Identity{}, nil, nil
	}
	raw := make([]byte, st.Size())
	if _, err := readFull(f, raw); err != nil {
		return Identity{}, nil, err
	}
	h, t, err := decodeMap(kindSums, raw, s.p.c.zeros)
	if err == nil && !sameBytes(h.obj, s.rec.obj) {
		err = fmt.Errorf("%w: of another object", errMap)
	}
	if err != nil {
		s.p.c.log.Warn("sums of a registered file are unreadable and begun anew", "object", s.rec.obj.ID, "err", err)
		return Identity{}, nil, nil
	}
	if s.rec.id.differs(h.ident) != "" {
		// Registered again since, as another file: what is bound stays
		// bound, and nothing is verified.
		return s.rec.id, t, s.unverify(f, t, s.rec.id)
	}
	return h.ident, t, nil
}

// beginSums makes an empty file of sums.
func (s *placed) beginSums(f *os.File) (Identity, *table, error) {
	h := header{kind: kindSums, obj: s.rec.obj, boot: s.p.c.boot, ident: s.rec.id}
	err := f.Truncate(0)
	if err == nil {
		err = f.Truncate(mapSize(s.rec.obj))
	}
	if err == nil {
		_, err = s.p.c.writeAt(f, h.encode(), 0)
	}
	return s.rec.id, newTable(s.rec.obj, s.p.c.zeros), err
}

// foldZeros adds the zeros known from registration. They were true of the
// registered identity; under any other they are looked at again.
func (s *placed) foldZeros(t *table, ident Identity) {
	if s.rec.zero.Len() == 0 {
		return
	}
	for b := range s.rec.obj.Blocks() {
		if !s.rec.zero.Has(b) || t.Has(b) {
			continue
		}
		g, bit := t.locate(b)
		g.zero.Or(bit)
		if ident == s.rec.id {
			g.synced.Or(bit)
		}
		g.have.Or(bit)
	}
}

// unverify makes every bound sum one to be verified again, and then records
// the identity under which that will be done.
func (s *placed) unverify(f *os.File, t *table, ident Identity) error {
	for i := range t.groups {
		w := t.groups[i].bits()
		if w.synced == 0 {
			continue
		}
		w.synced = 0
		if err := s.writeGroup(f, t, i, w); err != nil {
			return err
		}
	}
	h := header{kind: kindSums, obj: s.rec.obj, boot: s.p.c.boot, ident: ident}
	return s.writeSector(f, h.encode(), 0)
}

// writeSector writes to the file of sums, unless another placed, made when the
// object was registered anew, owns it by now.
func (s *placed) writeSector(f *os.File, b []byte, off int64) error {
	if s.detached.Load() {
		return nil
	}
	_, err := s.p.c.writeAt(f, b, off)
	return err
}

func (s *placed) writeGroup(f *os.File, t *table, i int, w groupBits) error {
	t.encodeGroup(s.sector[:], i, w)
	if err := s.writeSector(f, s.sector[:], int64(1+i)*sectorSize); err != nil {
		return err
	}
	g := &t.groups[i]
	g.zero.Store(w.zero)
	g.synced.Store(w.synced)
	g.have.Store(w.have)
	return nil
}

// check compares the open file and the name it was registered under with the
// identity. Another ctime or device number alone unbinds no sum: each is
// verified again before it is next handed out.
func (s *placed) check(src *os.File) error {
	var st unix.Stat_t
	err := unix.Lstat(s.rec.path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return s.giveUp("it is gone")
	case err != nil:
		return fmt.Errorf("examine registered file: %w", &os.PathError{Op: "lstat", Path: s.rec.path, Err: err})
	}
	if what := s.rec.id.differs(identity(&st)); what != "" {
		return s.giveUp(what)
	}
	return s.checkOpen(src)
}

// checkOpen is check of the open file alone: whatever its name stands for by
// now, its bytes are the registered ones.
func (s *placed) checkOpen(src *os.File) error {
	now, err := IdentityOf(src)
	if err != nil {
		return err
	}
	if what := s.rec.id.differs(now); what != "" {
		return s.giveUp(what)
	}
	if now == *s.ident.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now == *s.ident.Load() {
		return nil
	}
	if err := s.unverify(s.sums, s.table, now); err != nil {
		return s.p.root.diskError("write sums", s.rec.obj.ID, err)
	}
	s.ident.Store(&now)
	return nil
}

// giveUp returns the error for a file that has changed, and has it closed when
// the last user goes: it may be deleted, and its room wanted back.
func (s *placed) giveUp(what string) error {
	s.mu.Lock()
	s.stale = true
	s.mu.Unlock()
	return changed(s.rec.path, what)
}
