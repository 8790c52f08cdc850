package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// sizes are an object that is its name alone, and one with a record.
func sizes() map[string]int64 { return map[string]int64{"one block": 100, "many blocks": 5 * block} }

// requireUsed requires that no note is left, and none of the objects is held for
// a publish.
func (r *rig) requireUsed(ids ...chunk.ObjectID) {
	r.t.Helper()
	for _, id := range ids {
		require.False(r.t, r.area.Holds(id), "the collection may look at it")
	}
	infos, err := r.cache.StagedFiles()
	require.NoError(r.t, err)
	require.Empty(r.t, infos, "notes that are left")
}

// unanswered publishes a file whose name the store takes without saying so.
func (r *rig) unanswered(name string, want []byte) fs.WriteFile {
	r.t.Helper()
	w := r.create(name, false)
	r.put(w, want, 0)
	r.faults.Lose(name)
	require.ErrorIs(r.t, w.Publish(r.t.Context()), meta.ErrUnavailable)
	return w
}

// O2: a rename that failed and has happened all the same: the program removes
// the file that it thinks was not renamed.
func TestUnlinkAfterARenameThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write("f", random(size, 1))
			want := random(size, 2)
			r.write("f.incomplete", want)
			r.faults.Lose("f")
			_, err := r.rename("f.incomplete", "f")
			require.ErrorIs(t, err, meta.ErrUnavailable)
			require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f.incomplete"))
			r.faults.Lose("")
			requireSame(t, want, r.stored("f"))
			require.Empty(t, r.lost())
			e, _ := r.published("f")
			r.requireUsed(e.Object.ID)
		})
	}
}

// W10, O2: what a close could not tell to be published, and is, does not wait to
// be recovered, and whoever discards it takes nothing from the name.
func TestDiscardAfterAPublishThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		for _, restarted := range []bool{false, true} {
			for _, moved := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					want := random(size, 1)
					w := r.unanswered("f", want)
					w.Close()
					r.faults.Lose("")
					var id uint64
					for id = range r.area.lost {
					}
					require.NotZero(t, id)
					if restarted {
						r.stop()
						r.start()
					}
					to := "f"
					if moved {
						to = "g"
						_, err := r.other.Rename(t.Context(), at("f"), at("g"), meta.RenameOptions{})
						require.NoError(t, err)
						require.Len(t, r.lost(), 1)
					}
					require.NoError(t, r.area.Discard(t.Context(), id))
					requireSame(t, want, r.stored(to))
					require.Empty(t, r.lost())
					e, _ := r.published(to)
					r.requireUsed(e.Object.ID)
				})
			}
		}
	}
}

// W10
func TestAPublishThatWasNotAnsweredIsNotListed(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		r := newRig(t)
		want := random(2*block, 1)
		w := r.unanswered("f", want)
		w.Close()
		if restarted {
			r.stop()
			r.start()
		}
		require.Empty(t, r.lost())
		requireSame(t, want, r.stored("f"))
	}
}

// W2: the second close comes to nothing, and the name stands for what the
// first one published.
func TestSecondCloseAfterOneThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := random(size, 1)
			w := r.unanswered("f", want)
			r.faults.Lose("")
			first, _ := r.published("f")
			r.put(w, []byte("second"), 0)
			r.faults.Down()
			require.Error(t, w.Publish(t.Context()))
			requireSame(t, want, r.stored("f"))
			r.faults.Up()
			require.NoError(t, w.Publish(t.Context()))
			w.Close()
			copy(want, "second")
			requireSame(t, want, r.stored("f"))
			require.Empty(t, r.lost())
			second, _ := r.published("f")
			require.Equal(t, first.Inode, second.Inode)
			r.requireUsed(first.Object.ID, second.Object.ID)
		})
	}
}

// N1, N8
func TestUnlinkOfAnOpenFileAfterAPublishThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := random(size, 1)
			w := r.unanswered("f", want)
			r.faults.Lose("")
			require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f"))
			_, ok := r.published("f")
			require.False(t, ok)
			requireSame(t, want, r.content(w))
			w.Close()
			require.Empty(t, r.list())
			require.Empty(t, r.lost())
			r.requireUsed()
		})
	}
}

// N3
func TestRenameOfAnOpenFileAfterAPublishThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"as it was published": false, "written since": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			want := random(3*block, 1)
			w := r.unanswered("f", want)
			r.faults.Lose("")
			if written {
				r.put(w, []byte("more"), 0)
			}
			_, err := r.rename("f", "g")
			require.NoError(t, err)
			require.Equal(t, []string{"g"}, r.list())
			requireSame(t, want, r.stored("g"))
			if written {
				copy(want, "more")
			}
			require.NoError(t, w.Publish(t.Context()))
			w.Close()
			requireSame(t, want, r.stored("g"))
			_, ok := r.published("f")
			require.False(t, ok)
			require.Empty(t, r.lost())
			r.requireUsed()
		})
	}
}

// K3: an object whose first publish failed under another name is listed with the
// name that it got.
func TestAPublishUnderAnotherNameIsReferenced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := random(5*block, 1)
	r.write("x.incomplete", want)
	w := r.create("f", false)
	w.Close()
	d, err := r.other.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{})
	require.NoError(t, err)
	_, err = r.area.Rename(t.Context(), at("x.incomplete"), meta.Place{Dir: d.Inode + 1, Name: "x"}, false)
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = r.rename("x.incomplete", "y")
	require.NoError(t, err)
	requireSame(t, want, r.stored("y"))
	e, _ := r.published("y")
	yes, err := r.other.Referenced(t.Context(), e.Object.ID, meta.Reference{})
	require.NoError(t, err)
	require.True(t, yes)
}
