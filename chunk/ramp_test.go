package chunk_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeaderScanFetchesTwoBlocksAFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		for range 30 {
			o := r.net.Object(200*block + 123)
			rd := r.open(o)
			r.read(rd, 0, 8)
			r.read(rd, 8, 700)
			r.read(rd, 0, 900) // less than a quarter of a block in all
			r.pass(20 * time.Second)
			require.NoError(t, rd.Close())
		}
		require.LessOrEqual(t, len(a.Fetched()), 60)
		require.Zero(t, a.Following(), "idle readers follow nobody")
	})
}

// TestSpeculationStaysWithinBounds reads in several ways and checks the bound
// after each read.
func TestSpeculationStaysWithinBounds(t *testing.T) {
	const blocks = 1000
	tests := []struct {
		name string
		n    int64
		at   func(i int, rng *rand.Rand) int64
	}{
		{"forwards", 1000, func(i int, _ *rand.Rand) int64 { return int64(i) * 1000 }},
		{"backwards", 1000, func(i int, _ *rand.Rand) int64 { return blocks*block - int64(i+1)*1000 }},
		{"random", 100, func(_ int, rng *rand.Rand) int64 { return rng.Int64N(blocks*block - 100) }},
		{"the same", 1000, func(int, *rand.Rand) int64 { return 12345 }},
		{"strided", 100, func(i int, _ *rand.Rand) int64 { return int64(i) * 2 * block }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				o := r.net.Object(blocks * block)
				rd := r.open(o)
				rng := rand.New(rand.NewPCG(1, 2))
				demanded := map[int]bool{}
				distinct := map[int64]bool{}
				for i := range 60 { // below the 2 % at which all of it is fetched
					off := tt.at(i, rng)
					first, end := o.BlocksOf(off, tt.n)
					for b := first; b < end; b++ {
						demanded[b] = true
					}
					for x := off; x < off+tt.n; x++ {
						distinct[x] = true
					}
					r.read(rd, off, tt.n)
					r.settle()
					spec := int64(0)
					for _, b := range a.Fetched() {
						if !demanded[b] {
							spec += block
						}
					}
					require.LessOrEqual(t, spec, max(block, 2*int64(len(distinct))), "after read %d", i)
				}
			})
		})
	}
}

func TestReadAheadGoesTheReadersWay(t *testing.T) {
	tests := []struct {
		name string
		at   func(i int) int64
		next func(last int) []int
	}{
		{"forwards", func(i int) int64 { return 100 + int64(i) }, func(l int) []int { return []int{l + 1, l + 2} }},
		{"backwards", func(i int) int64 { return 500 - int64(i) }, func(l int) []int { return []int{l - 1, l - 2} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				r.cfg.Limits.WholeAfter = 1 << 30
				o := r.net.Object(1000 * block)
				rd := r.open(o)
				last := 0
				for i := range 8 {
					last = int(tt.at(i))
					r.read(rd, int64(last)*block, block)
					r.settle()
				}
				for _, b := range tt.next(last) {
					require.Contains(t, a.Fetched(), b)
				}
				demand := len(a.Fetched())
				r.read(rd, int64(tt.next(last)[0])*block, block)
				r.settle()
				require.LessOrEqual(t, len(a.Fetched())-demand, 2, "the block read was here already")
			})
		})
	}
}

func TestEnoughReadFetchesAll(t *testing.T) {
	tests := []struct {
		name   string
		blocks int64
		after  int64 // bytes read that turn it on
		limit  int64
	}{
		{"2 %", 500, 10 * block, 0},
		{"at least a block", 20, block, 0},
		{"at most the limit", 1000, 5 * block, 5 * block},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				r.cfg.Limits.WholeAfter = tt.limit
				o := r.net.Object(tt.blocks * block)
				rd := r.open(o)
				for off := int64(0); off < tt.after-1024; off += 1024 {
					r.read(rd, off, 1024)
				}
				r.pass(time.Minute)
				require.Less(t, len(a.Fetched()), int(tt.blocks))
				r.read(rd, tt.after-1024, 1024)
				r.pass(time.Minute)
				require.True(t, rd.Complete())
				require.Len(t, a.Fetched(), int(tt.blocks))
			})
		})
	}
}

func TestDemandDoesNotWaitBehindSpeculation(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(100 * time.Millisecond)
		o, other := r.net.Object(10000*block), r.net.Object(10000*block)
		rd := r.open(o)
		go func() { _ = rd.FetchAll(t.Context(), nil) }()
		r.pass(time.Second)
		rd2 := r.open(other)
		for i, rd := range []interface{ Close() error }{rd, rd2} {
			start := time.Now()
			if i == 0 {
				r.read(r.open(o), 9000*block, 10)
			} else {
				r.read(rd2, 9000*block, 10)
			}
			require.InDelta(t, 100, time.Since(start).Milliseconds(), 5)
			_ = rd
		}
	})
}

func TestRandomSmallReadsStayQuick(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(10 * time.Millisecond)
		o := r.net.Object(100000 * block)
		rd := r.open(o)
		rng := rand.New(rand.NewPCG(3, 4))
		for range 100 {
			start := time.Now()
			r.read(rd, rng.Int64N(o.Size-4), 4)
			require.LessOrEqual(t, time.Since(start), 11*time.Millisecond)
		}
		require.LessOrEqual(t, len(a.Fetched()), 100+2)
	})
}

func TestGettingAllIsSharedOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a").Delay(50 * time.Millisecond)
		done := make(chan time.Duration, 30)
		start := time.Now()
		for range 30 {
			rd := r.open(r.net.Object(20 * block))
			go func() {
				require.NoError(t, rd.FetchAll(t.Context(), nil))
				done <- time.Since(start)
			}()
		}
		for range 30 {
			<-done
		}
		// 600 blocks, at least four at a time, without idle places.
		require.LessOrEqual(t, time.Since(start), 600/4*50*time.Millisecond+time.Second)
	})
}

func TestNoPrefetch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		r.cfg.NoPrefetch = true
		rd := r.open(r.net.Object(100 * block))
		r.read(rd, 0, 30*block)
		r.pass(time.Minute)
		require.Len(t, a.Fetched(), 30)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.Len(t, a.Fetched(), 100)
	})
}

func TestLeavingFetchAllEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(time.Second)
		rd := r.open(r.net.Object(1000 * block))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, rd.FetchAll(ctx, nil), context.DeadlineExceeded)
		r.pass(12 * time.Second)
		n := len(a.Fetched())
		require.Less(t, n, 100)
		r.pass(time.Minute)
		require.Len(t, a.Fetched(), n)
	})
}
