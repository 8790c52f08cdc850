package staging

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

func (r *rig) rename(from, to string) (meta.Entry, error) {
	return r.area.Rename(r.t.Context(), at(from), at(to), false)
}

// W12
func TestPrivateFilesStayHereUntilRenamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := random(3*block, 1)
	r.write(".f.abc123", want)
	_, ok := r.published(".f.abc123")
	require.False(t, ok)
	e, ok := r.shown(".f.abc123")
	require.True(t, ok)
	require.Equal(t, int64(len(want)), e.Size)
	w, ok := r.area.Find(meta.RootDir, e)
	require.True(t, ok)
	requireSame(t, want, r.content(w))
	w.Close()

	moved, err := r.rename(".f.abc123", ".tmp123456") // private to private
	require.NoError(t, err)
	require.Equal(t, e.Inode, moved.Inode)
	require.Equal(t, []string{".tmp123456"}, r.list())

	r.stop()
	r.start()
	require.Equal(t, []string{".tmp123456"}, r.list(), "found again under its name")
	moved, err = r.rename(".tmp123456", "f")
	require.NoError(t, err)
	require.Equal(t, e.Inode, moved.Inode)
	requireSame(t, want, r.stored("f"))
	p, _ := r.published("f")
	require.Equal(t, e.Inode, p.Inode)
	require.Equal(t, uint32(0o640), p.Mode)
	require.Equal(t, []string{"f"}, r.list())
	_, ok = r.area.Find(meta.RootDir, e)
	require.False(t, ok, "published and closed: a file like any other")
	require.Zero(t, r.area.Stats().Files)
}

// W12
func TestPrivateFileReplacesAPublishedOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f", random(2*block, 1))
	want := random(3*block, 2)
	r.write("f.incomplete", want)
	_, err := r.rename("f.incomplete", "f")
	require.NoError(t, err)
	requireSame(t, want, r.stored("f"))
	require.Equal(t, []string{"f"}, r.list())
}

func TestRenameThatCannotPublishLeavesTheFilePrivate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := random(2*block, 1)
	r.write("f.incomplete", want)
	_, _ = r.shown("f") // that there is none is known before the store goes
	r.faults.Down()
	_, err := r.rename("f.incomplete", "f")
	require.ErrorIs(t, err, meta.ErrUnavailable)
	e, ok := r.shown("f.incomplete")
	require.True(t, ok)
	w, ok := r.area.Find(meta.RootDir, e)
	require.True(t, ok)
	requireSame(t, want, r.content(w))
	w.Close()
	r.faults.Up()
	require.Eventually(t, func() bool {
		_, err = r.rename("f.incomplete", "f")
		return err == nil
	}, soon, tick)
	requireSame(t, want, r.stored("f"))
	require.Empty(t, r.lost())
}

func TestRenameOfAnOpenFileMovesItsPublish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := random(block, 9)
	r.write("g", old)
	w := r.create("f", true)
	r.put(w, []byte("abc"), 0)
	_, err := r.rename("f", "g")
	require.NoError(t, err)
	require.Equal(t, []string{"g"}, r.list())
	e, _ := r.shown("g")
	require.Equal(t, w.Entry().Inode, e.Inode)
	requireSame(t, old, r.stored("g")) // elsewhere the old one, till the close
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	require.Equal(t, "abc", string(r.stored("g")))
	_, ok := r.published("f")
	require.False(t, ok)
}

func TestRenameOverAnOpenFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.create("g", false)
	r.put(g, []byte("old"), 0)
	r.write("f", []byte("new"))
	_, err := r.area.Rename(t.Context(), at("f"), at("g"), true)
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = r.rename("f", "g")
	require.NoError(t, err)
	require.NoError(t, g.Publish(t.Context()), "a removed file publishes nothing")
	require.Equal(t, "old", string(r.content(g)))
	g.Close()
	require.Equal(t, "new", string(r.stored("g")))
	require.Empty(t, r.lost())
	require.Equal(t, []string{"g"}, r.list())
}

func TestRenameOfAPublishedFileThatIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write("f", random(2*block, 1))
	w := r.change("f", false)
	r.put(w, []byte("new"), 5)
	_, err := r.rename("f", "g")
	require.NoError(t, err)
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	require.Equal(t, "new", string(r.stored("g")[5:8]))
	_, ok := r.published("f")
	require.False(t, ok)
}

// N8
func TestUnlinkOfAFileThatIsWritten(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		r := newRig(t)
		var w fs.WriteFile
		if published {
			r.write("f", []byte("before"))
			w = r.change("f", false)
		} else {
			w = r.create("f", false)
		}
		r.put(w, []byte("abc"), 0)
		require.NoError(t, r.area.Unlink(t.Context(), meta.RootDir, "f"))
		_, ok := r.shown("f")
		require.False(t, ok)
		require.Equal(t, "abc", string(r.content(w)[:3]))
		require.NoError(t, w.Publish(t.Context()))
		w.Close()
		_, ok = r.published("f")
		require.False(t, ok)
		require.Empty(t, r.lost())
		infos, err := r.cache.StagedFiles()
		require.NoError(t, err)
		require.Empty(t, infos)
		require.ErrorIs(t, r.area.Unlink(t.Context(), meta.RootDir, "f"), meta.ErrNotFound)
	}
}

// N2
func TestRmdirOfADirectoryWithAFileThatIsNotPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d, err := r.area.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	w, err := r.area.Create(t.Context(), d.Inode, "f", meta.Attrs{Mode: 0o644}, false)
	require.NoError(t, err)
	require.ErrorIs(t, r.area.Rmdir(t.Context(), meta.RootDir, "d"), meta.ErrNotEmpty)
	other, err := r.area.Mkdir(t.Context(), meta.RootDir, "e", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	_, err = r.rename("e", "d")
	require.ErrorIs(t, err, meta.ErrNotEmpty)
	require.NoError(t, r.area.Unlink(t.Context(), d.Inode, "f"))
	w.Close()
	_, err = r.rename("e", "d")
	require.NoError(t, err)
	e, _ := r.shown("d")
	require.Equal(t, other.Inode, e.Inode)
	require.NoError(t, r.area.Rmdir(t.Context(), meta.RootDir, "d"))
	_, err = r.area.Create(t.Context(), other.Inode, "f", meta.Attrs{}, false)
	require.NoError(t, err, "nobody here knows that it is gone; its publish finds out")
	require.Empty(t, r.list())
}

func TestSymlinkAndNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	defer w.Close()
	_, err := r.area.Symlink(t.Context(), meta.RootDir, "f", "x", meta.Attrs{Mode: 0o777})
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = r.area.Mkdir(t.Context(), meta.RootDir, "f", meta.Attrs{})
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = r.area.Create(t.Context(), meta.RootDir, "f", meta.Attrs{}, false)
	require.ErrorIs(t, err, meta.ErrExist)
	e, err := r.area.Symlink(t.Context(), meta.RootDir, "l", "a\xffb", meta.Attrs{Mode: 0o777})
	require.NoError(t, err)
	require.Equal(t, "a\xffb", e.Target)
	r.write("g.incomplete", []byte("x"))
	_, err = r.rename("g.incomplete", "l") // over a symlink
	require.NoError(t, err)
	require.Equal(t, "x", string(r.stored("l")))
	require.ErrorIs(t, r.area.Rmdir(t.Context(), meta.RootDir, "f"), meta.ErrNotDir)
}

// A1
func TestSetAttr(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	mode, mtime := uint32(0o600), int64(123_000_000_456)
	w := r.create("f", false)
	r.put(w, []byte("x"), 0)
	_, err := w.SetAttr(t.Context(), meta.AttrChange{Mode: &mode, MtimeNs: &mtime})
	require.NoError(t, err)
	require.NoError(t, w.Publish(t.Context()))
	e, _ := r.published("f")
	require.Equal(t, mode, e.Mode)
	require.Equal(t, mtime, e.MtimeNs, "times set before the close are kept")
	mode, mtime = 0o444, 5
	_, err = w.SetAttr(t.Context(), meta.AttrChange{Mode: &mode})
	require.NoError(t, err)
	e, _ = r.published("f")
	require.Equal(t, mode, e.Mode, "of what is published at once")
	w.Close()
	_, err = r.area.SetAttr(t.Context(), meta.RootDir, e, meta.AttrChange{MtimeNs: &mtime})
	require.NoError(t, err)
	e, _ = r.published("f")
	require.Equal(t, int64(5), e.MtimeNs)

	r.write("g.incomplete", []byte("x"))
	g, _ := r.shown("g.incomplete")
	_, err = r.area.SetAttr(t.Context(), meta.RootDir, g, meta.AttrChange{MtimeNs: &mtime})
	require.NoError(t, err)
	r.stop()
	r.start()
	g, _ = r.shown("g.incomplete")
	require.Equal(t, int64(5), g.MtimeNs, "kept with a private file, over a restart")
	_, err = r.rename("g.incomplete", "g")
	require.NoError(t, err)
	g, _ = r.published("g")
	require.Equal(t, int64(5), g.MtimeNs)
}

func TestAPublishedFileShowsBesideOneThatIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, ok := r.shown("f") // as the kernel does: from now on the directory is watched
	require.False(t, ok)
	w := r.create("f", false)
	r.put(w, []byte("mine"), 0)
	theirs := r.elsewhere("f", []byte("their file"), meta.PublishIf{})
	require.Eventually(t, func() bool {
		e, ok := r.shown("f")
		return ok && e.Inode == theirs.Inode
	}, soon, tick, "another node's file is not hidden")
	require.Equal(t, []string{"f"}, r.list())
	require.NoError(t, w.Publish(t.Context())) // W7: the last one wins
	w.Close()
	require.Equal(t, "mine", string(r.stored("f")))
	require.Empty(t, r.lost())
}

func TestPrivateGlobs(t *testing.T) {
	t.Parallel()
	a := &Area{cfg: Config{Private: DefaultPrivate()}}
	for name, want := range map[string]bool{
		".file.Ab12xy": true, ".tmpabcdef": true, "x.incomplete": true, ".bashrc": false, "f": false, ".f.abc": false,
		".tmpabcdefg": false, "x.incomplete.y": false,
	} {
		require.Equal(t, want, a.private(name), name)
	}
	require.False(t, (&Area{cfg: Config{Private: []string{""}}}).private(".file.Ab12xy"))
	require.Error(t, CheckPrivate([]string{"["}))
}
