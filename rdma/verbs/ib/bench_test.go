//go:build linux && cgo && rdma

package ib_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// BenchmarkRead moves 256 MiB from one device of a guest to the other by READs
// of 1 MiB, 16 in flight, out of a mapped file into memory of 16 MiB again and
// again: what the devices give when nobody asks, looks at the bytes or keeps
// them. make bench-rdma compares it with ib_read_bw.
func BenchmarkRead(b *testing.B) {
	const size, piece, depth = 256 << 20, 1 << 20, 16
	reader, holder := two(b)
	limit, err := reader.Port(1)
	require.NoError(b, err)
	from, to := mapped(b, size), anonymous(b, depth*piece)
	src, dst := register(b, holder, from, false), register(b, reader, to, true)
	q, _ := joinMTU(b, reader, holder, limit.MTU)
	read := func(n int) ib.Read {
		return ib.Read{
			ID: uint64(n), Local: addr(to) + uint64(n%depth)*piece, LKey: dst.LKey(),
			Remote: addr(from) + uint64(n)*piece, RKey: src.RKey(), Len: piece,
		}
	}
	start, rounds := time.Now(), 0
	for b.Loop() {
		rounds++
		posted, ended := 0, 0
		out := make([]ib.Done, depth)
		for ended < size/piece {
			for ; posted < size/piece && posted-ended < depth; posted++ {
				_, err := q.Read([]ib.Read{read(posted)})
				require.NoError(b, err)
			}
			n, err := q.Reap(out)
			require.NoError(b, err)
			for _, d := range out[:n] {
				require.Zero(b, d.Status)
			}
			ended += n
		}
	}
	took := time.Since(start)
	require.Equal(b, from[size-piece:], to[(depth-1)*piece:])
	b.ReportMetric(float64(rounds)*size/(1<<20)/took.Seconds(), "MiB/s")
}
