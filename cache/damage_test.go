package cache

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// forge edits a file and sets its times back: only the ctime tells.
func forge(t testing.TB, path string, off int64) {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	writeAt(t, path, off, "forged")
	require.NoError(t, os.Chtimes(path, st.ModTime(), st.ModTime()))
}

// An edit whose mtime was set back is found when a bound block is next asked
// for; the object is then damaged, here and after a restart.
func TestForgedEdit(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	var why atomic.Value
	cfg.Damaged = func(_ chunk.Object, w string) { why.Store(w) }
	o := object(9 * bs)
	c, s := registered(t, cfg, o)
	for _, b := range []int{1, 2} {
		blk, err := c.Block(t.Context(), o.ID, b)
		require.NoError(t, err)
		readBlock(t, blk)
	}
	under, err := c.Block(t.Context(), o.ID, 2)
	require.NoError(t, err)
	forge(t, s.Path, 2*bs)
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err, "this block is as it was")
	require.Equal(t, content(o, 1), readBlock(t, blk))
	require.ErrorIs(t, under.Release(), chunk.ErrDamaged)
	for range 2 {
		for _, b := range []int{1, 2, 3} {
			_, err = c.Block(t.Context(), o.ID, b)
			require.ErrorIs(t, err, chunk.ErrDamaged)
		}
		require.Contains(t, why.Load(), s.Path)
		i, ok := c.Stat(o.ID)
		require.True(t, ok)
		require.Equal(t, why.Load(), i.Damaged)
		require.NoError(t, c.Close())
		c = openCache(t, cfg)
	}
}

// The same, when the process was restarted between: the sums file remembers
// what they were verified under.
func TestForgedEditAcrossRestart(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	o := object(9 * bs)
	c, s := registered(t, cfg, o)
	for _, b := range []int{1, 2} {
		blk, err := c.Block(t.Context(), o.ID, b)
		require.NoError(t, err)
		readBlock(t, blk)
	}
	require.NoError(t, os.Chmod(s.Path, 0o600))
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	readBlock(t, blk)
	require.NoError(t, c.Close())
	forge(t, s.Path, 2*bs)
	c = openCache(t, cfg)
	blk, err = c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	readBlock(t, blk)
	_, err = c.Block(t.Context(), o.ID, 2)
	require.ErrorIs(t, err, chunk.ErrDamaged)
}

func TestRecheckFindsDamage(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	o := object(3 * bs)
	c, s := registered(t, cfg, o)
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	readBlock(t, blk)
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 2), chunk.ErrNotHeld)
	// As a disk would do it: other bytes and no trace in the inode. The
	// sum on record is changed instead.
	p, err := c.places.get(o.ID)
	require.NoError(t, err)
	_, err = p.prepare()
	require.NoError(t, err)
	p.table.groups[0].sums[1].Add(1)
	c.places.release(p)
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 1), chunk.ErrDamaged)
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 1), chunk.ErrDamaged)
	_, err = c.Block(t.Context(), o.ID, 0)
	require.ErrorIs(t, err, chunk.ErrDamaged)
	openFile(t, c, o) // its own node still sees the file
	require.ErrorIs(t, c.MarkDamaged(t.Context(), chunk.NewObjectID(), "x"), chunk.ErrNotHeld)

	// A fetched object with other bytes is removed, to be fetched anew.
	o = object(2 * bs)
	fill(t, c, o)
	require.NoError(t, c.Recheck(t.Context(), o.ID, 1))
	corrupt(t, c.roots[0].path(o.ID, ".data"), bs+7, 1)
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 1), chunk.ErrCorrupt)
	require.ErrorIs(t, c.Recheck(t.Context(), o.ID, 1), chunk.ErrNotHeld)
	_ = s
}

// A hole that was registered and filled behind our back with the times set
// back is damage, as any other bound block.
func TestForgedHole(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	o := object(4 * bs)
	path := filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, os.Truncate(path, o.Size))
	zero := chunk.NewBitmap(4)
	zero.Fill()
	c := openCache(t, cfg)
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{{Object: o, Path: path, ID: identityAt(t, path), Zero: zero}}))
	forge(t, path, bs)
	blk, err := c.Block(t.Context(), o.ID, 0)
	require.NoError(t, err)
	require.True(t, blk.Zero)
	_, err = c.Block(t.Context(), o.ID, 1)
	require.ErrorIs(t, err, chunk.ErrDamaged)
}
