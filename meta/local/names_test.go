package local

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

func FuzzParseEntry(f *testing.F) {
	e := meta.Entry{Name: "l", Kind: meta.KindSymlink, Inode: 3, Target: "x", Version: 9}
	b, err := record(&e)
	require.NoError(f, err)
	f.Add("l", b)
	f.Add("l", []byte("short"))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		e, err := parseEntry(name, b)
		if err != nil {
			require.ErrorIs(t, err, meta.ErrFormat)
			return
		}
		again, err := record(&e)
		require.NoError(t, err)
		got, err := parseEntry(name, again)
		require.NoError(t, err)
		require.Equal(t, e, got)
	})
}
