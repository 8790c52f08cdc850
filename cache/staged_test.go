package cache

import (
	"context"
	"io/fs"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// staged makes a staged file that is closed with the test.
func staged(t testing.TB, c *Cache, id uint64, base *Base) *Staged {
	t.Helper()
	s, err := c.Stage(t.Context(), id, bs, base)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// cut returns an object to publish under.
func cut() chunk.Object {
	return chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), ChunkSize: 4 * bs, BlockSize: bs}
}

// readStaged returns all of a staged file.
func readStaged(t testing.TB, s *Staged) []byte {
	t.Helper()
	b := make([]byte, s.Size())
	n, err := s.ReadAt(t.Context(), b, 0)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	return b
}

// requireObject requires that an object is here, complete and kept, with these
// bytes, and that its sums are theirs.
func requireObject(t testing.TB, c *Cache, o chunk.Object, want []byte) {
	t.Helper()
	require.Equal(t, int64(len(want)), o.Size)
	info, held, ok := c.Peek(o.ID)
	require.True(t, ok)
	require.True(t, info.Complete)
	require.True(t, info.Keeper)
	require.Equal(t, o, info.Object)
	for b := range o.Blocks() {
		span := o.Block(b)
		piece := want[span.Off:span.End()]
		sum, ok := held.Sum(b)
		require.True(t, ok)
		require.Equal(t, chunk.Sum(piece), sum, "block %d", b)
		blk, err := c.Block(context.Background(), o.ID, b)
		require.NoError(t, err)
		require.Equal(t, allZero(piece), blk.Zero, "block %d", b)
		require.Equal(t, piece, readBlock(t, blk))
	}
}

// requireSealed requires that what a publish told is right.
func requireSealed(t testing.TB, sealed Sealed, want []byte) {
	t.Helper()
	o := sealed.Object
	require.Equal(t, int64(len(want)), o.Size)
	require.Len(t, sealed.Sums, o.Blocks())
	require.Equal(t, o.Blocks(), sealed.Zeros.Len())
	require.Equal(t, o.Sparse, sealed.Zeros.Count() > 0)
	for b := range o.Blocks() {
		span := o.Block(b)
		require.Equal(t, chunk.Sum(want[span.Off:span.End()]), sealed.Sums[b])
		require.Equal(t, allZero(want[span.Off:span.End()]), sealed.Zeros.Has(b))
	}
}

func TestStageAndPublish(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	o := object(5*bs + 17)
	want := wholeContent(o)
	s := staged(t, c, 7, nil)
	_, err := c.Stage(t.Context(), 7, bs, nil)
	require.ErrorIs(t, err, fs.ErrExist)
	require.NoError(t, s.SetNote([]byte("a note"), false))
	for off := 0; off < len(want); off += 1000 {
		require.NoError(t, s.WriteAt(t.Context(), want[off:min(off+1000, len(want))], int64(off)))
	}
	require.Equal(t, want, readStaged(t, s))
	require.Positive(t, c.Stats().StagedBytes)
	require.Equal(t, 1, c.Stats().StagedFiles)
	p := cut()
	sealed, err := s.Publish(t.Context(), p)
	require.NoError(t, err)
	requireSealed(t, sealed, want)
	requireObject(t, c, sealed.Object, want)
	require.Equal(t, want, readStaged(t, s), "a published file is still read")
	require.ErrorIs(t, s.WriteAt(t.Context(), []byte("x"), 0), ErrSpent)
	require.ErrorIs(t, s.Truncate(t.Context(), 0), ErrSpent)
	_, err = s.Append(t.Context(), []byte("x"))
	require.ErrorIs(t, err, ErrSpent)

	require.Zero(t, c.Stats().StagedBytes)
	require.Zero(t, c.Stats().StagedFiles)
	require.Equal(t, 1, c.Stats().Kept)
	require.Equal(t, c.Stats().UsedBytes, c.Stats().KeptBytes)
	files, err := c.StagedFiles()
	require.NoError(t, err)
	require.Equal(t, []StagedInfo{{ID: 7, Note: []byte("a note"), Published: true, Open: true}}, files)
	require.NoError(t, s.Discard())
	files, err = c.StagedFiles()
	require.NoError(t, err)
	require.Empty(t, files)
	requireObject(t, c, sealed.Object, want)
	require.NoError(t, s.Close())
	used := c.Stats().UsedBytes
	require.NoError(t, c.Close())

	c = openCache(t, cfg)
	requireObject(t, c, sealed.Object, want)
	require.Equal(t, used, c.Stats().UsedBytes)
}
