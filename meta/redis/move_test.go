package redis_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestClusterMoves: while a slot's keys are being taken to another server they
// are found or out of reach, never absent, and afterwards all goes on there.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := metatest.Watch(t, s, metatest.Writable(t, s, "1"))
	metatest.Writable(t, s, "2")
	w.Next("2")

	from := srv.Master(t, "x:{d/1}")
	var to *metatest.Redis
	for _, r := range srv.Servers {
		if r != from && strings.HasPrefix(r.Run("role"), "master") {
			to = r
		}
	}
	run := func(r *metatest.Redis, args ...string) string {
		t.Helper()
		out := strings.TrimSpace(r.Run(args...))
		require.NotContains(t, out, "ERR", "%q", args)
		return out
	}
	id := func(r *metatest.Redis) string { return run(r, "cluster", "myid") }
	n := run(from, "cluster", "keyslot", "x:{d/1}")
	host, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	move := func(keys ...string) {
		run(from, append([]string{"migrate", host, port, "", "0", "5000", "keys"}, keys...)...)
	}
	run(to, "cluster", "setslot", n, "importing", id(from))
	run(from, "cluster", "setslot", n, "migrating", id(to))
	metatest.Readable(t, s, "2")
	move("x:{d/1}") // its log is still there
	metatest.Readable(t, s, "2")
	if _, err = s.Apply(t.Context(), slot, nil, set("3")); err != nil {
		require.ErrorIs(t, err, meta.ErrUnavailable)
	}
	move("x:{d/1}log")
	metatest.Readable(t, s, "2")
	for _, r := range srv.Servers {
		if strings.HasPrefix(r.Run("role"), "master") {
			run(r, "cluster", "setslot", n, "node", id(to))
		}
	}
	metatest.Readable(t, s, "2")
	metatest.Writable(t, s, "4")
	w.Next("4")
	require.Equal(t, "1", run(to, "exists", "x:{d/1}"))
	w.End(nil)
}
