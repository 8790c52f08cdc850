package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// opener returns a function that opens empty stores on one server: each has a
// prefix of its own.
func opener(url func(prefix string) string) func(*testing.T) meta.Slots {
	var n atomic.Int64
	return func(t *testing.T) meta.Slots {
		return open(t, url(fmt.Sprintf("test/%d", n.Add(1))), patient)
	}
}

func open(t *testing.T, url string, opts redis.Options) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), url, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStandalone(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	open := opener(srv.URL)
	t.Run("Slots", func(t *testing.T) { metatest.Run(t, open) })
	srv.Run("config", "resetstat") // the test itself looks for keys there
	t.Run("Catalog", func(t *testing.T) { metatest.RunCatalog(t, open) })
	used := srv.Run("info", "commandstats")
	require.Contains(t, used, "cmdstat_evalsha:")
	for _, command := range []string{"keys", "scan", "hscan", "sscan", "zscan", "randomkey"} {
		require.NotContains(t, used, "cmdstat_"+command+":", "nothing looks through all keys")
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	open := opener(metatest.StartRedisCluster(t).URL)
	t.Run("Slots", func(t *testing.T) { metatest.Run(t, open) })
	t.Run("Catalog", func(t *testing.T) { metatest.RunCatalog(t, open) })
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	open := opener(metatest.StartSentinel(t).URL)
	t.Run("Slots", func(t *testing.T) { metatest.Run(t, open) })
	t.Run("Catalog", func(t *testing.T) { metatest.RunCatalog(t, open) })
}

func TestOffer(t *testing.T) {
	t.Parallel()
	metatest.RunOffer(t, opener(metatest.StartRedis(t).URL))
}

// TestJoins: what the server appends to its file.
func TestJoins(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t, "--auto-aof-rewrite-percentage", "0")
	metatest.RunJoins(t, open(t, srv.URL("x"), patient), func() int {
		_, v, ok := strings.Cut(srv.Run("info", "persistence"), "aof_current_size:")
		require.True(t, ok)
		v, _, _ = strings.Cut(v, "\r")
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		return n
	})
}
