package metatest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

func mkdir(t *testing.T, c *meta.Catalog, dir meta.InodeID, name string) meta.Entry {
	t.Helper()
	e, err := c.Mkdir(t.Context(), dir, name, meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	return e
}

func link(t *testing.T, c *meta.Catalog, dir meta.InodeID, e meta.Entry) meta.Entry {
	t.Helper()
	e, err := c.Link(t.Context(), dir, e)
	require.NoError(t, err)
	return e
}

// has returns the entry of a name, and whether it is there.
func has(t *testing.T, c *meta.Catalog, p meta.Place) (meta.Entry, bool) {
	t.Helper()
	e, err := c.Lookup(t.Context(), p.Dir, p.Name)
	if err != nil {
		require.ErrorIs(t, err, meta.ErrNotFound)
	}
	return e, err == nil
}

// testRename: every kind over every kind, within a directory and across. N3
func testRename(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	type kind = string
	make1 := func(t *testing.T, k kind, p meta.Place) meta.Entry {
		switch k {
		case "file":
			return link(t, c, p.Dir, File(p.Name, 7))
		case "big":
			e := File(p.Name, 0)
			e.Object = object(9)
			e.Size = e.Object.Size
			require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{{Object: e.Object, References: []meta.Reference{{Dir: p.Dir, Name: p.Name}}}}))
			return link(t, c, p.Dir, e)
		case "link":
			return link(t, c, p.Dir, meta.Entry{Name: p.Name, Kind: meta.KindSymlink, Inode: meta.NewInodeID(), Mode: 0o777, Target: "x"})
		}
		e := mkdir(t, c, p.Dir, p.Name)
		if k == "full" {
			link(t, c, e.Inode, File("in", 1))
		}
		return e
	}
	cases := []struct {
		from, to kind
		err      error
	}{
		{"file", "", nil}, {"big", "", nil}, {"link", "", nil}, {"dir", "", nil}, {"full", "", nil},
		{"file", "file", nil}, {"file", "link", nil}, {"link", "big", nil}, {"big", "big", nil},
		{"file", "dir", meta.ErrIsDir}, {"link", "full", meta.ErrIsDir},
		{"dir", "file", meta.ErrNotDir}, {"full", "link", meta.ErrNotDir},
		{"full", "dir", nil}, {"dir", "dir", nil}, {"full", "full", meta.ErrNotEmpty}, {"", "file", meta.ErrNotFound},
	}
	for _, across := range []bool{false, true} {
		for i, tc := range cases {
			for _, noReplace := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s over %s, across=%v, no replace=%v", tc.from, tc.to, across, noReplace), func(t *testing.T) {
					t.Parallel()
					top := mkdir(t, c, meta.RootDir, fmt.Sprint(i, across, noReplace)).Inode
					from, to := meta.Place{Dir: top, Name: "from"}, meta.Place{Dir: top, Name: "to"}
					if across {
						to.Dir = mkdir(t, c, top, "other").Inode
					}
					var src, dst meta.Entry
					if tc.from != "" {
						src = make1(t, tc.from, from)
					}
					if tc.to != "" {
						dst = make1(t, tc.to, to)
					}
					want := tc.err
					if noReplace && tc.to != "" && tc.from != "" {
						want = meta.ErrExist
					}
					m, err := c.Rename(t.Context(), from, to, meta.RenameOptions{NoReplace: noReplace})
					if want != nil {
						require.ErrorIs(t, err, want)
						if tc.from != "" {
							e, ok := has(t, c, from)
							require.True(t, ok)
							require.Equal(t, src, e)
						}
						e, ok := has(t, c, to)
						require.True(t, ok)
						require.Equal(t, dst, e)
						return
					}
					require.NoError(t, err)
					checkMoved(t, c, from, to, src, dst, m)
				})
			}
		}
	}
}

// checkMoved holds what a rename said against what is there.
func checkMoved(t *testing.T, c *meta.Catalog, from, to meta.Place, src, dst meta.Entry, m meta.Moved) {
	t.Helper()
	_, ok := has(t, c, from)
	require.False(t, ok)
	got, ok := has(t, c, to)
	require.True(t, ok)
	require.Equal(t, got, m.Entry)
	require.Greater(t, got.CtimeNs, src.CtimeNs)
	src.Name, src.Version, src.CtimeNs = to.Name, got.Version, got.CtimeNs
	require.Equal(t, src, got)
	if dst.Name == "" {
		require.Nil(t, m.Replaced)
	} else {
		require.Equal(t, dst, *m.Replaced)
	}
	at, err := c.DirVersion(t.Context(), from.Dir)
	require.NoError(t, err)
	require.NotZero(t, m.GoneAt)
	require.LessOrEqual(t, m.GoneAt, at)
	require.NotContains(t, list(t, c, from.Dir), from.Name)
	require.Contains(t, list(t, c, to.Dir), to.Name)
	if got.Kind == meta.KindDir {
		d, err := c.Dir(t.Context(), got.Inode)
		require.NoError(t, err)
		require.Equal(t, to.Dir, d.Parent)
	}
	if !got.Object.ID.IsZero() {
		yes, err := c.Referenced(t.Context(), got.Object.ID, meta.Reference{})
		require.NoError(t, err)
		require.True(t, yes)
		r, err := c.Object(t.Context(), got.Object.ID)
		require.NoError(t, err)
		require.Len(t, r.References, 1)
		require.Equal(t, to, meta.Place{Dir: r.References[0].Dir, Name: r.References[0].Name})
	}
}

// testRenameLoop: what cannot be, and what changes nothing. N5
func testRenameLoop(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	a := mkdir(t, c, meta.RootDir, "a")
	b := mkdir(t, c, a.Inode, "b")
	d := mkdir(t, c, b.Inode, "d")
	f := link(t, c, a.Inode, File("f", 1))
	rename := func(from, to meta.Place, opts meta.RenameOptions) (meta.Moved, error) {
		return c.Rename(t.Context(), from, to, opts)
	}
	atA := meta.Place{Dir: meta.RootDir, Name: "a"}
	for _, to := range []meta.Place{{Dir: a.Inode, Name: "x"}, {Dir: b.Inode, Name: "x"}, {Dir: d.Inode, Name: "x"}, {Dir: b.Inode, Name: "d"}} {
		_, err := rename(atA, to, meta.RenameOptions{})
		require.ErrorIs(t, err, meta.ErrLoop)
	}
	_, err := rename(meta.Place{Dir: b.Inode, Name: "d"}, atA, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrNotEmpty)

	place := meta.Place{Dir: a.Inode, Name: "f"}
	m, err := rename(place, place, meta.RenameOptions{})
	require.NoError(t, err)
	require.Equal(t, meta.Moved{Entry: f}, m)
	_, err = rename(place, place, meta.RenameOptions{NoReplace: true})
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = rename(place, meta.Place{Dir: meta.NewInodeID(), Name: "f"}, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = rename(place, meta.Place{Dir: a.Inode, Name: ".."}, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrName)
	got, err := c.Lookup(t.Context(), a.Inode, "f")
	require.NoError(t, err)
	require.Equal(t, f, got)

	// Away from where it is below itself it goes, and then the other way round.
	_, err = rename(meta.Place{Dir: a.Inode, Name: "b"}, meta.Place{Dir: meta.RootDir, Name: "b"}, meta.RenameOptions{})
	require.NoError(t, err)
	_, err = rename(atA, meta.Place{Dir: d.Inode, Name: "a"}, meta.RenameOptions{})
	require.NoError(t, err)
	_, err = rename(meta.Place{Dir: meta.RootDir, Name: "b"}, meta.Place{Dir: a.Inode, Name: "b"}, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrLoop)
}

// testRenameRace: of many that rename onto one name each succeeds, and the
// name stands for the last of them.
func testRenameRace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	dirs := []meta.InodeID{mkdir(t, c, meta.RootDir, "a").Inode, mkdir(t, c, meta.RootDir, "b").Inode}
	for _, noReplace := range []bool{false, true} {
		to := meta.Place{Dir: dirs[0], Name: fmt.Sprint("to", noReplace)}
		const n = 8
		files := make([]meta.Entry, n)
		moved := make([]meta.Moved, n)
		errs := make([]error, n)
		for i := range files {
			files[i] = link(t, c, dirs[i%2], File(fmt.Sprint("f", i), 1))
		}
		var wg sync.WaitGroup
		for i, f := range files {
			wg.Go(func() {
				moved[i], errs[i] = c.Rename(t.Context(), meta.Place{Dir: dirs[i%2], Name: f.Name}, to, meta.RenameOptions{NoReplace: noReplace})
			})
		}
		wg.Wait()
		won, last := 0, meta.Entry{}
		for i := range files {
			if errs[i] != nil {
				require.True(t, noReplace)
				require.ErrorIs(t, errs[i], meta.ErrExist)
				_, ok := has(t, c, meta.Place{Dir: dirs[i%2], Name: files[i].Name})
				require.True(t, ok)
				continue
			}
			won++
			if moved[i].Entry.Version > last.Version {
				last = moved[i].Entry
			}
		}
		if noReplace {
			require.Equal(t, 1, won)
		} else {
			require.Equal(t, n, won)
		}
		got, ok := has(t, c, to)
		require.True(t, ok)
		require.Equal(t, last, got)
	}
}
