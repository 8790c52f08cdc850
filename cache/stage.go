package cache

import (
	"errors"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// errTaken: the block is here, or somebody else is writing it.
var errTaken = errors.New("block is here or being written")

// errRevoked: a put of the same block came with all of its bytes.
var errRevoked = errors.New("block was put meanwhile")

// stage is one block written as it arrives. Its bytes lie in the data file
// before they are verified; the map does not have the block until Commit.
type stage struct {
	f     *file
	block int
	need  int64 // bytes promised

	mu      sync.Mutex // held across a write, so that revoke waits for it
	at      int64      // bytes written
	revoked bool
	ended   bool
}

var (
	_ chunk.Stager = (*handle)(nil)
	_ chunk.Stage  = (*stage)(nil)
)

// Stage implements chunk.Stager.
func (h *handle) Stage(block int) (chunk.Stage, error) {
	if h.closed.Load() {
		return nil, fmt.Errorf("stage block %d of object %s: %w", block, h.obj.ID.Short(), chunk.ErrClosed)
	}
	st, err := h.file.stage(block)
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (f *file) stage(block int) (*stage, error) {
	if !f.inRange(block) {
		return nil, fmt.Errorf("stage block %d of object %s: no such block: %w", block, f.obj.ID.Short(), chunk.ErrCorrupt)
	}
	st := &stage{f: f, block: block}
	f.mu.Lock()
	taken := f.Has(block) || f.writing[block] != nil || f.staged[block] != nil
	if !taken {
		f.staged[block] = st
	}
	f.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("stage block %d of object %s: %w", block, f.obj.ID.Short(), errTaken)
	}
	need, err := f.prepare(block)
	if err != nil {
		f.unstage(st)
		return nil, err
	}
	st.need = need
	return st, nil
}

// unstage takes a stage off its file, if it is still there.
func (f *file) unstage(st *stage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.staged[st.block] == st {
		delete(f.staged, st.block)
	}
}

// revoke ends a stage that a put has taken the block from: no byte is written
// by it once revoke returns.
func (st *stage) revoke() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.revoked = true
}

// Write implements chunk.Stage.
func (st *stage) Write(piece []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	f := st.f
	switch {
	case st.revoked:
		return fmt.Errorf("write block %d of object %s: %w", st.block, f.obj.ID.Short(), errRevoked)
	case st.at+int64(len(piece)) > f.obj.Block(st.block).Len:
		return fmt.Errorf("write block %d of object %s: more bytes than it has: %w", st.block, f.obj.ID.Short(), chunk.ErrCorrupt)
	}
	if err := f.pwrite(st.block, st.at, piece); err != nil {
		return f.root.diskError(fmt.Sprintf("write block %d", st.block), f.obj.ID, err)
	}
	st.at += int64(len(piece))
	return nil
}

// Commit implements chunk.Stage.
func (st *stage) Commit(sum uint32) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	f := st.f
	if want := f.obj.Block(st.block).Len; st.at != want {
		st.endLocked()
		return fmt.Errorf("commit block %d of object %s: %d bytes of %d were written: %w", st.block, f.obj.ID.Short(), st.at, want, chunk.ErrCorrupt)
	}
	f.mu.Lock()
	if f.staged[st.block] != st {
		f.mu.Unlock()
		st.endLocked()
		return fmt.Errorf("commit block %d of object %s: %w", st.block, f.obj.ID.Short(), errRevoked)
	}
	delete(f.staged, st.block)
	err := f.recordLocked(st.block, sum)
	f.mu.Unlock()
	st.ended = true
	return f.account(st.block, st.need, err)
}

// Abort implements chunk.Stage.
func (st *stage) Abort() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.endLocked()
}

// endLocked gives back what an uncommitted stage holds; st.mu is held. Whoever
// takes the block over waits for st.mu, and then has the room of the block.
func (st *stage) endLocked() {
	if st.ended {
		return
	}
	st.ended = true
	f := st.f
	f.mu.Lock()
	mine := f.staged[st.block] == st
	f.mu.Unlock()
	if mine {
		f.vacate(st.block)
		f.unstage(st)
	}
	f.c.unreserve(f.root, st.need)
}

// vacate gives the room of a block back that nobody else writes. Where that
// cannot be done, the next flush counts it.
func (f *file) vacate(block int) {
	span := f.obj.Block(block)
	n := roundUp(span.Len)
	raw, err := f.data.SyscallConn()
	if err != nil {
		return
	}
	var punched error
	// Not by the bare descriptor: it may be another file's by then.
	err = raw.Control(func(fd uintptr) {
		punched = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, span.Off, n)
	})
	if err == nil && punched != nil {
		f.soil(n)
	}
}
