package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

const (
	soon = 2 * time.Minute
	tick = 10 * time.Millisecond
	busy = 20 * time.Second // what a machine that is busy may add to a bound
)

// patient is of those who are to get an answer, however long a server that is
// there takes.
var patient = etcd.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Patience: time.Minute}

const slot = metatest.Slot

var key = metatest.Key()

func set(value string) []meta.Set { return metatest.SetTo(value) }

// TestOpenWithoutStore: a mount starts while the store is down, with and
// without a password in the URL, and needs no new start when it comes up.
func TestOpenWithoutStore(t *testing.T) {
	t.Parallel()
	addr := metatest.FreeAddr(t)
	for _, user := range []string{"", "user:secret@"} {
		start := time.Now()
		s := open(t, "etcd://"+user+addr+"/x", etcd.Options{})
		require.Less(t, time.Since(start), busy)
		_, err := s.Get(t.Context(), key)
		require.ErrorIs(t, err, meta.ErrUnavailable)
		require.ErrorContains(t, err, addr)
		require.NotContains(t, err.Error(), "secret")
		require.Less(t, time.Since(start), etcd.DefaultReadTimeout+busy)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = s.Apply(ctx, slot, nil, set("1"))
		cancel()
		require.ErrorIs(t, err, meta.ErrUnavailable)
	}
}

func TestKilled(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	metatest.RunKilled(t, srv, open(t, srv.URL("x"), etcd.Options{WriteTimeout: 2 * time.Second}), etcd.DefaultPatience, 2*time.Second)
}

func TestStopped(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	metatest.RunStopped(t, srv.Pause, srv.Resume, open(t, srv.URL("x"), etcd.Options{}), etcd.DefaultReadTimeout)
}

// TestPrefix: the prefix is a prefix of every key, and nothing else is
// touched.
func TestPrefix(t *testing.T) {
	t.Parallel()
	url := startEmbedded(t)
	a, b := open(t, url("a"), patient), open(t, url("a/b"), patient)
	whole := open(t, strings.TrimSuffix(url(""), "/"), patient)
	for i, s := range []*etcd.Store{a, b, whole} {
		recs, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Nil(t, recs[0].Value, i)
		_, err = s.Apply(t.Context(), slot, []meta.If{{NoOthers: true}}, set("1"))
		require.NoError(t, err)
	}
	keys, err := whole.Keys(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a/b/d/1", "a/b/d/1/a", "a/d/1", "a/d/1/a", "p2p/d/1", "p2p/d/1/a"}, keys)
}

// TestOutages: one server, over a link. O1, O2, O4
func TestOutages(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	link := metatest.NewProxy(t, srv.Addr())
	metatest.RunOutages(t, func(t *testing.T) meta.Slots { return open(t, "etcd://"+link.Addr()+"/x", etcd.Options{}) },
		append(metatest.LinkOutages(link),
			metatest.Outage{Name: "stopped", Begin: srv.Pause, End: srv.Resume},
			metatest.Outage{Name: "killed", Begin: srv.Kill, End: srv.Restart},
		)...)
}

// TestOutagesMany: members that lose their leader, and most of them. O1, O2, O4
func TestOutagesMany(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcdCluster(t)
	var leader *metatest.Etcd
	metatest.RunOutages(t, func(t *testing.T) meta.Slots { return open(t, srv.URL("x"), etcd.Options{}) },
		metatest.Outage{Name: "no quorum", Begin: func() { srv.Members[0].Kill(); srv.Members[1].Kill() }, End: func() { srv.Restart(0, 1) }},
		metatest.Outage{Name: "fail-over", Passing: true, Begin: func() { leader = srv.Leader(t); leader.Kill() }, End: func() { leader.Restart() }},
	)
}

func TestLost(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	metatest.RunLost(t, srv, func(t *testing.T, prefix string) meta.Slots { return open(t, srv.URL(prefix), etcd.Options{}) })
}
