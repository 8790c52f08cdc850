package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// loadFile opens the files of an object that is here. Files that cannot be
// believed, or are of another object than want (nil: any), are removed:
// errAbsent.
func (c *Cache) loadFile(r *root, id chunk.ObjectID, want *chunk.Object) (*file, error) {
	f, err := c.readFile(r, id)
	if err == nil && want != nil && !sameBytes(f.obj, *want) {
		f.closeFiles()
		if f.head.kept { // what is asked for is not what is kept
			return nil, fmt.Errorf("open object %s: %d bytes in blocks of %d are kept here, %d in blocks of %d asked for: %w", id.Short(), f.obj.Size, f.obj.BlockSize, want.Size, want.BlockSize, chunk.ErrCorrupt)
		}
		err = fmt.Errorf("%w: of another object", errMap)
	}
	if err == nil {
		f.count(blocksOf(f.data) + f.mapUsed)
		return f, nil
	}
	if !unbelievable(err) {
		return nil, r.diskError("open file", id, err)
	}
	if err := c.disbelieve(r, id, err); err != nil {
		return nil, r.diskError("remove file", id, err)
	}
	return nil, fmt.Errorf("object %s: %w", id.Short(), errAbsent)
}

// unbelievable reports whether an error says that an object's files are not
// what they should be, and not that they cannot be read now.
func unbelievable(err error) bool {
	return errors.Is(err, errMap) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ELOOP)
}

// readFile opens and checks the files. errMap: not to be believed.
func (c *Cache) readFile(r *root, id chunk.ObjectID) (*file, error) {
	mapf, h, t, err := c.openMap(r, id)
	if err != nil {
		return nil, err
	}
	f := &file{
		table: t, c: c, root: r, head: h, mapf: mapf,
		writing: make(map[int]chan struct{}), staged: make(map[int]*stage), mapUsed: blocksOf(mapf),
	}
	if f.data, err = openData(r.path(id, ".data"), t.Complete()); err != nil {
		mapf.Close()
		return nil, err
	}
	if err := f.makeSure(); err != nil {
		f.closeFiles()
		return nil, err
	}
	if f.Complete() && f.allSynced() {
		f.closeMap()
	}
	return f, nil
}

func (c *Cache) openMap(r *root, id chunk.ObjectID) (*os.File, header, *table, error) {
	mapf, err := os.OpenFile(r.path(id, ".map"), os.O_RDWR, 0)
	if err != nil {
		return nil, header{}, nil, err
	}
	h, t, err := c.readMap(mapf, id)
	if err != nil {
		mapf.Close()
		return nil, h, nil, err
	}
	return mapf, h, t, nil
}

// readMap reads a map file that should be of an object. The header comes
// first: the rest is read only if the file is as long as it says.
func (c *Cache) readMap(mapf *os.File, id chunk.ObjectID) (header, *table, error) {
	var first [4 * sectorSize]byte
	n, err := readFull(mapf, first[:])
	if err != nil {
		return header{}, nil, err
	}
	h, err := decodeHeader(kindObject, first[:n])
	if err != nil {
		return h, nil, err
	}
	if h.obj.ID != id || h.obj.Size == 0 {
		return h, nil, fmt.Errorf("%w: of object %s", errMap, h.obj.ID.Short())
	}
	size := mapSize(h.obj)
	raw := first[:n]
	if size <= noteAt { // notes may follow
		raw = raw[:min(int64(n), size)]
	} else if n == len(first) {
		st, err := mapf.Stat()
		if err != nil {
			return h, nil, err
		}
		if st.Size() != size {
			return h, nil, fmt.Errorf("%w: %d bytes, want %d", errMap, st.Size(), size)
		}
		raw = make([]byte, st.Size())
		if n, err = readFull(mapf, raw); err != nil {
			return h, nil, err
		}
		raw = raw[:n]
	}
	return decodeMap(kindObject, raw, c.zeros)
}

// openData opens a data file for reading, and for writing too if blocks are
// still to come.
func openData(path string, complete bool) (*os.File, error) {
	if complete {
		return os.Open(path)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		// Sealed by a process that died before it could say so.
		if err = os.Chmod(path, 0o600); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	return f, err
}

// makeSure brings map and data into agreement with each other and with this
// boot. Nobody else has the file yet.
func (f *file) makeSure() error {
	st, err := f.data.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > f.obj.Size {
		return fmt.Errorf("%w: data file of %d bytes for an object of %d", errMap, st.Size(), f.obj.Size)
	}
	was := f.snapshot()
	if st.Size() < f.obj.Size {
		f.dropBeyond(st.Size())
	}
	rebooted := f.head.boot != f.c.boot
	if rebooted {
		if err := f.verifyUnsynced(); err != nil {
			return err
		}
	}
	if f.head.sealed && !f.Complete() && !rebooted && !f.head.kept {
		// Handles that we do not know of may read this file: it must
		// not be written. Another boot has none. Of a kept one what is
		// left must not go: they will see lost bytes come back.
		return fmt.Errorf("%w: a complete file has lost blocks", errMap)
	}
	if err := f.reopenFor(st); err != nil {
		return err
	}
	return f.writeBack(was, rebooted)
}

func (f *file) snapshot() []groupBits {
	w := make([]groupBits, len(f.groups))
	for i := range w {
		w[i] = f.groups[i].bits()
	}
	return w
}

// dropBeyond forgets blocks that end after the data file does.
func (f *file) dropBeyond(size int64) {
	first := int(size / f.obj.BlockSize)
	for b := first; b < f.obj.Blocks(); b++ {
		f.drop(b)
	}
}

// verifyUnsynced compares every block that a power failure may have lost with
// its sum, and forgets those that differ.
func (f *file) verifyUnsynced() error {
	lost := 0
	for i := range f.groups {
		w := f.groups[i].bits()
		for doubt := w.have &^ w.synced; doubt != 0; doubt &= doubt - 1 {
			b := i*groupBlocks + bits.TrailingZeros64(doubt)
			ok, err := f.matches(b)
			if err != nil {
				return err
			}
			if !ok {
				f.drop(b)
				lost++
			}
		}
	}
	if lost > 0 {
		f.c.log.Info("blocks lost with the power will be fetched again", "object", f.obj.ID, "blocks", lost)
	}
	return nil
}

// matches reports whether a present block's bytes are those of its sum.
func (f *file) matches(block int) (bool, error) {
	span := f.obj.Block(block)
	want, _ := f.Sum(block)
	if f.isZero(block) {
		if next, err := nextData(f.data, span.Off); err == nil && next >= span.End() {
			return true, nil
		}
	}
	sum, _, _, err := f.c.buffers.sum(f.data, span)
	if err != nil {
		if diskFault(err) {
			return false, nil // unreadable is lost
		}
		return false, err
	}
	return sum == want, nil
}

// reopenFor makes the data file, which is as st says, fit to be filled, or
// sealed.
func (f *file) reopenFor(st fs.FileInfo) error {
	mode := fs.FileMode(0o600)
	if f.Complete() {
		mode = 0o444
	}
	if st.Mode().Perm() != mode {
		if err := f.data.Chmod(mode); err != nil {
			return err
		}
	}
	if f.Complete() {
		return nil
	}
	// It may have been opened as a complete one, for reading only.
	data, err := openData(f.data.Name(), false)
	if err != nil {
		return err
	}
	f.data.Close()
	f.data = data
	if st.Size() < f.obj.Size {
		return data.Truncate(f.obj.Size)
	}
	return nil
}

// writeBack records what has changed: groups first, so that the header never
// vouches for what was not looked at.
func (f *file) writeBack(was []groupBits, rebooted bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range was {
		if w := f.groups[i].bits(); w != was[i] {
			if err := f.writeGroup(i, w); err != nil {
				return err
			}
		}
	}
	if f.head.sealed != f.Complete() || rebooted {
		f.head.sealed = f.Complete()
		f.head.boot = f.c.boot
		if err := f.writeHeader(); err != nil {
			return err
		}
	}
	if !f.allSynced() {
		f.soilLocked(1)
	}
	return nil
}
