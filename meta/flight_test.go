package meta

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newTestFlights() *flights[string, int] {
	return newFlights[string, int](func(fn func()) bool { go fn(); return true })
}

func pending(f *flights[string, int]) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pairs)
}

// TestFlightsJoinTheNext: who comes while a read runs shares the next one.
func TestFlightsJoinTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlights()
		var mu sync.Mutex
		reads := 0
		read := func() (int, error) {
			mu.Lock()
			reads++
			n := reads
			mu.Unlock()
			time.Sleep(time.Second)
			return n, nil
		}
		ask := func(want int) {
			go func() {
				got, err := f.do(t.Context(), "k", read)
				if err != nil || got != want {
					t.Errorf("want read %d, got %d: %v", want, got, err)
				}
			}()
		}
		ask(1)
		synctest.Wait()
		for range 100 {
			ask(2)
		}
		time.Sleep(1500 * time.Millisecond)
		ask(3)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 3, reads)
		require.Zero(t, pending(f))
	})
}

func TestFlightsGiveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlights()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		read := func() (int, error) { time.Sleep(time.Minute); return 1, nil }
		_, err := f.do(ctx, "k", read)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got, err := f.do(t.Context(), "k", func() (int, error) { return 2, nil })
		require.NoError(t, err)
		require.Equal(t, 2, got, "begun after the question, though the first still ran")
	})
}

// TestFlightsOutage: who waits for a read that finds the store gone does not
// wait for another.
func TestFlightsOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlights()
		reads := 0
		read := func() (int, error) {
			reads++
			time.Sleep(5 * time.Second)
			return 0, fmt.Errorf("read: %w", ErrUnavailable)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := f.do(t.Context(), "k", read)
				if err == nil {
					t.Error("an answer")
				}
			})
		}
		wg.Wait()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, 1, reads)
		require.Zero(t, pending(f))
	})
}

func TestFlightsClosed(t *testing.T) {
	t.Parallel()
	f := newFlights[string, int](func(func()) bool { return false })
	_, err := f.do(t.Context(), "k", func() (int, error) { return 1, nil })
	require.ErrorIs(t, err, ErrUnavailable)
}
