package cache

import (
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// reserve promises the room for a change of [off, off+n), and returns how much
// it took. Writing over what is allocated needs none, and works in a full
// cache. mu is held.
func (s *Staged) reserve(off, n int64) (int64, error) {
	if !s.r.usable() {
		return 0, fmt.Errorf("%w: the disk is failing", chunk.ErrNoSpace)
	}
	need := roundUp(off+n) - off&^4095
	err := s.c.reserve(s.r, need)
	if err == nil {
		return need, nil
	}
	if hole, e := unix.Seek(int(s.data.Fd()), off, unix.SEEK_HOLE); e == nil && hole >= off+n {
		return 0, nil
	}
	return 0, err
}

// recharge puts on the books what the file really takes, in place of what it
// took before and what was promised. mu is held.
func (s *Staged) recharge(promised int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.data.Fd()), &st); err != nil {
		s.c.unreserve(s.r, promised)
		return fmt.Errorf("examine staged file: %w", err)
	}
	s.book(st.Blocks*512, promised)
	return nil
}

func (s *Staged) book(used, promised int64) {
	delta := used - s.charged
	s.charged = used
	s.c.staged.bytes.Add(delta)
	s.c.unreserve(s.r, promised-delta)
}

// discharge takes the file off the books. mu is held.
func (s *Staged) discharge() { s.book(0, 0) }

// retried does what may need room on the disk once more after making some.
func (s *Staged) retried(need int64, do func() error) error {
	err := do()
	if errors.Is(err, unix.ENOSPC) && s.c.makeRoom(s.r, max(need, 1), true) > 0 {
		err = do()
	}
	return err
}
