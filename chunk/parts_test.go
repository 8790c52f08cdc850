package chunk

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadsNeverCountsTwice compares with what was truly read.
func TestReadsNeverCountsTwice(t *testing.T) {
	t.Parallel()
	o := Object{ID: NewObjectID(), Size: 20*MinBlockSize + 99, BlockSize: MinBlockSize, ChunkSize: MinBlockSize}
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := newReads(o)
		truth := make([]bool, o.Size)
		for range 100 {
			off := rng.Int64N(o.Size)
			n := min(1+rng.Int64N(2*MinBlockSize), o.Size-off)
			before, after := c.add(off, n)
			require.LessOrEqual(t, before, after)
			for i := off; i < off+n; i++ {
				truth[i] = true
			}
			var want int64
			for _, b := range truth {
				if b {
					want++
				}
			}
			require.LessOrEqual(t, after, want, "seed %d", seed)
		}
	}
}

func TestReadsAreExactInOrder(t *testing.T) {
	t.Parallel()
	o := Object{ID: NewObjectID(), Size: 700*MinBlockSize + 99, BlockSize: MinBlockSize, ChunkSize: MinBlockSize}
	for _, step := range []int64{1000, 4096, 100000} {
		forth, back := newReads(o), newReads(o)
		for off := int64(0); off < o.Size; off += step {
			n := min(step, o.Size-off)
			_, after := forth.add(off, n)
			require.Equal(t, off+n, after)
			_, again := forth.add(off, n)
			require.Equal(t, after, again)
			_, after = back.add(o.Size-off-n, n)
			require.Equal(t, off+n, after)
		}
	}
}

func TestReadsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	o := Object{ID: NewObjectID(), Size: 600 * MinBlockSize, BlockSize: MinBlockSize, ChunkSize: MinBlockSize}
	c := newReads(o)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for off := int64(0); off < o.Size; off += 1024 {
				c.add(off, 1024)
			}
		})
	}
	wg.Wait()
	require.Equal(t, o.Size, c.distinct.Load())
}

func TestStreamsFollowReaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		reads []int
		next  []int // one step further on each stream
	}{
		{"first read", []int{5}, []int{6}},
		{"forwards", []int{5, 6, 7}, []int{8}},
		{"backwards", []int{9, 8, 7}, []int{6}},
		{"slightly out of order", []int{5, 6, 7, 8, 7, 8, 9}, []int{10}},
		{"two readers", []int{5, 105, 6, 104, 7, 103}, []int{8, 102}},
		{"turned around", []int{5, 6, 7, 6, 5, 4, 3}, []int{2}},
		{"too many", []int{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}, []int{801, 901, 201, 301, 401, 501, 601, 701}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s streams
			for _, b := range tt.reads {
				s.touch(b, 16)
			}
			var next []int
			for _, x := range s.list {
				next = append(next, x.step(1))
			}
			require.Equal(t, tt.next, next)
		})
	}
}

func TestRingIsBounded(t *testing.T) {
	t.Parallel()
	r := newRing(6 * 100)
	put := func(o ObjectID, block int) {
		u := r.make(100)
		u.b[0] = byte(block)
		r.put(o, block, u)
		u.release()
	}
	a, b := NewObjectID(), NewObjectID()
	for i := range 10 {
		put(a, i)
	}
	require.Len(t, r.slots, ringPerObject)
	for i := range 10 {
		put(b, i)
		require.LessOrEqual(t, r.bytes, r.limit)
	}
	require.Nil(t, r.get(b, 0))
	u := r.get(b, 9)
	require.Equal(t, byte(9), u.b[0])
	r.forget(b)
	r.forget(a)
	require.Empty(t, r.slots)
	require.Zero(t, r.bytes)
	require.EqualValues(t, 1, u.refs.Load())
	require.Equal(t, byte(9), u.b[0])
	u.release()
	require.LessOrEqual(t, len(r.spare), ringPerObject)
}

func TestZeroSum(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 100, MinBlockSize, 3*MinBlockSize + 7} {
		require.Equal(t, Sum(make([]byte, n)), zeroSum(n))
	}
}

func TestOwnSizes(t *testing.T) {
	t.Parallel()
	l := Limits{}.withDefaults()
	tests := []struct {
		name   string
		size   int64
		whole  int64
		window int
	}{
		{"small", 10 << 20, 4 << 20, 16},
		{"medium", 1 << 30, (1 << 30) / 50, 16},
		{"large", 100 << 30, 64 << 20, 16},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Object{Size: tt.size, BlockSize: DefaultBlockSize, ChunkSize: DefaultChunkSize}
			require.Equal(t, tt.whole, l.wholeAfter(o))
			require.Equal(t, tt.window, l.window(o))
			require.EqualValues(t, DefaultBlockSize, speculation(o, 1<<20))
			require.EqualValues(t, 20<<20, speculation(o, 10<<20))
		})
	}
}

// A peer that answers "I have nothing of it" is no reason to go on waiting.
func TestAPeerThatHasNothingIsNoLiveProvider(t *testing.T) {
	t.Parallel()
	g := newGate(Limits{}.withDefaults())
	now := time.Now()
	p := &peer{Peer: Peer{Node: NewNodeID()}, hint: true}
	p.st = g.standing(p.Peer)
	p.vital = p.st.vital
	g.with(p.st, func() { p.st.answer(now) })
	require.True(t, g.live([]*peer{p}, now, time.Second))
	p.nothing()
	require.False(t, g.live([]*peer{p}, now, time.Second))
	require.False(t, p.holds(0, false))
	require.True(t, p.heard(Availability{Full: true, Have: NewBitmap(4)}, 4))
	require.True(t, g.live([]*peer{p}, now, time.Second))
}

func TestBlockSizeFor(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name               string
		chunk, size, block int64
	}{
		{"nothing", 64 * mib, 0, 4 * mib},
		{"one block", 64 * mib, 4 * mib, 4 * mib},
		{"just more", 64 * mib, 4*mib + 1, 2 * mib},
		{"few blocks", 64 * mib, 1024 * mib, 2 * mib},
		{"many blocks", 64 * mib, 1024*mib + 1, 4 * mib},
		{"chunks of one block", 4 * mib, 100 * mib, 2 * mib},
		{"small chunks", 2 * mib, 100 * mib, 2 * mib},
		{"chunks that are no power of two", 3 * mib, 100 * mib, mib},
		{"the smallest chunks", MinBlockSize, mib, MinBlockSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.block, BlockSizeFor(tt.chunk, tt.size))
			require.Zero(t, tt.block%BlockUnit(tt.chunk))
			o := Object{ID: ObjectID{1}, Size: tt.size, ChunkSize: tt.chunk, BlockSize: tt.block}
			require.NoError(t, o.Validate())
		})
	}
}

func TestJoinSums(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range []int{0, 1, 7, 4096, 1 << 20} {
		for range 20 {
			b := make([]byte, n+r.IntN(5000))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			at := r.IntN(len(b) + 1)
			require.Equal(t, Sum(b), JoinSums(Sum(b[:at]), Sum(b[at:]), int64(len(b)-at)), "cut at %d of %d", at, len(b))
		}
	}
}
