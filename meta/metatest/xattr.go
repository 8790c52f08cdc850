package metatest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// testXAttrs: extended attributes belong to the name, whatever becomes of it. A6
func testXAttrs(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	root := func(name string) meta.Place { return meta.Place{Dir: meta.RootDir, Name: name} }
	change := func(e meta.Entry, x meta.XAttrChange) (meta.Entry, error) {
		return c.SetAttr(t.Context(), meta.RootDir, e.Name, e.Inode, meta.AttrChange{XAttr: &x})
	}
	set := func(e meta.Entry, name, value string) meta.Entry {
		t.Helper()
		e, err := change(e, meta.XAttrChange{Name: name, Value: value})
		require.NoError(t, err)
		got, ok := has(t, c, root(e.Name))
		require.True(t, ok)
		require.Equal(t, e, got)
		return e
	}
	f := link(t, c, meta.RootDir, File("f", 1))
	with := set(set(f, "user.a", "\x00\xff"), "user.b", "")
	require.Greater(t, with.CtimeNs, f.CtimeNs)
	want := f
	want.XAttrs, want.CtimeNs, want.Version = with.XAttrs, with.CtimeNs, with.Version
	require.Equal(t, want, with, "nothing else has changed")

	for _, x := range []struct {
		meta.XAttrChange
		err error
	}{
		{meta.XAttrChange{Name: "user.a", Create: true}, meta.ErrExist},
		{meta.XAttrChange{Name: "user.c", Replace: true}, meta.ErrNoXAttr},
		{meta.XAttrChange{Name: "user.c", Remove: true}, meta.ErrNoXAttr},
		{meta.XAttrChange{Name: "user.c", Value: strings.Repeat("v", meta.XAttrsMax)}, meta.ErrXAttrSpace},
	} {
		_, err := change(f, x.XAttrChange)
		require.ErrorIs(t, err, x.err)
	}
	got, _ := has(t, c, root("f"))
	require.Equal(t, with, got)

	// A publish keeps those that the name has; another file brings its own.
	next, _, err := c.Publish(t.Context(), meta.RootDir, again(f), meta.PublishIf{Known: true, Over: &f})
	require.NoError(t, err)
	require.Equal(t, with.XAttrs, next.XAttrs)
	next, _, err = c.Publish(t.Context(), meta.RootDir, again(f), meta.PublishIf{Known: true, Over: &next, SetAttrs: true})
	require.NoError(t, err)
	require.Equal(t, with.XAttrs, next.XAttrs)
	_, err = c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, meta.AttrChange{Mode: new(uint32)})
	require.NoError(t, err)
	got, _ = has(t, c, root("f"))
	require.Equal(t, with.XAttrs, got.XAttrs)
	other := File("g", 1)
	other.XAttrs, err = meta.XAttrs("").Apply(meta.XAttrChange{Name: "user.g", Value: "g"})
	require.NoError(t, err)
	other, _, err = c.Publish(t.Context(), meta.RootDir, other, meta.PublishIf{})
	require.NoError(t, err)
	got, _ = has(t, c, root("g"))
	require.Equal(t, other, got)

	// Directories have them too, and a rename takes them along.
	d := set(mkdir(t, c, meta.RootDir, "d"), "user.d", "d")
	info, err := c.Dir(t.Context(), d.Inode)
	require.NoError(t, err)
	require.NotEqual(t, d.CtimeNs, info.CtimeNs, "the directory's own record has none and is not written")
	e := mkdir(t, c, meta.RootDir, "e")
	for _, from := range []string{"d", "f"} {
		before, _ := has(t, c, root(from))
		m, err := c.Rename(t.Context(), root(from), meta.Place{Dir: e.Inode, Name: "to " + from}, meta.RenameOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, before.XAttrs)
		require.Equal(t, before.XAttrs, m.Entry.XAttrs)
		got, ok := has(t, c, meta.Place{Dir: e.Inode, Name: "to " + from})
		require.True(t, ok)
		require.Equal(t, before.XAttrs, got.XAttrs)
	}
}

// testXAttrRace: of those who set different ones at once each is heard, and of
// those who create the same one is. A6
func testXAttrRace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	f := link(t, c, meta.RootDir, File("f", 1))
	const writers, rounds = 4, 5
	var won atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				for _, x := range []meta.XAttrChange{
					{Name: fmt.Sprint("user.of ", w), Value: fmt.Sprint(r)},
					{Name: fmt.Sprint("user.round ", r), Create: true},
				} {
					_, err := c.SetAttr(t.Context(), meta.RootDir, "f", f.Inode, meta.AttrChange{XAttr: &x})
					switch {
					case err == nil && x.Create:
						won.Add(1)
					case err != nil && !(x.Create && errors.Is(err, meta.ErrExist)):
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(rounds), won.Load())
	got, _ := has(t, c, meta.Place{Dir: meta.RootDir, Name: "f"})
	for w := range writers {
		v, ok := got.XAttrs.Get(fmt.Sprint("user.of ", w))
		require.True(t, ok)
		require.Equal(t, fmt.Sprint(rounds-1), v)
	}
}
