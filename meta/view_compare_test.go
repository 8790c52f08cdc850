package meta_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// deafSlots is a store whose first watch tells nothing once it is deaf.
type deafSlots struct {
	meta.Slots
	deaf    *atomic.Bool
	watches *atomic.Int64
	reads   *atomic.Int64
}

func (s deafSlots) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	s.reads.Add(1)
	return s.Slots.Get(ctx, keys...)
}

func (s deafSlots) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	first := s.watches.Add(1) == 1
	return s.Slots.Watch(ctx, slot, since, func(events []meta.Event) {
		if !first || !s.deaf.Load() {
			on(events)
		}
	})
}

// A watch that does not tell of changes is found out while its directory is in
// use, whether names or the whole are remembered, and only then.
func TestAWatchThatTellsNothingBeginsAnew(t *testing.T) { // N2
	t.Parallel()
	for name, whole := range map[string]bool{"a name": false, "the whole": true} {
		t.Run(name, inBubble(func(t *testing.T) { tellsNothing(t, whole) }))
	}
}

func tellsNothing(t *testing.T, whole bool) {
	t.Helper()
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	other := meta.NewCatalog(store, meta.Options{})
	metatest.Join(t, other)
	s := deafSlots{store.Another(), new(atomic.Bool), new(atomic.Int64), new(atomic.Int64)}
	v, err := meta.NewView(meta.ViewConfig{Catalog: meta.NewCatalog(s, meta.Options{})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = v.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	e, err := other.Link(t.Context(), meta.RootDir, metatest.File("f", 1))
	require.NoError(t, err)
	if whole {
		_, err := v.List(t.Context(), meta.RootDir)
		require.NoError(t, err)
	}
	look := func() meta.Entry {
		e, err := v.Lookup(t.Context(), meta.RootDir, "f")
		require.NoError(t, err)
		return e
	}
	require.Eventually(t, func() bool { // until it is remembered
		before := s.reads.Load()
		require.Equal(t, e, look())
		return s.reads.Load() == before
	}, soon, tick)
	s.deaf.Store(true)
	e, err = other.Replace(t.Context(), meta.RootDir, metatest.File("f", 2), e.Version)
	require.NoError(t, err)
	require.NotEqual(t, e, look())
	require.Eventually(t, func() bool { return e == look() }, time.Minute, tick)
	require.EqualValues(t, 2, s.watches.Load())
}
