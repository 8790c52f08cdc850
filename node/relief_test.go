package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// W14, K3: who waits for room gets what has no name any more after a short
// grace, and hears soon when there is nothing of the kind.
func TestReliefRemovesWhatHasNoName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, reliefRemoves) // all of them wait before the first one is done
}

func reliefRemoves(t *testing.T) {
	k := newKeeper(t)
	named, gone := k.object(2, meta.RootDir, "named"), k.object(2, meta.RootDir, "gone")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.False(t, k.relieve(ctx))
	k.unlink(meta.RootDir, "gone")
	began := time.Now()
	freed := make([]bool, 4)
	var wg sync.WaitGroup
	for i := range freed {
		wg.Go(func() { freed[i] = k.relieve(ctx) })
	}
	wg.Wait()
	require.Equal(t, []bool{true, true, true, true}, freed, "what one finds serves all who wait")
	require.GreaterOrEqual(t, time.Since(began), reliefGrace)
	require.False(t, k.here(gone))
	require.True(t, k.here(named))
	require.False(t, k.relieve(ctx))
	cancel()
	require.False(t, k.relieve(ctx))
}

// N8: what somebody reads is not waited for.
func TestReliefLeavesWhatIsRead(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	o := k.object(2, meta.RootDir, "f")
	defer k.interest.add(o.ID)()
	k.unlink(meta.RootDir, "f")
	quickest := time.Hour // a machine that is busy may take as long as a wait now and then
	for try := 0; try < 5 && quickest >= reliefGrace; try++ {
		began := time.Now()
		require.False(t, k.relieve(t.Context()))
		quickest = min(quickest, time.Since(began)-reliefPause)
	}
	require.Less(t, quickest, reliefGrace)
	require.True(t, k.here(o))
}

func TestReliefIsCutShort(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.object(2, meta.RootDir, "f")
	k.unlink(meta.RootDir, "f")
	ctx, cancel := context.WithTimeout(t.Context(), reliefGrace/4)
	defer cancel()
	require.False(t, k.relieve(ctx))
	require.NoError(t, t.Context().Err())
}

// K3: small files that were published and renamed here are found by their
// names: no other directory is looked at.
func TestKeptNamesAreKnown(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	view, err := meta.NewView(meta.ViewConfig{Catalog: k.catalog, Consistency: "open", Timeout: time.Minute})
	require.NoError(t, err)
	defer view.Close()
	names := keptNames{view, k.collection}
	d, err := k.catalog.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	small := k.object(1, meta.RootDir, "small")
	e, err := k.catalog.Lookup(t.Context(), meta.RootDir, "small")
	require.NoError(t, err)
	names.Wrote(meta.RootDir, e)
	require.Equal(t, meta.Place{Dir: meta.RootDir, Name: "small"}, k.collection.placeOf(small.ID))
	require.True(t, k.collection.keeps(meta.RootDir))
	from, to := meta.Place{Dir: meta.RootDir, Name: "small"}, meta.Place{Dir: d.Inode, Name: "other"}
	moved, err := k.catalog.Rename(t.Context(), from, to, meta.RenameOptions{})
	require.NoError(t, err)
	names.Renamed(from, to, moved)
	require.Equal(t, to, k.collection.placeOf(small.ID))
	require.False(t, k.collection.keeps(meta.RootDir))
	require.True(t, k.collection.keeps(d.Inode))
	removed, waiting := k.pass(0)
	require.Zero(t, removed+waiting)
	require.NotZero(t, k.collection.checkedAt(d.Inode), "it was found in its directory")
	require.Zero(t, k.collection.checkedAt(0))
	k.unlink(d.Inode, "other")
	removed, _ = k.pass(0)
	require.EqualValues(t, 1, removed)
	k.pass(0)
	require.False(t, k.collection.keeps(d.Inode))
}

func TestPlacesOfOthersAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCollection()
	kept := chunk.NewObjectID()
	c.seenAt(kept, meta.Place{Dir: 7, Name: "kept"})
	for range sparePlaces + 1 {
		c.seenAt(chunk.NewObjectID(), meta.Place{Dir: 8, Name: "f"})
	}
	c.prunePlaces(1, func(id chunk.ObjectID) bool { return id == kept })
	require.Len(t, c.places, 1)
	require.True(t, c.keeps(7))
	require.False(t, c.keeps(8))
}
