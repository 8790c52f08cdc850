package cache

import (
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

// file is one fetched object's open pair of files. Reading what is present
// takes no lock. mu guards every write of the map file and of the table's
// bits; it is held across those writes (512 bytes into the page cache), which
// keeps sectors whole.
type file struct {
	*table
	c    *Cache
	root *root
	data *os.File
	used atomic.Int64 // bytes on disk; Cache.used counts them too

	// turn is held across a write of data. The kernel lets in one writer of a
	// file at a time, and those who wait there spin.
	turn sync.Mutex

	keeping sync.Mutex // one Keep at a time; before mu and Cache.mu

	mu         sync.Mutex
	head       header
	mapf       *os.File              // nil once nothing more will be written
	writing    map[int]chan struct{} // blocks being put; closed at the end
	staged     map[int]*stage        // blocks being staged
	mapUsed    int64                 // bytes of the map on disk
	dirty      int64                 // bytes put since the last sync
	dirtySince time.Time
	sector     [sectorSize]byte
}

// roundUp returns the bytes that n bytes at a block's start take on disk.
func roundUp(n int64) int64 { return (n + 4095) &^ 4095 }

// createFile makes the files of an object that is not here, on the usable root
// with the most room.
func (c *Cache) createFile(o chunk.Object) (*file, error) {
	r := c.chooseRoot()
	if r == nil {
		return nil, fmt.Errorf("make file of object %s: %w: no root is usable", o.ID.Short(), chunk.ErrNoSpace)
	}
	f, err := c.createOn(r, o)
	if errors.Is(err, unix.ENOSPC) && c.makeRoom(r, 1, true) > 0 {
		// Neither the map nor an inode fitted; an object less, and they do.
		f, err = c.createOn(r, o)
	}
	if err != nil {
		r.unlink(o.ID)
		return nil, r.diskError("make file", o.ID, err)
	}
	return f, nil
}

// chooseRoot returns the root for a new object; nil if none is usable.
func (c *Cache) chooseRoot() *root {
	var best *root
	most := int64(-1 << 62)
	for _, r := range c.roots {
		if !r.usable() {
			continue
		}
		if len(c.roots) == 1 {
			return r
		}
		if n := r.askFree(); n > most {
			best, most = r, n
		}
	}
	return best
}

func (c *Cache) createOn(r *root, o chunk.Object) (*file, error) {
	// Never reuse a file that may be open somewhere.
	r.unlink(o.ID)
	data, err := os.OpenFile(r.path(o.ID, ".data"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	f := &file{
		table: newTable(o, c.zeros), c: c, root: r, data: data,
		head:    header{kind: kindObject, obj: o, boot: c.boot},
		writing: make(map[int]chan struct{}),
		staged:  make(map[int]*stage),
	}
	if err := data.Truncate(o.Size); err != nil {
		data.Close()
		return nil, err
	}
	f.mapf, err = os.OpenFile(r.path(o.ID, ".map"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		data.Close()
		return nil, err
	}
	if err = f.mapf.Truncate(mapSize(o)); err == nil {
		_, err = c.writeAt(f.mapf, f.head.encode(), 0)
	}
	if err != nil {
		f.closeFiles()
		return nil, err
	}
	f.mapUsed = blocksOf(f.mapf)
	f.count(f.mapUsed)
	return f, nil
}

// count adds to the bytes the file takes.
func (f *file) count(n int64) {
	f.used.Add(n)
	f.c.used.Add(n)
	f.root.used.Add(n)
}

// freed takes the file's bytes off the books.
func (f *file) freed() { f.count(-f.used.Load()) }

// recountUsed asks the file system what the file takes: failed writes and the
// map's growth are in it. Not while a block is on its way, whose bytes would be
// counted twice. f.mu is held.
func (f *file) recountUsed() {
	if len(f.writing)+len(f.staged) > 0 {
		return
	}
	if f.mapf != nil {
		f.mapUsed = blocksOf(f.mapf)
	}
	if n := blocksOf(f.data); n > 0 {
		f.count(n + f.mapUsed - f.used.Load())
	}
}

// blocksOf returns the bytes a file takes on disk; 0 if nobody knows.
func blocksOf(f *os.File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}

// closeFiles lets go of the descriptors; nobody uses the file any more.
func (f *file) closeFiles() {
	f.c.smu.Lock()
	delete(f.c.dirty, f)
	f.c.smu.Unlock()
	f.data.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeMap()
}

func (f *file) closeMap() {
	if f.mapf != nil {
		f.mapf.Close()
		f.mapf = nil
	}
}

// writeGroup writes group i with these bits and then believes them. f.mu is
// held.
func (f *file) writeGroup(i int, w groupBits) error {
	f.encodeGroup(f.sector[:], i, w)
	if _, err := f.c.writeAt(f.mapf, f.sector[:], int64(1+i)*sectorSize); err != nil {
		return err
	}
	g := &f.groups[i]
	// A reader that sees a block must see all of it: zero and synced first.
	g.zero.Store(w.zero)
	g.synced.Store(w.synced)
	g.have.Store(w.have)
	return nil
}

// writeHeader writes the header as it is. f.mu is held.
func (f *file) writeHeader() error {
	_, err := f.c.writeAt(f.mapf, f.head.encode(), 0)
	return err
}

// unlink removes an object's files: the map first, so that a crash in between
// leaves bytes that nobody believes.
func (r *root) unlink(id chunk.ObjectID) error {
	var first error
	for _, suffix := range []string{".map", ".data"} {
		if err := os.Remove(r.path(id, suffix)); err != nil && !os.IsNotExist(err) && first == nil {
			first = err
		}
	}
	return first
}

// fdatasync makes a file's bytes, and what is needed to find them, durable.
func fdatasync(f *os.File) error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
