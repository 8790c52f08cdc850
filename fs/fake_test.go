package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// fakeNames is a metadata store in memory that can lag behind and fail.
type fakeNames struct {
	lookups, confirms, lists atomic.Int64

	mu     sync.Mutex
	dirs   map[meta.InodeID]map[string]meta.Entry // what Confirm sees
	lag    map[meta.InodeID]map[string]meta.Entry // what Lookup sees while lagging, nil when not
	listed map[meta.InodeID][]meta.Entry
	down   bool

	overlay func(meta.Entry) meta.Entry // what is being written here; may be nil
}

// here returns an entry as this node shows it.
func (n *fakeNames) here(e meta.Entry, err error) (meta.Entry, error) {
	if err == nil && n.overlay != nil {
		e = n.overlay(e)
	}
	return e, err
}

func newFakeNames() *fakeNames {
	return &fakeNames{
		dirs:   map[meta.InodeID]map[string]meta.Entry{meta.RootDir: {}},
		listed: map[meta.InodeID][]meta.Entry{},
	}
}

func (n *fakeNames) get(from map[meta.InodeID]map[string]meta.Entry, dir meta.InodeID, name string) (meta.Entry, error) {
	if n.down {
		return meta.Entry{}, fmt.Errorf("ask for %q: %w", name, meta.ErrUnavailable)
	}
	e, ok := from[dir][name]
	if !ok {
		return e, fmt.Errorf("entry %q: %w", name, meta.ErrNotFound)
	}
	return e, nil
}

func (n *fakeNames) Lookup(_ context.Context, dir meta.InodeID, name string) (meta.Entry, error) {
	n.lookups.Add(1)
	n.mu.Lock()
	from := n.dirs
	if n.lag != nil {
		from = n.lag
	}
	e, err := n.get(from, dir, name)
	n.mu.Unlock()
	return n.here(e, err)
}

func (n *fakeNames) Confirm(_ context.Context, dir meta.InodeID, name string) (meta.Entry, error) {
	n.confirms.Add(1)
	n.mu.Lock()
	e, err := n.get(n.dirs, dir, name)
	n.mu.Unlock()
	return n.here(e, err)
}

func (n *fakeNames) LookupBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (meta.Entry, error, error) {
	e, err := n.Lookup(ctx, dir, name)
	return e, n.Standing(ctx, way), err
}

func (n *fakeNames) ConfirmBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (meta.Entry, error, error) {
	e, err := n.Confirm(ctx, dir, name)
	return e, n.Standing(ctx, way), err
}

func (n *fakeNames) Standing(_ context.Context, way meta.Way) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range way {
		e, err := n.get(n.dirs, s.Dir, s.Name)
		switch {
		case errors.Is(err, meta.ErrUnavailable):
			return err
		case err != nil || e.Inode != s.Inode:
			return fmt.Errorf("%q: %w", s.Name, meta.ErrStale)
		}
	}
	return nil
}

func (n *fakeNames) Alive(_ context.Context, dir meta.InodeID) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return false, meta.ErrUnavailable
	}
	return n.dirs[dir] != nil, nil
}

func (n *fakeNames) List(_ context.Context, dir meta.InodeID) ([]meta.Entry, error) {
	n.lists.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, meta.ErrUnavailable
	}
	if l, ok := n.listed[dir]; ok {
		return l, nil
	}
	d, ok := n.dirs[dir]
	if !ok {
		return nil, fmt.Errorf("directory %x: %w", dir, meta.ErrNotFound)
	}
	l := make([]meta.Entry, 0, len(d))
	for _, e := range d {
		l = append(l, e)
	}
	sort.Slice(l, func(i, j int) bool { return l[i].Name < l[j].Name })
	n.listed[dir] = l
	return l, nil
}

// put adds or replaces an entry; remove deletes it.
func (n *fakeNames) put(dir meta.InodeID, e meta.Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirs[dir][e.Name] = e
	if e.Kind == meta.KindDir && n.dirs[e.Inode] == nil {
		n.dirs[e.Inode] = map[string]meta.Entry{}
	}
	delete(n.listed, dir)
}

func (n *fakeNames) remove(dir meta.InodeID, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.dirs[dir][name]
	delete(n.dirs[dir], name)
	delete(n.listed, dir)
	if e.Kind == meta.KindDir {
		delete(n.dirs, e.Inode)
	}
}

// give gives a directory another name.
func (n *fakeNames) give(from meta.InodeID, name string, to meta.InodeID, newName string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.dirs[from][name]
	delete(n.dirs[from], name)
	e.Name = newName
	n.dirs[to][newName] = e
	delete(n.listed, from)
	delete(n.listed, to)
}

// setLag freezes what Lookup sees, or lets it catch up.
func (n *fakeNames) setLag(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lag = nil; !on {
		return
	}
	n.lag = map[meta.InodeID]map[string]meta.Entry{}
	for dir, d := range n.dirs {
		n.lag[dir] = map[string]meta.Entry{}
		for name, e := range d {
			n.lag[dir][name] = e
		}
	}
}

// fakeObject is an object whose bytes arrive as far as its gate lets them.
type fakeObject struct {
	o     chunk.Object
	seed  uint64
	local *os.File
	asMem bool // reads answer memory instead of the file
	short bool // reads answer at most one block

	mu       sync.Mutex
	opened   chan struct{} // closed when the gate opens
	shut     bool
	present  chunk.Bitmap
	complete bool
	fail     error
}

// fakeBytes holds objects.
type fakeBytes struct {
	dir     string
	reads   atomic.Int64
	fetched atomic.Int64 // bytes of blocks that arrived
	readers atomic.Int64 // open
	locals  atomic.Int64 // open

	mu      sync.Mutex
	objects map[chunk.ObjectID]*fakeObject
}

const testBlock = chunk.MinBlockSize

// add makes an object with nothing of it here. dir is where its file lies.
func (b *fakeBytes) add(seed uint64, size int64, dir string) (*fakeObject, error) {
	id := chunk.NewObjectID()
	x := &fakeObject{
		o:       chunk.Object{ID: id, Set: chunk.NewSetID(), Size: size, BlockSize: testBlock, ChunkSize: 4 * testBlock},
		seed:    seed,
		opened:  make(chan struct{}),
		present: chunk.NewBitmap(int((size + testBlock - 1) / testBlock)),
	}
	close(x.opened)
	f, err := os.Create(filepath.Join(dir, id.String()))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	x.local = f
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[id] = x
	return x, nil
}

func (b *fakeBytes) get(id chunk.ObjectID) *fakeObject {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[id]
}

// setGate holds reads of absent blocks back, or lets them go on.
func (x *fakeObject) setGate(shut bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case shut && !x.shut:
		x.opened = make(chan struct{})
	case !shut && x.shut:
		close(x.opened)
	}
	x.shut = shut
}

// bring makes the blocks of a range present.
func (b *fakeBytes) bring(ctx context.Context, x *fakeObject, off, n int64) error {
	first, end := x.o.BlocksOf(off, n)
	for i := first; i < end; i++ {
		x.mu.Lock()
		has, opened, fail := x.present.Has(i), x.opened, x.fail
		x.mu.Unlock()
		if has {
			continue
		}
		if fail != nil {
			return fail
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return fmt.Errorf("wait for block %d: %w", i, ctx.Err())
		}
		if err := b.store(x, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *fakeBytes) store(x *fakeObject, i int) error {
	s := x.o.Block(i)
	buf := make([]byte, s.Len)
	content(buf, x.seed, s.Off)
	if _, err := x.local.WriteAt(buf, s.Off); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.present.Has(i) {
		x.present.Set(i)
		b.fetched.Add(s.Len)
	}
	return nil
}

// finish brings all that is absent.
func (b *fakeBytes) finish(x *fakeObject) error {
	for i := range x.o.Blocks() {
		if err := b.store(x, i); err != nil {
			return err
		}
	}
	if err := x.local.Sync(); err != nil { // so that its pages can be dropped
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complete = true
	return nil
}

func (b *fakeBytes) Local(_ context.Context, o chunk.Object) (*os.File, func(), bool, error) {
	x := b.get(o.ID)
	x.mu.Lock()
	complete := x.complete
	x.mu.Unlock()
	if !complete {
		return nil, nil, false, nil
	}
	f, err := os.Open(x.local.Name())
	if err != nil {
		return nil, nil, false, err
	}
	b.locals.Add(1)
	return f, func() { f.Close(); b.locals.Add(-1) }, true, nil
}

func (b *fakeBytes) Open(_ context.Context, o chunk.Object) (Reader, error) {
	b.readers.Add(1)
	return &fakeReader{b, b.get(o.ID)}, nil
}

type fakeReader struct {
	b *fakeBytes
	x *fakeObject
}

func (r *fakeReader) Read(ctx context.Context, off, n int64) (chunk.Data, error) {
	r.b.reads.Add(1)
	if r.x.short {
		n = min(n, testBlock-off%testBlock)
	}
	if err := r.b.bring(ctx, r.x, off, n); err != nil {
		return chunk.Data{}, err
	}
	if r.x.asMem {
		buf := make([]byte, n)
		content(buf, r.x.seed, off)
		return chunk.Data{Bytes: buf, N: int(n)}, nil
	}
	return chunk.Data{File: r.x.local, Off: off, N: int(n)}, nil
}

func (r *fakeReader) Close() error {
	r.b.readers.Add(-1)
	return nil
}
