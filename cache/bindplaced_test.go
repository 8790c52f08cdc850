package cache

import (
	"os"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func sumsOf(o chunk.Object) []uint32 {
	sums := make([]uint32, o.Blocks())
	for i := range sums {
		sums[i] = chunk.Sum(content(o, i))
	}
	return sums
}

func TestSumsThatWereComparedAreBound(t *testing.T) {
	t.Parallel()
	o := object(70*bs + 3)
	cfg := config(t)
	var told boundSums
	cfg.Bound = told.bound
	c, s := registered(t, cfg, o)
	want := sumsOf(o)
	require.NoError(t, c.BindInPlace(t.Context(), o.ID, want))
	_, held, ok := c.Peek(o.ID)
	require.True(t, ok)
	for i := range o.Blocks() {
		sum, ok := held.Sum(i)
		require.True(t, ok)
		require.Equal(t, want[i], sum)
		b, err := c.Block(t.Context(), o.ID, i)
		require.NoError(t, err)
		require.Equal(t, content(o, i), readBlock(t, b))
	}
	require.Zero(t, told.count(), "sums that were known before were told")

	wrong := sumsOf(o)
	wrong[69]++
	require.ErrorIs(t, c.BindInPlace(t.Context(), o.ID, wrong), chunk.ErrDamaged)
	require.Error(t, c.BindInPlace(t.Context(), o.ID, want[1:]))
	require.ErrorIs(t, c.BindInPlace(t.Context(), chunk.NewObjectID(), want), chunk.ErrNotHeld)

	// They hold the file to what was compared.
	state, size, ok := c.Source(o.ID)
	require.True(t, ok)
	require.Equal(t, SourceOK, state)
	require.Equal(t, o.Size, size)
	require.NoError(t, os.Chtimes(s.Path, c.cfg.Now(), c.cfg.Now()))
	state, _, _ = c.Source(o.ID)
	require.Equal(t, SourceChanged, state)
	require.NoError(t, os.Remove(s.Path))
	state, _, _ = c.Source(o.ID)
	require.Equal(t, SourceGone, state)
	_, _, ok = c.Source(chunk.NewObjectID())
	require.False(t, ok)
}

func TestACopyOfARegisteredFileWhoseSourceIsGone(t *testing.T) {
	t.Parallel()
	o := object(5 * bs)
	c, s := registered(t, config(t), o)
	require.NoError(t, os.Remove(s.Path))
	_, err := c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrSourceChanged)
	f, err := c.OpenFetched(t.Context(), o)
	require.NoError(t, err)
	require.False(t, f.Complete())
	putAll(t, f, o)
	require.True(t, f.Complete())
	require.NoError(t, f.Close())
	i, ok := c.Stat(o.ID)
	require.True(t, ok && i.InPlace, "the registration stands")
}

func TestNotesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	o := object(bs)
	cfg := config(t)
	s := sourceFile(t, o, t.TempDir())
	s.Note = "dir\x00name"
	c := openCache(t, cfg)
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{s}))
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	i, ok := c.Stat(o.ID)
	require.True(t, ok)
	require.Equal(t, s.Note, i.Note)
}

func TestRoom(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 1 << 20
	c := openCache(t, cfg)
	total, one, err := c.Room(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, total)
	require.EqualValues(t, 1<<20, one)
	o := object(64 * bs)
	fill(t, c, o)
	total, _, err = c.Room(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, total, "what may be evicted counts as room")
	require.NoError(t, c.Keep(t.Context(), o.ID, true))
	total, one, err = c.Room(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, total, int64(1<<20)-o.Size, "what is kept is no room")
	require.Equal(t, total, one)
}

func TestFlush(t *testing.T) {
	t.Parallel()
	o := object(70 * bs)
	cfg := config(t)
	c := openCache(t, cfg)
	f := openFile(t, c, o)
	putAll(t, f, o)
	require.NoError(t, c.Flush(t.Context(), o.ID))
	require.True(t, f.(*handle).allSynced())
	require.NoError(t, c.Flush(t.Context(), o.ID), "again, with nothing to do")
	require.NoError(t, f.Close())
	require.ErrorIs(t, c.Flush(t.Context(), chunk.NewObjectID()), chunk.ErrNotHeld)

	o = object(3 * bs)
	f = openFile(t, c, o)
	put(t, f, o, 1) // some of it
	require.NoError(t, c.Flush(t.Context(), o.ID))
	require.NoError(t, f.Close())
}
