package metatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// timed returns e with a time that ends so much from now, or ended so long ago.
func timed(e meta.Entry, in time.Duration) meta.Entry {
	e.ExpiresNs = time.Now().Add(in).UnixNano()
	return e
}

// testExpiry: a name whose time is over is not there, for whatever is done with it,
// though its record still is. T1, T2
func testExpiry(t *testing.T, s meta.Slots) {
	c, ctx, root := meta.NewCatalog(s, meta.Options{}), t.Context(), meta.RootDir
	info := Join(t, c)
	over := func(name string) meta.Entry {
		t.Helper()
		e, err := c.Link(ctx, root, timed(File(name, 1), -time.Second))
		require.NoError(t, err)
		return e
	}
	recorded := func(name string) bool {
		t.Helper()
		recs, err := s.Get(ctx, meta.Key{Slot: "d/0000000000000001", Field: name})
		require.NoError(t, err)
		return recs[0].Value != nil
	}
	later, err := c.Link(ctx, root, timed(File("later", 1), time.Hour))
	require.NoError(t, err)
	got, ok := has(t, c, meta.Place{Dir: root, Name: "later"})
	require.True(t, ok)
	require.Equal(t, later, got)

	// Who looks.
	old := over("old")
	_, ok = has(t, c, meta.Place{Dir: root, Name: "old"})
	require.False(t, ok)
	require.Equal(t, map[string]meta.Entry{"later": later}, list(t, c, root))
	require.True(t, recorded("old"), "nobody has taken the record away yet")
	named, err := c.Referenced(ctx, old.Object.ID, meta.Reference{Dir: root, Name: "old"})
	require.NoError(t, err)
	require.True(t, named, "until its record goes, its bytes stay for those who have it open")

	// Who changes.
	_, _, err = c.Unlink(ctx, root, "old", 0)
	require.ErrorIs(t, err, meta.ErrNotFound)
	mode := uint32(0o600)
	_, err = c.SetAttr(ctx, root, "old", old.Inode, meta.AttrChange{Mode: &mode})
	require.ErrorIs(t, err, meta.ErrNotFound)
	for _, believed := range []*meta.Entry{nil, &old} {
		_, _, err = c.Publish(ctx, root, again(old), meta.PublishIf{Known: true, Over: believed})
		require.ErrorIs(t, err, meta.ErrStale, "it is not brought back by who had it open")
	}
	believed := over("old 1")
	_, err = c.Replace(ctx, root, again(believed), believed.Version)
	require.ErrorIs(t, err, meta.ErrNotFound)
	over("old 2")
	_, err = c.Rename(ctx, meta.Place{Dir: root, Name: "old 2"}, meta.Place{Dir: root, Name: "new"}, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrNotFound)

	// Who wants the name gets it, with a time of its own.
	over("free")
	free, replaced, err := c.Publish(ctx, root, File("free", 2), meta.PublishIf{Exclusive: true})
	require.NoError(t, err)
	require.Nil(t, replaced)
	over("free 2")
	_, err = c.Mkdir(ctx, root, "free 2", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	over("free 3")
	_, err = c.Rename(ctx, meta.Place{Dir: root, Name: "free"}, meta.Place{Dir: root, Name: "free 3"}, meta.RenameOptions{NoReplace: true})
	require.NoError(t, err)
	longer, _, err := c.Publish(ctx, root, timed(again(later), 2*time.Hour), meta.PublishIf{Known: true, Over: &later})
	require.NoError(t, err)
	got, _ = has(t, c, meta.Place{Dir: root, Name: "later"})
	require.Equal(t, longer, got)
	require.Greater(t, got.ExpiresNs, later.ExpiresNs)
	moved, err := c.Rename(ctx, meta.Place{Dir: root, Name: "later"}, meta.Place{Dir: root, Name: "later 2"}, meta.RenameOptions{})
	require.NoError(t, err)
	require.Equal(t, longer.ExpiresNs, moved.Entry.ExpiresNs, "the time goes with the file")
	require.Zero(t, free.ExpiresNs)

	// A directory that only such names are in is empty.
	dir, err := c.Mkdir(ctx, root, "dir", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	require.NoError(t, c.LinkMany(ctx, dir.Inode, []meta.Entry{timed(File("a", 1), -time.Second), timed(File("b", 1), -time.Hour)}))
	_, err = c.Rmdir(ctx, root, "dir")
	require.NoError(t, err)

	// Nobody's memory brings it back.
	fates, err := c.Offer(ctx, root, []meta.Offer{{
		Name: "mine", Entry: timed(File("mine", 1), -time.Second), Origin: meta.Origin{Epoch: info.Epoch, Version: 1},
	}})
	require.NoError(t, err)
	require.Equal(t, []meta.Fate{meta.FateGone}, fates)
	require.False(t, recorded("mine"))
}

// testExpire: the records go, and directories that had a time with them, and
// nothing else. T2
func testExpire(t *testing.T, s meta.Slots) {
	c, ctx, root := meta.NewCatalog(s, meta.Options{}), t.Context(), meta.RootDir
	Join(t, c)
	tree := func(name string, in time.Duration) meta.InodeID {
		t.Helper()
		dir, err := c.Link(ctx, root, timed(meta.Entry{Name: name, Kind: meta.KindDir, Inode: newDir(t, c), Mode: 0o755}, in))
		require.NoError(t, err)
		below, err := c.Link(ctx, dir.Inode, timed(meta.Entry{Name: "below", Kind: meta.KindDir, Inode: newDir(t, c), Mode: 0o755}, in))
		require.NoError(t, err)
		link := meta.Entry{Name: "link", Kind: meta.KindSymlink, Inode: meta.NewInodeID(), Mode: 0o777, Target: "f"}
		require.NoError(t, c.LinkMany(ctx, below.Inode, []meta.Entry{timed(File("f", 1), in), timed(File("empty", 0), in), timed(link, in)}))
		return below.Inode
	}
	tree("ended", -meta.ClockSlack)
	used := tree("used", -meta.ClockSlack)
	tree("later", time.Hour)
	_, err := c.Link(ctx, used, File("of another", 1))
	require.NoError(t, err)
	_, err = c.Link(ctx, root, timed(File("f", 1), -meta.ClockSlack))
	require.NoError(t, err)
	now, err := c.Link(ctx, root, timed(File("just now", 1), meta.ClockSlack/4))
	require.NoError(t, err)

	n, err := c.Expire(ctx, root)
	require.NoError(t, err)
	if n == 3+2+3+1+1 { // the test stood still until its time had come, too
		require.GreaterOrEqual(t, time.Now().UnixNano(), now.ExpiresNs+int64(meta.ClockSlack))
		n--
	}
	require.Equal(t, 3+2+3+1, n)
	_, err = c.Dir(ctx, used)
	require.NoError(t, err)
	require.Len(t, list(t, c, used), 1)
	require.NotContains(t, list(t, c, root), "ended")
	require.Contains(t, list(t, c, root), "later")

	// What comes later is taken away when its time has come.
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.RunExpiry(ctx, nil)
	}()
	_, err = c.Link(ctx, root, timed(File("f", 1), -meta.ClockSlack))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		recs, err := s.Get(ctx, meta.Key{Slot: "d/0000000000000001", Field: "f"}, meta.Key{Slot: "d/0000000000000001", Field: "just now"})
		return err == nil && recs[0].Value == nil && recs[1].Value == nil
	}, soon, 20*time.Millisecond)
	cancel()
	<-ended
}

// newDir makes a directory that no name stands for.
func newDir(t *testing.T, c *meta.Catalog) meta.InodeID {
	t.Helper()
	id, err := c.NewDir(t.Context(), meta.RootDir, meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	return id
}
