package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestRecheck: what a fail-over lost is noticed by who made it, also after
// others have changed the same directory, and a fail-over that lost nothing is
// no loss.
func TestRecheck(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	a := meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{})
	b := meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{})
	metatest.Join(t, a)
	metatest.Join(t, b)
	publish := func(c *meta.Catalog, name string) uint64 {
		var e meta.Entry
		require.Eventually(t, func() bool {
			var err error
			e, _, err = c.Publish(t.Context(), meta.RootDir, metatest.File(name, 1), meta.PublishIf{})
			return err == nil
		}, soon, tick)
		return e.Version
	}
	recheck := func(c *meta.Catalog, want bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			lost, err := c.Recheck(t.Context())
			if err == nil {
				require.Equal(t, want, lost)
			}
			return err == nil
		}, soon, tick)
	}
	publish(a, "kept")
	recheck(a, false)

	srv.CaughtUp(t)
	srv.Now(t).Kill()
	srv.FailedOver(t)
	recheck(a, false)
	publish(a, "kept, too")
	srv.CaughtUp(t)

	master, replica := srv.Now(t), srv.Master
	if replica == master {
		replica = srv.Replica
	}
	replica.Kill()
	lost := publish(a, "lost")
	master.Kill()
	replica.Restart()
	srv.Promote(t, replica)
	publish(b, "after")
	var back bool
	require.Eventually(t, func() bool { // its client has to find the new master, too
		var err error
		back, err = a.RolledBack(t.Context(), map[meta.InodeID]uint64{meta.RootDir: lost})
		return err == nil
	}, soon, tick)
	require.False(t, back, "the directory has come further than that")
	recheck(a, true)
	recheck(a, true) // until it is repaired
	recheck(b, false)
	a.ForgetBehind()
	recheck(a, false)
}

// TestLacks: what the log has no more is not taken for lost.
func TestLacks(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	var versions []uint64
	for range 3 {
		v, err := s.Apply(t.Context(), slot, nil, set("1"))
		require.NoError(t, err)
		versions = append(versions, v)
	}
	lacks := func(want bool, versions ...uint64) {
		t.Helper()
		got, err := s.Lacks(t.Context(), slot, versions)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	lacks(false, versions...)
	lacks(true, versions[0]+1)
	lacks(true, versions[2]+1)
	lacks(true, append(versions, versions[1]+1)...)
	require.NoError(t, s.Compact(t.Context()))
	lacks(false, versions...)
	lacks(false, versions[1]+1)
	_, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	lacks(false, versions...)
	lacks(false)
}
