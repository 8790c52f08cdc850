package meta_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/local"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestViewOutage(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprint("hang=", hang), inBubble(func(t *testing.T) {
			r := newRig(t, meta.ViewConfig{Timeout: timeout})
			for i := range 50 {
				r.link(t, fmt.Sprint(i))
			}
			r.names(t)
			if hang {
				r.faults.Hang()
			} else {
				r.faults.Down()
			}

			// The first to ask find out, within the bound; then names that
			// are known cost no wait.
			_, err := r.view.Confirm(t.Context(), meta.RootDir, "0")
			require.NoError(t, err)
			require.Equal(t, meta.StateDown, r.view.State().State)
			require.ErrorIs(t, r.view.State().Err, meta.ErrUnavailable)
			start, stale := time.Now(), r.view.State().Stale
			for i := range 50 {
				_, err := r.view.Confirm(t.Context(), meta.RootDir, fmt.Sprint(i))
				require.NoError(t, err)
				_, err = r.view.Lookup(t.Context(), meta.RootDir, fmt.Sprint(i))
				require.NoError(t, err)
			}
			require.Len(t, r.names(t), 50)
			require.Less(t, time.Since(start), 10*timeout, "not one wait each")
			require.GreaterOrEqual(t, r.view.State().Stale, stale+101)

			// Unknown is not the same as absent.
			start = time.Now()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, err := r.view.Lookup(t.Context(), meta.RootDir, fmt.Sprint("x", i)); err == nil {
						t.Error("found")
					} else {
						require.ErrorIs(t, err, meta.ErrUnavailable)
						require.NotErrorIs(t, err, meta.ErrNotFound)
					}
				})
			}
			wg.Wait()
			_, err = r.view.List(t.Context(), meta.NewInodeID())
			require.ErrorIs(t, err, meta.ErrUnavailable)
			require.Less(t, time.Since(start), 10*timeout, "not one wait each")

			// It comes back by itself, with what happened meanwhile.
			r.link(t, "new")
			r.faults.Up()
			require.Eventually(t, func() bool { return r.view.State().State == meta.StateUp }, soon, tick)
			_, err = r.view.Lookup(t.Context(), meta.RootDir, "new")
			require.NoError(t, err)
			require.Len(t, r.names(t), 51)
			_, err = r.view.Lookup(t.Context(), meta.RootDir, "x1")
			require.ErrorIs(t, err, meta.ErrNotFound)
			stale = r.view.State().Stale
			_, err = r.view.Confirm(t.Context(), meta.RootDir, "1")
			require.NoError(t, err)
			require.Equal(t, stale, r.view.State().Stale)
		}))
	}
}

// TestViewOutageWaits: who asks for an unknown name as the outage begins gets
// the answer when it ends within the bound.
func TestViewOutageWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{Timeout: soon})
	r.names(t)
	r.faults.Down()
	_, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
	require.ErrorIs(t, err, meta.ErrUnavailable)
	a := r.link(t, "a")
	type answer struct {
		e   meta.Entry
		err error
	}
	got := make(chan answer)
	go func() {
		e, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
		got <- answer{e, err}
	}()
	r.faults.Up()
	require.Equal(t, answer{a, nil}, <-got)
}

// TestViewSilentStore: a store that went silent is found out though nobody
// asks.
func TestViewSilentStore(t *testing.T) {
	inBubble(func(t *testing.T) {
		r := newRig(t, meta.ViewConfig{Timeout: time.Second, Consistency: meta.ConsistencyWatch})
		r.names(t)
		done := make(chan error, 1)
		go func() { done <- r.view.Run(t.Context()) }()
		r.faults.Hang()
		require.Eventually(t, func() bool { return r.view.State().State == meta.StateDown }, soon, tick)
		require.NoError(t, r.view.Close())
		require.NoError(t, <-done)
	})(t)
}

// TestViewRestartInOutage: a mount that starts while the store is down shows
// what it knew.
func TestViewRestartInOutage(t *testing.T) {
	inBubble(func(t *testing.T) {
		dir := t.TempDir()
		table, err := local.Open(dir, nil)
		require.NoError(t, err)
		r := newRig(t, meta.ViewConfig{Local: table})
		a, b := r.link(t, "a"), r.link(t, "b")
		require.Equal(t, []string{"a", "b"}, r.names(t))
		r.unlink(t, "b", b.Version)
		a = r.replace(t, a)
		d, err := r.other.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		x, err := r.other.Link(t.Context(), d.Inode, metatest.File("x", 1))
		require.NoError(t, err)
		_, err = r.view.Lookup(t.Context(), d.Inode, "x")
		require.NoError(t, err)
		require.Equal(t, []string{"a", "d"}, r.names(t))
		require.Eventually(t, func() bool { return r.told(meta.Change{Dir: meta.RootDir, Name: "d"}) }, soon, tick)
		require.NoError(t, r.view.Close())
		require.NoError(t, table.Close())

		table, err = local.Open(dir, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, table.Close()) })
		r = newRig(t, meta.ViewConfig{Local: table, Timeout: 200 * time.Millisecond})
		r.faults.Down()
		require.Equal(t, []string{"a", "d"}, r.names(t))
		for _, want := range []meta.Entry{a, d} {
			got, err := r.view.Lookup(t.Context(), meta.RootDir, want.Name)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := r.view.Confirm(t.Context(), d.Inode, "x")
		require.NoError(t, err)
		require.Equal(t, x, got)
		_, err = r.view.Lookup(t.Context(), meta.RootDir, "b")
		require.ErrorIs(t, err, meta.ErrUnavailable)
		_, err = r.view.List(t.Context(), d.Inode)
		require.ErrorIs(t, err, meta.ErrUnavailable, "not wholly known: part of it would be a lie")
		require.NotZero(t, r.view.State().Stale)
	})(t)
}

// TestViewWrote: what was written here is known at once, and in an outage that
// begins before the watch tells of it.
func TestViewWrote(t *testing.T) {
	t.Parallel()
	for _, mode := range []meta.Consistency{meta.ConsistencyOpen, meta.ConsistencyWatch} {
		t.Run(string(mode), inBubble(func(t *testing.T) {
			dir := t.TempDir()
			table, err := local.Open(dir, nil)
			require.NoError(t, err)
			r := newRig(t, meta.ViewConfig{Local: table, Consistency: mode, Timeout: 200 * time.Millisecond})
			require.Empty(t, r.names(t))
			r.faults.Down()
			a := r.link(t, "a")
			r.view.Wrote(meta.RootDir, a)
			require.True(t, r.told(meta.Change{Dir: meta.RootDir, Name: "a"}))
			require.Equal(t, []string{"a"}, r.names(t))
			got, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
			require.NoError(t, err)
			require.Equal(t, a, got)
			require.NoError(t, r.view.Close())
			r.view.Wrote(meta.RootDir, a) // after Close: nothing
			require.NoError(t, table.Close())

			table, err = local.Open(dir, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, table.Close()) })
			entries, ok := table.List(meta.RootDir)
			require.True(t, ok)
			require.Equal(t, []meta.Entry{a}, entries)
		}))
	}
}

// TestViewWroteOlder: a word older than what the watch told undoes nothing.
func TestViewWroteOlder(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	a := r.link(t, "a")
	require.Equal(t, []string{"a"}, r.names(t))
	b := r.replace(t, a)
	require.Eventually(t, func() bool { return r.told(meta.Change{Dir: meta.RootDir, Name: "a"}) }, soon, tick)
	r.view.Wrote(meta.RootDir, a)
	got, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
	require.NoError(t, err)
	require.Equal(t, b, got)
}
