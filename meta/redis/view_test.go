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

// TestViewOverRedis is an outage as a mount sees it, with a real server.
func TestViewOverRedis(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	other := meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{})
	metatest.Join(t, other)
	a, err := other.Link(t.Context(), meta.RootDir, metatest.File("a", 1))
	require.NoError(t, err)

	changed := make(chan meta.Change, 100)
	v, err := meta.NewView(meta.ViewConfig{
		Catalog:  meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{}),
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

// TestViewOverWipedStore: a store that was made anew is not taken for the old
// one, though its port is the same and nothing says so.
func TestViewOverWipedStore(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	other := meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{})
	metatest.Join(t, other)
	for i := range 10 {
		_, err := other.Link(t.Context(), meta.RootDir, metatest.File(strings.Repeat("n", i+1), 1))
		require.NoError(t, err)
	}
	v, err := meta.NewView(meta.ViewConfig{Catalog: meta.NewCatalog(open(t, srv.URL("x"), redis.Options{}), meta.Options{})})
	require.NoError(t, err)
	t.Cleanup(func() { _ = v.Close() })
	entries, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Len(t, entries, 10)

	srv.Kill()
	srv.Wipe()
	srv.Restart()
	require.Eventually(t, func() bool {
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
