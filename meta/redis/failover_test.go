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
	v, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	w := watch(t, s, v)
	v, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	w.next("2")
	follows(t, srv.Replica)

	srv.Master.Kill()
	at := writable(t, s, "3")
	require.Greater(t, at, v)
	w.next("3")
	readable(t, s, "3")

	srv.Master.Restart() // the Sentinels make it a replica
	require.Eventually(t, func() bool {
		return strings.HasPrefix(srv.Master.Run("role"), "slave") && strings.Contains(srv.Master.Run("role"), "connected")
	}, soon, 10*tick)
	readable(t, s, "3")
	follows(t, srv.Master)
	srv.Replica.Pause()
	require.Eventually(t, func() bool { return strings.HasPrefix(srv.Master.Run("role"), "master") }, soon, 10*tick)
	writable(t, s, "4")
	w.next("4")
	srv.Replica.Resume()
	require.Eventually(t, func() bool { return strings.HasPrefix(srv.Replica.Run("role"), "slave") }, soon, 10*tick)
	readable(t, s, "4")
	writable(t, s, "5")
	w.next("5")
	w.end(nil)
}

// follows waits until a replica has the key of slot.
func follows(t *testing.T, r *metatest.Redis) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.TrimSpace(r.Run("hexists", "x:{d/1}", "a")) == "1" }, soon, tick)
}

// TestSentinelLosesChanges: what a replica had not got is gone when it takes
// over. A watch that was told of it says so, and its version is not given out
// again.
func TestSentinelLosesChanges(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	s := open(t, srv.URL("x"), redis.Options{})
	v1, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	follows(t, srv.Replica)
	w := watch(t, s, v1)
	srv.Replica.Kill()
	lost, err := s.Apply(t.Context(), slot, nil, set("lost"))
	require.NoError(t, err)
	w.next("lost")
	srv.Master.Kill()
	srv.Replica.Restart()
	readable(t, s, "1")
	w.end(meta.ErrGap)
	at, err := s.Version(t.Context(), slot)
	require.NoError(t, err)
	require.Equal(t, v1, at)
	require.Greater(t, writable(t, s, "2"), lost)
	watch(t, s, lost).end(meta.ErrGap)
}

// TestClusterFailOver: a killed master's slots go to its replica, and watches
// with them; the others' go on all the while.
func TestClusterFailOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	s := open(t, srv.URL("x"), redis.Options{})
	v, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	w := watch(t, s, v)
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	w.next("2")
	require.NoError(t, s.Do(t.Context(), "WAIT", 1, 1000))

	master := srv.Master(t, "x:{d/1}")
	master.Kill()
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	writable(t, s, "3")
	w.next("3")
	readable(t, s, "3")
	master.Restart()
	writable(t, s, "4")
	w.next("4")
	w.end(nil)
}

// TestClusterHandOver: a replica that takes over while its master lives takes
// the watches with it.
func TestClusterHandOver(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	s := open(t, srv.URL("x"), redis.Options{})
	v, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	w := watch(t, s, v)
	master := srv.Master(t, "x:{d/1}")
	id := strings.TrimSpace(master.Run("cluster", "myid"))
	i := slices.IndexFunc(srv.Servers, func(r *metatest.Redis) bool {
		return strings.Contains(r.Run("cluster", "nodes"), "myself,slave "+id)
	})
	require.GreaterOrEqual(t, i, 0)
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
	writable(t, s, "2")
	w.next("2")
	readable(t, s, "2")
	w.end(nil)
}
