package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// W4, C3
func TestABrokenFileGivesItsNameBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := random(5*block, 1)
	r.write("f", old)
	w := r.change("f", false)
	r.put(w, []byte("half"), 2*block)
	n := r.create("n", false)
	r.put(n, []byte("half"), 0)
	reader, ok := r.area.Find(meta.RootDir, w.Entry())
	require.True(t, ok)

	require.True(t, w.Break())
	require.False(t, w.Break())
	require.True(t, n.Break())
	w.Close()
	n.Close()
	e, err := r.area.Names().Lookup(t.Context(), meta.RootDir, "f")
	require.NoError(t, err)
	now, _ := r.published("f")
	require.Equal(t, now.Object, e.Object)
	require.Equal(t, []string{"f"}, r.list())
	require.ErrorIs(t, reader.Publish(t.Context()), meta.ErrStale)
	ls := r.lost()
	require.Len(t, ls, 1, "the other one is still read")
	require.Equal(t, LostOpen, ls[0].State)

	again := r.change("f", false) // is another file by now
	r.put(again, []byte("new"), 0)
	require.NoError(t, again.Publish(t.Context()))
	again.Close()
	want := append([]byte{}, old...)
	copy(want, "new")
	requireSame(t, want, r.stored("f"))

	half := append([]byte{}, old...)
	copy(half[2*block:], "half")
	got := make([]byte, len(half))
	require.NoError(t, readFull(t.Context(), neverClosed{reader}, 0, got))
	requireSame(t, half, got) // R2
	reader.Close()
	for _, l := range r.lost() {
		_, err := r.area.Recover(t.Context(), l.ID, meta.Place{}, true)
		require.NoError(t, err)
	}
	requireSame(t, half, r.stored("f"))
	require.Equal(t, "half", string(r.stored("n")))
	require.Empty(t, r.lost())
}

// neverClosed reads a file that its user closes.
type neverClosed struct{ fs.WriteFile }

func (neverClosed) Close() error { return nil }

func TestWhatCannotBreak(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f", random(block, 1))
	w := r.change("f", false)
	require.False(t, w.Break(), "nothing has changed")
	r.put(w, []byte("x"), 0)
	require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f"))
	require.False(t, w.Break(), "it is removed")
	w.Close()
	p := r.create("x.incomplete", false)
	r.put(p, []byte("half"), 0)
	require.False(t, p.Break(), "W12: who goes on later finds it")
	p.Close()
	require.Equal(t, []string{"x.incomplete"}, r.list())
	e := r.create("empty", false)
	require.True(t, e.Break())
	e.Close()
	require.Equal(t, []string{"x.incomplete"}, r.list())
	require.Empty(t, r.lost(), "nothing was written")
}
