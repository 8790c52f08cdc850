package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	_ = meta.RootDir
}
