package chunk_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// BenchmarkReadPresent is the fast path: a 128 KiB read of what is here, in an
// object that is not complete.
func BenchmarkReadPresent(b *testing.B) {
	for _, whole := range []bool{false, true} {
		b.Run(fmt.Sprintf("complete=%v", whole), func(b *testing.B) {
			r := newRig(b)
			defer r.engine().Close()
			r.net.Keeper("a")
			o := r.net.Object(64 << 20)
			o.BlockSize, o.ChunkSize = 4<<20, 64<<20
			r.net.Add(o)
			rd, err := r.e.Open(b.Context(), o)
			require.NoError(b, err)
			for off := int64(0); off < o.BlockSize; off += 64 << 10 {
				_, err := rd.Read(b.Context(), 0, 128<<10)
				require.NoError(b, err)
			}
			if whole {
				require.NoError(b, rd.FetchAll(b.Context(), nil))
			}
			ctx := context.Background()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				d, err := rd.Read(ctx, int64(i)%32*(128<<10), 128<<10)
				if err != nil || d.N != 128<<10 {
					b.Fatal(err)
				}
				d.Release()
			}
		})
	}
}

// mirror is a transport that hands out the same bytes for every block at once.
type mirror struct{ data []byte }

func (m mirror) Fetch(_ context.Context, _ chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	return mirrored{{Ref: refs[0], Data: m.data[:refs[0].Len], Sum: 1}}, nil
}

type mirrored []chunk.Received

func (m mirrored) Blocks() []chunk.Received { return m }
func (m mirrored) Release()                 {}

// sink is a store that keeps maps and no bytes.
type sink struct{}

func (sink) Open(_ context.Context, o chunk.Object) (chunk.File, error) {
	return &sinkFile{have: chunk.NewBitmap(o.Blocks())}, nil
}

type sinkFile struct {
	mu   sync.Mutex
	have chunk.Bitmap
}

func (f *sinkFile) Has(block int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have.Has(block)
}

func (f *sinkFile) Have() chunk.Bitmap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have.Clone()
}

func (f *sinkFile) Put(block int, _ []byte, _ uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have.Set(block)
	return nil
}

func (f *sinkFile) Complete() bool             { return f.Have().Full() }
func (f *sinkFile) Sum(int) (uint32, bool)     { return 0, false }
func (f *sinkFile) PutZero(chunk.Bitmap) error { return nil }
func (f *sinkFile) Reader() *os.File           { return nil }
func (f *sinkFile) Close() error               { return nil }

// BenchmarkFetchWhole is what the engine itself costs per block: nothing is
// copied, nothing is waited for.
func BenchmarkFetchWhole(b *testing.B) {
	for _, peers := range []int{1, 16} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			const blocks = 2048
			for range b.N {
				r := newRig(b)
				r.cfg.Store = sink{}
				r.cfg.Transport = mirror{make([]byte, chunk.MinBlockSize)}
				for i := range peers {
					r.net.Keeper(fmt.Sprint(i))
				}
				e := r.engine()
				rd, err := e.Open(b.Context(), r.net.Object(blocks*chunk.MinBlockSize))
				require.NoError(b, err)
				require.NoError(b, rd.FetchAll(b.Context(), nil))
				require.NoError(b, e.Close())
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*blocks), "us/block")
		})
	}
}

// BenchmarkFetchBytes brings 64 MiB in 4 MiB blocks into a file in memory.
func BenchmarkFetchBytes(b *testing.B) {
	const size = 64 << 20
	b.SetBytes(size)
	data := make([]byte, 4<<20)
	for range b.N {
		r := newRig(b)
		r.cfg.Transport = mirror{data}
		r.net.Keeper("a")
		o := r.net.Object(size)
		o.BlockSize, o.ChunkSize = 4<<20, 64<<20
		r.net.Add(o)
		e := r.engine()
		rd, err := e.Open(b.Context(), o)
		require.NoError(b, err)
		require.NoError(b, rd.FetchAll(b.Context(), nil))
		require.NoError(b, e.Close())
		r.store.Destroy()
	}
}

// BenchmarkReadAbsent is a read that has to be fetched, with nothing to wait
// for: the hops between reader, loop and worker.
func BenchmarkReadAbsent(b *testing.B) {
	const blocks = 1 << 20
	r := newRig(b)
	r.cfg.Store = sink{}
	r.cfg.Transport = mirror{make([]byte, chunk.MinBlockSize)}
	r.cfg.Limits.WholeAfter = 1 << 40
	defer r.engine().Close()
	r.net.Keeper("a")
	o := r.net.Object(blocks * chunk.MinBlockSize)
	rd, err := r.e.Open(b.Context(), o)
	require.NoError(b, err)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		d, err := rd.Read(ctx, int64(i)*7919%blocks*chunk.MinBlockSize, 1)
		if err != nil {
			b.Fatal(err)
		}
		d.Release()
	}
}
