package journal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// TestObjects: what has ended, what lives, and what is held, over a restart.
func TestObjects(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	j := open(t, home)
	const d = meta.InodeID(9)
	removed, replaced, before, after, stays := metatest.File("r", 1), metatest.File("x", 2), metatest.File("x", 3), metatest.File("y", 4), metatest.File("s", 5)
	put(t, j, d, at(first, 1), removed, replaced, stays)
	j.Removed(d, "r", at(first, 2))
	put(t, j, d, at(first, 3), before)
	moved := before
	moved.Name = "z"
	put(t, j, d, at(first, 4), moved)
	j.Removed(d, "x", at(first, 4))
	put(t, j, 10, at(first, 5), after)
	j.Changed(10, at(first, 6), []meta.Set{{Field: meta.SelfField}})
	stays.Mode ^= 0o111
	put(t, j, d, at(first, 7), stays)
	forgotten := metatest.File("f", 6)
	put(t, j, d, at(first, 8), forgotten)
	j.Forget(d, []meta.Offer{{Name: "f", Origin: at(first, 8)}})
	require.NoError(t, j.Hold(second, []chunk.ObjectID{{1}, {2}, {3}}))
	require.NoError(t, j.Unhold([]chunk.ObjectID{{2}, {9}}))
	for range 2 {
		live := map[chunk.ObjectID]bool{}
		require.NoError(t, j.Live(func(id chunk.ObjectID) { live[id] = true }))
		require.Equal(t, map[chunk.ObjectID]bool{before.Object.ID: true, stays.Object.ID: true}, live)
		for _, e := range []meta.Entry{removed, replaced, before, after, forgotten} {
			require.True(t, j.Ended(e.Object.ID), "%s", e.Name)
		}
		require.False(t, j.Ended(stays.Object.ID))
		held, err := j.Held()
		require.NoError(t, err)
		require.ElementsMatch(t, []chunk.ObjectID{{1}, {3}}, held)
		require.Equal(t, second, j.HeldFor())
		require.NoError(t, j.Close())
		j = open(t, home)
	}
	require.NoError(t, j.Clean(time.Now().Add(-time.Hour)))
	require.True(t, j.Ended(removed.Object.ID))
	require.NoError(t, j.Clean(time.Now().Add(time.Hour)))
	require.False(t, j.Ended(removed.Object.ID))
}

// What the store tells of another epoch does not hide the versions that this
// node saw in the present one.
func TestToldNamesOfEarlierEpochs(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	put(t, j, 9, at(second, 5), metatest.File("a", 1))
	e := metatest.File("b", 1)
	e.Version = 70
	require.NoError(t, j.Wrote(9, first, e))
	epoch, recent := j.Recent()
	require.Equal(t, second, epoch)
	require.Equal(t, map[meta.InodeID]uint64{9: 5}, recent)
}
