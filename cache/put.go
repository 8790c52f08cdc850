package cache

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// preallocMin is the least write for which allocating first pays.
const preallocMin = 256 << 10

// put stores a verified block. Blocks go their own way: only puts of the same
// one wait for each other. One that is being staged is taken over: verified
// bytes are here, and the others may never come.
func (f *file) put(block int, data []byte, sum uint32) error {
	if !f.inRange(block) || int64(len(data)) != f.obj.Block(block).Len {
		return fmt.Errorf("put block %d of object %s: %d bytes do not fit: %w", block, f.obj.ID.Short(), len(data), chunk.ErrCorrupt)
	}
	for !f.Has(block) {
		wait, mine := f.claim(block)
		if !mine {
			if wait != nil {
				<-wait
			}
			continue
		}
		err := f.write(block, data, sum)
		f.mu.Lock()
		delete(f.writing, block)
		f.mu.Unlock()
		close(wait)
		return err
	}
	return nil
}

// claim makes the caller the one who writes a block, or returns what to wait
// for (nil: it is there already). A stage of the block has ended when it
// returns.
func (f *file) claim(block int) (wait chan struct{}, mine bool) {
	f.mu.Lock()
	if f.Has(block) {
		f.mu.Unlock()
		return nil, false
	}
	if wait := f.writing[block]; wait != nil {
		f.mu.Unlock()
		return wait, false
	}
	wait = make(chan struct{})
	f.writing[block] = wait
	st := f.staged[block]
	delete(f.staged, block)
	f.mu.Unlock()
	if st != nil {
		st.revoke()
	}
	return wait, true
}

// write puts a claimed block on disk and then into the map.
func (f *file) write(block int, data []byte, sum uint32) error {
	need, err := f.prepare(block)
	if err != nil {
		return err
	}
	err = f.pwrite(block, 0, data)
	if err == nil {
		f.mu.Lock()
		err = f.recordLocked(block, sum)
		f.mu.Unlock()
	}
	return f.account(block, need, err)
}

// prepare promises and allocates the disk space of a block.
func (f *file) prepare(block int) (need int64, err error) {
	if f.c.life.Err() != nil {
		return 0, fmt.Errorf("put block %d of object %s: %w", block, f.obj.ID.Short(), chunk.ErrClosed)
	}
	if !f.root.usable() {
		return 0, fmt.Errorf("put block %d of object %s: %w: the disk is failing", block, f.obj.ID.Short(), chunk.ErrNoSpace)
	}
	need = roundUp(f.obj.Block(block).Len)
	if err := f.c.reserve(f.root, need); err != nil {
		return 0, fmt.Errorf("put block %d of object %s: %w", block, f.obj.ID.Short(), err)
	}
	err = f.allocate(block)
	if errors.Is(err, unix.ENOSPC) && f.c.makeRoom(f.root, need, true) > 0 {
		err = f.allocate(block)
	}
	if err != nil {
		return 0, f.account(block, need, err)
	}
	return need, nil
}

// account takes note of a block that was written, or was not: err says why.
func (f *file) account(block int, need int64, err error) error {
	if err != nil {
		f.c.unreserve(f.root, need)
		return f.root.diskError(fmt.Sprintf("put block %d", block), f.obj.ID, err)
	}
	f.used.Add(need)
	f.root.worked()
	f.soil(need)
	return nil
}

// allocate reserves the space of a large block, where that pays.
func (f *file) allocate(block int) error {
	span := f.obj.Block(block)
	if !f.root.prealloc || span.Len < preallocMin {
		return nil
	}
	err := unix.Fallocate(int(f.data.Fd()), unix.FALLOC_FL_KEEP_SIZE, span.Off, span.Len)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// pwrite writes bytes at an offset of a block. Where nothing was allocated
// first, a full disk shows here.
func (f *file) pwrite(block int, at int64, data []byte) error {
	off := f.obj.Block(block).Off + at
	err := f.inTurn(data, off)
	if errors.Is(err, unix.ENOSPC) && f.c.makeRoom(f.root, roundUp(int64(len(data))), true) > 0 {
		err = f.inTurn(data, off)
	}
	return err
}

func (f *file) inTurn(data []byte, off int64) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	_, err := f.c.writeAt(f.data, data, off)
	return err
}

// recordLocked notes a block whose bytes are on disk. f.mu is held.
func (f *file) recordLocked(block int, sum uint32) error {
	g, bit := f.locate(block)
	g.sums[block%groupBlocks].Store(sum)
	w := g.bits()
	w.have |= bit
	return f.publish(block/groupBlocks, w)
}

// publish writes a group that has gained blocks. f.mu is held.
func (f *file) publish(i int, w groupBits) error {
	gained := int64(bits.OnesCount64(w.have &^ f.groups[i].have.Load()))
	last := f.missing.Load() == gained
	if last {
		if err := f.data.Chmod(0o444); err != nil {
			return err
		}
	}
	if err := f.writeGroup(i, w); err != nil {
		return err
	}
	if last {
		// The blocks count even if the seal cannot be written: a map
		// that is full and not sealed is sealed when it is next opened.
		f.head.sealed = true
		if err := f.writeHeader(); err != nil {
			f.root.failed(err)
		}
	}
	f.missing.Add(-gained)
	return nil
}
