package chunk

import (
	"math/rand/v2"
	"slices"
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

// Whatever happens at the gate, those that it wakes have looked round a few
// times, and then wake nobody until something is given back.
func TestWakingAtTheGateEnds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		c := newCounter(seed)
		for range 100 {
			i := c.event()
			c.round(i)
			require.LessOrEqual(t, c.follow(), 4*len(c.all), "seed %d", seed)
		}
	}
}

// counter is a gate with a few swarms that want all sorts of things.
type counter struct {
	rng     *rand.Rand
	g       *gate
	all     []*bench
	woken   []bool
	now     time.Time
	flights []*flight
	owner   map[*flight]int
}

func newCounter(seed uint64) *counter {
	rng := rand.New(rand.NewPCG(seed, 7))
	l := Limits{InFlight: 2 + rng.IntN(8), PerPeer: 1 + rng.IntN(3)}
	if rng.IntN(2) == 0 {
		l.InFlightBytes = int64(1+rng.IntN(8)) * MinBlockSize
	}
	l = l.withDefaults()
	c := &counter{rng: rng, g: newGate(l), now: time.Unix(1e9, 0), owner: map[*flight]int{}}
	nodes := []Peer{{Node: NewNodeID()}, {Node: NewNodeID()}, {Node: NewNodeID()}}
	c.woken = make([]bool, 2+rng.IntN(6))
	for i := range c.woken {
		b := newBench(20+rng.IntN(100), seed<<8+uint64(i))
		b.g, b.l, b.limits = c.g, l, l
		b.seat.wake = func() { c.woken[i] = true }
		b.whole = rng.IntN(2) == 0
		for _, n := range nodes[:1+rng.IntN(3)] {
			p := b.peer()
			p.Peer, p.st = n, c.g.standing(n)
			p.vital = p.st.vital
		}
		c.all = append(c.all, b)
	}
	return c
}

// event has something happen to a swarm, and returns which.
func (c *counter) event() int {
	i := c.rng.IntN(len(c.all))
	b := c.all[i]
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		if len(c.flights) > 0 {
			return c.ends()
		}
	case 3, 4:
		if block := c.rng.IntN(b.o.Blocks()); !b.have.Has(block) {
			b.demand(block)
		}
	case 5:
		if len(b.queue) > 0 {
			b.forgo(b.queue[0])
		}
	case 6:
		c.now = c.now.Add(time.Duration(c.rng.IntN(1500)) * time.Millisecond)
	}
	return i
}

// ends has a flight end in one way or another.
func (c *counter) ends() int {
	at := c.rng.IntN(len(c.flights))
	f := c.flights[at]
	c.flights = slices.Delete(c.flights, at, at+1)
	b := c.all[c.owner[f]]
	b.now = c.now
	k := c.rng.IntN(6)
	if k > 1 {
		b.land(f, time.Duration(1+c.rng.IntN(200))*time.Millisecond)
		return c.owner[f]
	}
	err := error(ErrCorrupt)
	if k == 0 {
		err = &Busy{Retry: 50 * time.Millisecond, Sending: c.rng.IntN(2) == 0}
	}
	c.g.release(f.peer.st, f.n, f.spec)
	b.end(f, false)
	b.blame(f, err, c.now, c.g)
	return c.owner[f]
}

func (c *counter) round(i int) {
	c.woken[i] = false
	c.all[i].now = c.now
	for _, f := range c.all[i].round() {
		c.flights = append(c.flights, f)
		c.owner[f] = i
	}
}

// follow lets those that were woken look round, in any order, until nobody is;
// it returns how often that was.
func (c *counter) follow() (rounds int) {
	for rounds <= 4*len(c.all) {
		at := c.rng.IntN(len(c.woken))
		i := slices.Index(c.woken[at:], true)
		if i < 0 {
			at = 0
			i = slices.Index(c.woken, true)
		}
		if i < 0 {
			break
		}
		c.round(at + i)
		rounds++
	}
	return rounds
}
