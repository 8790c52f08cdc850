package meta_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func newFaults(t *testing.T) *metatest.Faults {
	t.Helper()
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	return metatest.NewFaults(store)
}

// listed returns a catalog on s, and a view that knows all of the root: one file, f.
func listed(t *testing.T, s meta.Slots) (*meta.Catalog, *meta.View, meta.Entry) {
	t.Helper()
	c := meta.NewCatalog(s, meta.Options{})
	metatest.Join(t, c)
	v, err := meta.NewView(meta.ViewConfig{Catalog: c})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	e, err := c.Link(t.Context(), meta.RootDir, metatest.File("f", 1))
	require.NoError(t, err)
	all, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Equal(t, []meta.Entry{e}, all)
	return c, v, e
}

// While names are brought back the store counts as out of reach, and none that
// is not back yet is taken for removed.
func TestNothingIsComparedWhileNamesAreBroughtBack(t *testing.T) { // N6
	t.Parallel()
	faults := newFaults(t)
	c, v, _ := listed(t, faults)
	require.Equal(t, meta.StateUp, v.State().State)

	c.Hold()
	require.Equal(t, meta.StateDown, v.State().State)
	_, err := c.Survey(t.Context(), meta.RootDir)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = c.Survey(t.Context(), meta.RootDir, "f")
	require.ErrorIs(t, err, meta.ErrUnavailable)
	c.Release()
	s, err := c.Survey(t.Context(), meta.RootDir, "f")
	require.NoError(t, err)
	require.Contains(t, s.Names, "f")

	// It begins, and ends, while the store is read.
	info, ok := c.Joined()
	require.True(t, ok)
	once := true
	faults.Gate(func(context.Context, string) {
		if once {
			once = false
			info.Epoch[0]++
			c.UseStore(info)
		}
	})
	_, err = c.Survey(t.Context(), meta.RootDir, "f")
	require.ErrorIs(t, err, meta.ErrUnavailable)
}

// gapSlots is a store whose watches end with a gap when told to.
type gapSlots struct {
	meta.Slots
	gap chan struct{}
}

func (s gapSlots) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Slots.Watch(ctx, slot, since, on) }()
	select {
	case <-s.gap:
		cancel()
		<-ended
		return meta.ErrGap
	case err := <-ended:
		return err
	}
}

// O1: what is known of a directory stays when its watch breaks while the store
// does not answer.
func TestAListingOutlivesAGapInAnOutage(t *testing.T) {
	t.Parallel()
	faults := newFaults(t)
	s := gapSlots{faults, make(chan struct{})}
	_, v, e := listed(t, s)

	faults.Down()
	asked := faults.Calls("Get")
	s.gap <- struct{}{}
	require.Eventually(t, func() bool { return faults.Calls("Get") >= asked+3 }, soon, tick)
	all, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Equal(t, []meta.Entry{e}, all)
	faults.Up()
	require.Eventually(t, func() bool {
		now, err := v.List(t.Context(), meta.RootDir)
		return err == nil && len(now) == 1
	}, soon, tick)
}
