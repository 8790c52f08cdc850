package metatest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// killAtEach calls run with the store as a process sees it that is killed at
// its first write, its second and so on, before the write and after it, until
// one is not killed.
func killAtEach(t *testing.T, s meta.Slots, run func(t *testing.T, n string, mortal *Mortal)) {
	for _, sent := range []bool{false, true} {
		for n := 0; ; n++ {
			m := NewMortal(s, n, sent)
			name := fmt.Sprint("write ", n, ", sent=", sent)
			ok := t.Run(name, func(t *testing.T) { run(t, strings.ReplaceAll(name, " ", ""), m) })
			at, dead := m.Dead()
			t.Log(name, at)
			require.True(t, ok)
			if !dead {
				require.Positive(t, n)
				break
			}
			require.Less(t, n, 30)
		}
	}
}

// testRenameCrash: a mover that is killed at any step leaves the old state or
// the new, for whoever looks first; all that it leaves behind goes. N3
func testRenameCrash(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	for _, tc := range []struct {
		name           string
		across         bool
		dir            bool
		over, listOnly bool
	}{
		{name: "file within over file", over: true},
		{name: "dir within over dir", dir: true, over: true},
		{name: "file", across: true},
		{name: "file, listed", across: true, listOnly: true},
		{name: "file over file", across: true, over: true},
		{name: "dir", across: true, dir: true},
		{name: "dir over dir", across: true, dir: true, over: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			base := mkdir(t, c, meta.RootDir, strings.ReplaceAll(tc.name, " ", "")).Inode
			killAtEach(t, s, func(t *testing.T, n string, mortal *Mortal) {
				top := mkdir(t, c, base, n).Inode
				from, to := meta.Place{Dir: top, Name: "from"}, meta.Place{Dir: top, Name: "to"}
				if tc.across {
					from.Dir, to.Dir = mkdir(t, c, top, "s").Inode, mkdir(t, c, top, "t").Inode
				}
				var src, dst meta.Entry
				if tc.dir {
					src = mkdir(t, c, from.Dir, from.Name)
					link(t, c, src.Inode, File("in", 1))
				} else {
					src = link(t, c, from.Dir, File(from.Name, 1))
				}
				switch {
				case tc.over && tc.dir:
					dst = mkdir(t, c, to.Dir, to.Name)
				case tc.over:
					dst = link(t, c, to.Dir, File(to.Name, 1))
				}
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				_, err := meta.NewCatalog(mortal, meta.Options{}).Rename(ctx, from, to, meta.RenameOptions{})
				require.NoError(t, mortal.Expire(ctx))

				fresh := meta.NewCatalog(s, meta.Options{})
				if tc.listOnly {
					list(t, fresh, from.Dir)
				}
				afterCrash(t, fresh, from, to, src, dst, err == nil)
			})
		})
	}
}

// afterCrash checks that either nothing or all of a rename has happened, and
// that what it left is in nobody's way.
func afterCrash(t *testing.T, c *meta.Catalog, from, to meta.Place, src, dst meta.Entry, must bool) {
	t.Helper()
	a, atFrom := has(t, c, from)
	b, atTo := has(t, c, to)
	switch {
	case atFrom:
		require.False(t, must)
		require.Equal(t, src.Inode, a.Inode)
		if atTo { // an empty directory that was to be replaced may be gone
			require.Equal(t, dst.Inode, b.Inode)
		} else {
			require.True(t, dst.Name == "" || dst.Kind == meta.KindDir)
		}
	default:
		require.True(t, atTo)
		require.Equal(t, src.Inode, b.Inode)
	}
	for name := range list(t, c, to.Dir) {
		require.NotContains(t, name, "/")
	}
	// Whoever comes next can go on from either.
	next := meta.Place{Dir: to.Dir, Name: "next"}
	if atFrom {
		_, err := c.Rename(t.Context(), from, next, meta.RenameOptions{})
		require.NoError(t, err)
	} else {
		_, err := c.Rename(t.Context(), to, meta.Place{Dir: from.Dir, Name: "next"}, meta.RenameOptions{})
		require.NoError(t, err)
		next.Dir = from.Dir
	}
	if src.Kind == meta.KindDir {
		d, err := c.Dir(t.Context(), src.Inode)
		require.NoError(t, err)
		require.Equal(t, next.Dir, d.Parent)
		require.Len(t, list(t, c, src.Inode), 1)
	} else {
		e, ok := has(t, c, next)
		require.True(t, ok)
		yes, err := c.Referenced(t.Context(), e.Object.ID, meta.Reference{})
		require.NoError(t, err)
		require.True(t, yes)
	}
	if from.Dir == to.Dir {
		return
	}
	for _, dir := range []meta.InodeID{from.Dir, to.Dir} {
		for name, e := range list(t, c, dir) {
			if e.Kind == meta.KindDir {
				_, err := c.RemoveTree(t.Context(), dir, name, nil, nil)
				require.NoError(t, err)
			} else {
				require.NoError(t, unlink(t, c, dir, name, 0))
			}
		}
		require.NoError(t, c.DiscardDir(t.Context(), dir), "no decision is in the way")
	}
}

// testMovedReplace: once a file is seen at the place that it is moved to, who
// replaces it by its version hears that its old name is gone, though the mover
// was killed before it took that name away. W7, N3
func testMovedReplace(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	killAtEach(t, s, func(t *testing.T, n string, mortal *Mortal) {
		from := meta.Place{Dir: mkdir(t, c, meta.RootDir, "s"+n).Inode, Name: "f"}
		to := meta.Place{Dir: mkdir(t, c, meta.RootDir, "t"+n).Inode, Name: "f"}
		f := link(t, c, from.Dir, File("f", 1))
		_, moved := meta.NewCatalog(mortal, meta.Options{}).Rename(t.Context(), from, to, meta.RenameOptions{})
		_, there := has(t, c, to)
		require.True(t, there || moved != nil)

		_, err := c.Replace(t.Context(), from.Dir, again(f), f.Version)
		_, stays := has(t, c, from)
		switch {
		case err == nil:
			require.True(t, stays)
		case errors.Is(err, meta.ErrConflict):
			require.False(t, there, "it was elsewhere by then")
		default:
			require.ErrorIs(t, err, meta.ErrNotFound)
			require.False(t, stays)
		}
		_, there = has(t, c, to)
		require.NotEqual(t, stays, there)
	})
}

// testRmdirDead: a name whose directory is dead counts as gone for everyone.
func testRmdirDead(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	src := link(t, c, meta.RootDir, File("src", 1))
	for name, act := range map[string]func(name string) error{
		"lookup": func(name string) error {
			_, err := c.Lookup(t.Context(), meta.RootDir, name)
			require.ErrorIs(t, err, meta.ErrNotFound)
			return nil
		},
		"link": func(name string) error {
			_, err := c.Link(t.Context(), meta.RootDir, File(name, 1))
			return err
		},
		"link many": func(name string) error {
			return c.LinkMany(t.Context(), meta.RootDir, []meta.Entry{File(name, 1)})
		},
		"mkdir": func(name string) error {
			_, err := c.Mkdir(t.Context(), meta.RootDir, name, meta.Attrs{Mode: 0o755})
			return err
		},
		"rmdir": func(name string) error {
			require.ErrorIs(t, rmdir(t, c, meta.RootDir, name), meta.ErrNotFound)
			return nil
		},
		"rename from": func(name string) error {
			_, err := c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: name}, meta.Place{Dir: meta.RootDir, Name: "x"}, meta.RenameOptions{})
			require.ErrorIs(t, err, meta.ErrNotFound)
			return nil
		},
		"rename a file over it": func(name string) error {
			_, err := c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: src.Name}, meta.Place{Dir: meta.RootDir, Name: name}, meta.RenameOptions{NoReplace: true})
			return err
		},
		"publish": func(name string) error {
			_, old, err := c.Publish(t.Context(), meta.RootDir, File(name, 1), meta.PublishIf{Exclusive: true})
			require.Nil(t, old)
			return err
		},
	} {
		d := mkdir(t, c, meta.RootDir, name)
		require.NoError(t, c.DiscardDir(t.Context(), d.Inode))
		require.NoError(t, act(name), name)
		e, ok := has(t, c, meta.Place{Dir: meta.RootDir, Name: name})
		require.True(t, !ok || e.Inode != d.Inode, name)
	}
}

// testRmdirCrash: who is killed in a removal leaves a directory that is there,
// and takes names, or one that is gone.
func testRmdirCrash(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	killAtEach(t, s, func(t *testing.T, n string, mortal *Mortal) {
		d := mkdir(t, c, meta.RootDir, n)
		_, err := meta.NewCatalog(mortal, meta.Options{}).Rmdir(t.Context(), meta.RootDir, n)
		if _, ok := has(t, c, meta.Place{Dir: meta.RootDir, Name: n}); ok {
			require.Error(t, err)
			link(t, c, d.Inode, File("x", 1))
		} else {
			_, err := c.Link(t.Context(), d.Inode, File("x", 1))
			require.ErrorIs(t, err, meta.ErrNotFound)
		}
	})
}
