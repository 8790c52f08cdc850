package meta_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// soon bounds what happens by itself, tick is how often a test looks.
const (
	soon = time.Minute
	tick = 2 * time.Millisecond
)

// rig is a View over a store that fails on demand, and another node's catalog
// that always works.
type rig struct {
	view   *meta.View
	faults *metatest.Faults
	store  *memory.Store
	other  *meta.Catalog

	mu      sync.Mutex
	changes []meta.Change
}

func newRig(t *testing.T, cfg meta.ViewConfig) *rig {
	t.Helper()
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	r := &rig{store: store, faults: metatest.NewFaults(store), other: meta.NewCatalog(store, meta.Options{})}
	metatest.Join(t, r.other)
	cfg.Catalog = meta.NewCatalog(r.faults, meta.Options{})
	cfg.OnChange = func(c meta.Change) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, c)
	}
	v, err := meta.NewView(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	r.view = v
	return r
}

// told reports whether a change was told.
func (r *rig) told(c meta.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.changes, c)
}

func (r *rig) link(t *testing.T, name string) meta.Entry {
	t.Helper()
	e, err := r.other.Link(t.Context(), meta.RootDir, metatest.File(name, 1))
	require.NoError(t, err)
	return e
}

func (r *rig) unlink(t *testing.T, name string, ifVersion uint64) {
	t.Helper()
	_, _, err := r.other.Unlink(t.Context(), meta.RootDir, name, ifVersion)
	require.NoError(t, err)
}

func (r *rig) replace(t *testing.T, old meta.Entry) meta.Entry {
	t.Helper()
	next := metatest.File(old.Name, old.Size+1)
	e, err := r.other.Replace(t.Context(), meta.RootDir, next, old.Version)
	require.NoError(t, err)
	return e
}

func (r *rig) names(t *testing.T) []string {
	t.Helper()
	entries, err := r.view.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

func TestViewLookup(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	a := r.link(t, "a")
	require.Equal(t, meta.StateStarting, r.view.State().State)
	got, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
	require.NoError(t, err)
	require.Equal(t, a, got)
	require.Equal(t, meta.StateUp, r.view.State().State)

	// Soon it is known without asking.
	require.Eventually(t, func() bool {
		before := r.faults.Calls("Get")
		got, err = r.view.Lookup(t.Context(), meta.RootDir, "a")
		return err == nil && got == a && r.faults.Calls("Get") == before
	}, soon, tick)

	// A watch keeps it right, and others are told.
	b := r.replace(t, a)
	require.Eventually(t, func() bool {
		got, err = r.view.Lookup(t.Context(), meta.RootDir, "a")
		return err == nil && got == b
	}, soon, tick)
	require.Eventually(t, func() bool { return r.told(meta.Change{Dir: meta.RootDir, Name: "a"}) }, soon, tick)

	_, err = r.view.Lookup(t.Context(), meta.RootDir, "nobody")
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = r.view.Lookup(t.Context(), meta.RootDir, "a/b")
	require.ErrorIs(t, err, meta.ErrName)
}

// TestViewNeverStale: what was written before the question is in the answer,
// while another writes as fast as it can.
func TestViewNeverStale(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint("listed=", listed), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, meta.ViewConfig{})
			cur := r.link(t, "a")
			if listed {
				r.names(t)
			}
			var mu sync.Mutex
			written := func() meta.Entry {
				mu.Lock()
				defer mu.Unlock()
				return cur
			}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					next, err := r.other.Replace(t.Context(), meta.RootDir, metatest.File("a", written().Size+1), written().Version)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					cur = next
					mu.Unlock()
				}
			})
			var readers sync.WaitGroup
			for range 8 {
				readers.Go(func() {
					for range 300 {
						want := written()
						got, err := r.view.Confirm(t.Context(), meta.RootDir, "a")
						if err != nil || got.Version < want.Version {
							t.Errorf("want version %d or later, got %d: %v", want.Version, got.Version, err)
							return
						}
					}
				})
			}
			readers.Wait()
			stop()
			wg.Wait()
			// And in the end the cache is right, too.
			require.Eventually(t, func() bool {
				got, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
				return err == nil && got == written()
			}, soon, tick)
		})
	}
}

// TestViewMissNeverStale: a name made before the lookup is found, though many
// lookups of it are under way.
func TestViewMissNeverStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	r.names(t)
	for i := range 200 {
		name := fmt.Sprint(i)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _, _ = r.view.Lookup(t.Context(), meta.RootDir, name) })
		}
		r.link(t, name)
		_, err := r.view.Lookup(t.Context(), meta.RootDir, name)
		require.NoError(t, err)
		entries, err := r.view.List(t.Context(), meta.RootDir)
		require.NoError(t, err)
		require.Len(t, entries, i+1, "a listing sees what was made before it")
		wg.Wait()
	}
}

// TestViewGivesUp: who gives up waiting does not stop the read for the others.
func TestViewGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	a := r.link(t, "a")
	gate, first := make(chan struct{}), make(chan struct{}, 100)
	r.faults.Gate(func(_ context.Context, op string) {
		if op == "Get" {
			first <- struct{}{}
			<-gate
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := r.view.Confirm(ctx, meta.RootDir, "a")
		gaveUp <- err
	}()
	<-first
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			got, err := r.view.Confirm(t.Context(), meta.RootDir, "a")
			if err != nil || got != a {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	close(gate)
	wg.Wait()
}

func TestViewList(t *testing.T) {
	inBubble(func(t *testing.T) {
		r := newRig(t, meta.ViewConfig{})
		require.Empty(t, r.names(t))
		r.link(t, "b")
		r.link(t, "a")
		require.Equal(t, []string{"a", "b"}, r.names(t))
		lists := r.faults.Calls("List")
		require.Equal(t, []string{"a", "b"}, r.names(t))
		c := r.link(t, "c")
		require.Equal(t, []string{"a", "b", "c"}, r.names(t))
		r.unlink(t, "a", 0)
		require.Equal(t, []string{"b", "c"}, r.names(t))
		require.Equal(t, lists, r.faults.Calls("List"), "a watched directory is listed once")

		// Known wholly, lookups that find cost nothing, those that do not are confirmed.
		gets := r.faults.Calls("Get")
		got, err := r.view.Lookup(t.Context(), meta.RootDir, "c")
		require.NoError(t, err)
		require.Equal(t, c, got)
		require.Equal(t, gets, r.faults.Calls("Get"))
		_, err = r.view.Lookup(t.Context(), meta.RootDir, "a")
		require.ErrorIs(t, err, meta.ErrNotFound)
		require.Equal(t, gets+1, r.faults.Calls("Get"))
	})(t)
}

func TestViewWatchMode(t *testing.T) {
	inBubble(func(t *testing.T) {
		r := newRig(t, meta.ViewConfig{Consistency: meta.ConsistencyWatch})
		r.link(t, "a")
		require.Equal(t, []string{"a"}, r.names(t))
		ask := func() int { return r.faults.Calls("Get") + r.faults.Calls("List") + r.faults.Calls("Version") }
		before := ask()
		for range 10 {
			_, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
			require.NoError(t, err)
			_, err = r.view.Lookup(t.Context(), meta.RootDir, "b")
			require.ErrorIs(t, err, meta.ErrNotFound)
			require.Equal(t, []string{"a"}, r.names(t))
		}
		require.Equal(t, before, ask(), "nothing is asked")
		start := time.Now()
		r.link(t, "b")
		require.Eventually(t, func() bool {
			_, err := r.view.Lookup(t.Context(), meta.RootDir, "b")
			return err == nil
		}, soon, tick)
		t.Logf("seen after %v", time.Since(start))
		_, err := meta.NewView(meta.ViewConfig{Consistency: "eventual"})
		require.Error(t, err)
	})(t)
}

func TestViewGap(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	a := r.link(t, "a")
	r.names(t)
	// The watch is kept back while the store forgets what it should tell.
	r.faults.Down()
	b := r.replace(t, a)
	c := r.replace(t, b)
	require.NoError(t, r.store.Compact(t.Context()))
	d := r.link(t, "d")
	r.faults.Up()
	require.Eventually(t, func() bool { return slices.Equal(r.names(t), []string{"a", "d"}) }, soon, tick)
	for _, want := range []meta.Entry{c, d} {
		require.Eventually(t, func() bool {
			got, err := r.view.Lookup(t.Context(), meta.RootDir, want.Name)
			return err == nil && got == want
		}, soon, tick)
	}
}

func TestViewEvicts(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{MaxDirs: 3, MaxEntries: 25})
	var dirs []meta.InodeID
	for i := range 8 {
		d, err := r.other.Mkdir(t.Context(), meta.RootDir, fmt.Sprint(i), meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		dirs = append(dirs, d.Inode)
		var entries []meta.Entry
		for j := range 10 {
			entries = append(entries, metatest.File(fmt.Sprint(j), 1))
		}
		require.NoError(t, r.other.LinkMany(t.Context(), d.Inode, entries))
	}
	for range 2 {
		for _, d := range dirs {
			entries, err := r.view.List(t.Context(), d)
			require.NoError(t, err)
			require.Len(t, entries, 10)
		}
	}
	// Who cached what was told of the first ones hears that nobody watches them.
	require.Eventually(t, func() bool { return r.told(meta.Change{Dir: dirs[0], Gap: true}) }, soon, tick)
	// One that is longer than the limit is listed all the same.
	big, err := r.other.NewDir(t.Context(), meta.RootDir, meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	for i := range 40 {
		_, err := r.other.Link(t.Context(), big, metatest.File(fmt.Sprint(i), 1))
		require.NoError(t, err)
	}
	for range 2 {
		entries, err := r.view.List(t.Context(), big)
		require.NoError(t, err)
		require.Len(t, entries, 40)
	}
}

func TestViewClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{Timeout: time.Minute})
	r.link(t, "a")
	r.names(t)
	r.faults.Hang()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.view.Confirm(t.Context(), meta.RootDir, "b")
	}()
	require.Eventually(t, func() bool { return r.faults.Calls("Get") > 0 }, soon, tick)
	start := time.Now()
	require.NoError(t, r.view.Close())
	require.Less(t, time.Since(start), 40*time.Second)
	<-done
	_, err := r.view.Lookup(t.Context(), meta.RootDir, "b")
	require.ErrorIs(t, err, meta.ErrUnavailable)
}

func TestViewHundredThousand(t *testing.T) {
	t.Parallel()
	r := newRig(t, meta.ViewConfig{})
	const n = 100_000
	entries := make([]meta.Entry, n)
	for i := range entries {
		entries[i] = metatest.File(fmt.Sprintf("model-%06d.safetensors", i), 1)
	}
	require.NoError(t, r.other.LinkMany(t.Context(), meta.RootDir, entries))
	_, err := r.view.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	for _, change := range []bool{false, true} {
		if change {
			r.link(t, "another")
		}
		start := time.Now()
		got, err := r.view.List(t.Context(), meta.RootDir)
		took := time.Since(start)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(got), n)
		t.Logf("listed in %v, after a change: %v", took, change)
	}
}

// A gap is one directory's: the others stay as they are known, and are not read
// again.
func TestViewGapIsOneDirectory(t *testing.T) {
	inBubble(func(t *testing.T) {
		r := newRig(t, meta.ViewConfig{})
		dirs := []meta.InodeID{meta.RootDir}
		for i := range 4 {
			d, err := r.other.Mkdir(t.Context(), meta.RootDir, fmt.Sprint(i), meta.Attrs{Mode: 0o755})
			require.NoError(t, err)
			dirs = append(dirs, d.Inode)
		}
		files := map[meta.InodeID]meta.Entry{}
		for _, d := range dirs {
			e, err := r.other.Link(t.Context(), d, metatest.File("f", 1))
			require.NoError(t, err)
			files[d] = e
		}
		listed := func() int {
			t.Helper()
			before := r.faults.Calls("List")
			for _, d := range dirs {
				entries, err := r.view.List(t.Context(), d)
				require.NoError(t, err)
				require.NotEmpty(t, entries)
			}
			return r.faults.Calls("List") - before
		}
		require.Equal(t, len(dirs), listed())
		require.Zero(t, listed())

		gap := dirs[2]
		r.faults.Down()
		old := files[gap]
		for range 3 {
			next := metatest.File(old.Name, old.Size+1)
			var err error
			old, err = r.other.Replace(t.Context(), gap, next, old.Version)
			require.NoError(t, err)
		}
		require.NoError(t, r.store.Compact(t.Context()))
		before := r.faults.Calls("List")
		r.faults.Up()
		require.Eventually(t, func() bool { return r.told(meta.Change{Dir: gap, Gap: true}) }, soon, tick)
		require.Eventually(t, func() bool {
			entries, err := r.view.List(t.Context(), gap)
			return err == nil && len(entries) == 1 && entries[0] == old
		}, soon, tick)
		listed()
		require.Equal(t, 1, r.faults.Calls("List")-before, "only the directory with the gap is read again")
		for _, d := range dirs {
			require.Equal(t, d == gap, r.told(meta.Change{Dir: d, Gap: true}))
		}
	})(t)
}
