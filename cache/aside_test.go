package cache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// K1: a complete file whose map cannot be read may be all there is of what was
// written here: it is set aside. What was surely fetched is removed.
func TestAKeptFileWithAnUnreadableMapIsSetAside(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string){
		"header":  func(t *testing.T, path string) { writeOver(t, path, 20) },
		"cut off": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100)) },
		"empty":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"no group": func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, sectorSize))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Log = nil
			c := openCache(t, cfg)
			kept, used, half := publishNew(t, c, 1, 3*bs), publishNew(t, c, 2, 3*bs), object(3*bs)
			f := openFile(t, c, half)
			put(t, f, half, 0)
			require.NoError(t, f.Close())
			fetched := object(3 * bs)
			fill(t, c, fetched)
			require.NoError(t, c.Close())
			for _, o := range []string{kept.ID.String(), used.ID.String(), half.ID.String()} {
				spoil(t, filepath.Join(cfg.Roots[0], "objects", o[:2], o+".map"))
			}
			c = openCache(t, cfg)
			_, ok := c.Stat(used.ID) // by a use, and by the scan
			require.False(t, ok)
			_, err := c.Sets(t.Context())
			require.NoError(t, err)
			require.Equal(t, []bool{false, false, false, true}, here(c, kept, used, half, fetched))
			require.Equal(t, 2, c.Stats().Roots[0].Aside)
			got, err := os.ReadFile(filepath.Join(cfg.Roots[0], asideDir, kept.ID.String()+".data"))
			require.NoError(t, err)
			require.Len(t, got, 3*bs)
			left, err := filepath.Glob(filepath.Join(cfg.Roots[0], "objects", "*", "*"))
			require.NoError(t, err)
			require.Len(t, left, 2, "%v", left)
		})
	}
}

// What was fetched, as its map says, is removed and fetched again.
func TestAFetchedFileWithABadMapIsRemoved(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	c := openCache(t, cfg)
	o := object(3 * bs)
	fill(t, c, o)
	require.NoError(t, c.Close())
	id := o.ID.String()
	require.NoError(t, os.Truncate(filepath.Join(cfg.Roots[0], "objects", id[:2], id+".map"), sectorSize))
	c = openCache(t, cfg)
	_, ok := c.Stat(o.ID)
	require.False(t, ok)
	require.Zero(t, c.Stats().Roots[0].Aside)
}

func writeOver(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("spoilt"), off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
