package meta_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// A View lets go of a name when its time is over, though no event tells it, and
// does not take an outage for a word that it is gone. T1
func TestViewExpiry(t *testing.T) {
	t.Parallel()
	for _, mode := range []meta.Consistency{meta.ConsistencyOpen, meta.ConsistencyWatch} {
		t.Run(string(mode), inBubble(func(t *testing.T) {
			r := newRig(t, meta.ViewConfig{Timeout: time.Second, Consistency: mode})
			r.link(t, "lasting")
			e := metatest.File("short", 1)
			e.ExpiresNs = time.Now().Add(3 * time.Second).UnixNano()
			_, err := r.other.Link(t.Context(), meta.RootDir, e)
			require.NoError(t, err)
			r.names(t)
			if _, err = r.view.Lookup(t.Context(), meta.RootDir, "short"); time.Now().UnixNano() < e.ExpiresNs {
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return len(r.names(t)) == 1 }, soon, tick)
			require.GreaterOrEqual(t, time.Now().UnixNano(), e.ExpiresNs)
			_, err = r.view.Lookup(t.Context(), meta.RootDir, "short")
			require.ErrorIs(t, err, meta.ErrNotFound)

			e.Inode, e.ExpiresNs = meta.NewInodeID(), time.Now().Add(time.Hour).UnixNano()
			_, err = r.other.Link(t.Context(), meta.RootDir, e)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				got, err := r.view.Lookup(t.Context(), meta.RootDir, "short")
				return err == nil && got.Inode == e.Inode
			}, soon, tick)

			e.Name, e.ExpiresNs = "over", time.Now().Add(-time.Hour).UnixNano()
			_, err = r.other.Link(t.Context(), meta.RootDir, e)
			require.NoError(t, err)
			require.Len(t, r.names(t), 2)
			r.faults.Down()
			_, err = r.view.Confirm(t.Context(), meta.RootDir, "over")
			require.ErrorIs(t, err, meta.ErrUnavailable, "it may have been published again")
			require.Len(t, r.names(t), 2)
		}))
	}
}
