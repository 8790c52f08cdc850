package cache

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// publishNew publishes n random bytes and lets go of them.
func publishNew(t testing.TB, c *Cache, id uint64, n int) chunk.Object {
	t.Helper()
	o := object(int64(n))
	s, err := c.Stage(t.Context(), id, bs, nil)
	require.NoError(t, err)
	require.NoError(t, s.WriteAt(t.Context(), wholeContent(o), 0))
	sealed, err := s.Publish(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, s.Discard())
	require.NoError(t, s.Close())
	return sealed.Object
}

// W14, K1: staged and kept bytes count; fetched objects make room for them, and
// when there are none the write is refused, whole. What was written stays.
func TestStagedBudget(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"budget", "reserve", "disk"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Log = nil
			switch by {
			case "budget":
				cfg.Size = 100 * bs
			case "reserve":
				cfg.Roots = []string{smallDisk(t, "size=32m")}
				cfg.FreeSpace = Reserve{Bytes: 32<<20 - 120*bs}
			case "disk":
				cfg.Roots = []string{smallDisk(t, "size=480k")}
			}
			c := openCache(t, cfg)
			fetched := object(50 * bs)
			fill(t, c, fetched)
			kept := publishNew(t, c, 1, 20*bs)
			require.True(t, here(c, fetched)[0])

			s := staged(t, c, 2, nil)
			require.NoError(t, s.SetNote([]byte("n"), false))
			r := rand.New(rand.NewPCG(1, 2))
			p := make([]byte, 3*bs)
			var err error
			var off int64
			for off = 0; off < 1000*bs; off += int64(len(p)) {
				for i := range p {
					p[i] = byte(r.Uint32()) | 1
				}
				if err = s.WriteAt(t.Context(), p, off); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			require.Equal(t, off, s.Size())
			require.Equal(t, []bool{false, true}, here(c, fetched, kept), "fetched ones went, kept ones not")
			require.Greater(t, off, int64(50*bs))
			_, err = s.Append(t.Context(), p)
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			require.ErrorIs(t, s.Allocate(t.Context(), off, 3*bs, 0), chunk.ErrNoSpace)
			require.Equal(t, off, s.Size())
			// Over what is there, and holes, there is room.
			require.NoError(t, s.WriteAt(t.Context(), p, bs/2))
			require.NoError(t, s.Truncate(t.Context(), 1<<40))
			require.NoError(t, s.Truncate(t.Context(), off))
			// Giving some back makes room again, for the map too.
			require.NoError(t, s.Allocate(t.Context(), 0, 9*bs, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE))
			want := readStaged(t, s)
			sealed, err := s.Publish(t.Context(), cut())
			require.NoError(t, err)
			requireObject(t, c, sealed.Object, want)
			require.Equal(t, 9, sealed.Zeros.Count())
			if cfg.Size > 0 {
				require.LessOrEqual(t, c.Stats().UsedBytes, cfg.Size)
			}
		})
	}
}

// A publish that finds no room for the map leaves the staged file as it was.
func TestPublishWithoutRoom(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 10 * bs
	c := openCache(t, cfg)
	s := staged(t, c, 1, nil)
	o := object(10 * bs)
	want := wholeContent(o)
	require.NoError(t, s.WriteAt(t.Context(), want, 0))
	_, err := s.Publish(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	require.False(t, s.Spent())
	_, ok := c.Stat(o.ID)
	require.False(t, ok)
	require.Equal(t, want, readStaged(t, s))
	require.NoError(t, s.Truncate(t.Context(), 9*bs))
	sealed, err := s.Publish(t.Context(), o)
	require.NoError(t, err)
	requireObject(t, c, sealed.Object, want[:9*bs])
}

// A file that is discarded or closed gives back, or keeps, what it took.
func TestStagedBooks(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	p := wholeContent(object(8 * bs))
	a, b := staged(t, c, 1, nil), staged(t, c, 2, nil)
	for _, s := range []*Staged{a, b} {
		require.NoError(t, s.WriteAt(t.Context(), p, 0))
		require.NoError(t, s.SetNote([]byte("n"), false))
	}
	require.Equal(t, int64(16*bs), c.Stats().StagedBytes)
	require.NoError(t, a.Discard())
	require.ErrorIs(t, a.WriteAt(t.Context(), p, 0), ErrSpent)
	_, err := a.Publish(t.Context(), cut())
	require.ErrorIs(t, err, ErrSpent)
	require.ErrorIs(t, a.SetNote(nil, false), ErrSpent)
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.WriteAt(t.Context(), p, 0), chunk.ErrClosed)
	require.Equal(t, int64(8*bs), c.Stats().StagedBytes)
	require.NoError(t, b.Close())
	require.Equal(t, int64(8*bs), c.Stats().StagedBytes)
	require.NoError(t, c.Close())

	// Junk: bytes without a note, a map without bytes, half a note.
	dir := filepath.Join(cfg.Roots[0], stagingDir)
	for _, name := range []string{"0000000000000009.data", "0000000000000008.base", "0000000000000002.note.tmp", "x", "9.data"} {
		writeFile(t, filepath.Join(dir, name), p)
	}
	c = openCache(t, cfg)
	require.Equal(t, int64(8*bs), c.Stats().StagedBytes)
	require.Equal(t, int64(8*bs), c.Stats().UsedBytes)
	left, err := filepath.Glob(filepath.Join(dir, "0*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "0000000000000002.data"), filepath.Join(dir, "0000000000000002.note")}, left)
	require.NoError(t, c.DiscardStaged(2))
	require.Zero(t, c.Stats().UsedBytes)
	require.Error(t, c.DiscardStaged(2))
}
