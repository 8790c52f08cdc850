package chunk

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// zoned is the board of a node in a zone, which is told of peers as they are.
func zoned(blocks int, o ObjectID, self NodeID, zone string) *bench {
	b := newBench(blocks, 1)
	b.o.ID = o
	b.inZone(self, zone)
	return b
}

// of adds a peer of a zone that has the blocks.
func (b *bench) of(zone string, id NodeID, keeper bool, blocks ...int) *peer {
	p := b.meet(Provider{Peer: Peer{Node: id, Zone: zone}, Keeper: keeper}, b.g)
	p.hear(b, Availability{Full: true, Have: NewBitmap(b.o.Blocks()), Added: blocks, Keeper: keeper})
	return p
}

func (p *peer) hear(b *bench, a Availability) {
	if !p.heard(a, b.o.Blocks()) {
		panic("news makes no sense")
	}
	p.gains(a, b.now)
}

// every returns the numbers of all blocks.
func (b *bench) every() (all []int) {
	for i := range b.o.Blocks() {
		all = append(all, i)
	}
	return all
}

// TestEachBlockIsBroughtInByOneOfTheZone: they agree who does, without a word.
func TestEachBlockIsBroughtInByOneOfTheZone(t *testing.T) {
	t.Parallel()
	o, keeper := NewObjectID(), NewNodeID()
	zone := []NodeID{NewNodeID(), NewNodeID(), NewNodeID()}
	times := make([]int, 40)
	for _, self := range zone {
		b := zoned(len(times), o, self, "here")
		b.of("there", keeper, true, b.every()...)
		for _, other := range zone {
			if other != self {
				b.of("here", other, false)
			}
		}
		b.whole = true
		for fs := b.round(); len(fs) > 0; fs = b.round() {
			for _, f := range fs {
				times[f.block]++
				b.land(f, 50*time.Millisecond)
			}
		}
	}
	require.Equal(t, slices.Repeat([]int{1}, len(times)), times)
}

func TestWhatTheZoneHasComesFromThere(t *testing.T) {
	t.Parallel()
	b := zoned(40, NewObjectID(), NewNodeID(), "here")
	b.of("there", NewNodeID(), true, b.every()...)
	near := b.of("here", NewNodeID(), false, b.every()...)
	b.whole = true
	b.demand(7)
	fs := b.round()
	require.NotEmpty(t, fs)
	for _, f := range fs {
		require.Equal(t, near, f.peer, "block %d", f.block)
	}
}

// TestAReaderWaitsForTheZoneForAMoment: a block that another one is to bring in is
// asked for outside when that takes too long, and at once when nobody does.
func TestAReaderWaitsForTheZoneForAMoment(t *testing.T) {
	t.Parallel()
	b := zoned(40, NewObjectID(), NewNodeID(), "here")
	b.of("there", NewNodeID(), true, b.every()...)
	other := b.of("here", NewNodeID(), false)
	b.took.add(100 * time.Millisecond)
	b.survey(b.now)
	theirs, mine := -1, -1
	for i := range b.o.Blocks() {
		if b.zone.mine.Has(i) {
			mine = i
		} else {
			theirs = i
		}
	}
	b.demand(mine)
	b.demand(theirs)
	fs := b.round()
	require.Len(t, fs, 1)
	require.Equal(t, mine, fs[0].block)
	require.True(t, b.starved)
	require.Equal(t, b.now.Add(400*time.Millisecond), b.wakeAt(b.now))
	b.now = b.wakeAt(b.now)
	fs = b.round()
	require.Len(t, fs, 1)
	require.Equal(t, theirs, fs[0].block)

	b.now = b.now.Add(leastIdle)
	b.survey(b.now)
	require.True(t, b.zone.mine.Full(), "one that gets no further brings nothing in")
	other.hear(b, Availability{Added: []int{mine}})
	b.survey(b.now)
	require.False(t, b.zone.mine.Full())
}

// TestWhatNobodyBroughtInIsBroughtIn: who was to has its blocks from nowhere, and
// goes on with others.
func TestWhatNobodyBroughtInIsBroughtIn(t *testing.T) {
	t.Parallel()
	b := zoned(40, NewObjectID(), NewNodeID(), "here")
	b.of("there", NewNodeID(), true, b.every()...)
	b.of("here", NewNodeID(), false)
	b.whole = true
	for fs := b.round(); len(fs) > 0; fs = b.round() {
		for _, f := range fs {
			b.land(f, 50*time.Millisecond)
		}
	}
	require.NotZero(t, b.left)
	b.now = b.now.Add(firstAccord - 1)
	require.Empty(t, b.round())
	b.now = b.now.Add(1)
	require.NotEmpty(t, b.round())
}

// TestALiarHasNothingForItsZone: nor does a node that is not asked any more.
func TestALiarHasNothingForItsZone(t *testing.T) {
	t.Parallel()
	b := zoned(40, NewObjectID(), NewNodeID(), "here")
	liar := b.of("here", NewNodeID(), false, b.every()...)
	require.EqualValues(t, 1, b.zone.tally.copies[3])
	liar.exclude(ErrDisowned, b.now)
	require.Zero(t, b.zone.tally.copies[3])
	b.part(liar)
	require.Zero(t, b.zone.tally.copies[3])
	keeper := b.of("here", NewNodeID(), true, b.every()...)
	require.Zero(t, b.zone.tally.copies[3], "a crowd is not to have all of it from there")
	keeper.lacks(3)
	require.Zero(t, b.zone.tally.copies[3])
}

func TestNodesOfTheZoneGoBeforeOthers(t *testing.T) {
	t.Parallel()
	b := zoned(40, NewObjectID(), NewNodeID(), "here")
	for range b.l.Peers {
		b.followed(Peer{Node: NewNodeID(), Incarnation: 1, Zone: "there"}, b.g)
	}
	var near []Peer
	for range 2 * b.l.Peers {
		near = append(near, Peer{Node: NewNodeID(), Incarnation: 1, Zone: "here"})
	}
	b.introduce(near, b.g)
	n := 0
	for _, p := range b.peers {
		if b.near(p.Peer) {
			n++
		}
	}
	require.Len(t, b.peers, b.l.Peers)
	require.Equal(t, b.l.Peers*3/4, n, "some of the other zones stay")
}

func TestIntroductionsAreOfBothKinds(t *testing.T) {
	t.Parallel()
	order := []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}
	for _, tt := range []struct {
		name string
		near func(int) bool
		want []int
	}{
		{"no zones", func(int) bool { return true }, []int{9, 8, 7, 6, 5, 4, 3, 2}},
		{"none is near", func(int) bool { return false }, []int{9, 8, 7, 6, 5, 4, 3, 2}},
		{"few are near", func(i int) bool { return i < 2 }, []int{1, 0, 9, 8, 7, 6, 5, 4}},
		{"many are near", func(i int) bool { return i < 8 }, []int{7, 6, 5, 4, 3, 2, 9, 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, Introductions(order, tt.near))
		})
	}
	require.Empty(t, Introductions(nil, func(int) bool { return true }))
}
