package cache

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// begin stages a block.
func begin(t testing.TB, f chunk.File, block int) chunk.Stage {
	t.Helper()
	st, err := f.(chunk.Stager).Stage(block)
	require.NoError(t, err)
	return st
}

func TestStage(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(4*bs + 10)
	f := openFile(t, c, o)

	for _, b := range []int{0, 4} { // a whole one, and the short last one
		data := content(o, b)
		st := begin(t, f, b)
		for at := 0; at < len(data); at += 1000 {
			require.False(t, f.Has(b))
			require.NoError(t, st.Write(data[at:min(at+1000, len(data))]))
		}
		require.NoError(t, st.Commit(chunk.Sum(data)))
		require.True(t, f.Has(b))
		sum, ok := f.Sum(b)
		require.True(t, ok)
		require.Equal(t, chunk.Sum(data), sum)
	}
	require.Equal(t, 2, checkHeld(t, f, o))
	_, err := f.(chunk.Stager).Stage(0)
	require.Error(t, err, "a block that is here")
	_, err = f.(chunk.Stager).Stage(5)
	require.ErrorIs(t, err, chunk.ErrCorrupt, "a block that there is not")
}

func TestStageAborted(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(4 * bs)
	f := openFile(t, c, o)
	used := c.Stats().UsedBytes

	st := begin(t, f, 1)
	require.NoError(t, st.Write(make([]byte, 100)))
	_, err := f.(chunk.Stager).Stage(1)
	require.Error(t, err, "one stage of a block at a time")
	st.Abort()
	require.Equal(t, used, c.Stats().UsedBytes)
	require.Zero(t, checkHeld(t, f, o))

	st = begin(t, f, 1)
	require.NoError(t, st.Write(make([]byte, 100)))
	require.ErrorIs(t, st.Commit(1), chunk.ErrCorrupt, "a block of 100 bytes")
	require.Equal(t, used, c.Stats().UsedBytes)

	st = begin(t, f, 1)
	require.ErrorIs(t, st.Write(make([]byte, bs+1)), chunk.ErrCorrupt)
	st.Abort()

	// What an aborted stage left does not show through a block of zeros.
	st = begin(t, f, 2)
	require.NoError(t, st.Write(content(o, 2)))
	st.Abort()
	zeros := chunk.NewBitmap(o.Blocks())
	zeros.Set(2)
	require.NoError(t, f.PutZero(zeros))
	got := make([]byte, bs)
	_, err = f.Reader().ReadAt(got, 2*bs)
	require.NoError(t, err)
	require.Equal(t, make([]byte, bs), got)
}

// What a stage took on disk, ahead of its bytes too, goes when it comes to
// nothing; not when somebody else has the block by then.
func TestStageAbortedGivesRoomBack(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	c.roots[0].prealloc = true
	o := chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: 4<<20 + 100, ChunkSize: 4 << 20, BlockSize: 1 << 20}
	h := openFile(t, c, o)
	e, f, err := c.acquire(t.Context(), o.ID, nil)
	require.NoError(t, err)
	defer func() { c.release(e, f) }()
	agree := func(blocks int64) {
		t.Helper()
		// Where the parts lie may itself take a few blocks.
		require.InDelta(t, blocks*o.BlockSize, blocksOf(f.data), 64<<10)
		require.Equal(t, blocks*o.BlockSize, c.Stats().UsedBytes-f.mapUsed)
	}

	begin(t, h, 0).Abort()
	agree(0)
	half := begin(t, h, 1)
	require.NoError(t, half.Write(make([]byte, o.BlockSize/2)))
	require.ErrorIs(t, half.Commit(1), chunk.ErrCorrupt)
	agree(0)
	last := begin(t, h, 4)
	require.NoError(t, last.Write(make([]byte, 100)))
	last.Abort()
	agree(0)

	// Its neighbours stay.
	put(t, h, o, 0, 2)
	begin(t, h, 1).Abort()
	agree(2)
	over := begin(t, h, 1)
	require.NoError(t, over.Write(make([]byte, 100)))
	put(t, h, o, 1)
	over.Abort()
	agree(3)
	require.Equal(t, 3, checkHeld(t, h, o))
}

// A put of the same block comes with verified bytes: it does not wait for the
// stage, and nothing of the stage is written after it.
func TestPutEndsAStage(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(2 * bs)
	f := openFile(t, c, o)
	st := begin(t, f, 0)
	require.NoError(t, st.Write(make([]byte, bs)))
	put(t, f, o, 0)
	require.ErrorIs(t, st.Write([]byte{1}), errRevoked)
	require.ErrorIs(t, st.Commit(7), errRevoked)
	require.Equal(t, 1, checkHeld(t, f, o))
	put(t, f, o, 1)
	require.True(t, f.Complete())
}

// Zeros do not wait for a stage of the same block either, nor do they leave it
// out: the stage may come to nothing.
func TestZerosEndAStage(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(3 * bs)
	f := openFile(t, c, o)
	st := begin(t, f, 1)
	require.NoError(t, st.Write(bytes.Repeat([]byte{7}, bs/2)))
	zeros := chunk.NewBitmap(o.Blocks())
	zeros.Set(1)
	zeros.Set(2)
	require.NoError(t, f.PutZero(zeros))
	require.ErrorIs(t, st.Write([]byte{1}), errRevoked)
	st.Abort()
	require.True(t, f.Has(1))
	require.True(t, f.Has(2))
	got := make([]byte, 2*bs)
	_, err := f.Reader().ReadAt(got, bs)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 2*bs), got)
	put(t, f, o, 0)
	require.True(t, f.Complete())
}

// Whatever becomes of the stages and puts that race with it, all zeros are here
// when PutZero returns.
func TestStagesAndZerosRace(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := openCache(t, config(t))
	o := object(130 * bs)
	for round := range 8 {
		o.ID[0] = byte(round)
		f := openFile(t, c, o)
		zeros := chunk.NewBitmap(o.Blocks())
		for b := range o.Blocks() {
			zeros.Set(b)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(round*4+w)))
				for range 100 {
					b := rng.IntN(o.Blocks())
					if w == 0 {
						data := make([]byte, bs)
						if err := f.Put(b, data, chunk.Sum(data)); err != nil {
							t.Errorf("put: %v", err)
						}
						continue
					}
					st, err := f.(chunk.Stager).Stage(b)
					if err != nil {
						continue
					}
					_ = st.Write(bytes.Repeat([]byte{7}, 1+rng.IntN(bs)))
					st.Abort()
				}
			})
		}
		require.NoError(t, f.PutZero(zeros))
		require.True(t, f.Complete(), "round %d", round)
		wg.Wait()
		got := make([]byte, o.Size)
		_, err := f.Reader().ReadAt(got, 0)
		require.NoError(t, err)
		require.Equal(t, make([]byte, o.Size), got)
	}
}

// Stages with wrong bytes, committed never, race with puts of the right ones.
func TestStagesAndPutsRace(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := openCache(t, config(t))
	o := object(64 * bs)
	f := openFile(t, c, o)
	used := c.Stats().UsedBytes
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 300 {
				b := rng.IntN(o.Blocks())
				if w%2 == 0 {
					data := content(o, b)
					if err := f.Put(b, data, chunk.Sum(data)); err != nil {
						t.Errorf("put: %v", err)
					}
					continue
				}
				st, err := f.(chunk.Stager).Stage(b)
				if err != nil {
					continue
				}
				_ = st.Write(make([]byte, 1+rng.IntN(bs)))
				st.Abort()
			}
		})
	}
	wg.Wait()
	for b := range o.Blocks() {
		put(t, f, o, b)
	}
	require.Equal(t, o.Blocks(), checkHeld(t, f, o))
	require.True(t, f.Complete())
	require.GreaterOrEqual(t, c.Stats().UsedBytes, used+o.Size)
	require.Less(t, c.Stats().UsedBytes, used+o.Size+1<<20, "given back what was not written")
}

func TestStageOnAFullCache(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 8 * bs
	c := openCache(t, cfg)
	o := object(16 * bs)
	f := openFile(t, c, o)
	var err error
	var open []chunk.Stage
	for b := 0; err == nil && b < o.Blocks(); b++ {
		var st chunk.Stage
		if st, err = f.(chunk.Stager).Stage(b); err == nil {
			open = append(open, st)
		}
	}
	require.ErrorIs(t, err, chunk.ErrNoSpace)
	require.NotEmpty(t, open)
	for _, st := range open {
		st.Abort()
	}
	begin(t, f, 0).Abort()
}
