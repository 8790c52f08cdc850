package verbs

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// TestRegionOf: the same part of another file is another region, even under the
// old file's name.
func TestRegionOf(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "object")
	open := func(size int) *os.File {
		_ = os.Remove(name) // the first time there is none
		require.NoError(t, os.WriteFile(name, make([]byte, size), 0o600))
		f, err := os.Open(name)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		return f
	}
	first, second := open(3<<20), open(3<<20)
	span, one, err := regionOf(chunk.Block{File: first, Off: 2 << 20, Len: 1 << 20}, 2<<20)
	require.NoError(t, err)
	require.Equal(t, chunk.Span{Off: 2 << 20, Len: 1 << 20}, span)
	_, again, err := regionOf(chunk.Block{File: first, Off: 0, Len: 1 << 20}, 2<<20)
	require.NoError(t, err)
	require.Equal(t, one, again)
	_, two, err := regionOf(chunk.Block{File: second, Off: 2 << 20, Len: 1 << 20}, 2<<20)
	require.NoError(t, err)
	require.NotEqual(t, one, two)

	_, _, err = regionOf(chunk.Block{File: second, Off: 2 << 20, Len: 1<<20 + 1}, 2<<20)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = regionOf(chunk.Block{File: second, Off: 1 << 20, Len: 2 << 20}, 2<<20)
	require.ErrorIs(t, err, errRegister)
}
