package etcd_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

const (
	soon = 30 * time.Second
	tick = 10 * time.Millisecond
)

var (
	slot = meta.Slot("d/1")
	key  = meta.Key{Slot: slot, Field: "a"}
)

func set(value string) []meta.Set { return []meta.Set{{Field: "a", Value: []byte(value)}} }

// TestOpenWithoutStore: a mount starts while the store is down, with and
// without a password in the URL, and needs no new start when it comes up.
func TestOpenWithoutStore(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	for _, user := range []string{"", "user:secret@"} {
		start := time.Now()
		s := open(t, "etcd://"+user+addr+"/x", etcd.Options{})
		require.Less(t, time.Since(start), time.Second)
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, meta.ErrUnavailable)
		require.ErrorContains(t, err, addr)
		require.NotContains(t, err.Error(), "secret")
		require.Less(t, time.Since(start), etcd.DefaultReadTimeout+2*time.Second)
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
	v, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
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
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	require.Equal(t, "2", string((<-told).Value))

	srv.Kill()
	start := time.Now()
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), 3*time.Second)

	srv.Restart()
	start = time.Now()
	require.Eventually(t, func() bool {
		recs, err := s.Get(t.Context(), key)
		return err == nil && string(recs[0].Value) == "2"
	}, soon, tick)
	t.Logf("reads again after %v", time.Since(start))
	_, err = s.Apply(t.Context(), slot, nil, set("3"))
	require.NoError(t, err)
	select {
	case ev := <-told:
		require.Equal(t, "3", string(ev.Value))
		t.Logf("watch again after %v", time.Since(start))
	case <-time.After(soon):
		t.Fatal("the watch did not come back")
	}
	cancel()
	require.NoError(t, <-ended)
}

// TestStopped: a server that is stopped keeps its connections and says
// nothing; that is found out within the read timeout.
func TestStopped(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	s := open(t, srv.URL("x"), etcd.Options{})
	_, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	srv.Pause()
	start := time.Now()
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), etcd.DefaultReadTimeout+time.Second)
	srv.Resume()
	start = time.Now()
	require.Eventually(t, func() bool {
		_, err := s.Get(t.Context(), key)
		return err == nil
	}, soon, tick)
	t.Logf("reads again after %v", time.Since(start))
}

// TestViewOverEtcd is an outage as a mount sees it, with a real server.
func TestViewOverEtcd(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	other := meta.NewCatalog(open(t, srv.URL("x"), etcd.Options{}), meta.Options{})
	metatest.Join(t, other)
	a, err := other.Link(t.Context(), meta.RootDir, metatest.File("a", 1))
	require.NoError(t, err)

	store := open(t, srv.URL("x"), etcd.Options{})
	changed := make(chan meta.Change, 100)
	v, err := meta.NewView(meta.ViewConfig{
		Catalog:  meta.NewCatalog(store, meta.Options{}),
		OnChange: func(c meta.Change) { changed <- c },
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = v.Close() })
	entries, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Equal(t, []meta.Entry{a}, entries)

	for name, stop := range map[string]struct{ down, up func() }{
		"stopped": {srv.Pause, srv.Resume},
		"killed":  {srv.Kill, srv.Restart},
	} {
		stop.down()
		start := time.Now()
		_, err = v.Confirm(t.Context(), meta.RootDir, "a")
		require.NoError(t, err, name)
		t.Logf("%s: the first open took %v", name, time.Since(start))
		require.Less(t, time.Since(start), meta.DefaultTimeout+time.Second, name)
		start = time.Now()
		for range 100 {
			_, err = v.Confirm(t.Context(), meta.RootDir, "a")
			require.NoError(t, err, name)
		}
		require.Less(t, time.Since(start), time.Second, name)
		_, err = v.Lookup(t.Context(), meta.RootDir, "b")
		require.ErrorIs(t, err, meta.ErrUnavailable, name)
		require.Equal(t, meta.StateDown, v.State().State)

		stop.up()
		start = time.Now()
		require.Eventually(t, func() bool { return v.State().State == meta.StateUp }, soon, tick, name)
		t.Logf("%s: up again after %v", name, time.Since(start))
		_, err = other.Link(t.Context(), meta.RootDir, metatest.File(name, 1))
		require.NoError(t, err, name)
		_, err = v.Lookup(t.Context(), meta.RootDir, name)
		require.NoError(t, err, name)
		require.Eventually(t, func() bool {
			select {
			case c := <-changed:
				return c == meta.Change{Dir: meta.RootDir, Name: name}
			default:
				return false
			}
		}, soon, tick, name)
	}
}

// TestPrefix: the prefix is a prefix of every key, and nothing else is
// touched.
func TestPrefix(t *testing.T) {
	t.Parallel()
	url := startEmbedded(t)
	a, b := open(t, url("a"), etcd.Options{}), open(t, url("a/b"), etcd.Options{})
	whole := open(t, strings.TrimSuffix(url(""), "/"), etcd.Options{})
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

// TestViewOverWipedStore: a store that was made anew is not taken for the old
// one, though its port is the same and nothing says so.
func TestViewOverWipedStore(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	other := meta.NewCatalog(open(t, srv.URL("x"), etcd.Options{}), meta.Options{})
	metatest.Join(t, other)
	for i := range 10 {
		_, err := other.Link(t.Context(), meta.RootDir, metatest.File(strings.Repeat("n", i+1), 1))
		require.NoError(t, err)
	}
	v, err := meta.NewView(meta.ViewConfig{Catalog: meta.NewCatalog(open(t, srv.URL("x"), etcd.Options{}), meta.Options{})})
	require.NoError(t, err)
	t.Cleanup(func() { _ = v.Close() })
	entries, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Len(t, entries, 10)

	srv.Kill()
	srv.Wipe()
	srv.Restart()
	require.Eventually(t, func() bool { // the connection comes back a moment after the server
		_, err := other.Join(t.Context(), meta.JoinOptions{Create: true})
		return err == nil
	}, soon, tick)
	fresh, err := other.Link(t.Context(), meta.RootDir, metatest.File("fresh", 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		entries, err = v.List(t.Context(), meta.RootDir)
		return err == nil && slices.Equal(entries, []meta.Entry{fresh})
	}, soon, tick)
	_, err = other.Link(t.Context(), meta.RootDir, metatest.File("later", 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := v.Lookup(t.Context(), meta.RootDir, "later")
		return err == nil
	}, soon, tick)
}
