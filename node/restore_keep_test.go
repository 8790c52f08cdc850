package node

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// keptHere is a cache that keeps some objects.
type keptHere struct {
	nothingHeld
	objects map[chunk.ObjectID]chunk.Object
}

func (k keptHere) Stat(id chunk.ObjectID) (cache.Info, bool) {
	o, ok := k.objects[id]
	return cache.Info{Object: o, Keeper: ok}, ok
}

func (k keptHere) Objects(_ context.Context, fn func(cache.Info) bool) error {
	for _, o := range k.objects {
		if !fn(cache.Info{Object: o, Keeper: true}) {
			break
		}
	}
	return nil
}

// A name that its node did not live to write down is found when it starts, and
// comes back; what has no name after the store was lost is held, unless it was
// removed.
func TestWhatIsKeptKeepsItsName(t *testing.T) { // N6, C1
	t.Parallel()
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	a, b := newMember(t, t.TempDir()), newMember(t, t.TempDir())
	b.on(s.Another(), info)
	// What a does is not written down: it is killed within the second.
	killed := meta.NewCatalog(s.Another(), meta.Options{})
	killed.UseStore(info)
	d, err := killed.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	kept := keptHere{objects: map[chunk.ObjectID]chunk.Object{}}
	files := map[string]meta.Entry{}
	for _, n := range []string{"found", "moved", "removed", "late"} {
		e, err := killed.Link(t.Context(), d.Inode, metatest.File(n, 5))
		require.NoError(t, err)
		files[n], kept.objects[e.Object.ID] = e, e.Object
	}
	lost := metatest.File("lost", 5)
	kept.objects[lost.Object.ID] = lost.Object

	a.on(s.Another(), info)
	a.r.cache = kept
	missing, err := a.r.complete(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, map[chunk.ObjectID]bool{lost.Object.ID: true}, missing)
	_, err = a.j.Dirs()
	require.NoError(t, err)
	for _, id := range a.j.TakeLacking() {
		require.NoError(t, a.r.findWay(t.Context(), id))
	}
	require.NoError(t, a.j.Flush())

	// Others change names; the one that renames is killed, too.
	_, _, err = b.c.Unlink(t.Context(), d.Inode, "removed", 0)
	require.NoError(t, err)
	_, err = killed.Rename(t.Context(), meta.Place{Dir: d.Inode, Name: "moved"}, meta.Place{Dir: meta.RootDir, Name: "m"}, meta.RenameOptions{})
	require.NoError(t, err)
	a.r.look(t.Context())
	require.NoError(t, a.j.Flush())
	require.True(t, a.j.Ended(files["removed"].Object.ID))
	o, ok := a.j.Name(meta.RootDir, "m")
	require.True(t, ok, "where it went")
	require.Equal(t, files["moved"].Object, o.Entry.Object)

	// The store is lost.
	s = memory.New()
	a.on(s.Another(), info)
	a.r.cache = kept
	released := 0
	a.r.release = func() { released++ }
	require.NoError(t, a.r.enter(t.Context(), false))
	require.NoError(t, a.attempt(t.Context(), 0))
	a.c.Release()
	require.NoError(t, a.r.holdNameless(t.Context()))
	require.Equal(t, 1, released)
	want := []string{"d", "d/found", "d/late", "m"}
	var got []string
	for _, n := range treeOf(t, a.c) {
		for i := range n {
			if n[i] == ' ' {
				got = append(got, n[:i])
				break
			}
		}
	}
	require.Equal(t, want, got)
	require.True(t, a.r.guard.held.has(lost.Object.ID))
	require.Len(t, a.r.guard.held.ids, 1, "what was removed is not held")
	held, err := a.j.Held()
	require.NoError(t, err)
	require.Equal(t, []chunk.ObjectID{lost.Object.ID}, held)
	now, _ := a.c.Joined()
	require.Equal(t, now.Epoch, a.j.HeldFor())

	// Another run knows of it; a name that turns up ends it.
	a.on(s.Another(), now)
	a.r.cache = kept
	require.True(t, a.r.guard.held.has(lost.Object.ID))
	_, err = a.c.Link(t.Context(), meta.RootDir, lost)
	require.NoError(t, err)
	_, err = a.r.complete(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, a.r.guard.held.ids)
	held, err = a.j.Held()
	require.NoError(t, err)
	require.Empty(t, held)
}

// A node that starts in a store that was lost collects nothing before it knows
// what to hold.
func TestNothingIsCollectedBeforeItIsKnownWhatIsHeld(t *testing.T) { // N6
	t.Parallel()
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	m := newMember(t, t.TempDir())
	m.on(s, info)
	require.True(t, m.r.restored.IsZero(), "never lost")
	next, err := m.c.NewEpoch(t.Context(), info)
	require.NoError(t, err)
	require.NoError(t, m.j.SetOffered(next.Epoch))
	m.on(s, next)
	require.False(t, m.c.Held())
	require.False(t, m.r.restored.IsZero())
	m.r.await(t.Context())
	require.NotEmpty(t, m.r.guard.settled)
	require.NoError(t, m.r.holdNameless(t.Context()))
	m.on(s, next)
	require.True(t, m.r.restored.IsZero())
}
