package staging

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/meta"
)

// W1, W2
func TestClosedFileIsPublished(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"empty": 0, "a byte": 1, "a block": block, "many blocks": 11*block + 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := random(size, 1)
			w := r.create("f", false)
			e, ok := r.shown("f")
			require.True(t, ok)
			require.Equal(t, uint32(0o640), e.Mode)
			_, ok = r.published("f")
			require.False(t, ok, "seen elsewhere before its publish")
			if size > 0 {
				r.put(w, want, 0)
			}
			require.Equal(t, []string{"f"}, r.list())
			require.NoError(t, w.Publish(t.Context()))
			requireSame(t, want, r.stored("f"))
			requireSame(t, want, r.content(w))
			e, _ = r.published("f")
			require.Equal(t, e.Object, w.Entry().Object)
			w.Close()
			require.Empty(t, r.lost())
			require.Zero(t, r.area.Stats().Files)
			infos, err := r.cache.StagedFiles()
			require.NoError(t, err)
			require.Empty(t, infos, "notes that are left")
			if size > 0 {
				info, ok := r.cache.Stat(e.Object.ID)
				require.True(t, ok)
				require.True(t, info.Keeper)
				ps, err := r.other.Providers(t.Context(), e.Object.Set)
				require.NoError(t, err)
				require.Len(t, ps, 1)
				require.True(t, ps[0].Keeper)
				require.Equal(t, r.id, ps[0].Node)
			}
			if size > block {
				rec, err := r.other.Object(t.Context(), e.Object.ID)
				require.NoError(t, err)
				require.Equal(t, "f", rec.References[0].Name)
				g, err := r.other.SumGroup(t.Context(), e.Object, 0)
				require.NoError(t, err)
				require.True(t, g.Known.Full())
			}
		})
	}
}

// W5
func TestAWriteAfterAPublishMakesANewObject(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	first := random(5*block, 1)
	r.put(w, first, 0)
	require.NoError(t, w.Publish(t.Context()))
	before, _ := r.published("f")
	r.put(w, []byte("other"), 2*block+7)
	require.True(t, w.Entry().Object.ID.IsZero(), "changed since")
	requireSame(t, first, r.stored("f"))
	require.NoError(t, w.Publish(t.Context()))
	after, _ := r.published("f")
	require.NotEqual(t, before.Object.ID, after.Object.ID)
	require.Equal(t, before.Inode, after.Inode)
	want := append([]byte{}, first...)
	copy(want[2*block+7:], "other")
	requireSame(t, want, r.stored("f"))
	f, err := r.open(t.Context(), before.Object)
	require.NoError(t, err)
	old := make([]byte, len(first))
	require.NoError(t, readFull(t.Context(), f, 0, old))
	requireSame(t, first, old)
	require.NoError(t, f.Close())
	w.Close()
	require.Empty(t, r.lost())
}

// W6
func TestChangeOfAPublishedFileIsAPrivateCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := random(20*block+9, 1)
	before := r.elsewhere("f", old, meta.PublishIf{})
	w := r.change("f", false)
	require.Zero(t, r.far.fetched, "opening copies nothing")
	r.put(w, []byte("new"), 3*block+1)
	require.LessOrEqual(t, r.far.fetched, int64(2*block), "of a block that is written in part, that block")
	want := append([]byte{}, old...)
	copy(want[3*block+1:], "new")
	requireSame(t, want, r.content(w))
	requireSame(t, old, r.stored("f"))
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	requireSame(t, want, r.stored("f"))
	after, _ := r.published("f")
	require.Equal(t, before.Inode, after.Inode)

	r.far.fetched = 0
	r.elsewhere("g", old, meta.PublishIf{})
	w = r.change("g", true)
	r.put(w, []byte("x"), 0)
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	require.Equal(t, "x", string(r.stored("g")))
	require.Zero(t, r.far.fetched, "of what is cut, nothing is fetched")
}

// W7
func TestTheLastPublishWins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f", random(2*block, 1))
	w := r.change("f", true)
	r.put(w, []byte("mine"), 0)
	e, _ := r.published("f")
	r.elsewhere("f", random(3*block, 2), meta.PublishIf{Over: &e, Known: true})
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	require.Equal(t, "mine", string(r.stored("f")))
}

// W8
func TestExclusive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", true)
	r.put(w, []byte("mine"), 0)
	theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{})
	require.ErrorIs(t, w.Publish(t.Context()), meta.ErrExist)
	w.Close()
	e, _ := r.published("f")
	require.Equal(t, theirs.Object, e.Object)
	ls := r.lost()
	require.Len(t, ls, 1)
	require.Equal(t, LostClosed, ls[0].State)
	require.Equal(t, at("f"), ls[0].At)
	require.Equal(t, int64(4), ls[0].Size)

	w = r.create("g", true) // again after a failure of the store: it is ours
	r.put(w, []byte("mine"), 0)
	require.NoError(t, w.Publish(t.Context()))
	r.put(w, []byte("more"), 4)
	require.NoError(t, w.Publish(t.Context()), "the name is its own by now")
	w.Close()
}

// W9
func TestAFileThatAnotherNodeTookAwayIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"removed", "replaced"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write("f", random(block, 1))
			w := r.change("f", false)
			r.put(w, []byte("mine"), 0)
			_, _, err := r.other.Unlink(t.Context(), meta.RootDir, "f", 0)
			require.NoError(t, err)
			if how == "replaced" {
				r.elsewhere("f", []byte("theirs"), meta.PublishIf{})
			}
			require.ErrorIs(t, w.Publish(t.Context()), meta.ErrStale)
			w.Close()
			e, ok := r.published("f")
			require.Equal(t, how == "replaced", ok)
			ls := r.lost()
			require.Len(t, ls, 1)
			require.Contains(t, ls[0].Reason, "name")

			_, err = r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
			if how == "replaced" {
				require.ErrorIs(t, err, meta.ErrExist)
				_, err = r.area.Recover(t.Context(), ls[0].ID, at("g"), false)
				require.NoError(t, err)
				require.Equal(t, "mine", string(r.stored("g")[:4]))
				now, _ := r.published("f")
				require.Equal(t, e.Object, now.Object)
			} else {
				require.NoError(t, err)
				require.Equal(t, "mine", string(r.stored("f")[:4]))
			}
			require.Empty(t, r.lost())
		})
	}
}

// W10, O3
func TestBytesWhosePublishFailedStay(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"one block": 100, "many blocks": 9 * block, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := random(size, 1)
			w := r.create("f", false)
			if size > 0 {
				r.put(w, want, 0)
			}
			r.faults.Down()
			require.ErrorIs(t, w.Publish(t.Context()), meta.ErrUnavailable)
			requireSame(t, want, r.content(w))
			w.Close()
			require.Equal(t, []meta.Place{at("f")}, r.changed, "the name goes")
			require.Equal(t, 1, r.area.Stats().Failed)
			r.stop()
			r.start()
			ls := r.lost()
			require.Len(t, ls, 1)
			require.Equal(t, size, ls[0].Size)
			require.Contains(t, ls[0].Reason, "unreachable")
			var out bytes.Buffer
			require.NoError(t, r.area.CopyOut(t.Context(), ls[0].ID, &out))
			requireSame(t, want, out.Bytes())
			_, err := r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
			require.ErrorIs(t, err, meta.ErrUnavailable)
			require.Len(t, r.lost(), 1)
			r.faults.Up()
			_, err = r.area.Recover(t.Context(), ls[0].ID, meta.Place{}, false)
			require.NoError(t, err)
			requireSame(t, want, r.stored("f"))
			require.Empty(t, r.lost())
			infos, err := r.cache.StagedFiles()
			require.NoError(t, err)
			require.Empty(t, infos)
		})
	}
}

func TestAPublishThatFailedGoesOnFromThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := random(9*block, 1)
	w := r.create("f", true)
	r.put(w, want, 0)
	r.faults.Down()
	require.Error(t, w.Publish(t.Context()))
	require.Error(t, w.Publish(t.Context()))
	r.put(w, []byte("xyz"), 5*block) // un-shares what was sealed
	copy(want[5*block:], "xyz")
	require.Error(t, w.Publish(t.Context()))
	r.faults.Up()
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	requireSame(t, want, r.stored("f"))
	require.Empty(t, r.lost())
	infos, err := r.cache.StagedFiles()
	require.NoError(t, err)
	require.Empty(t, infos)
	n := 0
	require.NoError(t, r.cache.Objects(t.Context(), func(cache.Info) bool { n++; return true }))
	require.Equal(t, 1, n, "objects that were never published are gone")
}

// W13
func TestHolesStayHoles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	require.NoError(t, w.Resize(t.Context(), 50*block))
	r.put(w, []byte("x"), 20*block)
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	e, _ := r.published("f")
	require.True(t, e.Object.Sparse)
	z, err := r.other.Zeros(t.Context(), e.Object)
	require.NoError(t, err)
	require.Equal(t, 49, z.Count())
	require.False(t, z.Has(20))
}

func TestASmallFileIsOneTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, smallFiles) // a store is asked more when it is slow
}

func smallFiles(t *testing.T) {
	r := newRig(t)
	r.write("first", []byte("x")) // announces the set
	before := r.calls()
	const n = 20
	for i := range n {
		w := r.create(fmt.Sprint(i), false)
		r.put(w, []byte("x"), 0)
		require.NoError(t, w.Publish(t.Context()))
		w.Close()
	}
	require.Equal(t, before+n, r.calls(), "requests to the store")
	a, _ := r.published("0")
	b, _ := r.published("19")
	require.Equal(t, a.Object.Set, b.Object.Set)
	require.True(t, r.area.Keeps(a.Object.Set))
}

func (r *rig) calls() (n int) {
	for _, op := range []string{"Get", "List", "Version", "Apply", "Lease"} {
		n += r.faults.Calls(op)
	}
	return n
}

func TestTheNextPublishWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	for i := range 30 {
		var wg sync.WaitGroup
		want := random(3*block, uint64(i))
		r.put(w, want, 0)
		for range 4 {
			wg.Go(func() { require.NoError(t, w.Publish(t.Context())) })
			wg.Go(func() { require.NoError(t, w.Write(t.Context(), []byte{byte(i)}, 7, false)) })
		}
		wg.Wait()
		want[7] = byte(i)
		require.NoError(t, w.Publish(t.Context()))
		requireSame(t, want, r.stored("f"))
	}
	w.Close()
}
