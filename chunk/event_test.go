package chunk_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

// watched collects what an engine tells.
type watched struct {
	mu     sync.Mutex
	blocks []chunk.BlockEvent
	whole  []chunk.Object
}

func watch(r *rig) *watched {
	w := &watched{}
	r.cfg.OnBlock = func(e chunk.BlockEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.blocks = append(w.blocks, e)
	}
	r.cfg.OnWhole = func(o chunk.Object) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.whole = append(w.whole, o)
	}
	return w
}

func TestEveryRequestIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		w := watch(r)
		a := r.net.Keeper("a")
		o := r.net.Object(6*block + 1)
		rd := r.open(o)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.NoError(t, rd.Close())
		r.settle()
		got := map[int]int64{}
		for _, e := range w.blocks {
			require.NoError(t, e.Err)
			require.Equal(t, o.ID, e.Object.ID)
			require.Equal(t, a.Peer.Node, e.From)
			require.Equal(t, "a", e.Name)
			require.False(t, e.Started.IsZero())
			if e.New {
				got[e.Block] += e.Bytes
			}
		}
		require.Len(t, got, o.Blocks())
		require.EqualValues(t, 1, got[6])
		require.Empty(t, w.whole, "it was asked for, not read")
	})
}

func TestAFailedRequestIsToldWithItsError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		w := watch(r)
		a := r.net.Keeper("a")
		a.Break(chunktest.Fails(chunk.ErrCorrupt))
		rd := r.open(r.net.Object(1))
		_, err := r.fails(rd, 0, 1)
		require.Error(t, err)
		require.NoError(t, rd.Close())
		r.settle() // another request may be under way
		require.NotEmpty(t, w.blocks)
		require.ErrorIs(t, w.blocks[0].Err, chunk.ErrCorrupt)
		require.False(t, w.blocks[0].New)
		require.True(t, w.blocks[0].Demand)
	})
}

func TestAnObjectIsToldOfOnceWhenEnoughOfItWasRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		w := watch(r)
		r.net.Keeper("a")
		o := r.net.Object(200 * block)
		rd := r.open(o)
		r.read(rd, 0, block)
		r.settle()
		require.Empty(t, w.whole)
		r.read(rd, block, 4*block)
		r.settle()
		r.read(rd, 5*block, 50*block)
		r.settle()
		require.Equal(t, []chunk.Object{o}, w.whole)
		require.NoError(t, rd.Close())
	})
}
