package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of its own; that takes root, as the whole
// project's tests do.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("p2pfs-test", dir, "tmpfs", 0, options), "mounting tmpfs needs root")
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return filepath.Join(dir, "cache")
}

// A disk that is really full: older objects make room; when there are none,
// Put says so and the rest goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	cfg.Roots = []string{smallDisk(t, "size=4m")}
	clk := newClock()
	cfg.Now = clk.now
	c := openCache(t, cfg)
	for range 20 { // 8 MiB through 4
		fill(t, c, object(100*bs))
	}
	s := c.Stats()
	require.Positive(t, s.Evictions)
	require.Less(t, s.UsedBytes, int64(4<<20))

	big := object(2000 * bs)
	f := openFile(t, c, big)
	var failed int
	for b := range big.Blocks() {
		data := content(big, b)
		if err := f.Put(b, data, chunk.Sum(data)); err != nil {
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			require.False(t, f.Has(b))
			failed++
		}
	}
	require.Greater(t, failed, 900)
	require.Equal(t, big.Blocks()-failed, checkHeld(t, f, big))
	require.Greater(t, big.Blocks()-failed, 700)
	_, _, ok := c.Peek(big.ID)
	require.True(t, ok)
	require.NoError(t, f.Close())

	// With nobody on it, it makes room.
	clk.add(retryAfter)
	o := object(100 * bs)
	fill(t, c, o)
	require.Equal(t, "ok", c.Stats().Roots[0].State)
	require.Equal(t, []bool{false, true}, here(c, big, o))
	c.syncDirty(t.Context(), 0)
	require.NoError(t, c.Close())

	// A disk that others filled: what is here is served, and nothing added.
	junk := filepath.Join(filepath.Dir(cfg.Roots[0]), "junk")
	j, err := os.Create(junk)
	require.NoError(t, err)
	_, err = j.Write(make([]byte, 8<<20))
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, j.Close())
	c = openCache(t, cfg)
	g := openFile(t, c, o)
	require.Equal(t, 100, checkHeld(t, g, o))
	var last error
	for range 3 {
		p := object(bs)
		var h chunk.File
		if h, last = c.Open(t.Context(), p); last == nil {
			last = h.Put(0, content(p, 0), chunk.Sum(content(p, 0)))
			require.NoError(t, h.Close())
		}
	}
	require.ErrorIs(t, last, chunk.ErrNoSpace)
}

// A full disk also refuses sums of registered files: a block that cannot be
// bound is not handed out.
func TestFullDiskBindsNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	cfg.Roots = []string{smallDisk(t, "size=2m")}
	o := object(3 * bs)
	c, _ := registered(t, cfg, o)
	junk, err := os.Create(filepath.Join(filepath.Dir(cfg.Roots[0]), "junk"))
	require.NoError(t, err)
	for {
		if _, err := junk.Write(make([]byte, bs)); err != nil {
			break
		}
	}
	_, err = c.Block(t.Context(), o.ID, 0)
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	require.NoError(t, junk.Truncate(0))
	require.NoError(t, junk.Close())
	blk, err := c.Block(t.Context(), o.ID, 0)
	require.NoError(t, err)
	require.Equal(t, content(o, 0), readBlock(t, blk))
}

// A file system without inodes left: unused objects make room for new ones,
// and else the object is read uncached.
func TestInodesExhausted(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	cfg.Roots = []string{smallDisk(t, "size=64m,nr_inodes=400")}
	clk := newClock()
	cfg.Now = clk.now
	c := openCache(t, cfg)
	for i := range 150 {
		o := object(bs)
		f, err := c.Open(t.Context(), o)
		require.NoError(t, err, "object %d", i)
		put(t, f, o, 0)
		require.NoError(t, f.Close())
	}
	require.Positive(t, c.Stats().Evictions)
	var open []chunk.File
	var err error
	for range 200 {
		var f chunk.File
		if f, err = c.Open(t.Context(), object(bs)); err != nil {
			break
		}
		open = append(open, f)
	}
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	require.Greater(t, len(open), 20)
	for _, f := range open {
		require.NoError(t, f.Close())
	}
	clk.add(retryAfter)
	fill(t, c, object(bs))
}

// Two roots: a new object goes where there is more room, and a root that fails
// is passed over.
func TestRootChoice(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	small, large := smallDisk(t, "size=2m"), smallDisk(t, "size=8m")
	cfg.Roots = []string{small, large}
	clk := newClock()
	cfg.Now = clk.now
	c := openCache(t, cfg)
	o := object(3 * bs)
	fill(t, c, o)
	require.FileExists(t, c.roots[1].path(o.ID, ".data"))
	c.roots[1].failed(unix.EIO)
	p := object(3 * bs)
	fill(t, c, p)
	require.FileExists(t, c.roots[0].path(p.ID, ".data"))
	c.roots[0].failed(unix.EIO)
	_, err := c.Open(t.Context(), object(bs))
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	f := openFile(t, c, o)
	require.Equal(t, 3, checkHeld(t, f, o), "what is here is served")
	require.Equal(t, []string{"failing", "failing"}, []string{c.Stats().Roots[0].State, c.Stats().Roots[1].State})
	for _, r := range c.Stats().Roots {
		require.Positive(t, r.UsedBytes, fmt.Sprint(r))
	}
}

// A root whose directories were removed under us is a failing disk: nothing is
// made there, and what is open is still read.
func TestARootThatWasRemoved(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	c := openCache(t, cfg)
	held, lost := object(3*bs), object(2*bs)
	f := openFile(t, c, held)
	putAll(t, f, held)
	fill(t, c, lost)
	c.closeIdle(0, true)
	require.NoError(t, os.RemoveAll(cfg.Roots[0]))

	for _, o := range []chunk.Object{lost, object(bs)} {
		_, err := c.Open(t.Context(), o)
		require.ErrorIs(t, err, chunk.ErrNoSpace)
	}
	_, err := c.Block(t.Context(), lost.ID, 0)
	require.ErrorIs(t, err, chunk.ErrNotHeld)
	require.NotEqual(t, "ok", c.Stats().Roots[0].State)
	require.Equal(t, 3, checkHeld(t, f, held))
}

// An object that is too large for the file system says nothing of others.
func TestAnObjectTooLargeForTheDisk(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	err := c.roots[0].diskError("make file", object(bs).ID, &os.PathError{Op: "truncate", Err: unix.EFBIG})
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	require.True(t, c.roots[0].usable())
}
