package staging

import (
	"testing"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/stretchr/testify/require"
)

// W12: no path leads to a private file whose directory another node removed,
// so it waits to be recovered. One in a directory that is there stays.
func TestPrivateFileOfARemovedDirectoryIsLost(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		r := newRig(t)
		dir, err := r.area.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		want := random(2*block, 1)
		w, err := r.area.Create(t.Context(), dir.Inode, "f.incomplete", meta.Attrs{Mode: 0o640}, true)
		require.NoError(t, err)
		r.put(w, want, 0)
		require.NoError(t, w.Publish(t.Context()))
		r.write("g.incomplete", random(block, 2))
		_, err = r.other.Rmdir(t.Context(), meta.RootDir, "d")
		require.NoError(t, err)
		require.Empty(t, r.lost(), "it is open")
		w.Close()
		if restarted {
			r.stop()
			r.start()
		}

		r.faults.Down()
		require.Empty(t, r.lost(), "nobody knows whether the directory is gone")
		r.faults.Up()
		require.Eventually(t, func() bool { return len(r.lost()) == 1 }, soon, tick)
		l := r.lost()[0]
		require.Equal(t, meta.Place{Dir: dir.Inode, Name: "f.incomplete"}, l.At)
		require.Equal(t, LostClosed, l.State)
		require.Equal(t, int64(len(want)), l.Size)
		_, found := r.area.Find(meta.RootDir, w.Entry())
		require.False(t, found)
		_, err = r.area.Recover(t.Context(), l.ID, at("f"), false)
		require.NoError(t, err)
		requireSame(t, want, r.stored("f"))
		e, ok := r.published("f")
		require.True(t, ok)
		require.Equal(t, uint32(0o640), e.Mode)
		_, ok = r.shown("g.incomplete")
		require.True(t, ok)
		require.Empty(t, r.lost())
	}
}
