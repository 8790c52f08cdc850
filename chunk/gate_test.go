package chunk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was freed goes past whoever is first in line and has no use for it, to the
// next one: also when that one came too early and was told to wait its turn.
func TestWhoStandsBehindIsWokenAfterALook(t *testing.T) {
	t.Parallel()
	a, b := newBench(4, 1), newBench(4, 2)
	b.g = a.g
	wakes := 0
	a.seat.wake = func() { wakes++ }
	a.peer().st.share = 1 - demandExtra + 1 // two flights
	b.peer().st.share = 1 - demandExtra
	for block := range 2 {
		a.demand(block)
		b.demand(block)
	}
	under := a.round()
	require.Len(t, under, 2)
	require.Len(t, b.round(), 1)
	require.True(t, b.seat.waiting[0], "its only peer has enough to do")

	a.demand(2)
	a.land(under[0], time.Millisecond)
	require.Empty(t, a.round(), "whoever waits already has a look first")
	require.Zero(t, wakes)
	require.Empty(t, b.round(), "its peer has still enough to do")
	require.Equal(t, 1, wakes, "and is followed by the next")
	require.Len(t, a.round(), 1)
	require.Equal(t, 1, wakes)
}

// Those in line that can take nothing wake each other once, not for ever.
func TestLookingEnds(t *testing.T) {
	t.Parallel()
	const swarms = 5
	g := newGate(Limits{}.withDefaults())
	woken := make([]bool, swarms)
	var all []*bench
	for i := range swarms {
		b := newBench(4, uint64(i))
		b.g = g
		b.seat.wake = func() { woken[i] = true }
		b.peer().st.share = 1 - demandExtra
		b.demand(0)
		b.demand(1)
		require.Len(t, b.round(), 1)
		all = append(all, b)
	}
	g.release(g.standing(Peer{Node: NewNodeID()}), 0, false) // of no use to anybody
	g.used++
	for i := swarms - 1; i >= 0; i-- {
		all[i].round() // out of turn
	}
	rounds := 0
	for i := 0; i < swarms; i++ {
		if woken[i] {
			woken[i] = false
			all[i].round()
			rounds++
			require.LessOrEqual(t, rounds, 2*swarms)
			i = -1
		}
	}
	require.GreaterOrEqual(t, rounds, swarms-1)
}
