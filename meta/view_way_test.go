package meta_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/local"
)

// Whoever came to a directory by names that do not stand for it any more is told
// so, whatever has been heard of it; an outage says nothing.
func TestViewStanding(t *testing.T) { // R1 N1 R3
	inBubble(func(t *testing.T) {
		r := newRig(t, meta.ViewConfig{Timeout: time.Second})
		mkdir := func(dir meta.InodeID, name string) meta.InodeID {
			e, err := r.other.Mkdir(t.Context(), dir, name, meta.Attrs{Mode: 0o755})
			require.NoError(t, err)
			return e.Inode
		}
		rename := func(from, to meta.Place) {
			_, err := r.other.Rename(t.Context(), from, to, meta.RenameOptions{})
			require.NoError(t, err)
		}
		a := mkdir(meta.RootDir, "a")
		b := mkdir(a, "b")
		way := meta.Way{{Dir: meta.RootDir, Name: "a", Inode: a}, {Dir: a, Name: "b", Inode: b}}
		require.NoError(t, r.view.Standing(t.Context(), nil))
		require.NoError(t, r.view.Standing(t.Context(), way))

		r.faults.Down()
		err := r.view.Standing(t.Context(), way)
		require.ErrorIs(t, err, meta.ErrUnavailable)
		require.NotErrorIs(t, err, meta.ErrStale)
		r.faults.Up()
		require.Eventually(t, func() bool { return r.view.Standing(t.Context(), way) == nil }, soon, tick)

		// ConfirmBy and LookupBy find the same of a way, by one read.
		standing := func(name string, there bool) error {
			reads := r.faults.Calls("Get")
			err := r.view.Standing(t.Context(), way)
			e, moved, found := r.view.ConfirmBy(t.Context(), way, b, name)
			require.Equal(t, errors.Is(err, meta.ErrStale), errors.Is(moved, meta.ErrStale))
			require.Equal(t, there, found == nil, "%v", found)
			require.Equal(t, there, e.Name == name)
			if err == nil {
				require.Equal(t, reads+2, r.faults.Calls("Get"), "what the way said was not asked for apart")
			}
			_, moved, _ = r.view.LookupBy(t.Context(), way, b, "nothing")
			require.Equal(t, errors.Is(err, meta.ErrStale), errors.Is(moved, meta.ErrStale))
			return err
		}
		require.NoError(t, standing("f", false))
		_, err = r.other.Link(t.Context(), b, meta.Entry{Name: "f", Kind: meta.KindFile, Inode: meta.NewInodeID(), Mode: 0o644})
		require.NoError(t, err)
		require.NoError(t, standing("f", true))

		mkdir(meta.RootDir, "next")
		rename(meta.Place{Dir: meta.RootDir, Name: "a"}, meta.Place{Dir: meta.RootDir, Name: "was"})
		require.ErrorIs(t, standing("f", true), meta.ErrStale, "it is gone")
		rename(meta.Place{Dir: meta.RootDir, Name: "next"}, meta.Place{Dir: meta.RootDir, Name: "a"})
		require.ErrorIs(t, standing("f", true), meta.ErrStale, "it is another")
		way[0].Name = "was"
		require.NoError(t, standing("f", true))
		rename(meta.Place{Dir: a, Name: "b"}, meta.Place{Dir: meta.RootDir, Name: "b"})
		require.ErrorIs(t, standing("f", true), meta.ErrStale)

		alive, err := r.view.Alive(t.Context(), b)
		require.NoError(t, err)
		require.True(t, alive)
		_, _, err = r.other.Unlink(t.Context(), b, "f", 0)
		require.NoError(t, err)
		_, err = r.other.Rmdir(t.Context(), meta.RootDir, "b")
		require.NoError(t, err)
		alive, err = r.view.Alive(t.Context(), b)
		require.NoError(t, err)
		require.False(t, alive)
	})(t)
}

// What is remembered of a directory that is not watched, in an outage, is told to
// be old when the store is back, and its changes from then on.
func TestViewTellsOfWhatWasRememberedInAnOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		remember func(t *testing.T, r *rig) error
	}{
		{"a name", func(t *testing.T, r *rig) error {
			_, err := r.view.Lookup(t.Context(), meta.RootDir, "a")
			return err
		}},
		{"a listing", func(t *testing.T, r *rig) error {
			_, err := r.view.List(t.Context(), meta.RootDir)
			return err
		}},
	} {
		t.Run(tt.name, inBubble(func(t *testing.T) {
			table, err := local.Open(t.TempDir(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, table.Close()) })
			r := newRig(t, meta.ViewConfig{Local: table, Timeout: time.Second})
			a := r.link(t, "a")
			r.names(t)
			gap := func() bool { return r.told(meta.Change{Dir: meta.RootDir, Gap: true}) }
			r.faults.Down()
			r.view.Forget() // as when the store goes on in another epoch
			require.Eventually(t, gap, soon, tick)
			require.NoError(t, tt.remember(t, r))
			a = r.replace(t, a)
			r.mu.Lock()
			r.changes = nil
			r.mu.Unlock()
			r.faults.Up()
			require.Eventually(t, gap, soon, tick)
			r.replace(t, a)
			require.Eventually(t, func() bool { return r.told(meta.Change{Dir: meta.RootDir, Name: "a"}) }, soon, tick)
		}))
	}
}
