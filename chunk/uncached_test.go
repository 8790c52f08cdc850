package chunk_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

func TestReadsGoOnUncached(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		r.store.FailPuts(chunk.ErrNoSpace)
		o := r.net.Object(100*block + 50)
		rd := r.open(o)
		for off := int64(0); off < o.Size; off += block / 8 {
			r.read(rd, off, block/8)
		}
		require.LessOrEqual(t, len(a.Fetched()), 101+4, "small reads do not fetch a block each")
		require.False(t, rd.Complete())
		r.read(rd, 10*block+100, 7*block) // spans blocks
		require.Positive(t, r.e.Stats().Uncached)
		require.ErrorIs(t, rd.FetchAll(t.Context(), nil), chunk.ErrNoSpace)
		fetched := len(a.Fetched())
		r.pass(time.Minute)
		require.Len(t, a.Fetched(), fetched, "nothing is fetched unasked")
	})
}

func TestReadsGoOnWithoutALocalFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		r.store.FailOpens(fmt.Errorf("the disk is gone: %w", chunk.ErrNoSpace))
		o := r.net.Object(20*block + 50)
		rd := r.open(o)
		require.Nil(t, rd.File())
		for off := int64(0); off < o.Size; off += block / 8 {
			r.read(rd, off, block/8)
		}
		require.LessOrEqual(t, len(a.Fetched()), 21+4, "small reads do not fetch a block each")
		r.read(rd, 3*block+100, 7*block) // spans blocks
		require.False(t, rd.Complete())
		require.ErrorIs(t, rd.FetchAll(t.Context(), nil), chunk.ErrNoSpace)

		r.store.FailOpens(nil) // the disk is back
		r.pass(6 * time.Second)
		r.read(rd, 5*block-10, block)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.True(t, rd.Complete())
		r.read(rd, 0, o.Size)
	})
}

func TestAFileThatCannotBeOpenedForAnotherReasonIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.FailOpens(chunk.ErrSourceChanged)
		_, err := r.engine().Open(t.Context(), r.net.Object(block))
		require.ErrorIs(t, err, chunk.ErrSourceChanged)
	})
}

func TestAnEngineWithoutALocalFileCloses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(time.Hour)
		r.store.FailOpens(chunk.ErrNoSpace)
		rd := r.open(r.net.Object(block))
		ended := make(chan error, 1)
		go func() {
			_, err := fetch(t.Context(), rd, 0, block)
			ended <- err
		}()
		r.settle()
		r.store.FailOpens(nil)
		require.NoError(t, r.e.Close())
		require.ErrorIs(t, <-ended, chunk.ErrClosed)
	})
}

func TestStoringIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a")
		o := r.net.Object(100 * block)
		rd := r.open(o)
		r.read(rd, 0, block)
		r.store.FailPuts(chunk.ErrNoSpace)
		r.read(rd, 50*block, 2*block)
		r.read(rd, 50*block-10, 20) // partly stored or not, right all the same
		r.store.FailPuts(nil)
		r.pass(6 * time.Second)
		r.read(rd, 70*block, block)
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		r.read(rd, 0, o.Size)
	})
}

func TestUncachedReadersShareAFetch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.net.Keeper("a")
		a.Delay(time.Second)
		r.store.FailPuts(chunk.ErrNoSpace)
		o := r.net.Object(block)
		var wg sync.WaitGroup
		for i := range 32 {
			rd := r.open(o)
			wg.Go(func() { r.read(rd, int64(i)*100, 100) })
		}
		wg.Wait()
		require.Len(t, a.Fetched(), 1)
	})
}

func TestUncachedZeroBlock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a")
		r.store.FailPuts(chunk.ErrNoSpace)
		o := r.net.Object(8 * block)
		zeros := chunk.NewBitmap(8)
		zeros.Set(2)
		r.net.Zero(o, zeros)
		rd := r.open(o)
		r.read(rd, 1*block, block) // fills a buffer that may be used again
		got, err := fetch(t.Context(), rd, 2*block, block)
		require.NoError(t, err)
		require.Equal(t, make([]byte, block), got)
	})
}

func TestDataOutlivesTheRing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a")
		r.cfg.Limits.Uncached = 2 * block
		r.store.FailPuts(chunk.ErrNoSpace)
		o := r.net.Object(50 * block)
		rd := r.open(o)
		d, err := rd.Read(t.Context(), 0, block)
		require.NoError(t, err)
		for i := int64(1); i < 40; i++ {
			r.read(rd, i*block, block)
		}
		require.Equal(t, chunktest.Content(o, 0), d.Bytes)
		d.Release()
	})
}
