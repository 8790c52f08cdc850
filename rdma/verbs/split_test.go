package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

func TestRegionSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit uint64
		most  int64
		want  int64
	}{
		{0, 64 << 20, 64 << 20},
		{1<<64 - 1, 64 << 20, 64 << 20},
		{96 << 20, 64 << 20, 64 << 20},
		{96 << 20, 1 << 40, 64 << 20},
		{64<<20 - 1, 64 << 20, 32 << 20},
		{4 << 10, 64 << 20, 4 << 10},
		{0, 10 << 20, 8 << 20},
	} {
		got, err := regionSize(c.limit, c.most)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
	}
	_, err := regionSize(chunk.MinBlockSize-1, 64<<20)
	require.Error(t, err)
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 63, 64, 65, 128, 200<<20 + 1} {
		for _, region := range []int64{64, 64 << 20} {
			if size/region > 1000 {
				continue
			}
			end := int64(0)
			for _, s := range split(size, region) {
				require.Equal(t, end, s.Off)
				require.LessOrEqual(t, s.Len, region)
				require.Positive(t, s.Len)
				end = s.End()
			}
			require.Equal(t, size, end)
		}
	}
}

// TestPart: every block of a file lies in one part, whatever the limit.
func TestPart(t *testing.T) {
	t.Parallel()
	const size = 200<<20 + 1
	for _, limit := range []uint64{0, 96 << 20, 64 << 20, 5 << 20, 4 << 20} {
		region, err := regionSize(limit, 64<<20)
		require.NoError(t, err)
		o := chunk.Object{Size: size, BlockSize: 4 << 20, ChunkSize: 64 << 20}
		for i := range o.Blocks() {
			b := o.Block(i)
			s, ok := part(b.Off, b.Len, size, region)
			require.True(t, ok)
			require.Zero(t, s.Off%region)
			require.LessOrEqual(t, s.Off, b.Off)
			require.GreaterOrEqual(t, s.End(), b.End())
			require.LessOrEqual(t, s.End(), int64(size))
			if limit != 0 {
				require.LessOrEqual(t, uint64(s.Len), limit)
			}
		}
	}
	for _, c := range [][3]int64{{-1, 1, 10}, {0, 0, 10}, {0, 11, 10}, {10, 1, 10}, {3, 4, 10}, {0, 1 << 62, 10}, {1 << 62, 1, 10}} {
		_, ok := part(c[0], c[1], c[2], 4)
		require.False(t, ok, "%v", c)
	}
}
