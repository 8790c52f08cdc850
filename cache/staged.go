package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// ErrSpent: the staged file was published or discarded. What is written after
// a publish goes to a new staged file, whose base is the published object.
var ErrSpent = errors.New("staged file was published or discarded")

// BaseRead fills p with the bytes of an object at off. It may fetch them.
type BaseRead func(ctx context.Context, off int64, p []byte) error

// Base is the object whose content a staged file begins with.
type Base struct {
	Object chunk.Object
	// Read is asked for what is not complete on this machine. Calls overlap.
	Read BaseRead
}

// Staged is a file that is being written on this machine. Until Publish it is
// no object; after it the bytes are one, and the Staged only reads. Safe for
// concurrent use: changes of one file wait for each other, reads do not wait
// but for the bytes of the base. Every Staged is given back with one Close.
//
// Changes fail with ErrSpent once Publish has taken the file, with
// chunk.ErrNoSpace when the budget or the disk is full and nothing can be
// evicted, with chunk.ErrClosed, or with the operating system's error.
type Staged struct {
	c    *Cache
	r    *root
	id   uint64
	unit int64 // bytes that a sum is taken of on the way
	data *os.File

	size      atomic.Int64
	closed    atomic.Bool
	spent     atomic.Bool // set with mu held
	discarded atomic.Bool // set with mu and noteMu held
	publish   sync.Mutex  // one Publish or Discard at a time; before the others

	// noteMu is held across the writing of the note.
	noteMu    sync.Mutex
	noted     bool     // there is a note
	noteLoose bool     // its bytes may not survive a power failure yet
	noteSolid bool     // it, or one before it, may have been made durable
	noteFile  *os.File // nil: not open
	noteEnd   int64    // where the next note goes

	// mu is held across every change of this file, its disk I/O included,
	// and never while bytes of the base are fetched.
	mu      sync.Mutex
	base    *baseMap // nil: all of it is our own
	sums    runningSums
	charged int64 // bytes the budget counts for the file
}

// stagedName returns how the names of a staged file's files begin.
func stagedName(id uint64) string { return fmt.Sprintf("%016x", id) }

// stagedPath returns the name of one of a staged file's files.
func (r *root) stagedPath(id uint64, suffix string) string {
	return r.dir + "/" + stagingDir + "/" + stagedName(id) + suffix
}

// Stage makes a staged file: empty, or with the content of base, of which only
// what is read or partly overwritten is fetched before Publish. The id is the
// caller's choice; fs.ErrExist if a staged file or a note of that id is here.
// Sums are taken of unit bytes each while it is written; the blocks it will be
// published in should be so large, or a multiple. Without a note it does not
// outlive this process.
func (c *Cache) Stage(ctx context.Context, id uint64, unit int64, base *Base) (*Staged, error) {
	if err := (chunk.Object{ID: chunk.ObjectID{1}, ChunkSize: unit, BlockSize: unit}).Validate(); err != nil {
		return nil, fmt.Errorf("stage file %x: %w", id, err)
	}
	if base != nil {
		if err := base.Object.Validate(); err != nil {
			return nil, fmt.Errorf("stage file %x: %w", id, err)
		}
		if base.Object.Size == 0 {
			base = nil
		}
	}
	if err := c.staged.claim(id); err != nil {
		return nil, fmt.Errorf("stage file %x: %w", id, err)
	}
	s, err := c.makeStaged(ctx, id, unit, base)
	if err != nil {
		c.staged.drop(id)
		return nil, fmt.Errorf("stage file %x: %w", id, err)
	}
	return s, nil
}

func (c *Cache) makeStaged(ctx context.Context, id uint64, unit int64, base *Base) (*Staged, error) {
	if c.life.Err() != nil {
		return nil, chunk.ErrClosed
	}
	var src *baseSource
	var r *root
	if base != nil {
		src = c.openBase(ctx, *base)
		r = src.root()
	}
	if r == nil || !r.usable() {
		r = c.chooseRoot()
	}
	var s *Staged
	err := c.withRoom(ctx, r, func() (err error) {
		s, err = c.createStaged(r, id, unit, src)
		if errors.Is(err, unix.ENOSPC) && c.makeRoom(r, 1, true) > 0 {
			s, err = c.createStaged(r, id, unit, src)
		}
		return err
	})
	if err != nil {
		src.close()
		return nil, stagedError(r, err)
	}
	c.staged.opened(id, s)
	return s, nil
}

func (c *Cache) createStaged(r *root, id uint64, unit int64, src *baseSource) (s *Staged, err error) {
	if r == nil {
		return nil, fmt.Errorf("%w: no root is usable", chunk.ErrNoSpace)
	}
	data, err := c.openFD(r.stagedPath(id, ".data"), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	s = &Staged{c: c, r: r, id: id, unit: unit, data: data}
	s.sums.fresh = true
	if src != nil {
		err = s.startFrom(src)
	}
	if err == nil {
		err = s.recharge(0)
	}
	if err != nil {
		s.remove()
		data.Close()
		return nil, err
	}
	return s, nil
}

// openFD opens a file for good. Out of descriptors, it first closes files that
// are open for nobody.
func (c *Cache) openFD(path string, flags int) (*os.File, error) {
	f, err := openPlain(path, flags)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		c.closeIdle(0, true)
		f, err = openPlain(path, flags)
	}
	return f, err
}

// openPlain is openBare of what is no symbolic link.
func openPlain(path string, flags int) (*os.File, error) {
	return openBare(path, flags|unix.O_NOFOLLOW)
}

// openBare is os.OpenFile without its question to the poller, which costs as
// much as the rest.
func openBare(path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// rename is os.Rename without a look at what is renamed.
func rename(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// ID returns the id the file was staged under.
func (s *Staged) ID() uint64 { return s.id }

// Size returns the file's size in bytes.
func (s *Staged) Size() int64 { return s.size.Load() }

// Spent reports whether changes fail with ErrSpent.
func (s *Staged) Spent() bool { return s.spent.Load() }

// changeable returns why the file cannot be changed; mu is held.
func (s *Staged) changeable() error {
	switch {
	case s.closed.Load() || s.c.life.Err() != nil:
		return chunk.ErrClosed
	case s.spent.Load():
		return ErrSpent
	}
	return nil
}

// Discard removes the file and its note; the Staged is spent. Of a published
// file only the note goes: it says that the publish is over.
func (s *Staged) Discard() error {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	if s.discarded.Load() {
		return nil
	}
	if err := s.remove(); err != nil {
		return fmt.Errorf("discard staged file %x: %w", s.id, err)
	}
	s.spent.Store(true)
	s.discarded.Store(true)
	s.noted = false
	s.closeNotes()
	s.c.staged.drop(s.id)
	return nil
}

// remove takes the names away: the note first, since bytes without one are
// nobody's after the next start.
func (s *Staged) remove() error {
	var first error
	suffixes := []string{".note", ".base", ".data"}
	if s.spent.Load() {
		suffixes = suffixes[:1] // the data has gone to be an object
	}
	for _, suffix := range suffixes {
		if err := os.Remove(s.r.stagedPath(s.id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}

// Close lets go of the file and keeps what is there. Reads under way must have
// ended; files that they returned are closed.
func (s *Staged) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	if s.discarded.Load() {
		s.discharge() // the bytes go with the descriptor
	}
	s.base.close()
	s.noteMu.Lock()
	s.closeNotes()
	s.noteMu.Unlock()
	s.c.staged.closed(s)
	if err := s.data.Close(); err != nil {
		return fmt.Errorf("close staged file %x: %w", s.id, err)
	}
	return nil
}

// stagedError makes a full disk one that callers know. Other errors stay what
// they are: the caller of a write is told EIO, not ENOSPC.
func stagedError(r *root, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", chunk.ErrNoSpace, err)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
		r.failed(err)
	}
	return err
}
