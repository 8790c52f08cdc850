package metatest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// testLateRmdir: before each change of a removal, and of a rename over an empty
// directory, another node renames that directory, or removes it, or creates
// something in it. Whoever was told that it had done so has; in particular a
// directory that was renamed away is not removed by who meant its old name. N1
func testLateRmdir(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	place := func(dir meta.InodeID, name string) meta.Place { return meta.Place{Dir: dir, Name: name} }
	removals := map[string]func(*meta.Catalog, meta.InodeID) error{
		"rmdir": func(c *meta.Catalog, top meta.InodeID) error { return rmdir(t, c, top, "x") },
		"over": func(c *meta.Catalog, top meta.InodeID) error {
			_, err := c.Rename(t.Context(), place(top, "over"), place(top, "x"), meta.RenameOptions{})
			return err
		},
		"across": func(c *meta.Catalog, top meta.InodeID) error {
			e, err := c.Lookup(t.Context(), top, "other")
			require.NoError(t, err)
			_, err = c.Rename(t.Context(), place(e.Inode, "from"), place(top, "x"), meta.RenameOptions{})
			return err
		},
	}
	for name, remove := range removals {
		for n := 0; ; n++ {
			late := false
			t.Run(fmt.Sprint(name, " from change ", n), func(t *testing.T) {
				top := mkdir(t, c, meta.RootDir, fmt.Sprint(name, n)).Inode
				x := mkdir(t, c, top, "x").Inode
				mkdir(t, c, top, "over")
				other := mkdir(t, c, top, "other").Inode
				mkdir(t, c, other, "from")

				changes := 0
				var moved, linked, removed error
				hooked := &Hooked{Slots: s, Before: func(meta.Slot, []meta.Set) error {
					if changes++; changes-1 != n {
						return nil
					}
					late = true
					var m meta.Moved
					m, moved = c.Rename(t.Context(), place(top, "x"), place(top, "moved"), meta.RenameOptions{})
					if moved == nil && m.Entry.Inode != x { // it is what replaced x
						moved = meta.ErrNotFound
					}
					_, linked = c.Link(t.Context(), x, File("f", 1))
					if linked == nil {
						require.NoError(t, unlink(t, c, x, "f", 0))
					}
					return nil
				}}
				removed = remove(meta.NewCatalog(hooked, meta.Options{}), top)
				if !late {
					return
				}
				_, alive := c.Dir(t.Context(), x)
				require.Equal(t, moved == nil, linked == nil, "who renamed it finds it alive")
				require.Equal(t, moved == nil, alive == nil, "who renamed it has it still: %v", removed)
				if moved == nil && name == "rmdir" {
					require.ErrorIs(t, removed, meta.ErrNotFound)
				} else {
					require.NoError(t, removed)
				}
				if moved == nil {
					e, err := c.Lookup(t.Context(), top, "moved")
					require.NoError(t, err)
					require.Equal(t, x, e.Inode)
				}
			})
			if !late {
				require.Positive(t, n)
				break
			}
		}
	}
	// Of two who remove one directory, one has.
	for n := 0; ; n++ {
		name := fmt.Sprint("twice", n)
		mkdir(t, c, meta.RootDir, name)
		changes, second := 0, errNever
		hooked := &Hooked{Slots: s, Before: func(meta.Slot, []meta.Set) error {
			if changes++; changes-1 == n {
				second = rmdir(t, c, meta.RootDir, name)
			}
			return nil
		}}
		first := rmdir(t, meta.NewCatalog(hooked, meta.Options{}), meta.RootDir, name)
		if second == errNever {
			require.NoError(t, first)
			break
		}
		require.False(t, first == nil && second == nil, "both say that they removed it, the second before change %d", n)
	}
}

// testLateSource: before each change of the rename of a directory over another,
// another node removes it and gives its name to a file. That file takes no
// directory's place. N3
func testLateSource(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	for name, across := range map[string]bool{"within": false, "across": true} {
		for n, late := 0, true; late; n++ {
			late = false
			t.Run(fmt.Sprint(name, " from change ", n), func(t *testing.T) {
				top := mkdir(t, c, meta.RootDir, fmt.Sprint(name, n)).Inode
				from, to := meta.Place{Dir: top, Name: "from"}, meta.Place{Dir: top, Name: "to"}
				if across {
					to.Dir = mkdir(t, c, top, "other").Inode
				}
				src := mkdir(t, c, from.Dir, from.Name)
				mkdir(t, c, to.Dir, to.Name)

				changes := 0
				hooked := &Hooked{Slots: s, Before: func(meta.Slot, []meta.Set) error {
					if changes++; changes-1 == n {
						late = true
						if err := rmdir(t, c, from.Dir, from.Name); err != nil {
							require.ErrorIs(t, err, meta.ErrNotFound)
						}
						link(t, c, from.Dir, File(from.Name, 1))
					}
					return nil
				}}
				m, err := meta.NewCatalog(hooked, meta.Options{}).Rename(t.Context(), from, to, meta.RenameOptions{})
				got, ok := has(t, c, to)
				if err == nil {
					require.Equal(t, src.Inode, m.Entry.Inode)
					require.True(t, ok)
					require.Equal(t, src.Inode, got.Inode)
					return
				}
				if !errors.Is(err, meta.ErrIsDir) {
					require.ErrorIs(t, err, meta.ErrNotFound)
				}
				require.True(t, !ok || got.Kind == meta.KindDir && got.Inode != src.Inode)
				got, ok = has(t, c, from)
				require.True(t, ok)
				require.Equal(t, meta.KindFile, got.Kind)
			})
			if !late {
				require.Positive(t, n)
			}
		}
	}
}

var errNever = fmt.Errorf("not called")
