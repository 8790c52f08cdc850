package cache

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPutAndReopen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		size int64
	}{
		{"one byte", 1},
		{"one below a block", bs - 1},
		{"a block", bs},
		{"one above a block", bs + 1},
		{"one below a group", groupBlocks*bs - 1},
		{"a group", groupBlocks * bs},
		{"one above a group", groupBlocks*bs + 1},
		{"above the first read of a map", 200 * bs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			o := object(tc.size)
			c := openCache(t, cfg)
			f := openFile(t, c, o)
			require.False(t, f.Complete())
			for i, b := range rand.Perm(o.Blocks()) {
				require.False(t, f.Has(b))
				put(t, f, o, b)
				require.Equal(t, i+1, checkHeld(t, f, o))
			}
			require.True(t, f.Complete())
			st, err := f.Reader().Stat()
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o444), st.Mode().Perm())
			require.Equal(t, tc.size, st.Size())
			require.False(t, f.Has(-1))
			require.False(t, f.Has(o.Blocks()))
			require.NoError(t, f.Close())
			require.NoError(t, f.Close(), "closing twice is harmless")
			require.NoError(t, c.Close())

			c = openCache(t, cfg)
			i, held, ok := c.Peek(o.ID)
			require.True(t, ok)
			require.Equal(t, Info{Object: o, Complete: true, LocalBytes: tc.size}, i)
			require.True(t, held.Complete())
			f = openFile(t, c, o)
			require.Equal(t, o.Blocks(), checkHeld(t, f, o))
		})
	}
}

func TestPutRefuses(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(2*bs + 5)
	f := openFile(t, c, o)
	require.ErrorIs(t, f.Put(0, make([]byte, bs-1), 0), chunk.ErrCorrupt)
	require.ErrorIs(t, f.Put(2, make([]byte, bs), 0), chunk.ErrCorrupt)
	require.ErrorIs(t, f.Put(3, make([]byte, 5), 0), chunk.ErrCorrupt)
	require.ErrorIs(t, f.Put(-1, make([]byte, bs), 0), chunk.ErrCorrupt)
	require.ErrorIs(t, f.PutZero(chunk.NewBitmap(2)), chunk.ErrCorrupt)
	require.Zero(t, checkHeld(t, f, o))
	_, ok := f.Sum(0)
	require.False(t, ok)

	_, err := c.Open(t.Context(), object(0))
	require.Error(t, err, "an empty object has no file")
	_, err = c.Open(t.Context(), chunk.Object{})
	require.Error(t, err)
	other := o
	other.Size = 3 * bs
	_, err = c.Open(t.Context(), other)
	require.ErrorIs(t, err, chunk.ErrCorrupt, "other facts while in use")

	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Put(0, content(o, 0), 0), chunk.ErrClosed)
	require.NoError(t, c.Close())
	_, err = c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrClosed)
}

func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	running(t, c)
	o := object(130*bs + 7)
	var wg sync.WaitGroup
	for range 4 {
		f := openFile(t, c, o)
		wg.Go(func() {
			for _, b := range rand.Perm(o.Blocks()) {
				data := content(o, b)
				if err := f.Put(b, data, chunk.Sum(data)); err != nil {
					t.Error(err)
				}
				if !f.Has(b) {
					t.Errorf("block %d is absent after Put", b)
				}
			}
		})
	}
	wg.Wait()
	f := openFile(t, c, o)
	require.Equal(t, o.Blocks(), checkHeld(t, f, o))
}

// A second Put of a block must not touch a file that was sealed meanwhile.
func TestPutAgainWritesNothing(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(3 * bs)
	f := openFile(t, c, o)
	putAll(t, f, o)
	junk := make([]byte, bs)
	require.NoError(t, f.Put(1, junk, chunk.Sum(junk)))
	all := chunk.NewBitmap(3)
	all.Fill()
	require.NoError(t, f.PutZero(all))
	require.Equal(t, 3, checkHeld(t, f, o))
}

func TestPutZero(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	o := object(150*bs + 9)
	o.Sparse = true
	f := openFile(t, c, o)
	// A put that died half way left bytes behind that no map speaks of.
	_, err := f.Reader().WriteAt(content(o, 70), o.Block(70).Off)
	require.NoError(t, err)
	put(t, f, o, 3, 64, 149)
	zero := chunk.NewBitmap(o.Blocks())
	zero.Fill()
	zero.Clear(100)
	require.NoError(t, f.PutZero(zero))
	require.False(t, f.Complete())
	put(t, f, o, 100)
	require.True(t, f.Complete())
	require.NoError(t, f.Close())
	require.NoError(t, c.Close())

	c = openCache(t, cfg)
	f = openFile(t, c, o)
	require.True(t, f.Complete())
	got := make([]byte, o.Size)
	_, err = f.Reader().ReadAt(got, 0)
	require.NoError(t, err)
	for b := range o.Blocks() {
		span := o.Block(b)
		want := make([]byte, span.Len)
		switch b {
		case 3, 64, 100, 149:
			want = content(o, b)
		}
		require.Equal(t, want, got[span.Off:span.End()], "block %d", b)
		sum, ok := f.Sum(b)
		require.True(t, ok)
		require.Equal(t, chunk.Sum(want), sum, "block %d", b)
		blk, err := c.Block(t.Context(), o.ID, b)
		require.NoError(t, err)
		require.Equal(t, b != 3 && b != 64 && b != 100 && b != 149, blk.Zero)
		require.Equal(t, want, readBlock(t, blk))
	}
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Reader().Fd()), &st))
	require.LessOrEqual(t, st.Blocks*512, int64(6*bs), "zeros take no room")
}

func TestServeFetched(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(3*bs + 100)
	f := openFile(t, c, o)
	put(t, f, o, 1, 3)
	require.NoError(t, f.Close())
	for _, b := range []int{1, 3, 1} {
		blk, err := c.Block(t.Context(), o.ID, b)
		require.NoError(t, err)
		require.Equal(t, o.Block(b), chunk.Span{Off: blk.Off, Len: blk.Len})
		require.Equal(t, chunk.Sum(content(o, b)), blk.Sum)
		require.Equal(t, content(o, b), readBlock(t, blk))
	}
	for _, b := range []int{0, 2, 4, -1} {
		_, err := c.Block(t.Context(), o.ID, b)
		require.ErrorIs(t, err, chunk.ErrNotHeld)
	}
	_, err := c.Block(t.Context(), chunk.NewObjectID(), 0)
	require.ErrorIs(t, err, chunk.ErrNotHeld)
	_, _, ok := c.Peek(chunk.NewObjectID())
	require.False(t, ok)
}

// A disk that fails in the middle of a Put leaves the block absent and the
// rest usable; after a while it is tried again.
func TestDiskFault(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	clk := newClock()
	cfg.Now = clk.now
	c := openCache(t, cfg)
	o := object(4 * bs)
	f := openFile(t, c, o)
	put(t, f, o, 0)
	used := c.Stats().UsedBytes
	for _, fault := range []struct {
		name string
		err  error
		only int // bytes of the write that fails
	}{
		{"data", syscall.EIO, bs},
		{"map", syscall.EIO, sectorSize},
		{"no space", syscall.ENOSPC, bs},
	} {
		c.writeAt = func(w *os.File, b []byte, off int64) (int, error) {
			if len(b) == fault.only {
				n, _ := w.WriteAt(b[:len(b)/2], off) // torn
				return n, &fs.PathError{Op: "write", Path: w.Name(), Err: fault.err}
			}
			return w.WriteAt(b, off)
		}
		data := content(o, 1)
		err := f.Put(1, data, chunk.Sum(data))
		require.ErrorIs(t, err, chunk.ErrNoSpace, fault.name)
		require.ErrorIs(t, err, fault.err, fault.name)
		require.Equal(t, 1, checkHeld(t, f, o))
		require.Equal(t, "failing", c.Stats().Roots[0].State)
		require.NotEmpty(t, c.Stats().Roots[0].Error)
		require.Equal(t, used, c.Stats().UsedBytes)
		c.writeAt = (*os.File).WriteAt
		require.ErrorIs(t, f.Put(1, data, chunk.Sum(data)), chunk.ErrNoSpace, "left alone for a while")
		_, err = c.Open(t.Context(), object(bs))
		require.ErrorIs(t, err, chunk.ErrNoSpace)
		clk.add(retryAfter)
	}
	putAll(t, f, o)
	require.Equal(t, 4, checkHeld(t, f, o))
	require.Equal(t, "ok", c.Stats().Roots[0].State)
}

// After a failed flush nobody knows what is on disk: the object is given up,
// and opened again it is a new file.
func TestFlushFault(t *testing.T) {
	t.Parallel()
	clk := newClock()
	cfg := config(t)
	cfg.Now = clk.now
	c := openCache(t, cfg)
	o := object(4 * bs)
	f := openFile(t, c, o)
	put(t, f, o, 0, 1)
	c.datasync = func(*os.File) error { return syscall.EIO }
	c.syncDirty(t.Context(), 0)
	require.Equal(t, "failing", c.Stats().Roots[0].State)
	_, _, ok := c.Peek(o.ID)
	require.False(t, ok)
	require.Equal(t, 2, checkHeld(t, f, o), "who reads goes on")
	c.datasync = fdatasync
	clk.add(retryAfter)
	again := openFile(t, c, o)
	require.Zero(t, checkHeld(t, again, o))
	require.NoError(t, f.Close())
	putAll(t, again, o)
	require.Equal(t, 4, checkHeld(t, again, o))
}

func TestFilesAreClosedWhenIdle(t *testing.T) {
	t.Parallel()
	clk := newClock()
	cfg := config(t)
	cfg.Now = clk.now
	cfg.OpenFiles = 3
	c := openCache(t, cfg)
	var all []chunk.Object
	for range 8 {
		o := object(bs)
		fill(t, c, o)
		all = append(all, o)
	}
	c.syncDirty(t.Context(), 0)
	c.tend(t.Context())
	require.Equal(t, 3, c.Stats().OpenFiles)
	clk.add(2 * idleTime)
	c.tend(t.Context())
	require.Zero(t, c.Stats().OpenFiles)
	for _, o := range all {
		f := openFile(t, c, o)
		require.Equal(t, 1, checkHeld(t, f, o))
	}
	require.Equal(t, 8, c.Stats().OpenFiles)
	require.Equal(t, 8, c.Stats().Complete)
}

func TestHandleOutlivesCache(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(2 * bs)
	f := openFile(t, c, o)
	put(t, f, o, 1)
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, 1, checkHeld(t, f, o))
	require.Equal(t, content(o, 1), readBlock(t, blk))
	require.ErrorIs(t, f.Put(0, content(o, 0), 0), chunk.ErrClosed)
	r := f.Reader()
	require.NoError(t, f.Close())
	_, err = r.Stat()
	require.True(t, errors.Is(err, os.ErrClosed), "the last user closes the file")
}

// A tree of small files is flushed together, and its descriptors do not pile
// up while it waits for that.
func TestManySmallFiles(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.OpenFiles = 20
	c := openCache(t, cfg)
	var all []chunk.Object
	for range 100 {
		o := object(bs + 1)
		fill(t, c, o)
		all = append(all, o)
		require.LessOrEqual(t, c.Stats().OpenFiles, 4*cfg.OpenFiles)
	}
	require.GreaterOrEqual(t, len(c.dirtyFiles()), syncTogether/2)
	for _, o := range all[:2*syncTogether] {
		openFile(t, c, o)
	}
	c.syncDirty(t.Context(), 0)
	require.Empty(t, c.dirtyFiles())
	for _, o := range all[:2*syncTogether] {
		e, f, err := c.acquire(t.Context(), o.ID, nil)
		require.NoError(t, err)
		require.True(t, f.allSynced())
		f.mu.Lock()
		require.Nil(t, f.mapf, "nothing more will be written")
		f.mu.Unlock()
		c.release(e, f)
	}
}
