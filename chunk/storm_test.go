package chunk_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

// TestStorm reads at random while peers fail in every way there is, storing
// fails now and then and readers give up: the bytes are always right, and with
// one sound keeper there is never an error but a reader's own.
func TestStorm(t *testing.T) {
	for seed := range uint64(6) {
		t.Run("", func(t *testing.T) {
			t.Logf("seed %d", seed)
			bubble(t, func(t *testing.T, r *rig) { storm(t, r, seed, seed%2 == 0) })
		})
	}
}

func storm(t *testing.T, r *rig, seed uint64, sound bool) {
	rng := rand.New(rand.NewPCG(seed, 99))
	r.cfg.Seed = seed + 1
	r.net.BindAll()
	r.engine()
	objects := []chunk.Object{
		r.net.Object(1), r.net.Object(300*block + 17), r.net.Object(40 * block), r.net.Object(400*block - 1),
	}
	var bad []*chunktest.Node
	for range 4 {
		bad = append(bad, r.net.Mirror("bad"))
	}
	bad = append(bad, r.net.Partial("part", objects[1], 0, 5, 7))
	good := r.net.Keeper("good")
	good.Delay(3 * time.Millisecond)

	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { trouble(r, rand.New(rand.NewPCG(seed, 1)), bad, good, sound, stop) })
	var readers sync.WaitGroup
	for range 12 {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		readers.Go(func() {
			for range 4 {
				session(t, r, own, objects[own.IntN(len(objects))], sound)
			}
		})
	}
	readers.Wait()
	close(stop)
	wg.Wait()
	synctest.Wait()
	if !sound {
		good.Break(nil)
		good.Down(false)
	}
	r.store.FailPuts(nil)
	r.pass(35 * time.Second)
	for _, o := range objects {
		rd := r.open(o)
		require.NoError(t, rd.FetchAll(t.Context(), nil), "everything heals")
		r.read(rd, 0, o.Size)
		require.NoError(t, rd.Close())
	}
	r.settle() // flights that are for nothing now have been told, and end
	require.Zero(t, r.e.Stats().InFlight)
}

// session opens, reads a few times in some pattern, and closes.
func session(t *testing.T, r *rig, rng *rand.Rand, o chunk.Object, sound bool) {
	rd := r.open(o)
	defer rd.Close()
	off, way := rng.Int64N(o.Size), int64(rng.IntN(3)-1)
	for range 30 {
		n := 1 + rng.Int64N(3*block)
		if way == 0 {
			off = rng.Int64N(o.Size)
		}
		off = min(max(off, 0), o.Size-1)
		ctx, cancel := context.WithCancel(t.Context())
		if rng.IntN(10) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(20))*time.Millisecond, cancel)
		}
		got, err := fetch(ctx, rd, off, n)
		own := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			same(t, o, off, n, got)
		case own && errors.Is(err, context.Canceled):
		default:
			require.False(t, sound, "read %d+%d: %v", off, n, err)
			require.True(t, errors.Is(err, chunk.ErrNoProvider) || errors.Is(err, chunk.ErrStalled) || errors.Is(err, chunk.ErrSourceChanged), err)
		}
		off += way * n
	}
}

// trouble changes how peers behave until stop.
func trouble(r *rig, rng *rand.Rand, bad []*chunktest.Node, good *chunktest.Node, sound bool, stop chan struct{}) {
	faults := []chunktest.Fault{
		nil, chunktest.Frozen, chunktest.Lies, chunktest.Short, chunktest.Other, chunktest.SaysZero,
		chunktest.Slow(300 * time.Millisecond), chunktest.Slow(3 * time.Second), chunktest.Resets(2),
		chunktest.Fails(chunk.ErrNotHeld), chunktest.Fails(chunk.ErrCorrupt), chunktest.Fails(chunk.ErrSourceChanged),
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(50)) * time.Millisecond):
		}
		p := bad[rng.IntN(len(bad))]
		switch rng.IntN(8) {
		case 0:
			p.Down(true)
		case 1:
			p.Down(false)
		case 2:
			p.Restart()
		case 3:
			r.store.FailPuts(chunk.ErrNoSpace)
		case 4:
			r.store.FailPuts(nil)
		case 5:
			if !sound {
				good.Down(rng.IntN(2) == 0)
			}
		default:
			p.Break(faults[rng.IntN(len(faults))])
		}
	}
}
