package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

func someNote() note {
	return note{
		state: stateFailed, dir: 7, exclusive: true, published: true, base: chunk.NewObjectID(), reason: "why", whenNs: 9, sent: true,
		entry: meta.Entry{Name: "a\xff\nb", Kind: meta.KindFile, Inode: 5, Mode: 0o4755, UID: 1, GID: 2, MtimeNs: -3, CtimeNs: 4, XAttrs: "\x06user.a\x00\x01v"},
		object: chunk.Object{
			ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: 5000, ChunkSize: 3 * chunk.MinBlockSize, BlockSize: chunk.MinBlockSize, Sparse: true,
		},
	}
}

func TestNoteSurvives(t *testing.T) {
	t.Parallel()
	bare := someNote()
	bare.object, bare.base = chunk.Object{}, chunk.ObjectID{}
	for name, n := range map[string]note{"whole": someNote(), "without objects": bare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := n.encode()
			require.NoError(t, err)
			got, err := decodeNote(b)
			require.NoError(t, err)
			require.Equal(t, n, got)
		})
	}
}

func FuzzNote(f *testing.F) {
	b, err := someNote().encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNote(b)
		if err != nil {
			require.ErrorIs(t, err, meta.ErrFormat)
			return
		}
		again, err := n.encode()
		require.NoError(t, err)
		same, err := decodeNote(again)
		require.NoError(t, err)
		require.Equal(t, n, same)
	})
}
