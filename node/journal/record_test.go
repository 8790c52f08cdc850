package journal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzRecord(f *testing.F) {
	f.Add(record{kind: kindEntry, epoch: 3, version: 9, entry: []byte("x")}.encode())
	f.Add(record{kind: kindTombstone, epoch: 1 << 60, version: 1, at: -5}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		again, err := decodeRecord(r.encode())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func FuzzWay(f *testing.F) {
	f.Add(way{epoch: 1, version: 2, parent: 3, name: "n", entry: []byte("e")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := decodeWay(b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		again, err := decodeWay(w.encode())
		require.NoError(t, err)
		require.Equal(t, w, again)
	})
}
