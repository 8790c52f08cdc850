package verbs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// given is a link without a queue, one transfer on it, and what abandoning that
// transfer returned after how long. meanwhile does what the network does.
func given(t *testing.T, meanwhile func(l *link, x *transfer)) (l *link, took time.Duration, err error) {
	l = &link{broken: make(chan struct{}), transfers: make(map[uint64]*transfer)}
	x := &transfer{done: make(chan struct{})}
	l.transfers[1] = x
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { meanwhile(l, x) })
	others.Go(func() { // as shut does
		select {
		case <-l.broken:
			close(x.done)
		case <-x.done:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	err = l.abandon(ctx, x)
	took = time.Since(start)
	require.ErrorIs(t, err, context.Canceled)
	return l, took, err
}

// TestGivenUpReads: READs that nobody wants cost others their connection only if
// none of it ends any more, or these take too long.
func TestGivenUpReads(t *testing.T) {
	t.Parallel()
	t.Run("nothing moves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, took, err := given(t, func(*link, *transfer) {})
			require.ErrorIs(t, err, errSilent)
			require.False(t, l.alive())
			require.Equal(t, abandonAfter, took)
		})
	})
	t.Run("they end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, took, err := given(t, func(l *link, x *transfer) {
				for range 5 {
					time.Sleep(abandonAfter * 3 / 4)
					l.good.Add(1)
				}
				close(x.done)
			})
			require.NotErrorIs(t, err, errSilent)
			require.True(t, l.alive())
			require.Equal(t, 5*abandonAfter*3/4, took)
		})
	})
	t.Run("it comes to a stop", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, took, err := given(t, func(l *link, _ *transfer) {
				time.Sleep(abandonAfter / 2)
				l.good.Add(1)
			})
			require.NotErrorIs(t, err, errSilent)
			require.False(t, l.alive())
			require.Equal(t, 2*abandonAfter, took)
		})
	})
	t.Run("it never ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, took, err := given(t, func(l *link, _ *transfer) {
				for l.alive() {
					time.Sleep(abandonAfter / 2)
					l.good.Add(1)
				}
			})
			require.NotErrorIs(t, err, errSilent)
			require.False(t, l.alive())
			require.Equal(t, abandonBound, took)
		})
	})
}
