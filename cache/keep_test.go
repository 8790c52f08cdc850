package cache

import (
	"os"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// K1: a kept object is not evicted and not dropped, over restarts, until it is
// given up.
func TestKeep(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 30 * bs
	c := openCache(t, cfg)
	o := object(10 * bs)
	require.ErrorIs(t, c.Keep(t.Context(), o.ID, true), chunk.ErrNotHeld)
	f := openFile(t, c, o)
	put(t, f, o, 0, 1, 2)
	require.NoError(t, c.Keep(t.Context(), o.ID, true), "an incomplete one")
	require.NoError(t, c.Keep(t.Context(), o.ID, true))
	put(t, f, o, 3, 4, 5, 6, 7, 8, 9)
	require.NoError(t, f.Close())
	p := publishNew(t, c, 1, 5*bs)

	check := func() {
		for _, o := range []chunk.Object{o, p} {
			info, ok := c.Stat(o.ID)
			require.True(t, ok)
			require.True(t, info.Complete && info.Keeper)
			_, err := c.Drop(t.Context(), o.ID)
			require.ErrorIs(t, err, ErrKept)
		}
		for range 10 {
			fill(t, c, object(4*bs))
		}
		require.Equal(t, []bool{true, true}, here(c, o, p))
		require.Equal(t, 2, c.Stats().Kept)
		require.GreaterOrEqual(t, c.Stats().KeptBytes, int64(15*bs))
		sets, err := c.Sets(t.Context())
		require.NoError(t, err)
		keepers := 0
		for _, s := range sets {
			if s.Keeper {
				require.Contains(t, []chunk.SetID{o.Set, p.Set}, s.Set)
				keepers++
			}
		}
		require.Equal(t, 2, keepers)
	}
	check()
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	check()

	require.NoError(t, c.Keep(t.Context(), o.ID, false))
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	info, ok := c.Stat(o.ID)
	require.True(t, ok)
	require.False(t, info.Keeper)
	for range 10 {
		fill(t, c, object(4*bs))
	}
	require.Equal(t, []bool{false, true}, here(c, o, p))
	require.NoError(t, c.Keep(t.Context(), p.ID, false))
	freed, err := c.Drop(t.Context(), p.ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, freed, int64(5*bs))
	require.ErrorIs(t, c.Keep(t.Context(), p.ID, true), chunk.ErrNotHeld)
	require.Zero(t, c.Stats().Kept)
}

// An object that is dropped while it is about to be kept is not held; the disk
// is not at fault, and what was fetched anew since is left as it is.
func TestKeepBesideADrop(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		again bool // fetched
	}{{"gone", false}, {"here again", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := openCache(t, config(t))
			o := object(4 * bs)
			fill(t, c, o)
			require.NoError(t, c.Flush(t.Context(), o.ID))
			e, f, err := c.acquire(t.Context(), o.ID, nil)
			require.NoError(t, err)
			f.mu.Lock()
			require.Nil(t, f.mapf)
			f.mu.Unlock()

			f.keeping.Lock()
			kept := make(chan error, 1)
			go func() { kept <- c.keepCopy(t.Context(), o.ID, true) }()
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return e.refs == 2
			}, 2*time.Minute, time.Millisecond)
			_, err = c.remove(t.Context(), e)
			require.NoError(t, err)
			if tt.again {
				put(t, openFile(t, c, o), o, 1)
			}
			f.keeping.Unlock()
			require.ErrorIs(t, <-kept, chunk.ErrNotHeld)
			require.NoError(t, f.root.trouble())
			c.release(e, f)
			if tt.again {
				g, err := c.look(c.roots[0], o.ID)
				require.NoError(t, err)
				require.False(t, g.kept)
			}
		})
	}
}

// A registered file is kept as it is.
func TestKeepRegistered(t *testing.T) {
	t.Parallel()
	o := object(3 * bs)
	c, _ := registered(t, config(t), o)
	require.NoError(t, c.Keep(t.Context(), o.ID, true))
	require.ErrorIs(t, c.Keep(t.Context(), o.ID, false), ErrKept)
}

// A kept object with a bad block says so and stays: what else is of it may be
// all there is.
func TestKeptAndBad(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := publishNew(t, c, 1, 5*bs)
	corrupt(t, c.roots[0].path(o.ID, ".data"), 2*bs, 3)
	require.NoError(t, c.Recheck(t.Context(), o.ID, 1))
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 2), chunk.ErrCorrupt)
	require.True(t, here(c, o)[0])
}

// A root of the layout before staged files is taken over, with what is in it;
// an older program refuses it from then on.
func TestLayoutIsRaised(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	o := object(3 * bs)
	fill(t, c, o)
	require.NoError(t, c.Close())
	id, _, err := readRoot(cfg.Roots[0])
	require.NoError(t, err)
	writeFile(t, cfg.Roots[0]+"/"+rootFileName, []byte(`{"layout":1,"node":"`+id.node.String()+`"}`))
	require.NoError(t, os.RemoveAll(cfg.Roots[0]+"/"+stagingDir))
	c = openCache(t, cfg)
	f := openFile(t, c, o)
	require.Equal(t, 3, checkHeld(t, f, o))
	now, _, err := readRoot(cfg.Roots[0])
	require.NoError(t, err)
	require.Equal(t, id, now)
	require.Equal(t, 2, now.layout)
}
