//go:build linux && cgo && rdma

package verbs_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/verbs"
)

// BenchmarkFetch moves 256 MiB in blocks of 4 MiB from one device of a guest to
// the other, both ends in this process, four blocks at a time: 16 READs of 1 MiB.
// Each block is summed as it comes. make bench-rdma compares it with ib_read_bw.
func BenchmarkFetch(b *testing.B) {
	const size, inFlight = 256 << 20, 4
	d := newBed(b, newSystem(b, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := d.source.Add(rdmatest.RandomBytes(1, size), chunk.DefaultBlockSize)
	all := func() {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range inFlight {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < o.Blocks(); i = int(next.Add(1)) - 1 {
					l, err := d.client.Fetch(b.Context(), d.node.Peer(), []chunk.BlockRef{o.Ref(i)})
					if err != nil {
						b.Error(err)
						return
					}
					l.Release()
				}
			})
		}
		wg.Wait()
	}
	all() // once: what is read from now on is registered
	was := d.node.Stats().Messages
	start := time.Now()
	n := 0
	for b.Loop() {
		all()
		n++
	}
	took := time.Since(start)
	require.Zero(b, d.node.Stats().Expired)
	b.ReportMetric(float64(n)*size/(1<<20)/took.Seconds(), "MiB/s")
	b.ReportMetric(float64(d.node.Stats().Messages-was)/float64(n*o.Blocks()), "messages/block")
}
