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

var (
	slot = meta.Slot("d/1")
	key  = meta.Key{Slot: slot, Field: "a"}
)

func set(value string) []meta.Set { return []meta.Set{{Field: "a", Value: []byte(value)}} }

// writable waits until key can be written.
func writable(t *testing.T, s *etcd.Store, value string) (at uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		at, err = s.Apply(t.Context(), slot, nil, set(value))
		if err != nil {
			require.ErrorIs(t, err, meta.ErrUnavailable)
		}
		return err == nil
	}, soon, tick)
	return at
}

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

// TestKilled: a killed server is told from an absent record at once, and when
// it is back all goes on, watches with it.
func TestKilled(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	s := open(t, srv.URL("x"), etcd.Options{})
	v := writable(t, s, "1")
	told := make(chan meta.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, slot, v, func(evs []meta.Event) {
			for _, ev := range evs {
				told <- ev
			}
		})
	}()
	writable(t, s, "2")
	require.Equal(t, "2", string((<-told).Value))

	srv.Kill()
	start := time.Now()
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), busy)

	srv.Restart()
	start = time.Now()
	require.Eventually(t, func() bool {
		recs, err := s.Get(t.Context(), key)
		return err == nil && string(recs[0].Value) == "2"
	}, soon, tick)
	t.Logf("reads again after %v", time.Since(start))
	writable(t, s, "3")
	for value, late := "2", time.After(soon); value != "3"; {
		require.Equal(t, "2", value, "again, by who got no answer")
		select {
		case ev := <-told:
			value = string(ev.Value)
		case <-late:
			t.Fatal("the watch did not come back")
		}
	}
	t.Logf("watch again after %v", time.Since(start))
	cancel()
	require.NoError(t, <-ended)
}

// TestStopped: a server that is stopped keeps its connections and says
// nothing; that is found out within the read timeout.
func TestStopped(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	s := open(t, srv.URL("x"), etcd.Options{})
	writable(t, s, "1")
	srv.Pause()
	start := time.Now()
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), etcd.DefaultReadTimeout+busy)
	srv.Resume()
	start = time.Now()
	require.Eventually(t, func() bool {
		_, err := s.Get(t.Context(), key)
		return err == nil
	}, soon, tick)
	t.Logf("reads again after %v", time.Since(start))
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
