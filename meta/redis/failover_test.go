package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestSentinelFailOver: when the master is gone, and when it is only silent,
// its replica is found, and watches go on; the old master, when it is back,
// is not asked.
func TestSentinelFailOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := metatest.Watch(t, s, metatest.Writable(t, s, "1"))
	v := metatest.Writable(t, s, "2")
	w.Next("2")
	srv.CaughtUp(t)

	srv.Master.Kill()
	srv.Promote(t, srv.Replica)
	at := metatest.Writable(t, s, "3")
	require.Greater(t, at, v)
	w.Next("3")
	metatest.Readable(t, s, "3")

	srv.Master.Restart() // the Sentinels make it a replica
	require.Eventually(t, srv.Master.Follows, soon, 10*tick)
	metatest.Readable(t, s, "3")
	srv.CaughtUp(t)
	srv.Replica.Pause()
	srv.Promote(t, srv.Master)
	metatest.Writable(t, s, "4")
	w.Next("4")
	srv.Replica.Resume()
	require.Eventually(t, func() bool { return strings.HasPrefix(srv.Replica.Run("role"), "slave") }, soon, 10*tick)
	metatest.Readable(t, s, "4")
	metatest.Writable(t, s, "5")
	w.Next("5")
	w.End(nil)
}

// TestSentinelLosesChanges: what a replica had not got is gone when it takes
// over. A watch that was told of it says so, and its version is not given out
// again.
func TestSentinelLosesChanges(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	s := open(t, srv.URL("x"), redis.Options{})
	v1 := metatest.Writable(t, s, "1")
	srv.CaughtUp(t)
	w := metatest.Watch(t, s, v1)
	srv.Replica.Kill()
	lost := metatest.Writable(t, s, "lost")
	w.Next("lost")
	srv.Master.Kill()
	srv.Replica.Restart()
	srv.Promote(t, srv.Replica)
	metatest.Readable(t, s, "1")
	w.End(meta.ErrGap)
	var at uint64
	require.Eventually(t, func() bool {
		var err error
		at, err = s.Version(t.Context(), slot)
		return err == nil
	}, soon, tick)
	require.Equal(t, v1, at)
	require.Greater(t, metatest.Writable(t, s, "2"), lost)
	metatest.Watch(t, s, lost).End(meta.ErrGap)
}

// TestClusterFailOver: a killed master's slots go to its replica, and watches
// with them; the others' go on all the while.
func TestClusterFailOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := metatest.Watch(t, s, metatest.Writable(t, s, "1"))
	metatest.Writable(t, s, "2")
	w.Next("2")
	srv.CaughtUp(t)

	master := srv.Master(t, "x:{d/1}")
	master.Kill()
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	srv.Promote(t, master)
	metatest.Writable(t, s, "3")
	w.Next("3")
	metatest.Readable(t, s, "3")
	master.Restart()
	metatest.Writable(t, s, "4")
	w.Next("4")
	w.End(nil)
}

// TestClusterHandOver: a replica that takes over while its master lives takes
// the watches with it.
func TestClusterHandOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := metatest.Watch(t, s, metatest.Writable(t, s, "1"))
	master := srv.Master(t, "x:{d/1}")
	i := -1
	require.Eventually(t, func() bool {
		id := strings.TrimSpace(master.Run("cluster", "myid"))
		i = slices.IndexFunc(srv.Servers, func(r *metatest.Redis) bool {
			return strings.Contains(r.Run("cluster", "nodes"), "myself,slave "+id)
		})
		return i >= 0
	}, soon, tick)
	var asked time.Time
	require.Eventually(t, func() bool {
		if strings.HasPrefix(master.Run("role"), "slave") {
			return true
		}
		// A hand-over that is not agreed on within 5 s is given up, and may be
		// asked for again.
		if time.Since(asked) > 6*time.Second {
			srv.Servers[i].Run("cluster", "failover")
			asked = time.Now()
		}
		return false
	}, soon, tick)
	metatest.Writable(t, s, "2")
	w.Next("2")
	metatest.Readable(t, s, "2")
	w.End(nil)
}
