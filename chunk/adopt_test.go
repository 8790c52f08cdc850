package chunk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

// put stores blocks beside the engine.
func (r *rig) put(o chunk.Object, blocks ...int) {
	f, err := r.store.Open(r.t.Context(), o)
	require.NoError(r.t, err)
	for _, b := range blocks {
		data := chunktest.Content(o, b)
		require.NoError(r.t, f.Put(b, data, chunk.Sum(data)))
	}
	require.NoError(r.t, f.Close())
}

func TestBlocksThatOthersStoreCount(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		o := r.net.Object(3 * block)
		rd := r.open(o)
		r.settle()
		r.put(o, 0, 1, 2)
		start := time.Now()
		require.NoError(t, rd.FetchAll(t.Context(), nil))
		require.Zero(t, time.Since(start))
		r.read(rd, 0, o.Size)
	})
}

func TestNobodyIsToldThatWhatIsHereIsAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		o := r.net.Object(3 * block)
		rd := r.open(o)
		done := make(chan error, 2)
		go func() { done <- rd.FetchAll(t.Context(), nil) }()
		go func() {
			_, err := fetch(t.Context(), rd, block, 10)
			done <- err
		}()
		r.pass(time.Second)
		r.put(o, 0, 1, 2)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

func TestAFileThatIsMadeLateMayHaveMore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		o := r.net.Object(3 * block)
		r.put(o, 1, 2)
		r.net.Partial("a", o, 0)
		r.store.FailOpens(chunk.ErrNoSpace)
		rd := r.open(o)
		r.store.FailOpens(nil)
		r.pass(6 * time.Second) // storing is tried again
		r.read(rd, 0, 10)
		r.settle()
		require.True(t, rd.Complete())
	})
}
