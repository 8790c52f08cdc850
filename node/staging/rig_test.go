package staging

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

const (
	block = chunk.MinBlockSize
	soon  = 2 * time.Minute
	tick  = 2 * time.Millisecond
	// patience is what requests to the store have: those of these tests hang nowhere.
	patience = time.Minute
)

// rig is one node's write side over a real cache and a store that fails on
// demand, and another node's catalog that always works.
type rig struct {
	t      *testing.T
	dir    string
	id     chunk.NodeID
	store  *memory.Store
	faults *metatest.Faults
	other  *meta.Catalog
	cat    *meta.Catalog
	far    *elsewhere

	view  *meta.View
	cache *cache.Cache
	area  *Area

	mu      sync.Mutex
	changed []meta.Place
}

// elsewhere holds the bytes of objects that other nodes have.
type elsewhere struct {
	mu      sync.Mutex
	bytes   map[chunk.ObjectID][]byte
	fetched int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), store: memory.New(), far: &elsewhere{bytes: map[chunk.ObjectID][]byte{}}, id: chunk.NewNodeID()}
	t.Cleanup(func() { r.store.Close() })
	r.faults = metatest.NewFaults(r.store)
	r.other = meta.NewCatalog(r.store, meta.Options{})
	metatest.Join(t, r.other)
	r.start()
	return r
}

// start begins a run of the node.
func (r *rig) start() {
	r.t.Helper()
	r.cat = meta.NewCatalog(r.faults, meta.Options{})
	var err error
	r.cache, err = cache.Open(cache.Config{Roots: []string{r.dir}, FreeSpace: cache.Reserve{Bytes: -1}})
	require.NoError(r.t, err)
	view, err := meta.NewView(meta.ViewConfig{
		Catalog: r.cat, Timeout: patience,
		OnChange: func(c meta.Change) {
			if a := r.now(); a != nil {
				a.Learned(c.Dir, c.Name)
			}
		},
	})
	require.NoError(r.t, err)
	area, err := New(Config{
		Node: r.id, Bytes: CacheBytes{r.cache}, Catalog: r.cat, View: view, Open: r.open,
		ChunkSize: 3 * block, Private: DefaultPrivate(), Timeout: patience,
		Changed: func(dir meta.InodeID, name string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changed = append(r.changed, meta.Place{Dir: dir, Name: name})
		},
	})
	require.NoError(r.t, err)
	r.mu.Lock()
	r.view, r.area = view, area
	r.mu.Unlock()
	r.t.Cleanup(func() { view.Close() })
	c := r.cache
	r.t.Cleanup(func() { c.Close() })
}

func (r *rig) now() *Area {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.area
}

// stop ends the run in order.
func (r *rig) stop() {
	r.t.Helper()
	require.NoError(r.t, r.area.Close())
	require.NoError(r.t, r.view.Close())
	require.NoError(r.t, r.cache.Close())
}

// crash ends the run as SIGKILL does: nothing is said to anybody.
func (r *rig) crash() {
	r.t.Helper()
	require.NoError(r.t, r.view.Close())
	require.NoError(r.t, r.cache.Close())
}

// held reads an object that is all here.
type held struct{ chunk.File }

func (h held) Read(_ context.Context, off, n int64) (chunk.Data, error) {
	return chunk.Data{File: h.Reader(), Off: off, N: int(n)}, nil
}

// far reads an object that another node has.
type far struct {
	e *elsewhere
	b []byte
}

func (f far) Read(_ context.Context, off, n int64) (chunk.Data, error) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.e.fetched += n
	return chunk.Data{Bytes: f.b[off : off+n], N: int(n)}, nil
}

func (far) Close() error { return nil }

func (r *rig) open(ctx context.Context, o chunk.Object) (fs.Reader, error) {
	if info, ok := r.cache.Stat(o.ID); ok && info.Complete {
		f, err := r.cache.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return held{f}, nil
	}
	r.far.mu.Lock()
	defer r.far.mu.Unlock()
	b, ok := r.far.bytes[o.ID]
	if !ok {
		return nil, fmt.Errorf("object %s: %w", o.ID.Short(), chunk.ErrNoProvider)
	}
	return far{r.far, b}, nil
}

// elsewhere publishes a file on the other node.
func (r *rig) elsewhere(name string, b []byte, p meta.PublishIf) meta.Entry {
	r.t.Helper()
	e := meta.Entry{Name: name, Kind: meta.KindFile, Inode: meta.NewInodeID(), Mode: 0o644, Size: int64(len(b))}
	if p.Over != nil {
		e.Inode = p.Over.Inode
	}
	if len(b) > 0 {
		e.Object = chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: e.Size, ChunkSize: 3 * block, BlockSize: block}
		r.far.mu.Lock()
		r.far.bytes[e.Object.ID] = b
		r.far.mu.Unlock()
	}
	e, _, err := r.other.Publish(r.t.Context(), meta.RootDir, e, p)
	require.NoError(r.t, err)
	return e
}

// published returns what the store says of a name.
func (r *rig) published(name string) (meta.Entry, bool) {
	r.t.Helper()
	e, err := r.other.Lookup(r.t.Context(), meta.RootDir, name)
	if err != nil {
		require.ErrorIs(r.t, err, meta.ErrNotFound)
		return e, false
	}
	return e, true
}

// stored returns the bytes that the store's entry of a name stands for.
func (r *rig) stored(name string) []byte {
	r.t.Helper()
	e, ok := r.published(name)
	require.True(r.t, ok, "%q is not published", name)
	b := make([]byte, e.Size)
	if e.Size == 0 {
		return b
	}
	f, err := r.open(r.t.Context(), e.Object)
	require.NoError(r.t, err)
	require.NoError(r.t, readFull(r.t.Context(), f, 0, b))
	require.NoError(r.t, f.Close())
	return b
}

func (r *rig) create(name string, exclusive bool) fs.WriteFile {
	r.t.Helper()
	w, err := r.area.Create(r.t.Context(), meta.RootDir, name, meta.Attrs{Mode: 0o640, UID: 1, GID: 2}, exclusive)
	require.NoError(r.t, err)
	return w
}

// write makes a file, publishes it and closes it, as cp does.
func (r *rig) write(name string, b []byte) {
	r.t.Helper()
	w := r.create(name, false)
	r.put(w, b, 0)
	require.NoError(r.t, w.Publish(r.t.Context()))
	w.Close()
}

func (r *rig) put(w fs.WriteFile, b []byte, off int64) {
	r.t.Helper()
	require.NoError(r.t, w.Write(r.t.Context(), b, off, false))
}

// change opens a published file for writing.
func (r *rig) change(name string, truncate bool) fs.WriteFile {
	r.t.Helper()
	e, err := r.area.Names().Confirm(r.t.Context(), meta.RootDir, name)
	require.NoError(r.t, err)
	w, err := r.area.Change(r.t.Context(), meta.RootDir, e, truncate)
	require.NoError(r.t, err)
	return w
}

// shown returns what the mount shows under a name; false if nothing.
func (r *rig) shown(name string) (meta.Entry, bool) {
	r.t.Helper()
	e, err := r.area.Names().Lookup(r.t.Context(), meta.RootDir, name)
	if err != nil {
		require.ErrorIs(r.t, err, meta.ErrNotFound)
		return e, false
	}
	return e, true
}

func (r *rig) list() []string {
	r.t.Helper()
	es, err := r.area.Names().List(r.t.Context(), meta.RootDir)
	require.NoError(r.t, err)
	var names []string
	for _, e := range es {
		names = append(names, e.Name)
	}
	return names
}

// content reads all of a file that is being written.
func (r *rig) content(w fs.WriteFile) []byte {
	r.t.Helper()
	b := make([]byte, w.Entry().Size)
	require.NoError(r.t, readFull(r.t.Context(), writeReader{w}, 0, b))
	return b
}

type writeReader struct{ fs.WriteFile }

func (w writeReader) Close() error { return nil }

func (r *rig) lost() []Lost { return r.area.Lost(r.t.Context()) }

func at(name string) meta.Place { return meta.Place{Dir: meta.RootDir, Name: name} }

func random(n int64, seed uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(b)
	return b
}

func requireSame(t *testing.T, want, got []byte) {
	t.Helper()
	require.True(t, bytes.Equal(want, got), "%d bytes, want %d others", len(got), len(want))
}
