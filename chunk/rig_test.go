package chunk_test

import (
	"bytes"
	"context"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const block = chunk.MinBlockSize

// rig is an engine amid a cluster in memory, inside a bubble of fake time.
type rig struct {
	t     *testing.T
	net   *chunktest.Net
	store *chunktest.Store
	cfg   chunk.Config
	e     *chunk.Engine
	mu    sync.Mutex
	done  []chunk.Object
}

// bubble runs a test on a rig, twice: with blocks that come in lent memory, and
// with blocks that come in pieces. At its end the engine is closed, and every
// goroutine must have ended and every lease and file be given back.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run("lent", func(t *testing.T) { bubbleOn(t, false, test) })
	t.Run("in pieces", func(t *testing.T) { bubbleOn(t, true, test) })
}

func bubbleOn(t *testing.T, pieces bool, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		defer time.AfterFunc(longest, forever).Stop()
		r := newRig(t)
		if pieces {
			r.cfg.Transport = chunktest.Streaming{Net: r.net}
		}
		defer func() {
			_ = r.engine().Close() // else a failed test hides behind a deadlock
			synctest.Wait()
		}()
		test(t, r)
		r.close()
	})
}

// longest is more time than any test lets go by.
const longest = 24 * time.Hour

// forever ends a test in which somebody waits without end: fake time would pass
// as fast as it can, and nothing would ever be said. All goroutines are shown.
func forever() {
	debug.SetTraceback("all")
	panic("fake time goes on and on: who waits?")
}

func newRig(t testing.TB) *rig {
	r := &rig{net: chunktest.NewNet(), store: &chunktest.Store{}}
	if tt, ok := t.(*testing.T); ok {
		r.t = tt
	}
	r.cfg = chunk.Config{
		Self: chunk.NewNodeID(), Store: r.store, Transport: r.net, Registry: r.net,
		Scout: r.net, Facts: r.net, Seed: 1,
	}
	r.cfg.OnComplete = func(o chunk.Object) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = append(r.done, o)
	}
	t.Cleanup(r.store.Destroy)
	return r
}

func (r *rig) engine() *chunk.Engine {
	if r.e == nil {
		r.e = chunk.NewEngine(r.cfg)
	}
	return r.e
}

func (r *rig) close() {
	require.NoError(r.t, r.engine().Close())
	require.Zero(r.t, r.net.Leases(), "leases not released")
	require.Zero(r.t, r.store.OpenFiles(), "files not closed")
}

func (r *rig) open(o chunk.Object) *chunk.Reader {
	rd, err := r.engine().Open(r.t.Context(), o)
	require.NoError(r.t, err)
	return rd
}

// read reads and compares.
func (r *rig) read(rd *chunk.Reader, off, n int64) {
	r.t.Helper()
	got, err := fetch(r.t.Context(), rd, off, n)
	require.NoError(r.t, err)
	same(r.t, rd.Object(), off, n, got)
}

// same compares what was read with what the object has there. It names the
// blocks that differ: to print megabytes side by side takes minutes.
func same(t testing.TB, o chunk.Object, off, n int64, got []byte) {
	t.Helper()
	want := chunktest.Bytes(o, off, n)
	if bytes.Equal(want, got) {
		return
	}
	require.Len(t, got, len(want))
	var wrong []int
	for i := range got {
		if b := int((off + int64(i)) / o.BlockSize); got[i] != want[i] && (len(wrong) == 0 || wrong[len(wrong)-1] != b) {
			wrong = append(wrong, b)
		}
	}
	require.Empty(t, wrong, "blocks of which wrong bytes were read")
}

// fails reads and wants an error; it returns how long it took, and that.
func (r *rig) fails(rd *chunk.Reader, off, n int64) (time.Duration, error) {
	r.t.Helper()
	start := time.Now()
	_, err := fetch(r.t.Context(), rd, off, n)
	require.Error(r.t, err)
	return time.Since(start), err
}

// settle lets everything under way happen.
func (r *rig) settle() { synctest.Wait() }

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fetch reads into memory of its own.
func fetch(ctx context.Context, rd *chunk.Reader, off, n int64) ([]byte, error) {
	d, err := rd.Read(ctx, off, n)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	out := make([]byte, d.N)
	if d.File == nil {
		copy(out, d.Bytes)
		return out, nil
	}
	_, err = d.File.ReadAt(out, d.Off)
	return out, err
}
