package tcp_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

// A request that waits for its turn as long as a provider lets it is told that
// the provider is busy, before the reader takes it for stalled.
func TestAFullTurnIsNoStall(t *testing.T) {
	t.Parallel()
	require.Greater(t, tcp.DefaultStallTimeout, chunk.LongestTurn+tcp.DefaultDialTimeout)
	b := newBed(t, func(h *tcp.HandlerConfig, _ *http.Server) func(net.Listener) net.Listener {
		h.Admit = func(ctx context.Context, _ chunk.NodeID, _ chunk.BlockRef) (func(), error) {
			select {
			case <-time.After(chunk.LongestTurn):
				return nil, &chunk.Busy{Retry: time.Second}
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return nil
	})
	c := b.newClient(t, func(c *tcp.ClientConfig) { c.StallTimeout = 0 })
	o := b.source.Add(rdmatest.RandomBytes(1, large), large)
	require.ErrorIs(t, b.fetch(t, c, b.Peer(), o.Ref(0)), chunk.ErrBusy)
}
