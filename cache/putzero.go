package cache

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// putZero records blocks of zeros without writing them. As with put, a block
// that is being staged is taken over, and one that is being written is waited
// for: when putZero returns without an error all of them are here.
func (f *file) putZero(blocks chunk.Bitmap) error {
	if blocks.Len() != f.obj.Blocks() {
		return fmt.Errorf("put zeros of object %s: a map of %d blocks for %d: %w", f.obj.ID.Short(), blocks.Len(), f.obj.Blocks(), chunk.ErrCorrupt)
	}
	if f.c.life.Err() != nil {
		return fmt.Errorf("put zeros of object %s: %w", f.obj.ID.Short(), chunk.ErrClosed)
	}
	if !f.root.usable() {
		return fmt.Errorf("put zeros of object %s: %w: the disk is failing", f.obj.ID.Short(), chunk.ErrNoSpace)
	}
	added := false
	for i := range f.groups {
		for {
			add, wait := f.claimZeros(i, blocks)
			if add != 0 {
				if err := f.recordZeros(i, add); err != nil {
					return f.root.diskError("put zeros", f.obj.ID, err)
				}
				added = true
			}
			if wait == nil {
				break
			}
			<-wait
		}
	}
	if added {
		f.soil(sectorSize)
	}
	return nil
}

// claimZeros makes the caller the one who writes the blocks of group i that are
// in the set and absent, add, and returns what to wait for before it is asked
// again, if others write some. Stages of the blocks have ended when it returns.
func (f *file) claimZeros(i int, blocks chunk.Bitmap) (add uint64, wait chan struct{}) {
	var ended []*stage
	var claim chan struct{}
	f.mu.Lock()
	have := f.groups[i].have.Load()
	for k := range min(groupBlocks, blocks.Len()-i*groupBlocks) {
		b := i*groupBlocks + k
		if have&(1<<k) != 0 || !blocks.Has(b) {
			continue
		}
		if other := f.writing[b]; other != nil {
			wait = other
			continue
		}
		if claim == nil {
			claim = make(chan struct{})
		}
		f.writing[b] = claim
		add |= 1 << k
		if st := f.staged[b]; st != nil {
			delete(f.staged, b)
			ended = append(ended, st)
		}
	}
	f.mu.Unlock()
	for _, st := range ended {
		st.revoke()
	}
	return add, wait
}

// recordZeros makes claimed blocks of group i read as zeros and puts them into
// the map. They are nobody's afterwards.
func (f *file) recordZeros(i int, add uint64) error {
	err := f.clearRuns(i, add)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		w := f.groups[i].bits()
		w.have |= add
		w.zero |= add
		err = f.publish(i, w)
	}
	var claim chan struct{}
	for left := add; left != 0; left &= left - 1 {
		b := i*groupBlocks + bits.TrailingZeros64(left)
		claim = f.writing[b]
		delete(f.writing, b)
	}
	close(claim)
	return err
}

// clearRuns makes sure that the blocks read as zeros: an earlier put may have
// failed, or died, half way.
func (f *file) clearRuns(i int, add uint64) error {
	hole := int64(-1) // no data before it, as far as we looked
	for add != 0 {
		first := bits.TrailingZeros64(add)
		n := bits.TrailingZeros64(^(add >> first))
		add &^= (1<<n - 1) << first
		from := f.obj.Block(i*groupBlocks + first).Off
		to := f.obj.Block(i*groupBlocks + first + n - 1).End()
		if hole >= to {
			continue
		}
		next, err := nextData(f.data, from)
		if err != nil {
			return err
		}
		hole = next
		if next >= to {
			continue
		}
		if err := f.clear(from, to-from); err != nil {
			return err
		}
	}
	return nil
}

// clear makes a range read as zeros. The file is not complete, so no handle
// that we do not know of reads it.
func (f *file) clear(off, n int64) error {
	err := unix.Fallocate(int(f.data.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for n > 0 {
		k := min(n, int64(len(zeroPage)))
		if _, err := f.c.writeAt(f.data, zeroPage[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
