package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
)

// keeper is the part of a node that keeps objects, over a store in memory.
type keeper struct {
	*Node
	t     *testing.T
	store *memory.Store
}

func newKeeper(t *testing.T) *keeper {
	store := memory.New()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	c, err := cache.Open(cache.Config{Roots: []string{t.TempDir()}, FreeSpace: cache.Reserve{Bytes: -1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	catalog := meta.NewCatalog(store, meta.Options{})
	_, err = catalog.Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	id, _ := c.Identity()
	n := &Node{
		log: slog.New(slog.DiscardHandler), id: id, cache: c, catalog: catalog, collection: newCollection(), restorer: &restorer{}, relief: newRelief(),
		registry: &registry{
			catalog: catalog, self: id, timeout: time.Minute,
			recent: map[chunk.SetID]located{}, told: map[chunk.SetID]bool{},
		},
	}
	return &keeper{Node: n, t: t, store: store}
}

// object makes a kept object, as a publish does, and gives it a name.
func (k *keeper) object(blocks int, dir meta.InodeID, name string) chunk.Object {
	k.t.Helper()
	o := chunk.Object{
		ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: int64(blocks) * chunk.MinBlockSize,
		ChunkSize: 4 * chunk.MinBlockSize, BlockSize: chunk.MinBlockSize,
	}
	f, err := k.cache.Open(k.t.Context(), o)
	require.NoError(k.t, err)
	data := make([]byte, chunk.MinBlockSize)
	data[0] = 1
	for i := range blocks {
		require.NoError(k.t, f.Put(i, data, chunk.Sum(data)))
	}
	require.NoError(k.t, f.Close())
	require.NoError(k.t, k.cache.Keep(k.t.Context(), o.ID, true))
	if blocks > 1 {
		r := meta.ObjectRecord{Object: o, References: []meta.Reference{{Dir: dir, Name: name}}}
		require.NoError(k.t, k.catalog.PutObjects(k.t.Context(), []meta.ObjectRecord{r}))
	}
	require.NoError(k.t, k.catalog.Announce(k.t.Context(), o.Set, k.id, true, true))
	_, err = k.catalog.Link(k.t.Context(), dir, meta.Entry{Name: name, Kind: meta.KindFile, Inode: meta.NewInodeID(), Size: o.Size, Object: o})
	require.NoError(k.t, err)
	return o
}

func (k *keeper) unlink(dir meta.InodeID, name string) {
	k.t.Helper()
	_, _, err := k.catalog.Unlink(k.t.Context(), dir, name, 0)
	require.NoError(k.t, err)
}

func (k *keeper) pass(grace time.Duration) (removed, waiting int64) {
	k.t.Helper()
	r, err := k.collectPass(k.t.Context(), grace, false)
	require.NoError(k.t, err)
	return r.Removed, r.Waiting
}

func (k *keeper) here(o chunk.Object) bool {
	_, ok := k.cache.Stat(o.ID)
	return ok
}

// K3
func TestCollectionRemovesWhatHasNoName(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	dir, err := k.catalog.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	large, small := k.object(3, dir.Inode, "large"), k.object(1, dir.Inode, "small")
	stays, known := k.object(1, dir.Inode, "stays"), k.object(1, dir.Inode, "known")
	k.collection.seenAt(known.ID, meta.Place{Dir: dir.Inode, Name: "known"})
	removed, waiting := k.pass(0)
	require.Zero(t, removed+waiting)

	for _, name := range []string{"large", "small", "known"} {
		k.unlink(dir.Inode, name)
	}
	r, err := k.collectPass(t.Context(), 0, true)
	require.NoError(t, err)
	require.EqualValues(t, 3, r.Removed)
	require.True(t, k.here(large) && k.here(small), "a dry run removed something")
	removed, _ = k.pass(0)
	require.EqualValues(t, 3, removed)
	require.False(t, k.here(large) || k.here(small) || k.here(known))
	require.True(t, k.here(stays))
	_, err = k.catalog.Object(t.Context(), large.ID)
	require.ErrorIs(t, err, meta.ErrNotFound, "the store still has a record")
	p, err := k.catalog.Providers(t.Context(), large.Set)
	require.NoError(t, err)
	require.Empty(t, p, "the store still names this node as a provider")
	removed, waiting = k.pass(0)
	require.Zero(t, removed+waiting)
}

// K3: a name that was moved is a name.
func TestCollectionFollowsRenames(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	mkdir := func(dir meta.InodeID, name string) meta.InodeID {
		e, err := k.catalog.Mkdir(t.Context(), dir, name, meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		return e.Inode
	}
	from, to := mkdir(meta.RootDir, "from"), mkdir(meta.RootDir, "to")
	sub := mkdir(from, "sub")
	objects := []chunk.Object{
		k.object(1, from, "small"), k.object(3, from, "large"), k.object(1, from, "seen"), k.object(1, sub, "below"), k.object(3, sub, "large below"),
	}
	k.collection.seenAt(objects[2].ID, meta.Place{Dir: from, Name: "seen"})
	for i, name := range []string{"small", "large", "seen", "sub"} {
		_, err := k.catalog.Rename(t.Context(), meta.Place{Dir: from, Name: name}, meta.Place{Dir: to, Name: name + "2"}, meta.RenameOptions{})
		require.NoError(t, err)
		removed, waiting := k.pass(0)
		require.Zero(t, removed+waiting, "after rename %d", i)
	}
	for _, o := range objects {
		require.True(t, k.here(o))
	}
	for _, name := range []string{"small2", "large2", "seen2"} {
		k.unlink(to, name)
	}
	removed, _ := k.pass(0)
	require.EqualValues(t, 3, removed)
}

// K3: what is in use, or on its way to a name, stays.
func TestCollectionWaits(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	open, followed, published := k.object(2, meta.RootDir, "open"), k.object(2, meta.RootDir, "followed"), k.object(2, meta.RootDir, "published")
	f, err := k.cache.Open(t.Context(), open)
	require.NoError(t, err)
	done := k.interest.add(followed.ID)
	on := true
	k.publishes = func(id chunk.ObjectID) bool { return on && id == published.ID }
	for _, name := range []string{"open", "followed", "published"} {
		k.unlink(meta.RootDir, name)
	}
	removed, waiting := k.pass(0)
	require.Zero(t, removed)
	require.EqualValues(t, 2, waiting)

	k.collection.hold("names are being brought back")
	r, err := k.collectPass(t.Context(), 0, false)
	require.NoError(t, err)
	require.NotEmpty(t, r.Note)
	k.collection.release()

	on = false
	done()
	require.NoError(t, f.Close())
	removed, waiting = k.pass(0)
	require.EqualValues(t, 3, removed)
	require.Zero(t, waiting)
}

// K3: the grace begins when an object is first found without a name.
func TestCollectionGivesGrace(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	o := k.object(2, meta.RootDir, "f")
	k.unlink(meta.RootDir, "f")
	removed, waiting := k.pass(time.Hour)
	require.Zero(t, removed)
	require.EqualValues(t, 1, waiting)
	k.collection.mu.Lock()
	k.collection.since[o.ID] = time.Now().Add(-2 * time.Hour)
	k.collection.mu.Unlock()
	removed, _ = k.pass(time.Hour)
	require.EqualValues(t, 1, removed)
}

// K3: in doubt nothing is removed.
func TestCollectionInDoubt(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	o := k.object(2, meta.RootDir, "f")
	other := meta.NewCatalog(memory.New(), meta.Options{})
	info, err := k.catalog.Join(t.Context(), meta.JoinOptions{})
	require.NoError(t, err)
	other.UseStore(info)
	k.catalog = other // an emptied store
	_, err = k.collectPass(t.Context(), 0, false)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.True(t, k.here(o))
}

func TestCollectSoonDoesNotBlock(t *testing.T) {
	t.Parallel()
	n := &Node{collection: newCollection()}
	for range 3 {
		n.collectSoon()
	}
	require.Len(t, n.collection.soon, 1)
	n.collection.unnamed(chunk.NewObjectID(), time.Now())
	require.Equal(t, 1, n.collection.pending())
	n.collection.forgetUnless(func(chunk.ObjectID) bool { return false })
	require.Zero(t, n.collection.pending())
}

func TestNotesHoldPlaces(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "\xff\x00", "with space"} {
		dir, got, ok := placeOf(noteOf(7, name))
		require.True(t, ok)
		require.Equal(t, name, got)
		require.EqualValues(t, 7, dir)
	}
	for _, bad := range []string{"", "short", "12345678"} {
		_, _, ok := placeOf(bad)
		require.False(t, ok)
	}
}

// K2
func TestTheLastCopyIsNotGivenUp(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	o := k.object(2, meta.RootDir, "f")
	info, ok := k.cache.Stat(o.ID)
	require.True(t, ok && info.Keeper)
	_, err := k.handover().giveUp(t.Context(), info, false)
	require.ErrorIs(t, err, errLastCopy)
	require.True(t, k.here(o))
	freed, err := k.handover().giveUp(t.Context(), info, true)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.False(t, k.here(o))
	require.NoError(t, k.settle(context.Background(), map[chunk.SetID]bool{o.Set: true}))
	p, err := k.catalog.Providers(t.Context(), o.Set)
	require.NoError(t, err)
	require.Empty(t, p)
}

// N8, K3: what unregister took the names of is served on for its readers.
func TestRegisteredFilesAreServedOnForTheirReaders(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 3*chunk.MinBlockSize), 0o644))
	s, err := scanner{set: chunk.NewSetID(), chunkSize: 4 * chunk.MinBlockSize}.one(path)
	require.NoError(t, err)
	o := s.object
	require.NoError(t, k.cache.RegisterInPlace(t.Context(), []cache.Source{{Object: o, Path: path, ID: s.id, Note: noteOf(meta.RootDir, "f")}}))
	require.NoError(t, k.catalog.PutObjects(t.Context(), []meta.ObjectRecord{{Object: o}}))
	require.NoError(t, k.catalog.Announce(t.Context(), o.Set, k.id, true, true))

	k.collection.dismiss([]chunk.Object{o})
	done := k.interest.add(o.ID)
	for range 2 {
		r, err := k.collectPass(t.Context(), 0, false)
		require.NoError(t, err)
		require.Zero(t, r.Forgotten)
		require.EqualValues(t, 1, r.Waiting)
	}
	done()
	r, err := k.collectPass(t.Context(), time.Hour, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Waiting, "the grace")
	r, err = k.collectPass(t.Context(), 0, true)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Forgotten)
	require.True(t, k.here(o), "a dry run forgot it")
	r, err = k.collectPass(t.Context(), 0, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Forgotten)
	require.False(t, k.here(o))
	require.FileExists(t, path)
	_, err = k.catalog.Object(t.Context(), o.ID)
	require.ErrorIs(t, err, meta.ErrNotFound)
	p, err := k.catalog.Providers(t.Context(), o.Set)
	require.NoError(t, err)
	require.Empty(t, p)
	require.Zero(t, k.collection.pending())
}

// K1: an object whose publish ends while it is asked for its names has one,
// though none was found when the pass looked.
func TestCollectionBesideAPublish(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	o := k.object(1, meta.RootDir, "was")
	k.unlink(meta.RootDir, "was")
	k.publishes = func(id chunk.ObjectID) bool {
		if id == o.ID && k.collection.placeOf(id).Dir == 0 { // it has just ended
			_, err := k.catalog.Link(t.Context(), meta.RootDir, meta.Entry{Name: "is", Kind: meta.KindFile, Inode: meta.NewInodeID(), Size: o.Size, Object: o})
			require.NoError(t, err)
			k.collection.seenAt(id, meta.Place{Dir: meta.RootDir, Name: "is"})
		}
		return false
	}
	removed, _ := k.pass(0)
	require.Zero(t, removed)
	require.True(t, k.here(o))
}
