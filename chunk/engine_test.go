package chunk_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

func TestReadsAnyRange(t *testing.T) {
	sizes := []struct {
		name string
		size int64
	}{
		{"one byte", 1},
		{"a block less one", block - 1},
		{"a block", block},
		{"a block and one", block + 1},
		{"a chunk less one", 4*block - 1},
		{"a chunk", 4 * block},
		{"a chunk and one", 4*block + 1},
		{"many", 50*block + 77},
	}
	for _, tt := range sizes {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.net.Keeper("a")
				o := r.net.Object(tt.size)
				rd := r.open(o)
				for _, at := range []struct{ off, n int64 }{
					{0, 1}, {tt.size - 1, 1}, {0, tt.size}, {tt.size / 2, tt.size}, {0, tt.size + 100}, {tt.size / 3, block},
				} {
					r.read(rd, at.off, at.n)
				}
				d, err := rd.Read(t.Context(), tt.size, 10)
				require.NoError(t, err)
				require.Zero(t, d.N)
				_, err = rd.Read(t.Context(), -1, 10)
				require.Error(t, err)
				require.NoError(t, rd.Close())
			})
		})
	}
}

func TestEmptyObjectIsComplete(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rd := r.open(r.net.Object(0))
		require.True(t, rd.Complete())
		<-rd.Done()
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		d, err := rd.Read(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Zero(t, d.N)
		require.Zero(t, r.net.Located())
	})
}

func TestOpenNeedsNoNetwork(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.FailLocate(errors.New("store down"))
		rd := r.open(r.net.Object(10 * block))
		r.pass(time.Hour)
		require.Zero(t, r.net.Located())
		require.NoError(t, rd.Close())
	})
}

func TestOneFlightForManyReaders(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		gate := make(chunktest.Gate)
		a.Break(gate.Hold)
		o := r.net.Object(1 * block)
		var wg sync.WaitGroup
		for range 64 {
			rd := r.open(o)
			wg.Go(func() {
				r.read(rd, 10, 100)
				require.NoError(t, rd.Close())
			})
		}
		r.settle()
		close(gate)
		wg.Wait()
		require.Equal(t, []int{0}, a.Fetched())
	})
}

func TestCancelEndsTheWaitNotTheFetch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(3 * time.Second)
		rd := r.open(r.net.Object(1 * block))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rd.Read(ctx, 0, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r.pass(2500 * time.Millisecond)
		require.True(t, rd.Complete())
		r.read(rd, 0, block)
		require.Equal(t, []int{0}, a.Fetched())
	})
}

func TestFetchNobodyWantsStops(t *testing.T) {
	tests := []struct {
		name  string
		close bool // the reader is closed, not only its wait given up
	}{{"reader stays", false}, {"reader closed", true}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				ended := make(chan time.Time, 8)
				r.net.Keeper("a").Break(func(ctx context.Context, b *chunk.Received) error {
					<-ctx.Done()
					ended <- time.Now()
					return ctx.Err()
				})
				r.cfg.Limits.Grace = 4 * time.Second // below what one fetch may take
				rd := r.open(r.net.Object(1 * block))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := rd.Read(ctx, 0, 1)
					done <- err
				}()
				r.pass(time.Second)
				start := time.Now()
				if tt.close {
					require.NoError(t, rd.Close())
					require.ErrorIs(t, <-done, chunk.ErrClosed)
				} else {
					cancel()
					require.ErrorIs(t, <-done, context.Canceled)
				}
				cancel()
				took := (<-ended).Sub(start)
				require.InDelta(t, 4, took.Seconds(), 1.1)
				r.pass(5 * time.Second)
				if tt.close {
					require.Zero(t, r.store.OpenFiles())
					require.Zero(t, r.e.Stats().Objects)
				}
			})
		})
	}
}

func TestGracePeriodKeepsTheSwarm(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		o := r.net.Object(100 * block)
		for range 5 {
			rd := r.open(o)
			r.read(rd, 0, 1)
			require.NoError(t, rd.Close())
			require.NoError(t, rd.Close(), "closing twice is harmless")
			r.pass(5 * time.Second)
			require.Equal(t, 1, r.store.OpenFiles())
		}
		r.pass(6 * time.Second)
		require.Zero(t, r.store.OpenFiles())
		require.Equal(t, 1, r.net.Located())
		require.LessOrEqual(t, len(a.Fetched()), 2)
		require.Zero(t, a.Following())
	})
}

func TestCloseWhileBlocked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a").Break(chunktest.Frozen)
		o := r.net.Object(100 * block)
		var wg sync.WaitGroup
		for i := range 20 {
			rd := r.open(o)
			wg.Go(func() {
				_, err := rd.Read(context.Background(), int64(i)*block, block)
				require.ErrorIs(t, err, chunk.ErrClosed)
			})
			wg.Go(func() {
				require.ErrorIs(t, rd.FetchAll(context.Background(), nil), chunk.ErrClosed)
			})
		}
		r.pass(100 * time.Millisecond)
		require.NoError(t, r.e.Close())
		wg.Wait()
		_, err := r.e.Open(t.Context(), o)
		require.ErrorIs(t, err, chunk.ErrClosed)
	})
}

func TestReadAfterEngineClose(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a")
		rd := r.open(r.net.Object(block))
		r.read(rd, 0, block)
		require.NoError(t, r.e.Close())
		_, err := rd.Read(t.Context(), 0, 1)
		require.ErrorIs(t, err, chunk.ErrClosed)
	})
}

func TestCompletionIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(10 * time.Millisecond) // else the first announcement is overtaken
		o := r.net.Object(20*block + 5)
		rd := r.open(o)
		var last, calls int64
		require.NoError(t, rd.FetchAll(t.Context(), func(have, total int64) {
			require.GreaterOrEqual(t, have, last)
			require.Equal(t, o.Size, total)
			last = have
			calls++
		}))
		require.Equal(t, o.Size, last)
		require.Greater(t, calls, int64(1))
		<-rd.Done()
		require.True(t, rd.Complete())
		r.settle()
		require.Equal(t, []chunk.Object{o}, r.done)
		require.Equal(t, []chunktest.Announcement{{Set: o.Set}, {Set: o.Set, Complete: true}}, r.net.Announced())
		require.Len(t, a.Fetched(), 21)
		require.NoError(t, rd.Close())
		r.pass(time.Minute)

		again := r.open(o)
		require.True(t, again.Complete())
		r.read(again, 0, o.Size)
		require.Len(t, a.Fetched(), 21)
		require.Len(t, r.done, 1)
	})
}

func TestAnnouncingIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a")
		r.net.FailAnnounce(errors.New("store down"))
		o := r.net.Object(20 * block)
		rd := r.open(o)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.NoError(t, rd.Close())
		r.pass(40 * time.Second)
		require.Empty(t, r.net.Announced())
		r.net.FailAnnounce(nil)
		r.pass(40 * time.Second)
		a := r.net.Announced()
		require.NotEmpty(t, a)
		require.Equal(t, chunktest.Announcement{Set: o.Set, Complete: true}, a[len(a)-1])
	})
}

func TestOpenFailure(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = badStore{}
		_, err := r.engine().Open(t.Context(), r.net.Object(block))
		require.ErrorIs(t, err, errBadStore)
		_, err = r.e.Open(t.Context(), chunk.Object{})
		require.Error(t, err)
		require.Zero(t, r.e.Stats().Objects)
	})
}

var errBadStore = errors.New("disk on fire")

type badStore struct{}

func (badStore) Open(context.Context, chunk.Object) (chunk.File, error) { return nil, errBadStore }

func TestLostBlockIsFetchedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		o := r.net.Object(30 * block)
		rd := r.open(o)
		r.read(rd, 0, 1)
		f, err := r.store.Open(t.Context(), o)
		require.NoError(t, err)
		f.(*chunktest.File).Lose(0)
		r.read(rd, 0, 1)
		require.NoError(t, f.Close())
		n := 0
		for _, b := range a.Fetched() {
			if b == 0 {
				n++
			}
		}
		require.Equal(t, 2, n)
	})
}

func TestZeroBlocksDoNotTravel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		o := r.net.Object(1000 * block)
		o.Sparse = true
		r.net.Add(o)
		zeros := chunk.NewBitmap(1000)
		zeros.Fill()
		zeros.Clear(0)
		zeros.Clear(500)
		r.net.Zero(o, zeros)
		rd := r.open(o)
		r.read(rd, 0, 1)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		got, err := fetch(t.Context(), rd, 7*block, 3*block)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 3*block), got)
		require.ElementsMatch(t, []int{0, 500}, a.Fetched())
	})
}

func TestZeroBlockFromPeer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.BindAll()
		r.net.Keeper("a")
		o := r.net.Object(10 * block) // not marked sparse
		zeros := chunk.NewBitmap(10)
		zeros.Set(3)
		r.net.Zero(o, zeros)
		rd := r.open(o)
		got, err := fetch(t.Context(), rd, 3*block, block)
		require.NoError(t, err)
		require.Equal(t, make([]byte, block), got)
	})
}
