package rdma

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newArena(t *testing.T, size int64) *Arena {
	a, err := NewArena(size)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func TestOrderOf(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int{
		1: 0, slotUnit: 0, slotUnit + 1: 1, 2 * slotUnit: 1, 2*slotUnit + 1: 2,
		4 << 20: 10, 4<<20 + 1: 11, 64 << 20: maxOrder,
	} {
		require.Equal(t, want, orderOf(n), "%d bytes", n)
	}
}

// TestBuddyRandom checks that runs never overlap, are aligned, and come
// together again.
func TestBuddyRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, units := range []int32{1, 2, 3, 7, 64, 100, 24576} {
		b := newBuddy(units)
		type run struct{ u, order int32 }
		var out []run
		owner := make([]bool, units)
		for range 2000 {
			if len(out) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(out))
				for u := out[i].u; u < out[i].u+1<<out[i].order; u++ {
					owner[u] = false
				}
				b.give(out[i].u, int(out[i].order))
				out[i] = out[len(out)-1]
				out = out[:len(out)-1]
				continue
			}
			order := r.IntN(maxOrder + 1)
			u, ok := b.take(order)
			if !ok {
				continue
			}
			require.Zero(t, u&(1<<order-1))
			require.LessOrEqual(t, u+1<<order, units)
			for x := u; x < u+1<<order; x++ {
				if owner[x] {
					t.Fatalf("unit %d lent twice", x)
				}
				owner[x] = true
			}
			out = append(out, run{u, int32(order)})
		}
		for _, x := range out {
			b.give(x.u, int(x.order))
		}
		require.Equal(t, newBuddy(units).free, b.free, "the runs did not come together again")
	}
}

func TestArenaLendsAndTakesBack(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*slotUnit+5)
	require.EqualValues(t, 10*slotUnit, a.Size())
	s, err := a.Acquire(t.Context(), 1, 2*slotUnit, slotUnit+1)
	require.NoError(t, err)
	require.Len(t, s[0].Data, 1)
	require.Len(t, s[1].Data, 2*slotUnit)
	require.Len(t, s[2].Data, slotUnit+1)
	require.Equal(t, len(s[0].Data), cap(s[0].Data))
	require.EqualValues(t, 5*slotUnit, a.InUse())
	for i, x := range s {
		for j := range x.Data {
			x.Data[j] = byte(i + 1)
		}
		require.Equal(t, x.Data, a.Memory()[a.Offset(x):][:len(x.Data)])
	}
	for i, x := range s {
		require.Equal(t, len(x.Data), bytes.Count(x.Data, []byte{byte(i + 1)}))
	}
	a.Release(s...)
	require.Zero(t, a.InUse())
	s, err = a.Acquire(t.Context(), 8*slotUnit, 2*slotUnit)
	require.NoError(t, err)
	a.Release(s...)
}

func TestArenaTooLarge(t *testing.T) {
	t.Parallel()
	a := newArena(t, 3*slotUnit)
	for _, sizes := range [][]int64{{0}, {-1}, {1 << 62}, {4 * slotUnit}, {3 * slotUnit}, {1, 1, 1, 1}} {
		_, err := a.Acquire(t.Context(), sizes...)
		require.ErrorIs(t, err, ErrTooLarge, "%v", sizes)
	}
	// Also when it had to wait to find out.
	s, err := a.Acquire(t.Context(), 1)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := a.Acquire(t.Context(), 4*slotUnit)
		done <- err
	}()
	waitQueued(t, a, 1)
	a.Release(s...)
	require.ErrorIs(t, <-done, ErrTooLarge)
	for _, size := range []int64{-1, slotUnit - 1, 1 << 62} {
		_, err := NewArena(size)
		require.Error(t, err)
	}
}

func waitQueued(t *testing.T, a *Arena, n int) {
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.waiting.Len() == n
	}, 2*time.Minute, time.Millisecond)
}

func TestArenaOrderOfWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, err := NewArena(2 * slotUnit)
		require.NoError(t, err)
		defer a.Close()
		first, err := a.Acquire(t.Context(), 1)
		require.NoError(t, err)
		order := make(chan string, 2)
		get := func(name string, n int64) {
			s, err := a.Acquire(t.Context(), n)
			require.NoError(t, err)
			order <- name
			a.Release(s...)
		}
		go get("large", 2*slotUnit)
		synctest.Wait()
		go get("small", 1) // would fit, and waits its turn
		synctest.Wait()
		require.Empty(t, order)
		a.Release(first...)
		require.Equal(t, "large", <-order)
		require.Equal(t, "small", <-order)
	})
}

func TestArenaWaitEnds(t *testing.T) {
	t.Parallel()
	a := newArena(t, slotUnit)
	s, err := a.Acquire(t.Context(), 1)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = a.Acquire(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = a.Acquire(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waitQueued(t, a, 0)
	a.Release(s...)
	require.Zero(t, a.InUse())
}

func TestArenaClose(t *testing.T) {
	t.Parallel()
	a, err := NewArena(slotUnit)
	require.NoError(t, err)
	s, err := a.Acquire(t.Context(), slotUnit)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := a.Acquire(t.Context(), 1)
		done <- err
	}()
	waitQueued(t, a, 1)
	a.Close()
	require.ErrorIs(t, <-done, chunk.ErrClosed)
	_, err = a.Acquire(t.Context(), 1)
	require.ErrorIs(t, err, chunk.ErrClosed)
	s[0].Data[0] = 1 // still mapped
	a.Release(s...)
	a.Close()
	require.Nil(t, a.mem)
}

func TestArenaConcurrent(t *testing.T) {
	t.Parallel()
	a := newArena(t, 32*slotUnit)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(2000))*time.Microsecond)
				s, err := a.Acquire(ctx, 1+r.Int64N(4*slotUnit), 1+r.Int64N(8*slotUnit))
				cancel()
				if err != nil {
					continue
				}
				for _, x := range s {
					x.Data[0], x.Data[len(x.Data)-1] = byte(i), byte(i)
				}
				for _, x := range s {
					if x.Data[0] != byte(i) || x.Data[len(x.Data)-1] != byte(i) {
						t.Error("a slot was lent twice")
					}
				}
				a.Release(s...)
			}
		})
	}
	wg.Wait()
	require.Zero(t, a.InUse())
	s, err := a.Acquire(t.Context(), 32*slotUnit)
	require.NoError(t, err, "the memory did not come together again")
	a.Release(s...)
}

func TestCounters(t *testing.T) {
	t.Parallel()
	var c Counters
	x, y := chunk.NewNodeID(), chunk.NewNodeID()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c.Received(x, 3)
			c.Received(x, 0)
			c.Sent(y, 5)
			c.Request()
			c.Failed(true)
			c.Failed(false)
			c.Served()
			c.Refused()
			c.ServeFailed()
		})
	}
	wg.Wait()
	require.Equal(t, Stats{
		ReceivedBytes: 24, SentBytes: 40, Requests: 8, Errors: 16, Corrupt: 8, Served: 8, Refused: 8, ServeErrors: 8,
	}, c.Stats())
	require.Equal(t, map[chunk.NodeID]PeerBytes{x: {Received: 24}, y: {Sent: 40}}, c.Peers())
}
