package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// ledger is a bindStore that can be out of reach.
type ledger struct {
	mu      sync.Mutex
	fail    error
	sums    map[int]uint32
	damaged string
	calls   int
}

func (l *ledger) BindSums(_ context.Context, _ chunk.Object, sums map[int]uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.fail != nil {
		return l.fail
	}
	for i, s := range sums {
		l.sums[i] = s
	}
	return nil
}

func (l *ledger) MarkDamaged(_ context.Context, _ chunk.Object, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.damaged = why
	return nil
}

// failWith makes later writes fail, or not.
func (l *ledger) failWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// bound returns a copy of what was written.
func (l *ledger) bound() map[int]uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.sums)
}

func TestBinder(t *testing.T) {
	t.Parallel()
	big := chunk.Object{ID: chunk.NewObjectID(), Size: 10 * 4096, ChunkSize: 4096, BlockSize: 4096}
	small := chunk.Object{ID: chunk.NewObjectID(), Size: 4096, ChunkSize: 4096, BlockSize: 4096}
	run := func(t *testing.T, body func(b *binder, l *ledger)) {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{sums: map[int]uint32{}}
			b := newBinder(slog.New(slog.DiscardHandler))
			b.store = l
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- b.Run(ctx) }()
			body(b, l)
			cancel()
			<-done
		})
	}
	t.Run("gathers", func(t *testing.T) {
		run(t, func(b *binder, l *ledger) {
			b.add(big, 1, 11)
			b.add(big, 2, 22)
			b.add(small, 0, 5) // has no record to write to
			tick()
			require.Equal(t, map[int]uint32{1: 11, 2: 22}, l.bound())
			require.Equal(t, 1, l.calls)
		})
	})
	t.Run("keeps what could not be written", func(t *testing.T) {
		run(t, func(b *binder, l *ledger) {
			l.failWith(errors.New("store down"))
			b.add(big, 1, 11)
			tick()
			b.add(big, 2, 22)
			tick()
			require.Empty(t, l.bound())
			l.failWith(nil)
			tick()
			require.Equal(t, map[int]uint32{1: 11, 2: 22}, l.bound())
		})
	})
	t.Run("a second content is damage", func(t *testing.T) {
		run(t, func(b *binder, l *ledger) {
			l.failWith(chunk.ErrDamaged)
			b.add(big, 1, 11)
			tick()
			require.NotEmpty(t, l.damaged)
			require.Empty(t, b.pending)
		})
	})
	t.Run("writes what is left when it ends", func(t *testing.T) {
		var last *ledger
		run(t, func(b *binder, l *ledger) {
			b.add(big, 1, 11)
			last = l
		})
		require.Equal(t, map[int]uint32{1: 11}, last.bound())
	})
}

// tick lets one interval pass, on the test's own clock.
func tick() {
	time.Sleep(bindInterval)
	synctest.Wait()
}
