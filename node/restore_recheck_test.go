package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestRecheckRepairsAFailOver: what a fail-over lost is brought back by who
// published it, and what others did since stands. N6
func TestRecheckRepairsAFailOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	var nodes []*member
	for range 2 {
		s, err := redis.Open(t.Context(), srv.URL("x"), redis.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Patience: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
		require.NoError(t, err)
		m := newMember(t, t.TempDir())
		m.on(s, info)
		nodes = append(nodes, m)
	}
	a, b := nodes[0], nodes[1]
	publish := func(m *member, name string) meta.Entry {
		t.Helper()
		var e meta.Entry
		require.Eventually(t, func() bool {
			var err error
			e, _, err = m.c.Publish(t.Context(), meta.RootDir, metatest.File(name, 1), meta.PublishIf{})
			return err == nil
		}, 2*time.Minute, 10*time.Millisecond)
		return e
	}
	publish(a, "kept")
	publish(a, "removed")
	publish(a, "replaced")
	_, _, err := b.c.Unlink(t.Context(), meta.RootDir, "removed", 0)
	require.NoError(t, err)
	srv.CaughtUp(t)
	srv.Replica.Kill()
	lost := publish(a, "lost")
	older := publish(a, "replaced")
	_, _, err = a.c.Unlink(t.Context(), meta.RootDir, "kept", 0)
	require.NoError(t, err)
	srv.Master.Kill()
	srv.Replica.Restart()
	srv.Promote(t, srv.Replica)
	newer := publish(b, "replaced")
	require.NotEqual(t, older.Object.ID, newer.Object.ID)
	require.Contains(t, strings.Join(treeOf(t, b.c), "\n"), "kept", "its removal is lost")

	require.Eventually(t, func() bool { return a.r.lostChanges(t.Context()) }, 2*time.Minute, 10*time.Millisecond)
	a.r.restore(t.Context(), "test", 0, true)
	require.True(t, b.r.needed(t.Context()), "the others take part")
	b.r.restore(t.Context(), "test", 0, false)
	require.Equal(t, []string{
		"lost file " + lost.Object.ID.Short(),
		"replaced file " + newer.Object.ID.Short(),
	}, treeOf(t, b.c))
	require.False(t, a.r.lostChanges(t.Context()))
	require.NoError(t, a.c.CheckStore(t.Context()))
	require.NoError(t, b.c.CheckStore(t.Context()))
}
