package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// fakeFile is one staged file.
type fakeFile struct {
	c   *fakeChanges
	tmp *os.File
	pub sync.Mutex // one publish at a time

	mu      sync.Mutex
	e       meta.Entry
	at      meta.Place
	uses    int
	dirty   bool
	created bool // here, else it was published before
	removed bool
	broken  bool
}

// fakeUse is one use of a fakeFile; each is closed once.
type fakeUse struct {
	*fakeFile
	closed atomic.Bool
}

var _ WriteFile = (*fakeUse)(nil)

func (f *fakeFile) use() *fakeUse {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses++
	f.c.closes.Add(1)
	return &fakeUse{fakeFile: f}
}

func (u *fakeUse) Close() {
	if u.closed.Swap(true) {
		panic("a file was closed twice")
	}
	u.c.closes.Add(-1)
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	u.mu.Lock()
	u.uses--
	u.mu.Unlock()
	u.c.dropUnused(u.fakeFile)
}

func (u *fakeUse) Entry() meta.Entry {
	if u.closed.Load() {
		panic("a file was used after its close")
	}
	return u.fakeFile.Entry()
}

func (f *fakeFile) Entry() meta.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.e
}

func (f *fakeFile) Read(_ context.Context, off, n int64) (chunk.Data, error) {
	if size := f.Entry().Size; off+n > size {
		return chunk.Data{}, fmt.Errorf("read to %d of %d: %w", off+n, size, chunk.ErrRefused)
	}
	return chunk.Data{File: f.tmp, Off: off, N: int(n)}, nil
}

// touch records a change. f.mu is held.
func (f *fakeFile) touch(size int64) {
	f.e.Size, f.dirty, f.e.Object = size, true, chunk.Object{}
	f.e.MtimeNs = max(time.Now().UnixNano(), f.e.MtimeNs+1)
	f.e.CtimeNs = f.e.MtimeNs
}

func (f *fakeFile) Write(_ context.Context, b []byte, off int64, appending bool) error {
	if f.c.isFull() {
		return fmt.Errorf("stage: %w", chunk.ErrNoSpace)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if appending {
		off = f.e.Size
	}
	if _, err := f.tmp.WriteAt(b, off); err != nil {
		return err
	}
	f.touch(max(f.e.Size, off+int64(len(b))))
	return nil
}

func (c *fakeChanges) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

func (f *fakeFile) Resize(_ context.Context, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.tmp.Truncate(size); err != nil {
		return err
	}
	f.touch(size)
	return nil
}

func (f *fakeFile) Allocate(_ context.Context, off, n int64, mode uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := unix.Fallocate(int(f.tmp.Fd()), mode, off, n); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	size := f.e.Size
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		size = max(size, off+n)
	}
	f.touch(size)
	return nil
}

func (f *fakeFile) Seek(_ context.Context, off int64, whence uint32) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := unix.Seek(int(f.tmp.Fd()), off, int(whence))
	if err != nil {
		return 0, fmt.Errorf("seek: %w", err)
	}
	return at, nil
}

func (f *fakeFile) SetAttr(_ context.Context, set meta.AttrChange) (meta.Entry, error) {
	f.c.mu.Lock() // before that of a file, everywhere
	defer f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	e, err := set.Apply(f.e)
	if err != nil {
		return f.e, err
	}
	f.e = e
	if !f.removed {
		f.c.names.putIf(f.at.Dir, f.e)
	}
	if p, ok := f.c.public[f.at]; ok {
		f.c.public[f.at], err = set.Apply(p)
	}
	return f.e, err
}

func (f *fakeFile) Sync(context.Context) error { return f.tmp.Sync() }

func (f *fakeFile) Publish(ctx context.Context) error {
	f.pub.Lock()
	defer f.pub.Unlock()
	f.mu.Lock()
	e, skip, broken := f.e, !f.dirty || f.removed, f.broken
	f.mu.Unlock()
	if broken {
		return meta.ErrStale
	}
	if skip {
		return nil
	}
	if err := f.c.mayPublish(ctx); err != nil {
		return err
	}
	o, err := f.c.bytes.adopt(f.tmp, e.Size)
	if err != nil {
		return err
	}
	if at, ok := f.published(e, o); ok {
		f.c.tell(at.Dir, at.Name)
	}
	return nil
}

// published takes note of a publish of what the file was in e, and returns its
// name; ok is false if it has none.
func (f *fakeFile) published(e meta.Entry, o chunk.Object) (at meta.Place, ok bool) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.e
	seen.Object, seen.Size = o, e.Size
	if f.e.MtimeNs == e.MtimeNs && f.e.Size == e.Size { // else it was changed meanwhile
		f.e.Object, f.dirty = o, false
	}
	if f.removed {
		return f.at, false
	}
	f.c.names.putIf(f.at.Dir, seen)
	f.c.public[f.at] = seen
	f.c.made++
	return f.at, true
}

// Outdated implements WriteFile: no other node publishes.
func (f *fakeFile) Outdated() bool { return false }

func (f *fakeFile) Break() bool {
	f.pub.Lock()
	defer f.pub.Unlock()
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dirty || f.removed || f.broken {
		return false
	}
	f.broken = true
	delete(f.c.files, f.e.Inode)
	f.c.broken = append(f.c.broken, f.e.Size)
	if e, ok := f.c.public[f.at]; ok {
		f.c.names.put(f.at.Dir, e)
	} else if f.created {
		f.c.names.remove(f.at.Dir, f.at.Name)
	}
	return true
}

func (c *fakeChanges) mayPublish(ctx context.Context) error {
	c.mu.Lock()
	fail, gate := c.fail, c.gate
	c.mu.Unlock()
	if gate != nil {
		c.gated.Add(1)
		defer c.gated.Add(-1)
		select {
		case <-gate:
		case <-ctx.Done():
			return fmt.Errorf("publish: %w", context.Cause(ctx))
		}
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(errors.New("publish"), err)
	}
	return fail
}

// adopt makes an object of the first size bytes of a file.
func (b *fakeBytes) adopt(tmp *os.File, size int64) (chunk.Object, error) {
	if size == 0 {
		return chunk.Object{}, nil
	}
	x, err := b.add(0, size, b.dir)
	if err != nil {
		return chunk.Object{}, err
	}
	if err := copyRange(x.local, tmp, size); err != nil {
		return chunk.Object{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complete = true
	for i := range x.o.Blocks() {
		x.present.Set(i)
	}
	return x.o, nil
}

// copyTo brings an object and copies it.
func (b *fakeBytes) copyTo(ctx context.Context, o chunk.Object, to *os.File) error {
	if o.Size == 0 {
		return nil
	}
	x := b.get(o.ID)
	if err := b.bring(ctx, x, 0, o.Size); err != nil {
		return err
	}
	if err := to.Truncate(o.Size); err != nil {
		return err
	}
	return copyRange(to, x.local, o.Size)
}

func copyRange(to, from *os.File, size int64) error {
	for off := int64(0); off < size; {
		in, out := off, off
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(size-off), 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("copied %d of %d bytes", off, size)
		}
		off += int64(n)
	}
	return nil
}

// add is put for a name that must not be there.
func (n *fakeNames) add(dir meta.InodeID, e meta.Entry) error {
	n.mu.Lock()
	d, ok := n.dirs[dir]
	_, exists := d[e.Name]
	n.mu.Unlock()
	switch {
	case !ok:
		return meta.ErrNotFound
	case exists:
		return meta.ErrExist
	}
	n.put(dir, e)
	return nil
}

// putIf replaces an entry that still is the same file's.
func (n *fakeNames) putIf(dir meta.InodeID, e meta.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, ok := n.dirs[dir][e.Name]; ok && old.Inode == e.Inode {
		n.dirs[dir][e.Name] = e
		delete(n.listed, dir)
	}
}

func (n *fakeNames) empty(dir meta.InodeID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.dirs[dir]) == 0
}

// move gives an entry another place.
func (n *fakeNames) move(from, to meta.Place, e meta.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dirs[from.Dir], from.Name)
	n.dirs[to.Dir][to.Name] = e
	delete(n.listed, from.Dir)
	delete(n.listed, to.Dir)
}
