package cache

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// W14: a write that finds no room is done again when kept objects have gone, and
// refused when none will.
func TestWritesWaitForRoom(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *Staged, p []byte) error{
		"write":    func(s *Staged, p []byte) error { return s.WriteAt(context.Background(), p, s.Size()) },
		"append":   func(s *Staged, p []byte) error { _, err := s.Append(context.Background(), p); return err },
		"allocate": func(s *Staged, p []byte) error { return s.Allocate(context.Background(), s.Size(), int64(len(p)), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c *Cache
			var s *Staged
			var kept []chunk.Object
			var asked, short atomic.Int32
			cfg := config(t)
			cfg.Size = 20 * bs
			cfg.Short = func() { short.Add(1) }
			cfg.Relieve = func(ctx context.Context) bool {
				asked.Add(1)
				require.NoError(t, ctx.Err())
				size := s.Size()
				require.NoError(t, s.Truncate(ctx, size+1), "the file is locked meanwhile")
				require.NoError(t, s.Truncate(ctx, size))
				if len(kept) == 0 {
					return false
				}
				require.NoError(t, c.Loosen(ctx, kept[0].ID))
				_, err := c.DropCopy(ctx, kept[0].ID)
				require.NoError(t, err)
				kept = kept[1:]
				return true
			}
			c = openCache(t, cfg)
			for i := range 2 {
				kept = append(kept, publishNew(t, c, uint64(i+1), 4*bs))
			}
			s = staged(t, c, 9, nil)
			p := wholeContent(object(2 * bs))
			n := 0
			var err error
			for n = 0; n < 20; n++ {
				if err = change(s, p); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			require.Equal(t, 10, n, "all of the budget")
			require.Empty(t, kept)
			require.EqualValues(t, 3, asked.Load())
			require.Positive(t, short.Load())
			require.Equal(t, int64(20*bs), s.Size())
		})
	}
}

// A publish finds room for its map in the same way.
func TestPublishWaitsForRoom(t *testing.T) {
	t.Parallel()
	var c *Cache
	var kept chunk.Object
	cfg := config(t)
	cfg.Size = 20 * bs
	cfg.Relieve = func(ctx context.Context) bool {
		require.NoError(t, c.Loosen(ctx, kept.ID))
		return true
	}
	c = openCache(t, cfg)
	kept = publishNew(t, c, 1, 4*bs)
	s := staged(t, c, 2, nil)
	o := object(15 * bs) // the other has a map, too
	require.NoError(t, s.WriteAt(t.Context(), wholeContent(o), 0))
	_, err := s.Publish(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, here(c, kept, o))
}

// Little room is told before there is none, but not while something could be
// evicted.
func TestLittleRoomIsTold(t *testing.T) {
	t.Parallel()
	var short atomic.Int32
	cfg := config(t)
	cfg.Size = 100 * bs
	cfg.Short = func() { short.Add(1) }
	c := openCache(t, cfg)
	for range 12 {
		fill(t, c, object(10*bs))
	}
	s := staged(t, c, 1, nil)
	p := wholeContent(object(bs))
	for short.Load() == 0 {
		_, err := s.Append(t.Context(), p)
		require.NoError(t, err)
	}
	require.Greater(t, s.Size(), int64(95*bs))
	require.Less(t, s.Size(), int64(100*bs))
}

// K4, K1: where an object is registered besides, the copy the cache kept of it
// can be let go, and is then evicted like any other; the registered file stays.
func TestACopyBesideARegisteredFile(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	o := publishNew(t, c, 1, 3*bs)
	s := sourceFile(t, o, t.TempDir())
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{s}))
	require.NoError(t, c.Loosen(t.Context(), o.ID))
	require.NoError(t, c.Loosen(t.Context(), o.ID))
	require.NoError(t, c.Loosen(t.Context(), chunk.NewObjectID()))
	require.Zero(t, c.Stats().Kept)
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	_, err := c.Sets(t.Context())
	require.NoError(t, err)
	require.Zero(t, c.Stats().Kept, "over a restart")
	freed, err := c.DropCopy(t.Context(), o.ID)
	require.NoError(t, err)
	require.Positive(t, freed)
	info, ok := c.Stat(o.ID)
	require.True(t, ok && info.InPlace)
	require.FileExists(t, s.Path)
	_, err = c.Drop(t.Context(), o.ID)
	require.ErrorIs(t, err, ErrKept)
}
