package tcp_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

func uploadLimit(bytesPerSecond int64) func(*tcp.HandlerConfig, *http.Server) func(net.Listener) net.Listener {
	return func(c *tcp.HandlerConfig, _ *http.Server) func(net.Listener) net.Listener {
		c.Limit = tcp.NewLimiter(bytesPerSecond)
		return nil
	}
}

// inStep fetches blocks with every client at once and returns how long each of
// them took for its own.
func inStep(t *testing.T, b *bed, o chunk.Object, clients []*tcp.Client, blocks int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, len(clients))
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			var own sync.WaitGroup
			for block := range blocks {
				own.Go(func() {
					if err := b.fetch(t, c, b.Peer(), o.Ref(block)); err != nil {
						t.Error(err)
					}
				})
			}
			own.Wait()
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	return took
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const limit, blocks = 4 << 20, 4
	for _, c := range []struct {
		name             string
		upload, download int64
		block            int64
		clients          int
		want             float64 // seconds that the limit asks for
	}{
		{"none", 0, 0, large, 2, 0},
		{"upload", limit, 0, large, 1, 0.5},
		{"upload, shared by two", limit, 0, large, 2, 1},
		{"upload of small blocks", limit / 8, 0, 64 << 10, 2, 1},
		{"download", 0, limit, large, 1, 0.5},
		{"download, each its own", 0, limit, large, 2, 0.5},
		{"both", limit, limit / 2, large, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, uploadLimit(c.upload))
			o := b.source.Add(rdmatest.RandomBytes(1, blocks*c.block), c.block)
			var clients []*tcp.Client
			for range c.clients {
				clients = append(clients, b.newClient(t, func(cc *tcp.ClientConfig) { cc.Limit = tcp.NewLimiter(c.download) }))
			}
			for _, took := range inStep(t, b, o, clients, blocks) {
				// Of a second's worth a sixteenth may pass at once. Shared by
				// two, neither is done before most of both has passed.
				require.Greater(t, took.Seconds(), 0.75*c.want)
				require.Less(t, took.Seconds(), c.want+60)
			}
		})
	}
}

func TestALimitIsNotTakenForAStall(t *testing.T) {
	t.Parallel()
	for name, where := range map[string][2]int64{"upload": {tcp.LeastLimit, 0}, "download": {0, tcp.LeastLimit}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, uploadLimit(where[0]))
			o := b.source.Add(rdmatest.RandomBytes(1, 8*(64<<10)), 64<<10)
			c := b.newClient(t, func(cc *tcp.ClientConfig) {
				cc.StallTimeout = 6 * time.Second // eight turns are half a second
				cc.Limit = tcp.NewLimiter(where[1])
			})
			took := inStep(t, b, o, []*tcp.Client{c}, 8)
			require.Greater(t, took[0].Seconds(), 6.)
		})
	}
}

func TestAWaitForATurnEndsWithTheFetch(t *testing.T) {
	t.Parallel()
	for name, where := range map[string][2]int64{"upload": {tcp.LeastLimit, 0}, "download": {0, tcp.LeastLimit}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, uploadLimit(where[0]))
			o := b.source.Add(rdmatest.RandomBytes(1, 8<<20), 8<<20) // takes two minutes
			c := b.newClient(t, func(cc *tcp.ClientConfig) { cc.Limit = tcp.NewLimiter(where[1]) })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := c.Fetch(ctx, b.Peer(), []chunk.BlockRef{o.Ref(0)})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), 60*time.Second)
			require.Eventually(t, func() bool {
				lent, released := b.source.Counts()
				return lent == released
			}, soon, 10*time.Millisecond, "the server goes on waiting")
		})
	}
}

func TestALimitWithoutSendfile(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *tcp.HandlerConfig, _ *http.Server) func(net.Listener) net.Listener {
		c.Limit = tcp.NewLimiter(2 << 20)
		return func(l net.Listener) net.Listener { return plainListener{l} }
	})
	o := b.source.Add(rdmatest.RandomBytes(1, 2*large), large)
	took := inStep(t, b, o, []*tcp.Client{b.newClient(t, nil)}, 2)
	require.Greater(t, took[0].Seconds(), 0.35)
}
