package tcp_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
)

const benchSize = 256 << 20

// BenchmarkFetch moves 256 MiB in blocks of 4 MiB over loopback, both ends in
// this process, with a number of blocks in flight.
func BenchmarkFetch(b *testing.B) {
	bed := newBed(b, nil)
	o := bed.source.Add(rdmatest.RandomBytes(1, benchSize), chunk.DefaultBlockSize)
	for _, inFlight := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			c := bed.newClient(b, nil)
			measure(b, func() { fetchAll(b, bed, c, o, inFlight) })
		})
	}
}

func fetchAll(b *testing.B, bed *bed, c chunk.Transport, o chunk.Object, inFlight int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < o.Blocks(); i = int(next.Add(1)) - 1 {
				l, err := c.Fetch(b.Context(), bed.Peer(), []chunk.BlockRef{o.Ref(i)})
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

// BenchmarkPlainCopy is the baseline: the same bytes by sendfile to readers
// that discard them.
func BenchmarkPlainCopy(b *testing.B) {
	path := b.TempDir() + "/file"
	require.NoError(b, os.WriteFile(path, rdmatest.RandomBytes(1, benchSize), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	for _, streams := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			measure(b, func() {
				var wg sync.WaitGroup
				for range streams {
					wg.Go(func() { plainSend(b, l, path, benchSize/int64(streams)) })
					wg.Go(func() { plainReceive(b, l.Addr().String()) })
				}
				wg.Wait()
			})
		})
	}
}

func plainSend(b *testing.B, l net.Listener, path string, n int64) {
	c, err := l.Accept()
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	f, err := os.Open(path)
	if err != nil {
		b.Error(err)
		return
	}
	defer f.Close()
	if _, err := io.CopyN(c, f, n); err != nil {
		b.Error(err)
	}
}

func plainReceive(b *testing.B, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	buf := make([]byte, 256<<10)
	for err == nil {
		_, err = c.Read(buf)
	}
}

// measure reports throughput and processor time of both ends.
func measure(b *testing.B, f func()) {
	b.SetBytes(benchSize)
	f() // once to warm up
	before := processorSeconds(b)
	b.ResetTimer()
	n := 0
	for b.Loop() {
		f()
		n++
	}
	b.ReportMetric((processorSeconds(b)-before)/(float64(n)*benchSize/1e9), "cpu-s/GB")
}

func processorSeconds(b *testing.B) float64 {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
