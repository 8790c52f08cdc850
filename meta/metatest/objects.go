package metatest

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// object returns an object of so many blocks of the smallest size.
func object(blocks int64) chunk.Object {
	return chunk.Object{
		ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: blocks*chunk.MinBlockSize - 1,
		ChunkSize: 2 * chunk.MinBlockSize, BlockSize: chunk.MinBlockSize,
	}
}

func testObjects(t *testing.T, c *meta.Catalog) {
	recs := make([]meta.ObjectRecord, 300)
	for i := range recs {
		recs[i] = meta.ObjectRecord{
			Object: object(int64(i + 2)), SumKind: meta.SumCRC32C, Zone: "z",
			References: []meta.Reference{{Dir: 5, Name: "n\xff", Version: 3}},
			Keepers:    []chunk.NodeID{chunk.NewNodeID()},
		}
	}
	require.NoError(t, c.PutObjects(t.Context(), recs))
	require.NoError(t, c.PutObjects(t.Context(), recs), "again is harmless")
	for _, want := range recs {
		got, err := c.Object(t.Context(), want.Object.ID)
		require.NoError(t, err)
		require.NotZero(t, got.Version)
		got.Version = 0
		require.Equal(t, want, got)
	}
	other := recs[0]
	other.Object.Size++
	require.ErrorIs(t, c.PutObjects(t.Context(), []meta.ObjectRecord{other}), meta.ErrExist)
	_, err := c.Object(t.Context(), chunk.NewObjectID())
	require.ErrorIs(t, err, meta.ErrNotFound)

	id := recs[0].Object.ID
	require.NoError(t, c.BindSums(t.Context(), recs[0].Object, map[int]uint32{0: 1}))
	require.NoError(t, c.DeleteObject(t.Context(), id))
	require.NoError(t, c.DeleteObject(t.Context(), id))
	_, err = c.Object(t.Context(), id)
	require.ErrorIs(t, err, meta.ErrNotFound)
	g, err := c.SumGroup(t.Context(), recs[0].Object, 0)
	require.NoError(t, err)
	require.Zero(t, g.Known.Count())
}

// testHugeObject: 2 TiB with every bit and sum set fits a store's default
// limits.
func testHugeObject(t *testing.T, c *meta.Catalog) {
	o := chunk.Object{
		ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: 2<<40 + 1,
		ChunkSize: chunk.DefaultChunkSize, BlockSize: chunk.DefaultBlockSize, Sparse: true,
	}
	zeros := chunk.NewBitmap(o.Blocks())
	zeros.Fill()
	zeros.Clear(7)
	zeros.Clear(o.Blocks() - 1)
	require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{{Object: o, Zeros: zeros}}))
	got, err := c.Zeros(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, zeros, got)

	full := make(map[int]uint32, meta.GroupBlocks)
	for b := range meta.GroupBlocks {
		full[3*meta.GroupBlocks+b] = uint32(b) * 2654435761
	}
	full[0], full[o.Blocks()-1] = 1, 2
	require.NoError(t, c.BindSums(t.Context(), o, full))
	g, err := c.SumGroup(t.Context(), o, 3)
	require.NoError(t, err)
	require.True(t, g.Known.Full())
	require.True(t, g.Zero.Full(), "the zero bits stay")
	require.Equal(t, full[3*meta.GroupBlocks+77], g.Sums[77])
	last, err := c.SumGroup(t.Context(), o, meta.Groups(o)-1)
	require.NoError(t, err)
	require.Equal(t, 1, last.Known.Len())
	require.Equal(t, uint32(2), last.Sums[0])
	_, err = c.SumGroup(t.Context(), o, meta.Groups(o))
	require.Error(t, err)

	small := object(10)
	none, err := c.Zeros(t.Context(), small)
	require.NoError(t, err)
	require.Zero(t, none.Len())
	small.Sparse = true
	none, err = c.Zeros(t.Context(), small)
	require.NoError(t, err)
	require.Zero(t, none.Len())
	wrong := meta.ObjectRecord{Object: small, Zeros: chunk.NewBitmap(11)}
	require.Error(t, c.PutObjects(t.Context(), []meta.ObjectRecord{wrong}))
}

func testSums(t *testing.T, c *meta.Catalog) {
	o := object(meta.GroupBlocks + 3)
	require.NoError(t, c.BindSums(t.Context(), o, map[int]uint32{0: 10, meta.GroupBlocks + 2: 12}))
	require.NoError(t, c.BindSums(t.Context(), o, map[int]uint32{0: 10, 5: 15}))
	err := c.BindSums(t.Context(), o, map[int]uint32{5: 99, 6: 16})
	require.ErrorIs(t, err, chunk.ErrDamaged)
	require.ErrorContains(t, err, "block 5")
	g, err := c.SumGroup(t.Context(), o, 0)
	require.NoError(t, err)
	require.Equal(t, 3, g.Known.Count())
	require.Equal(t, uint32(10), g.Sums[0])
	require.Equal(t, uint32(15), g.Sums[5], "the first sum stands")
	require.Equal(t, uint32(16), g.Sums[6])
	g, err = c.SumGroup(t.Context(), o, 1)
	require.NoError(t, err)
	require.True(t, g.Known.Has(2))
	require.Equal(t, uint32(12), g.Sums[2])
	require.Error(t, c.BindSums(t.Context(), o, map[int]uint32{o.Blocks(): 1}))
	require.Error(t, c.BindSums(t.Context(), o, map[int]uint32{-1: 1}))
}

// testSumsRace: writers that bind into the same groups at once lose nothing.
func testSumsRace(t *testing.T, c *meta.Catalog) {
	const writers, each, seed = 6, 40, 11
	o := object(2 * meta.GroupBlocks)
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	want := map[int]uint32{}
	parts := make([][]map[int]uint32, writers)
	for w := range parts {
		for range each / 4 {
			part := map[int]uint32{}
			for range 4 {
				b := rnd.IntN(o.Blocks())
				want[b] = uint32(b)
				part[b] = uint32(b)
			}
			parts[w] = append(parts[w], part)
		}
	}
	var wg sync.WaitGroup
	for _, mine := range parts {
		wg.Go(func() {
			for _, part := range mine {
				if err := c.BindSums(t.Context(), o, part); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := map[int]uint32{}
	for i := range meta.Groups(o) {
		g, err := c.SumGroup(t.Context(), o, i)
		require.NoError(t, err)
		for b := range g.Known.Len() {
			if g.Known.Has(b) {
				got[i*meta.GroupBlocks+b] = g.Sums[b]
			}
		}
	}
	require.Equal(t, want, got)
}

func testDamaged(t *testing.T, c *meta.Catalog) {
	rec := meta.ObjectRecord{Object: object(9), Zone: "z", SumKind: meta.SumCRC32C}
	require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{rec}))
	single := object(1)
	for _, o := range []chunk.Object{rec.Object, single} {
		require.NoError(t, c.MarkDamaged(t.Context(), o, "first"))
		require.NoError(t, c.MarkDamaged(t.Context(), o, "second"))
		got, err := c.Object(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, "first", got.Damaged)
		require.Equal(t, o, got.Object)
	}
}
