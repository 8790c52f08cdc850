package etcd_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/etcd/embedded"
	"github.com/p2pfs/p2pfs/meta/metatest"
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

func open(t *testing.T, url string, opts etcd.Options) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), url, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func startEmbedded(t *testing.T) func(prefix string) string {
	t.Helper()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	return func(prefix string) string { return srv.URL() + "/" + prefix }
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	open := opener(startEmbedded(t))
	t.Run("Slots", func(t *testing.T) { metatest.Run(t, open) })
	t.Run("Catalog", func(t *testing.T) { metatest.RunCatalog(t, open) })
}

func TestProcess(t *testing.T) {
	t.Parallel()
	open := opener(metatest.StartEtcd(t).URL)
	t.Run("Slots", func(t *testing.T) { metatest.Run(t, open) })
	t.Run("Catalog", func(t *testing.T) { metatest.RunCatalog(t, open) })
}

// TestMembers: what the catalog needs of a store, of three members.
func TestMembers(t *testing.T) {
	t.Parallel()
	metatest.Run(t, opener(metatest.StartEtcdCluster(t).URL))
}

// TestMemberBehind: who watches or follows through a member that has not got the last
// changes yet is told those that come, and does not take the store for another one.
func TestMemberBehind(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcdCluster(t)
	var at []*etcd.Store
	for _, m := range srv.Members {
		at = append(at, open(t, m.URL("x"), patient))
	}
	all := open(t, srv.URL("x"), patient)
	for i := range 60 {
		v := metatest.Writable(t, at[i%3], fmt.Sprint("before ", i))
		w := metatest.Watch(t, at[(i+1)%3], v)
		past := meta.FollowOptions{From: strconv.FormatUint(v, 10), Past: true}
		require.NoError(t, all.Follow(t.Context(), past, func(meta.SlotChange) error { return nil }))
		metatest.Writable(t, at[i%3], fmt.Sprint(i))
		w.Next(fmt.Sprint(i))
		w.End(nil)
	}
}

// TestJoins: keys and values that the server has written.
func TestJoins(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartEtcd(t).URL("x"), patient)
	n, at := 0, int64(0)
	metatest.RunJoins(t, s, func() int {
		var err error
		var more int
		more, at, err = s.Written(t.Context(), at)
		require.NoError(t, err)
		n += more
		return n
	})
}
