package tcp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

// A block that comes slowly is handed on as it comes, not only when a large
// piece of it is there.
func TestASlowBlockIsHandedOnInSmallPieces(t *testing.T) {
	t.Parallel()
	const size = 4*tcp.LeastLimit + 100 // takes some four seconds
	b := newBed(t, uploadLimit(tcp.LeastLimit))
	data := rdmatest.RandomBytes(1, size)
	o := b.source.Add(data, large)
	c := b.newClient(t, nil)
	var got bytes.Buffer
	pieces := 0
	r, err := c.FetchTo(t.Context(), b.Peer(), o.Ref(0), func(p []byte) error {
		require.Zero(t, got.Len()%chunk.MinBlockSize, "a piece after one that is not whole pages")
		got.Write(p)
		pieces++
		return nil
	})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got.Bytes()))
	require.Equal(t, chunk.Sum(data), r.Sum)
	require.GreaterOrEqual(t, pieces, 2, "one each second")
}
