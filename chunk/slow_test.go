package chunk_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

// queues returns the fault of a node that sends one block at a time, each of
// which takes d, and whose requests are taken for stalled while they wait.
func queues(d, patience time.Duration) func(context.Context, *chunk.Received) error {
	var sending atomic.Bool
	return func(ctx context.Context, _ *chunk.Received) error {
		if !sending.CompareAndSwap(false, true) {
			return stalls(patience)(ctx, nil)
		}
		defer sending.Store(false)
		return pass(ctx, d)
	}
}

// stalls returns the fault of a node that sends nothing.
func stalls(patience time.Duration) func(context.Context, *chunk.Received) error {
	return func(ctx context.Context, _ *chunk.Received) error {
		if err := pass(ctx, patience); err != nil {
			return err
		}
		return fmt.Errorf("%w for %v", chunk.ErrStalled, patience)
	}
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The requests that wait in line at a node stall while it sends a block: that
// it lives is known from what it says otherwise.
func TestANodeThatSendsAnotherBlockIsNotDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.net.Keeper("a").Break(queues(9*time.Second, 5*time.Second))
		rd := r.open(r.net.Object(2 * block))
		done := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := fetch(t.Context(), rd, int64(i)*block, block)
				done <- err
			}()
		}
		for range 2 {
			require.NoError(t, <-done)
		}
	})
}

// A node whose stream ends while what it was asked for stalls is dead: whoever
// waits is told at once.
func TestANodeThatStallsAndTalksNoMoreIsDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		o := r.net.Object(2 * block)
		a := r.net.Partial("a", o, 0)
		a.Break(stalls(8 * time.Second))
		rd := r.open(o)
		go func() {
			time.Sleep(13 * time.Second)
			a.Deaf()
			a.Gain(1)
		}()
		took, err := r.fails(rd, 0, block)
		require.ErrorIs(t, err, chunk.ErrNoProvider)
		require.InDelta(t, 13, took.Seconds(), 1)
	})
}

// trickle is a transport whose blocks come in pieces, one each five seconds.
type trickle struct {
	chunktest.Streaming
	pieces int
}

func (s trickle) FetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func([]byte) error) (chunk.Received, error) {
	return s.Streaming.FetchTo(ctx, from, ref, func(all []byte) error {
		n := (len(all) + s.pieces - 1) / s.pieces
		for ; len(all) > 0; all = all[min(n, len(all)):] {
			if err := pass(ctx, 5*time.Second); err != nil {
				return err
			}
			if err := put(all[:min(n, len(all))]); err != nil {
				return err
			}
		}
		return nil
	})
}

// A block takes as long as it takes while its bytes come.
func TestABlockThatComesSlowlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		read func(t *testing.T, rd *chunk.Reader) error
		deaf bool // nothing but the bytes says that the provider lives
	}{
		{"read", func(t *testing.T, rd *chunk.Reader) error {
			_, err := fetch(t.Context(), rd, 0, 10)
			return err
		}, false},
		{"all of it", func(t *testing.T, rd *chunk.Reader) error { return rd.FetchAll(t.Context(), nil) }, false},
		{"read again", func(t *testing.T, rd *chunk.Reader) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := fetch(ctx, rd, 0, 10)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(25 * time.Second) // more than the grace period: it comes nevertheless
			start := time.Now()
			_, err = fetch(t.Context(), rd, 0, 10)
			require.Less(t, time.Since(start), 10*time.Second)
			return err
		}, false},
		{"nothing else is heard", func(t *testing.T, rd *chunk.Reader) error {
			_, err := fetch(t.Context(), rd, 0, 10)
			return err
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOn(t, true, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				if tt.deaf {
					a.Deaf()
				}
				r.cfg.Transport = trickle{chunktest.Streaming{Net: r.net}, 5}
				r.cfg.Limits.NoProvider = 8 * time.Second
				rd := r.open(r.net.Object(block))
				require.NoError(t, tt.read(t, rd))
				require.Equal(t, []int{0}, a.Fetched(), "its bytes were thrown away")
				require.NoError(t, rd.Close())
			})
		})
	}
}
