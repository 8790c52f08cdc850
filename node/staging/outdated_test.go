package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// confirmed returns what an open finds under a name.
func (r *rig) confirmed(name string) meta.Entry {
	r.t.Helper()
	e, err := r.area.Names().Confirm(r.t.Context(), meta.RootDir, name)
	require.NoError(r.t, err)
	return e
}

// held makes a file that stays open when it is published.
func (r *rig) held(name string, b []byte) (w fs.WriteFile, e meta.Entry) {
	r.t.Helper()
	w = r.create(name, false)
	r.put(w, b, 0)
	require.NoError(r.t, w.Publish(r.t.Context()))
	e, _ = r.published(name)
	return w, e
}

// R1, R2
func TestAnOpenFileDoesNotHideALaterPublish(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(r *rig){
		"opened": func(*rig) {},
		"listed": func(r *rig) {
			require.Eventually(r.t, func() bool {
				es, err := r.area.Names().List(r.t.Context(), meta.RootDir)
				require.NoError(r.t, err)
				return len(es) == 1 && es[0].Size == 6
			}, soon, tick)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			reader, e := r.held("f", []byte("old"))
			theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{Over: &e})
			require.Equal(t, e.Inode, theirs.Inode)
			look(r)
			require.Equal(t, theirs.Object, r.confirmed("f").Object)
			require.True(t, reader.Outdated())
			_, found := r.area.Find(meta.RootDir, r.confirmed("f"))
			require.False(t, found)
			requireSame(t, []byte("old"), r.content(reader))

			w := r.change("f", false)
			require.NoError(t, w.Write(t.Context(), []byte("+more"), 6, false))
			require.EqualValues(t, 11, r.confirmed("f").Size, "R4")
			require.NoError(t, w.Publish(t.Context()))
			require.False(t, w.Outdated())
			require.Equal(t, "theirs+more", string(r.stored("f")))
			requireSame(t, []byte("old"), r.content(reader))
			reader.Close()
			require.Equal(t, w.Entry().Object, r.confirmed("f").Object)
			w.Close()
			require.Empty(t, r.lost())
		})
	}
}

// An open for writing may have looked the name up itself, with nobody else
// having asked since.
func TestAWriterChangesWhatItFound(t *testing.T) { // W7
	t.Parallel()
	r := newRig(t)
	reader, e := r.held("f", []byte("old"))
	defer reader.Close()
	theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{Over: &e})
	_, found := r.area.Find(meta.RootDir, theirs)
	require.False(t, found)
	w, err := r.area.Change(t.Context(), meta.RootDir, theirs, false)
	require.NoError(t, err)
	defer w.Close()
	require.Equal(t, "theirs", string(r.content(w)))
}

func TestWhatDoesNotOutdateAFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w, e := r.held("f", []byte("old"))
	defer w.Close()
	mode, mtime := uint32(0o600), int64(77)

	_, err := r.other.SetAttr(t.Context(), meta.RootDir, "f", e.Inode, meta.AttrChange{Mode: &mode, MtimeNs: &mtime})
	require.NoError(t, err)
	require.Equal(t, e.Object, r.confirmed("f").Object)
	require.False(t, w.Outdated(), "attributes are no publish")

	r.put(w, []byte("new"), 0)
	r.confirmed("f")
	require.NoError(t, w.Publish(t.Context()))
	now, _ := r.published("f")
	require.NotEqual(t, e.Object, now.Object)
	require.Equal(t, now.Object, r.confirmed("f").Object)
	require.Equal(t, now.Object, overlay{r.area}.live(meta.RootDir, e).Object, "an old answer")
	require.False(t, w.Outdated(), "its own publish")

	r.put(w, []byte("last"), 0)
	r.elsewhere("f", []byte("theirs"), meta.PublishIf{Over: &now})
	require.EqualValues(t, 4, r.confirmed("f").Size, "R4: it is being written")
	require.False(t, w.Outdated())
	require.NoError(t, w.Publish(t.Context()))
	require.Equal(t, "last", string(r.stored("f")), "W7")
	r.confirmed("f")
	require.False(t, w.Outdated())
}

// Between the word of a publish and its end here the file is not yet what the
// name is found to be.
func TestAPublishDoesNotOutdateItsOwnFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w, _ := r.held("f", []byte("0"))
	defer w.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, err := r.area.Names().Confirm(t.Context(), meta.RootDir, "f")
				if err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for i := range 50 {
		r.put(w, []byte{byte('a' + i%26)}, 0)
		require.NoError(t, w.Publish(t.Context()))
	}
	close(stop)
	<-done
	require.False(t, w.Outdated())
}

// A change here that goes by the name finds another node's publish there.
func TestAChangeOfTheNameFindsALaterPublish(t *testing.T) { // R1
	t.Parallel()
	mode := uint32(0o600)
	for name, change := range map[string]func(r *rig, w fs.WriteFile) error{
		"rename": func(r *rig, _ fs.WriteFile) error {
			_, err := r.rename("f", "g")
			return err
		},
		"chmod": func(r *rig, w fs.WriteFile) error {
			_, err := w.SetAttr(r.t.Context(), meta.AttrChange{Mode: &mode})
			if err == nil {
				_, err = r.rename("f", "g")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w, e := r.held("f", []byte("old"))
			theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{Over: &e})
			require.NoError(t, change(r, w))
			require.Equal(t, theirs.Object, r.confirmed("g").Object)
			require.True(t, w.Outdated())
			require.Equal(t, "old", string(r.content(w)))
			w.Close()
			require.Equal(t, "theirs", string(r.stored("g")))
		})
	}
}

// W7: who had it open for writing writes it, and closes last.
func TestAnOutdatedFileThatIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w, e := r.held("f", []byte("old"))
	theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{Over: &e})
	reader := r.change("f", false)
	require.True(t, w.Outdated())
	r.put(w, []byte("O"), 0)
	require.Equal(t, theirs.Object, r.confirmed("f").Object)
	require.NoError(t, w.Publish(t.Context()))
	require.Equal(t, "Old", string(r.stored("f")))
	require.Equal(t, w.Entry().Object, r.confirmed("f").Object)
	require.True(t, reader.Outdated())
	require.Equal(t, "theirs", string(r.content(reader)))
	reader.Close()

	r.put(w, []byte("lost"), 0)
	require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f"))
	require.ErrorIs(t, w.Publish(t.Context()), meta.ErrStale, "W9")
	w.Close()
	require.Len(t, r.lost(), 1)
	require.Empty(t, r.list())
}

// A name that another node gave to another file is that file's here, too.
func TestAnOpenFileDoesNotKeepANameThatAnotherGot(t *testing.T) { // N1
	t.Parallel()
	for _, open := range []bool{false, true} {
		r := newRig(t)
		old, e := r.held("f", []byte("old"))
		_, _, err := r.other.Unlink(t.Context(), meta.RootDir, "f", e.Version)
		require.NoError(t, err)
		theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{})
		require.NotEqual(t, e.Inode, theirs.Inode)
		require.Equal(t, theirs.Inode, r.confirmed("f").Inode)
		var w fs.WriteFile
		if open {
			w = r.change("f", false)
			r.put(w, []byte("OURS"), 0)
		}
		moved, err := r.rename("f", "g")
		require.NoError(t, err)
		require.Equal(t, theirs.Inode, moved.Inode)
		if open {
			require.NoError(t, w.Publish(t.Context()), "the name it is published under has moved with it")
			w.Close()
			require.Equal(t, "OURSrs", string(r.stored("g")))
		}
		r.put(old, []byte("OLD"), 0)
		require.ErrorIs(t, old.Publish(t.Context()), meta.ErrStale, "W9")
		old.Close()
		require.Len(t, r.lost(), 1)
		require.Equal(t, []string{"g"}, r.list())
	}
}

// What is removed by its name is the file that has it.
func TestUnlinkOfANameThatAnotherGot(t *testing.T) { // W9
	t.Parallel()
	r := newRig(t)
	old, e := r.held("f", []byte("old"))
	r.put(old, []byte("OLD"), 0)
	_, _, err := r.other.Unlink(t.Context(), meta.RootDir, "f", e.Version)
	require.NoError(t, err)
	theirs := r.elsewhere("f", []byte("theirs"), meta.PublishIf{})
	require.Equal(t, theirs.Inode, r.confirmed("f").Inode)
	require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f"))
	_, ok := r.published("f")
	require.False(t, ok)
	require.ErrorIs(t, old.Publish(t.Context()), meta.ErrStale)
	old.Close()
	require.Len(t, r.lost(), 1)
}
