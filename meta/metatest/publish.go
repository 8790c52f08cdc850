package metatest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// again returns e as it is published once more, with other bytes.
func again(e meta.Entry) meta.Entry {
	e.Object.ID, e.Object.Set = chunk.NewObjectID(), chunk.NewSetID()
	return e
}

func testPublish(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	publish := func(e meta.Entry, p meta.PublishIf) (meta.Entry, *meta.Entry, error) {
		return c.Publish(t.Context(), meta.RootDir, e, p)
	}
	// A new file: under a free name, over another file, and not if exclusive.
	a, old, err := publish(File("a", 1), meta.PublishIf{Exclusive: true})
	require.NoError(t, err)
	require.Nil(t, old)
	_, _, err = publish(File("a", 2), meta.PublishIf{Exclusive: true}) // W8
	require.ErrorIs(t, err, meta.ErrExist)
	b, old, err := publish(File("a", 2), meta.PublishIf{}) // W7
	require.NoError(t, err)
	require.Equal(t, a, *old)
	got, ok := has(t, c, meta.Place{Dir: meta.RootDir, Name: "a"})
	require.True(t, ok)
	require.Equal(t, b, got)

	// Once more, in one step or with a wrong belief.
	for _, over := range []*meta.Entry{&b, nil, &a} {
		cur, _ := has(t, c, meta.Place{Dir: meta.RootDir, Name: "a"})
		next, old, err := publish(again(b), meta.PublishIf{Known: true, Over: over})
		require.NoError(t, err)
		require.Equal(t, cur, *old)
		require.Greater(t, next.Version, cur.Version)
		got, _ := has(t, c, meta.Place{Dir: meta.RootDir, Name: "a"})
		require.Equal(t, next, got)
	}

	// Attributes that were changed elsewhere stay, unless they are to change.
	mode, uid := uint32(0o600), uint32(5)
	_, err = c.SetAttr(t.Context(), meta.RootDir, "a", b.Inode, meta.AttrChange{Mode: &mode, UID: &uid})
	require.NoError(t, err)
	next, _, err := publish(again(b), meta.PublishIf{Known: true, Over: &b})
	require.NoError(t, err)
	require.Equal(t, []uint32{0o600, 5}, []uint32{next.Mode, next.UID})
	next, _, err = publish(again(b), meta.PublishIf{Known: true, Over: &next, SetAttrs: true})
	require.NoError(t, err)
	require.Equal(t, []uint32{b.Mode, b.UID}, []uint32{next.Mode, next.UID})

	// What is there already is not written again.
	same, _, err := publish(next, meta.PublishIf{Exclusive: true})
	require.NoError(t, err)
	require.Equal(t, next, same)

	// A name that is gone, or another file's, is not taken. W9
	_, _, err = publish(again(a), meta.PublishIf{Known: true, Over: &a})
	require.ErrorIs(t, err, meta.ErrStale)
	gone := File("gone", 1)
	gone.Version = 7
	_, _, err = publish(gone, meta.PublishIf{Known: true, Over: &gone})
	require.ErrorIs(t, err, meta.ErrStale)
	_, _, err = publish(gone, meta.PublishIf{Known: true})
	require.ErrorIs(t, err, meta.ErrStale)

	// What is in the way.
	mkdir(t, c, meta.RootDir, "d")
	_, _, err = publish(File("d", 1), meta.PublishIf{})
	require.ErrorIs(t, err, meta.ErrIsDir)
	link(t, c, meta.RootDir, meta.Entry{Name: "l", Kind: meta.KindSymlink, Inode: meta.NewInodeID(), Target: "x"})
	_, _, err = publish(File("l", 1), meta.PublishIf{})
	require.ErrorIs(t, err, meta.ErrExist)
	_, _, err = c.Publish(t.Context(), meta.NewInodeID(), File("x", 1), meta.PublishIf{})
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, _, err = c.Publish(t.Context(), meta.NewInodeID(), gone, meta.PublishIf{Known: true, Over: &gone})
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, _, err = publish(meta.Entry{Name: "x", Kind: meta.KindDir, Inode: 5}, meta.PublishIf{})
	require.Error(t, err)

	// Empty files are files, too.
	e, _, err := publish(File("empty", 0), meta.PublishIf{Exclusive: true})
	require.NoError(t, err)
	_, _, err = publish(e, meta.PublishIf{Exclusive: true})
	require.NoError(t, err)
}

// testPublishRace: writers of one directory do not hinder each other, and of
// those who publish one file the last one wins.
func testPublishRace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	one, _, err := c.Publish(t.Context(), meta.RootDir, File("one", 1), meta.PublishIf{})
	require.NoError(t, err)
	const writers, rounds = 8, 10
	last := make([]meta.Entry, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				if _, _, err := c.Publish(t.Context(), meta.RootDir, File(fmt.Sprintf("w%d-%d", w, i), 1), meta.PublishIf{Exclusive: true}); err != nil {
					t.Error(err)
				}
				e, old, err := c.Publish(t.Context(), meta.RootDir, again(one), meta.PublishIf{Known: true, Over: &one})
				if err != nil || old == nil {
					t.Error(err)
				}
				last[w] = e
			}
		})
	}
	wg.Wait()
	require.Len(t, list(t, c, meta.RootDir), writers*rounds+1)
	var newest meta.Entry
	for _, e := range last {
		if e.Version > newest.Version {
			newest = e
		}
	}
	got, _ := has(t, c, meta.Place{Dir: meta.RootDir, Name: "one"})
	require.Equal(t, newest, got)
}

func testSetAttr(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	f := link(t, c, meta.RootDir, File("f", 1))
	mode, uid, gid, mtime := uint32(0o6711), uint32(1), uint32(1<<32-1), int64(-12345678901)
	all := meta.AttrChange{Mode: &mode, UID: &uid, GID: &gid, MtimeNs: &mtime}
	got, err := c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, all) // A1
	require.NoError(t, err)
	require.Greater(t, got.CtimeNs, f.CtimeNs)
	want := f
	want.Mode, want.UID, want.GID, want.MtimeNs = mode, uid, gid, mtime
	want.CtimeNs, want.Version = got.CtimeNs, got.Version
	require.Equal(t, want, got)
	found, _ := has(t, c, meta.Place{Dir: meta.RootDir, Name: "f"})
	require.Equal(t, want, found)

	one := uint32(0o400)
	got, err = c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, meta.AttrChange{Mode: &one})
	require.NoError(t, err)
	require.Equal(t, []uint32{0o400, uid, gid}, []uint32{got.Mode, got.UID, got.GID})
	require.Equal(t, mtime, got.MtimeNs)

	_, err = c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode+1, all)
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = c.SetAttr(t.Context(), meta.RootDir, "nobody", f.Inode, all)
	require.ErrorIs(t, err, meta.ErrNotFound)
	bad := uint32(0o100644)
	_, err = c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, meta.AttrChange{Mode: &bad})
	require.Error(t, err)

	d := mkdir(t, c, meta.RootDir, "d")
	e, err := c.SetAttr(t.Context(), meta.RootDir, "d", d.Inode, all)
	require.NoError(t, err)
	require.Equal(t, mode, e.Mode)
	for _, id := range []meta.InodeID{d.Inode, meta.RootDir} {
		if id == meta.RootDir {
			_, err = c.SetDirAttr(t.Context(), id, all)
			require.NoError(t, err)
		}
		info, err := c.Dir(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{mode, uid, gid, mtime}, []any{info.Mode, info.UID, info.GID, info.MtimeNs})
		require.Greater(t, info.CtimeNs, mtime)
	}
	info, err := c.Dir(t.Context(), d.Inode)
	require.NoError(t, err)
	require.Equal(t, meta.RootDir, info.Parent)
	require.NoError(t, rmdir(t, c, meta.RootDir, "d"))
	_, err = c.SetDirAttr(t.Context(), d.Inode, all)
	require.ErrorIs(t, err, meta.ErrNotFound, "it does not come back")

	// Many at once: each change stays.
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			v := uint32(100 + i)
			ch := []meta.AttrChange{{UID: &v}, {GID: &v}, {Mode: &v}}[i]
			for range 5 {
				if _, err := c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, ch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	found, _ = has(t, c, meta.Place{Dir: meta.RootDir, Name: "f"})
	require.Equal(t, []uint32{100, 101, 102}, []uint32{found.UID, found.GID, found.Mode})
}
