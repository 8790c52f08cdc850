package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// fileBytes is about what a complete object of so many blocks takes on disk.
const mapOnDisk = 4096

func here(c *Cache, objects ...chunk.Object) (names []bool) {
	for _, o := range objects {
		c.mu.Lock()
		names = append(names, c.entries[o.ID] != nil)
		c.mu.Unlock()
	}
	return names
}

func TestEvictionOrder(t *testing.T) {
	t.Parallel()
	clk := newClock()
	cfg := config(t)
	cfg.Now = clk.now
	cfg.Size = 4*(8*bs+mapOnDisk) + bs
	var mu sync.Mutex
	var evicted []chunk.ObjectID
	cfg.Evicted = func(o chunk.Object) {
		mu.Lock()
		defer mu.Unlock()
		evicted = append(evicted, o.ID)
	}
	c := openCache(t, cfg)
	var o [6]chunk.Object
	for i := range o {
		o[i] = object(8 * bs)
	}
	for i := range 4 {
		fill(t, c, o[i])
		clk.add(time.Minute)
	}
	require.Equal(t, []bool{true, true, true, true}, here(c, o[:4]...))

	// 0 is read again, 1 is open: 2 is the oldest that may go, then 3.
	blk, err := c.Block(t.Context(), o[0].ID, 0)
	require.NoError(t, err)
	require.NoError(t, blk.Release())
	open := openFile(t, c, o[1])
	clk.add(time.Minute)
	fill(t, c, o[4])
	require.Equal(t, []bool{true, true, false, true, true, false}, here(c, o[:]...))
	clk.add(time.Minute)
	fill(t, c, o[5])
	require.Equal(t, []bool{true, true, false, false, true, true}, here(c, o[:]...))
	require.Equal(t, []chunk.ObjectID{o[2].ID, o[3].ID}, evicted)
	require.Equal(t, 8, checkHeld(t, open, o[1]))
	s := c.Stats()
	require.EqualValues(t, 2, s.Evictions)
	require.EqualValues(t, 4, s.Complete)
	require.LessOrEqual(t, s.UsedBytes, s.LimitBytes)
	for _, suffix := range []string{".map", ".data"} {
		_, err := os.Lstat(c.roots[0].path(o[2].ID, suffix))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.NoError(t, open.Close())
	require.NoError(t, c.Close())

	// The order outlives the process: 0 now is the oldest.
	c = openCache(t, cfg)
	require.NoError(t, c.scan(t.Context()))
	require.Equal(t, s.UsedBytes, c.Stats().UsedBytes)
	fill(t, c, object(8*bs))
	require.Equal(t, []bool{false, true, false, false, true, true}, here(c, o[:]...))
}

// When all that may go is not enough, nothing goes.
func TestNoSpaceWithoutLoss(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 20 * bs
	c := openCache(t, cfg)
	small := object(bs)
	fill(t, c, small)
	big := object(30 * bs)
	f := openFile(t, c, big)
	stored := 0
	for b := range big.Blocks() {
		data := content(big, b)
		err := f.Put(b, data, chunk.Sum(data))
		if err != nil {
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			require.False(t, f.Has(b))
			continue
		}
		stored++
	}
	require.GreaterOrEqual(t, stored, 16)
	require.Less(t, stored, 20)
	require.Equal(t, stored, checkHeld(t, f, big))
	require.LessOrEqual(t, c.Stats().UsedBytes, cfg.Size)
	require.Equal(t, []bool{false}, here(c, small), "the small one went as it sufficed for a block")
	require.Equal(t, "ok", c.Stats().Roots[0].State, "a full budget is no failing disk")

	kept := object(2 * bs)
	g, err := c.Open(t.Context(), kept)
	require.NoError(t, err)
	require.ErrorIs(t, g.Put(0, content(kept, 0), 0), chunk.ErrNoSpace)
	require.NoError(t, g.Close())
	require.NoError(t, f.Close())
	// Nobody uses the big one any more: now it can go.
	fill(t, c, kept)
	require.Equal(t, []bool{true, false}, here(c, kept, big))
}

func TestWithdrawBeforeUnlink(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var c *Cache
	var data []string
	withdrawn := make(map[chunk.SetID]int)
	fail := false
	cfg.Withdraw = func(_ context.Context, s chunk.SetID) error {
		if fail {
			return errors.New("store is down")
		}
		withdrawn[s]++
		for _, path := range data {
			_, err := os.Lstat(path)
			require.NoError(t, err, "bytes go after the record")
			_, err = os.Lstat(path[:len(path)-len(".data")] + ".map")
			require.ErrorIs(t, err, os.ErrNotExist, "and after the map")
		}
		return nil
	}
	clk := newClock()
	cfg.Now = clk.now
	c = openCache(t, cfg)
	a, b, other := object(2*bs), object(2*bs), object(2*bs)
	b.Set = a.Set
	for _, o := range []chunk.Object{a, b, other} {
		fill(t, c, o)
	}
	freed, err := c.Drop(t.Context(), a.ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, freed, int64(2*bs))
	require.Empty(t, withdrawn, "the set has another object here")
	freed, err = c.Drop(t.Context(), a.ID)
	require.NoError(t, err)
	require.Zero(t, freed)
	data = []string{c.roots[0].path(b.ID, ".data")}
	_, err = c.Drop(t.Context(), b.ID)
	require.NoError(t, err)
	require.Equal(t, map[chunk.SetID]int{a.Set: 1}, withdrawn)

	// A registry that is away holds nothing up, and is told later.
	data, fail = nil, true
	_, err = c.Drop(t.Context(), other.ID)
	require.NoError(t, err)
	require.Zero(t, c.Stats().UsedBytes)
	fail = false
	c.payOwed(t.Context())
	require.Zero(t, withdrawn[other.Set], "not before a pause")
	clk.add(withdrawPause)
	c.payOwed(t.Context())
	c.payOwed(t.Context())
	require.Equal(t, 1, withdrawn[other.Set])
	// Not if something of the set came back meanwhile.
	fill(t, c, other)
	fail = true
	_, err = c.Drop(t.Context(), other.ID)
	require.NoError(t, err)
	fail = false
	fill(t, c, other)
	clk.add(withdrawPause)
	c.payOwed(t.Context())
	require.Equal(t, 1, withdrawn[other.Set])
}

// What is dropped while in use stays readable and fillable through the handles
// there are; opened again it is another file.
func TestDropInUse(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(6 * bs)
	f := openFile(t, c, o)
	put(t, f, o, 0, 1)
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	used := c.Stats().UsedBytes
	freed, err := c.Drop(t.Context(), o.ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, freed, int64(2*bs))
	require.Equal(t, used, c.Stats().UsedBytes, "not free before it is closed")
	require.Equal(t, content(o, 1), readBlock(t, blk))
	_, err = c.Block(t.Context(), o.ID, 1)
	require.ErrorIs(t, err, chunk.ErrNotHeld)
	g := openFile(t, c, o)
	require.Zero(t, checkHeld(t, g, o))
	put(t, f, o, 2)
	put(t, g, o, 3)
	c.syncDirty(t.Context(), 0)
	require.Equal(t, 3, checkHeld(t, f, o))
	require.Equal(t, 1, checkHeld(t, g, o))
	require.NoError(t, f.Close())
	require.NoError(t, g.Close())
	_, err = c.Drop(t.Context(), o.ID)
	require.NoError(t, err)
	require.Zero(t, c.Stats().UsedBytes)
	require.Zero(t, c.Stats().Roots[0].UsedBytes)
	require.Zero(t, c.Stats().Objects)
}

// Readers, writers, droppers and a budget that is far too small at once: what
// is read is right, and the books balance.
func TestChurn(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 60 * bs
	cfg.OpenFiles = 3
	cfg.SyncEvery = 5 * time.Millisecond
	cfg.Withdraw = func(context.Context, chunk.SetID) error { return nil }
	c := openCache(t, cfg)
	stop := running(t, c)
	var objects []chunk.Object
	for range 12 {
		objects = append(objects, object(10*bs+5))
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for n := range 60 {
				o := objects[(w*7+n*5)%len(objects)]
				churnOnce(t, c, o, n)
			}
		})
	}
	wg.Wait()
	stop()
	require.LessOrEqual(t, c.Stats().UsedBytes, cfg.Size)
	for _, o := range objects {
		_, err := c.Drop(t.Context(), o.ID)
		require.NoError(t, err)
	}
	s := c.Stats()
	require.Zero(t, s.UsedBytes)
	require.Zero(t, s.Roots[0].UsedBytes)
	require.Zero(t, s.Objects)
	require.Zero(t, c.evictable)
	require.Empty(t, c.sets)
	left, err := filepath.Glob(filepath.Join(cfg.Roots[0], "objects", "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func churnOnce(t *testing.T, c *Cache, o chunk.Object, n int) {
	f, err := c.Open(context.Background(), o)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	for b := range o.Blocks() {
		data := content(o, b)
		if err := f.Put(b, data, chunk.Sum(data)); err != nil && !errors.Is(err, chunk.ErrNoSpace) {
			t.Error(err)
		}
	}
	for b := range o.Blocks() {
		got := make([]byte, o.Block(b).Len)
		if !f.Has(b) {
			continue
		}
		if _, err := f.Reader().ReadAt(got, o.Block(b).Off); err != nil || chunk.Sum(got) != chunk.Sum(content(o, b)) {
			t.Errorf("block %d is wrong: %v", b, err)
		}
	}
	blk, err := c.Block(context.Background(), o.ID, n%o.Blocks())
	if err == nil {
		got := make([]byte, blk.Len)
		blk.File.ReadAt(got, blk.Off)
		if chunk.Sum(got) != blk.Sum || blk.Sum != chunk.Sum(content(o, n%o.Blocks())) {
			t.Error("served block is wrong")
		}
		blk.Release()
	} else if !errors.Is(err, chunk.ErrNotHeld) {
		t.Error(err)
	}
	if n%40 == 39 {
		if _, err := c.Drop(context.Background(), o.ID); err != nil {
			t.Error(err)
		}
	}
}

// The reserve of the file system is kept, too.
func TestReserve(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	require.EqualValues(t, gib/20, Reserve{}.of(gib))
	require.EqualValues(t, int64(DefaultFreeMax), Reserve{}.of(1<<50))
	require.EqualValues(t, 7, Reserve{Bytes: 7}.of(gib))
	require.EqualValues(t, gib/2, Reserve{Fraction: 0.5}.of(gib))
	require.Zero(t, Reserve{Bytes: -1}.of(gib))
	cfg := config(t)
	cfg.FreeSpace = Reserve{Bytes: 1 << 60}
	c := openCache(t, cfg)
	o := object(bs)
	f := openFile(t, c, o)
	require.ErrorIs(t, f.Put(0, content(o, 0), 0), chunk.ErrNoSpace)
	require.Negative(t, c.Stats().Roots[0].FreeBytes)
}

func TestSets(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	a, b, d := object(2*bs), object(2*bs), object(2*bs)
	b.Set = a.Set
	fill(t, c, a)
	fill(t, c, d)
	f := openFile(t, c, b)
	put(t, f, b, 0)
	require.NoError(t, f.Close())
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	sets, err := c.Sets(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []SetInfo{{Set: a.Set}, {Set: d.Set, Complete: true}}, sets)
	var seen int64
	require.NoError(t, c.Objects(t.Context(), func(i Info) bool { seen += i.LocalBytes; return true }))
	require.EqualValues(t, 5*bs, seen)
	i, ok := c.Stat(b.ID)
	require.True(t, ok)
	require.Equal(t, Info{Object: b, LocalBytes: bs}, i)
	require.Zero(t, c.Stats().OpenFiles, "a look opens nothing")
}
