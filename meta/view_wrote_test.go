package meta_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// held is a store whose watches say nothing until they are let go.
type held struct {
	*memory.Store
	mu sync.Mutex
	on chan struct{}
}

func (h *held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = make(chan struct{})
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.on)
}

func (h *held) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	return h.Store.Watch(ctx, slot, since, func(evs []meta.Event) {
		h.mu.Lock()
		wait := h.on
		h.mu.Unlock()
		select {
		case <-wait:
			on(evs)
		case <-ctx.Done():
		}
	})
}

// diary is a table that also remembers what it was told, in order.
type diary struct {
	mu    sync.Mutex
	told  []string
	names map[string]meta.Entry
}

func newDiary() *diary { return &diary{names: map[string]meta.Entry{}} }

func (d *diary) Entry(_ meta.InodeID, name string) (meta.Entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.names[name]
	return e, ok
}
func (d *diary) List(meta.InodeID) ([]meta.Entry, bool) { return nil, false }
func (d *diary) ForgetDir(meta.InodeID)                 {}

func (d *diary) Put(_ meta.InodeID, e meta.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[e.Name] = e
	d.told = append(d.told, fmt.Sprintf("%s at %d", e.Name, e.Version))
}

func (d *diary) Remove(_ meta.InodeID, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, name)
	d.told = append(d.told, name+" gone")
}

func (d *diary) PutDir(_ meta.InodeID, _ uint64, entries []meta.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = map[string]meta.Entry{}
	for _, e := range entries {
		d.names[e.Name] = e
	}
}

// fresh returns what was told since the last call.
func (d *diary) fresh() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := d.told
	d.told = nil
	return told
}

// ownRig is a View whose watch is held back, over a store that others change.
type ownRig struct {
	*held
	cat   *meta.Catalog
	view  *meta.View
	table *diary
}

// newOwnRig returns a View that knows the root, wholly if listed.
func newOwnRig(t *testing.T, listed bool) *ownRig {
	t.Helper()
	r := &ownRig{held: &held{Store: memory.New()}, table: newDiary()}
	r.hold()
	r.cat = meta.NewCatalog(r.held, meta.Options{})
	metatest.Join(t, r.cat)
	var err error
	r.view, err = meta.NewView(meta.ViewConfig{Catalog: r.cat, Local: r.table, Consistency: meta.ConsistencyWatch})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.view.Close())
		require.NoError(t, r.Close())
	})
	r.link(t, "first")
	if listed {
		_, err = r.view.List(t.Context(), meta.RootDir)
	} else {
		_, err = r.view.Lookup(t.Context(), meta.RootDir, "first")
	}
	require.NoError(t, err)
	r.table.fresh()
	return r
}

func (r *ownRig) link(t *testing.T, name string) meta.Entry {
	t.Helper()
	e, err := r.cat.Link(t.Context(), meta.RootDir, metatest.File(name, 1))
	require.NoError(t, err)
	return e
}

func (r *ownRig) replace(t *testing.T, old meta.Entry) meta.Entry {
	t.Helper()
	e, err := r.cat.Replace(t.Context(), meta.RootDir, metatest.File(old.Name, old.Size+1), old.Version)
	require.NoError(t, err)
	return e
}

func (r *ownRig) unlink(t *testing.T, name string) uint64 {
	t.Helper()
	_, at, err := r.cat.Unlink(t.Context(), meta.RootDir, name, 0)
	require.NoError(t, err)
	return at
}

// catchUp lets the watch go on and waits until it has told everything.
func (r *ownRig) catchUp(t *testing.T, name string) {
	t.Helper()
	r.link(t, name)
	r.release()
	require.Eventually(t, func() bool {
		_, ok := r.table.Entry(meta.RootDir, name)
		return ok
	}, soon, tick)
}

func (r *ownRig) shows(t *testing.T, name string, want meta.Entry) {
	t.Helper()
	e, err := r.view.Lookup(t.Context(), meta.RootDir, name)
	require.NoError(t, err)
	require.Equal(t, want, e)
	e, ok := r.table.Entry(meta.RootDir, name)
	require.True(t, ok)
	require.Equal(t, want, e)
}

func (r *ownRig) showsNot(t *testing.T, name string) {
	t.Helper()
	_, err := r.view.Lookup(t.Context(), meta.RootDir, name)
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, ok := r.table.Entry(meta.RootDir, name)
	require.False(t, ok)
}

func bothWays(t *testing.T, fn func(t *testing.T, r *ownRig)) {
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint("listed=", listed), func(t *testing.T) {
			t.Parallel()
			fn(t, newOwnRig(t, listed))
		})
	}
}

// TestViewOwnIsSeen: what was done here is seen before the watch tells of it,
// and older events that come later do not undo it. N6
func TestViewOwnIsSeen(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *ownRig) {
		a := r.link(t, "a") // elsewhere
		b := r.replace(t, a)
		r.view.Wrote(meta.RootDir, b)
		r.shows(t, "a", b)
		c := r.link(t, "c")
		r.view.Wrote(meta.RootDir, c)
		r.replace(t, c) // elsewhere
		r.view.Removed(meta.RootDir, "c", r.unlink(t, "c"))
		r.showsNot(t, "c")
		entries, err := r.view.List(t.Context(), meta.RootDir)
		require.NoError(t, err)
		require.Len(t, entries, 2)
		require.Equal(t, b, entries[0])
		r.table.fresh()

		r.catchUp(t, "z")
		r.shows(t, "a", b)
		r.showsNot(t, "c")
		require.Len(t, r.table.fresh(), 1, "nothing but z is told again")
		b2 := r.replace(t, b) // newer ones are
		require.Eventually(t, func() bool {
			e, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
			return err == nil && e == b2
		}, soon, tick)
	})
}

// TestViewOwnIsOld: what was done here and has been changed elsewhere since
// does not come back when this process gets to say it.
func TestViewOwnIsOld(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *ownRig) {
		a := r.link(t, "a")
		at := r.unlink(t, "a")
		b := r.link(t, "b")
		goneB := r.unlink(t, "b")
		b2 := r.link(t, "b")
		r.catchUp(t, "z")
		r.table.fresh()
		r.view.Wrote(meta.RootDir, a)
		r.view.Wrote(meta.RootDir, b)
		r.view.Removed(meta.RootDir, "b", goneB)
		r.showsNot(t, "a")
		r.shows(t, "b", b2)
		require.NotContains(t, r.table.fresh(), fmt.Sprintf("a at %d", a.Version))
		require.Less(t, at, b2.Version)
	})
}

// TestViewOwnBeforeWatch: the watch may begin after what was done here.
func TestViewOwnBeforeWatch(t *testing.T) {
	t.Parallel()
	r := newOwnRig(t, false)
	d, err := r.cat.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	a, err := r.cat.Link(t.Context(), d.Inode, metatest.File("a", 1))
	require.NoError(t, err)
	b, err := r.cat.Link(t.Context(), d.Inode, metatest.File("b", 1))
	require.NoError(t, err)
	_, err = r.view.Lookup(t.Context(), d.Inode, "b")
	require.NoError(t, err)
	r.view.Wrote(d.Inode, a)
	e, ok := r.table.Entry(d.Inode, "a")
	require.True(t, ok)
	require.Equal(t, a, e)
	require.Less(t, a.Version, b.Version)
}

// TestViewOwnIsReplaced: what was done here, and read anew since another process
// changed it, does not come back, though the watch has told of neither.
func TestViewOwnIsReplaced(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *ownRig) {
		a := r.link(t, "a")
		r.view.Wrote(meta.RootDir, a)
		b := r.link(t, "b")
		r.view.Wrote(meta.RootDir, b)
		a2 := r.replace(t, a) // elsewhere
		r.unlink(t, "b")
		e, err := r.view.Confirm(t.Context(), meta.RootDir, "a")
		require.NoError(t, err)
		require.Equal(t, a2, e)
		_, err = r.view.Confirm(t.Context(), meta.RootDir, "b")
		require.ErrorIs(t, err, meta.ErrNotFound)
		r.shows(t, "a", a2)
		r.showsNot(t, "b")
		r.table.fresh()
		r.catchUp(t, "z")
		r.shows(t, "a", a2)
		r.showsNot(t, "b")
		require.NotContains(t, r.table.fresh(), fmt.Sprintf("a at %d", a.Version))
	})
}

// TestViewRenamed: both ends of a rename are seen at once.
func TestViewRenamed(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *ownRig) {
		first := meta.Place{Dir: meta.RootDir, Name: "first"}
		for _, to := range []meta.Place{{Dir: meta.RootDir, Name: "second"}} {
			m, err := r.cat.Rename(t.Context(), first, to, meta.RenameOptions{})
			require.NoError(t, err)
			r.view.Renamed(first, to, m)
			r.shows(t, "second", m.Entry)
			r.showsNot(t, "first")
		}
		d, err := r.cat.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		from, to := meta.Place{Dir: meta.RootDir, Name: "second"}, meta.Place{Dir: d.Inode, Name: "third"}
		m, err := r.cat.Rename(t.Context(), from, to, meta.RenameOptions{})
		require.NoError(t, err)
		r.view.Renamed(from, to, m)
		r.showsNot(t, "second")
		e, err := r.view.Lookup(t.Context(), d.Inode, "third")
		require.NoError(t, err)
		require.Equal(t, m.Entry, e)
		r.catchUp(t, "z")
		r.showsNot(t, "first")
		r.showsNot(t, "second")
		r.view.Renamed(to, to, meta.Moved{Entry: e}) // changes nothing
	})
}

// TestViewFinishesMoves: a move whose mover died is finished by who watches its
// source, without being asked.
func TestViewFinishesMoves(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *ownRig) {
		r.release()
		d, err := r.cat.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		from, to := meta.Place{Dir: meta.RootDir, Name: "first"}, meta.Place{Dir: d.Inode, Name: "f"}
		killed := meta.NewCatalog(metatest.NewMortal(r.Store, 3, false), meta.Options{}) // when it is marked
		_, err = killed.Rename(t.Context(), from, to, meta.RenameOptions{})
		require.ErrorIs(t, err, meta.ErrUnavailable)
		require.Eventually(t, func() bool {
			_, ok := r.table.Entry(meta.RootDir, "first")
			return !ok
		}, soon, tick)
		recs, err := r.Get(t.Context(), meta.Key{Slot: meta.Slot(fmt.Sprintf("d/%016x", uint64(d.Inode))), Field: "f"})
		require.NoError(t, err)
		require.NotNil(t, recs[0].Value)
		_, err = r.view.Lookup(t.Context(), meta.RootDir, "first")
		require.ErrorIs(t, err, meta.ErrNotFound)
	})
}
