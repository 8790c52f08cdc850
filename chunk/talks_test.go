package chunk_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
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
