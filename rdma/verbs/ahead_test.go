package verbs

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// TestRuns: blocks in order have the next ones asked for, each once; others do
// not.
func TestRuns(t *testing.T) {
	t.Parallel()
	o := chunk.NewObjectID()
	want := func(r *runs, n int64, blocks ...int) (asked []int) {
		for _, b := range blocks {
			for _, a := range r.want(chunk.BlockRef{Object: o, Index: b, Len: n}) {
				require.Equal(t, n, a.Len)
				require.False(t, a.Demand)
				asked = append(asked, a.Index)
			}
		}
		return asked
	}
	span := func(from, to int) (out []int) {
		for ; from <= to; from++ {
			out = append(out, from)
		}
		return out
	}
	require.Equal(t, span(3, 34), want(&runs{}, 4<<20, 0, 1, 2))
	require.Equal(t, span(3, 50), want(&runs{}, 4<<20, span(0, 18)...), "half of them are gone")
	require.Equal(t, span(7, 38), want(&runs{}, 4<<20, 0, 3, 1, 2, 6, 5, 4), "several at once come in any order")
	require.Equal(t, span(3, 10), want(&runs{}, 16<<20, 0, 1, 2), "large blocks: few of them")
	require.Empty(t, want(&runs{}, 4<<20, 0, 100, 1, 50, 3, 200, 7, 90))
	require.Empty(t, want(&runs{}, 4<<20, 50, 40, 30, 20, 10, 5))
	require.Empty(t, want(&runs{}, 128<<20, span(0, 10)...), "blocks so large that one is enough")

	r := &runs{}
	for i := range 3 * mostRuns {
		r.want(chunk.BlockRef{Object: chunk.NewObjectID(), Index: i, Len: 1})
	}
	require.LessOrEqual(t, len(r.of), mostRuns)
}

// TestStock: a lease that came ahead is used once, while it is good for long
// enough, and given back when nobody comes.
func TestStock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var given []uint64
		s := newStock(func(all []grant) {
			mu.Lock()
			defer mu.Unlock()
			for _, g := range all {
				given = append(given, g.lease)
			}
		})
		back := func() (out []uint64) { // since it was called last
			mu.Lock()
			defer mu.Unlock()
			out, given = given, nil
			return out
		}
		defer s.close()
		o := chunk.NewObjectID()
		lease := func(id uint32, n int) grant {
			return grant{id: id, ahead: true, lease: uint64(n), ttl: time.Minute, blocks: []place{{object: o, index: n, len: 1}}}
		}
		ref := func(n int) chunk.BlockRef { return chunk.BlockRef{Object: o, Index: n, Len: 1} }
		require.False(t, s.put(lease(7, 1)), "nobody asked")
		s.ask(7)
		for n := range 4 {
			require.True(t, s.put(lease(7, n)))
		}
		require.False(t, s.put(lease(7, 1)), "the same again")
		require.False(t, s.put(grant{id: 7, ahead: true}), "on nothing")
		require.EqualValues(t, 2, s.take(ref(2)).grant.lease)
		require.Nil(t, s.take(ref(2)))
		require.Nil(t, s.take(ref(9)))
		time.Sleep(stockIdle / 2)
		require.NotNil(t, s.take(ref(1)))
		time.Sleep(3 * stockIdle / 4)
		require.Empty(t, back(), "it was in use until now")
		time.Sleep(stockIdle)
		require.ElementsMatch(t, []uint64{0, 3}, back())

		s.ask(9)
		for n := 10; n < 12; n++ {
			x := lease(9, n)
			x.ttl = 2 * stockIdle
			require.True(t, s.put(x))
		}
		require.True(t, s.put(lease(9, 12)))
		for range 4 { // somebody else's blocks are taken all the while
			time.Sleep(stockIdle / 3)
			require.True(t, s.put(lease(9, 13)))
			require.NotNil(t, s.take(ref(13)))
		}
		require.ElementsMatch(t, []uint64{10, 11}, back(), "their time would be over soon")
		require.NotNil(t, s.take(ref(12)))
		short := lease(7, 5)
		short.ttl = stockIdle
		require.True(t, s.put(short))
		require.Nil(t, s.take(ref(5)), "it was asked for long ago")
		require.Equal(t, []uint64{5}, back())

		require.True(t, s.put(lease(7, 6)))
		s.close()
		time.Sleep(2 * stockIdle)
		require.Empty(t, back(), "they ended with the link")
		require.False(t, s.put(lease(7, 8)))
	})
}

// TestAlone: who else reads an object is known for a while.
func TestAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crowds
		o, a, b := chunk.NewObjectID(), chunk.NewNodeID(), chunk.NewNodeID()
		require.True(t, c.alone(o, a))
		require.True(t, c.alone(o, a))
		require.True(t, c.alone(chunk.NewObjectID(), b))
		require.False(t, c.alone(o, b))
		require.False(t, c.alone(o, a))
		time.Sleep(aloneAfter + time.Millisecond)
		require.True(t, c.alone(o, a))
		time.Sleep(aloneAfter + time.Millisecond)
		c.sweep()
		require.Empty(t, c.seen)
	})
}
