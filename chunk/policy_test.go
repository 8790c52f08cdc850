package chunk

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bench is a board with peers and a gate, without an engine.
type bench struct {
	*board
	g    *gate
	seat seat
	now  time.Time
	l    Limits
}

func newBench(blocks int, seed uint64) *bench {
	o := Object{ID: NewObjectID(), Size: int64(blocks) * MinBlockSize, BlockSize: MinBlockSize, ChunkSize: 4 * MinBlockSize}
	l := Limits{}.withDefaults()
	b := &bench{g: newGate(l), now: time.Unix(1e9, 0), l: l}
	b.seat.wake = func() {}
	b.board = newBoard(o, NewBitmap(blocks), l, rand.New(rand.NewPCG(seed, 0)))
	return b
}

// peer adds one that has the blocks, or all of them.
func (b *bench) peer(blocks ...int) *peer {
	p := &peer{Peer: Peer{Node: NewNodeID(), Name: fmt.Sprint(len(b.peers))}, unfollow: func() {}}
	p.st, p.tally = b.g.standing(p.Peer), b.tally
	p.vital = p.st.vital
	a := Availability{Full: true, Have: NewBitmap(b.o.Blocks()), Added: blocks}
	if len(blocks) == 0 {
		a.Have.Fill()
	}
	if !p.heard(a, b.o.Blocks()) {
		panic("news makes no sense")
	}
	b.peers = append(b.peers, p)
	return p
}

func (b *bench) round() (fs []*flight) {
	b.g.round(&b.seat, func(in intake) { fs = b.plan(b.now, in) })
	return fs
}

func (b *bench) land(f *flight, took time.Duration) {
	b.g.with(f.peer.st, func() { f.peer.st.good(b.now, f.n, took, b.l) })
	b.g.release(f.peer.st, f.n, f.spec)
	b.end(f, true)
	b.took.add(took)
	b.arrived(f.block)
}

func TestRarestComesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(100, 1)
	for range 4 {
		p := b.peer()
		p.st.share = 1
		p.lacks(37)
		p.lacks(73)
	}
	q := b.peer(37, 73, 1, 2, 3)
	q.st.share = 2
	b.whole = true
	var got []int
	for len(got) < 2 {
		for _, f := range b.round() {
			if f.peer == q {
				got = append(got, f.block)
			}
			b.land(f, 50*time.Millisecond)
		}
	}
	require.ElementsMatch(t, []int{37, 73}, got[:2])
}

func TestRestIsSpreadAmongReceivers(t *testing.T) {
	t.Parallel()
	order := func(seed uint64, peers int) (got []int) {
		b := newBench(64, seed)
		for range peers {
			b.peer()
		}
		b.whole = true
		for b.left > 0 {
			fs := b.round()
			require.NotEmpty(t, fs)
			for _, f := range fs {
				got = append(got, f.block)
				b.land(f, 50*time.Millisecond)
			}
		}
		return got
	}
	alone := order(1, 1)
	require.IsIncreasing(t, alone, "one provider: in order")
	require.Equal(t, order(7, 2), order(7, 2), "a seed repeats itself")
	require.NotEqual(t, order(7, 2), order(8, 2))
	require.Len(t, order(7, 2), 64)
}

func TestDemandComesFirstAndNearReadersInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(1000, 1)
	b.peer()
	b.peer()
	b.whole = true
	b.streams.touch(500, b.limits.window(b.o))
	b.demand(900)
	b.demand(500)
	var got []int
	for _, f := range b.round() {
		got = append(got, f.block)
	}
	require.Equal(t, []int{900, 500, 501, 502, 503, 504}, got[:6])
}

func TestSpeculationLeavesTheReserve(t *testing.T) {
	t.Parallel()
	b := newBench(1000, 1)
	for range 8 {
		b.peer()
	}
	b.whole = true
	require.Len(t, b.round(), b.l.InFlight-b.l.Reserve)
	require.Empty(t, b.round())
	for i := range 10 {
		b.demand(900 + i)
	}
	require.Len(t, b.round(), b.l.Reserve)
}

func TestOnePeerIsNotOverrun(t *testing.T) {
	t.Parallel()
	b := newBench(1000, 1)
	b.peer()
	b.whole = true
	require.Len(t, b.round(), b.l.PerPeer)
	for i := range 10 {
		b.demand(900 + i)
	}
	require.Len(t, b.round(), demandExtra)
}

func TestLateBlockIsAskedElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(100, 1)
	p, q := b.peer(), b.peer(1)
	b.demand(0)
	b.demand(1)
	q.lacks(1)
	require.Len(t, b.round(), 2)
	b.now = b.now.Add(1100 * time.Millisecond)
	require.Empty(t, b.round(), "no other holder")
	q.heard(Availability{Added: []int{0}}, 100)
	fs := b.round()
	require.Len(t, fs, 1)
	require.Equal(t, 0, fs[0].block)
	require.Same(t, q, fs[0].peer)
	require.True(t, fs[0].hedge)
	require.Equal(t, 1, p.st.share, "the late one gets less")
	require.Empty(t, b.round(), "once")

	for range 32 {
		b.took.add(time.Second)
	}
	q.heard(Availability{Added: []int{1}}, 100)
	b.now = b.now.Add(2 * time.Second)
	require.Empty(t, b.round(), "not late where everything is slow")
}

func TestBackoffDoublesAndProbes(t *testing.T) {
	t.Parallel()
	b := newBench(100, 1)
	p := b.peer()
	b.demand(5)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		p.st.fail(b.now, fmt.Errorf("down"), true)
		p.st.fail(b.now, fmt.Errorf("down, the same"), true)
		require.Equal(t, want*time.Second, p.st.until.Sub(b.now), "failure %d", i)
		require.Empty(t, b.round())
		b.now = b.now.Add(firstBackoff)
		fs := b.round()
		require.Len(t, fs, 1, "whoever waits may try the only holder once a second")
		b.g.release(p.st, fs[0].n, fs[0].spec)
		b.end(fs[0], false)
		b.now = b.now.Add(maxBackoff)
	}
	p.st.lied(b.now, fmt.Errorf("lied"))
	b.now = b.now.Add(time.Minute)
	require.Empty(t, b.round())
}

func TestNewsThatMakesNoSense(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		news Availability
	}{
		{"change before the map", Availability{Added: []int{1}}},
		{"another length", Availability{Full: true, Have: NewBitmap(11)}},
		{"negative", Availability{Full: true, Have: NewBitmap(10), Added: []int{-1}}},
		{"beyond the end", Availability{Full: true, Have: NewBitmap(10), Added: []int{10}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.False(t, (&peer{}).heard(tt.news, 10))
		})
	}
}

// TestGateServesEverybody has three swarms want all they can get from one
// peer: none starves, and demand overtakes.
func TestGateServesEverybody(t *testing.T) {
	t.Parallel()
	g := newGate(Limits{}.withDefaults())
	var all []*bench
	woken := map[*bench]bool{}
	p := Peer{Node: NewNodeID()}
	for i := range 3 {
		b := newBench(1000, uint64(i))
		b.g = g
		b.seat.wake = func() { woken[b] = true }
		q := b.peer()
		q.Peer, q.st = p, g.standing(p)
		q.vital = q.st.vital
		b.whole = true
		all = append(all, b)
	}
	var flights []*flight
	owner := map[*flight]*bench{}
	run := func(b *bench) {
		delete(woken, b)
		for _, f := range b.round() {
			owner[f] = b
			flights = append(flights, f)
		}
	}
	for _, b := range all {
		run(b)
	}
	got := map[*bench]int{}
	demanded := false
	for step := range 600 {
		if step == 300 {
			all[2].demand(999)
			run(all[2])
			require.True(t, all[2].busy.Has(999), "demand has places of its own")
			demanded = true
		}
		f := flights[0]
		flights = flights[1:]
		b := owner[f]
		b.land(f, 50*time.Millisecond)
		got[b]++
		run(b) // the one that just got something is there first
		for len(woken) > 0 {
			for b := range woken {
				run(b)
			}
		}
		require.LessOrEqual(t, g.peers[p.Node].flights, g.limits.PerPeer+demandExtra)
	}
	require.True(t, demanded)
	for i, b := range all {
		require.InDelta(t, 200, got[b], 20, "swarm %d", i)
	}
	for _, b := range all {
		g.forget(&b.seat)
	}
	require.Empty(t, g.line[0])
	require.Empty(t, g.line[1])
}

// TestASourceIsAskedBeforeAnybodyElse: a block that nobody was sent can come from
// it alone, however fast the others are.
func TestASourceIsAskedBeforeAnybodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(64, 1)
	source := b.peer()
	source.st.rate = 1e3
	for range 8 {
		p := b.peer()
		p.heard(Availability{Full: true, Have: only(64, 0, 1, 2, 3, 4, 5, 6, 7)}, 64)
		p.st.rate = 1e6
	}
	b.whole = true
	first := b.round()[0]
	require.Equal(t, source, first.peer)
	require.GreaterOrEqual(t, first.block, 8, "what nobody has yet")

	c := newBench(64, 1)
	source = c.peer()
	p := c.peer(0)
	p.heard(Availability{Full: true, Have: only(64, 0, 1, 2, 3)}, 64)
	source.heard(Availability{Sent: all(64)}, 64)
	source.st.rate, p.st.rate = 1e3, 1e6
	c.whole = true
	require.Equal(t, p, c.round()[0].peer, "all was sent: whoever is done soonest")
}

func TestNewsMatterWhenTheyMayChangeThePlan(t *testing.T) {
	t.Parallel()
	b := newBench(64, 1)
	p := b.peer()
	p.heard(Availability{Full: true, Have: only(64, 1)}, 64)
	b.whole = true
	b.have.Set(1)
	b.left--
	b.round()
	require.False(t, b.matters(p, Availability{Added: []int{1}}, b.now), "it is here")
	require.False(t, b.matters(p, Availability{Sent: []int{2}}, b.now), "nothing to be had")
	require.True(t, b.matters(p, Availability{Added: []int{2}}, b.now))
	require.True(t, b.matters(p, Availability{Full: true}, b.now))
	p.st.full(b.now, time.Second)
	require.False(t, b.matters(p, Availability{Added: []int{2}}, b.now), "it has no time")
	b.demand(3)
	require.True(t, b.matters(p, Availability{Added: []int{2}}, b.now), "somebody waits")
}

func only(n int, blocks ...int) Bitmap {
	m := NewBitmap(n)
	for _, b := range blocks {
		m.Set(b)
	}
	return m
}

func all(n int) (blocks []int) {
	for i := range n {
		blocks = append(blocks, i)
	}
	return blocks
}
