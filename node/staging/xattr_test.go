package staging

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// setXAttr sets an extended attribute of a file that is being written.
func (r *rig) setXAttr(w fs.WriteFile, name, value string) {
	r.t.Helper()
	_, err := w.SetAttr(r.t.Context(), meta.AttrChange{XAttr: &meta.XAttrChange{Name: name, Value: value}})
	require.NoError(r.t, err)
}

func requireXAttr(t *testing.T, e meta.Entry, name, value string) {
	t.Helper()
	got, ok := e.XAttrs.Get(name)
	require.True(t, ok, "no %s", name)
	require.Equal(t, value, got)
}

// A6
func TestXAttrsOfAFileBeingWrittenArePublishedWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	r.put(w, []byte("abc"), 0)
	r.setXAttr(w, "user.a", "1")
	_, err := w.SetAttr(t.Context(), meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.a", Create: true}})
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = w.SetAttr(t.Context(), meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.b", Value: strings.Repeat("v", meta.XAttrsMax)}})
	require.ErrorIs(t, err, meta.ErrXAttrSpace)
	requireXAttr(t, w.Entry(), "user.a", "1")
	e, _ := r.shown("f")
	require.Equal(t, w.Entry().XAttrs, e.XAttrs)
	require.NoError(t, w.Publish(t.Context()))
	e, _ = r.published("f")
	require.Equal(t, w.Entry().XAttrs, e.XAttrs)

	// Published, and still being written: at once for everybody, beside those
	// that others set meanwhile.
	r.put(w, []byte("d"), 3)
	_, err = r.other.SetAttr(t.Context(), meta.RootDir, "f", e.Inode, meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.other", Value: "o"}})
	require.NoError(t, err)
	_, err = w.SetAttr(t.Context(), meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.other", Create: true}})
	require.ErrorIs(t, err, meta.ErrExist)
	r.setXAttr(w, "user.b", "2")
	e, _ = r.published("f")
	require.Equal(t, e.XAttrs, w.Entry().XAttrs)
	for name, value := range map[string]string{"user.a": "1", "user.b": "2", "user.other": "o"} {
		requireXAttr(t, e, name, value)
	}
	_, err = r.other.SetAttr(t.Context(), meta.RootDir, "f", e.Inode, meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.a", Remove: true}})
	require.NoError(t, err)
	require.NoError(t, w.Publish(t.Context()))
	e, _ = r.published("f")
	require.Equal(t, e.XAttrs, w.Entry().XAttrs, "the publish takes over what others did")
	_, ok := e.XAttrs.Get("user.a")
	require.False(t, ok)
	requireXAttr(t, e, "user.b", "2")
	w.Close()

	// Overwritten: the file keeps them.
	w = r.change("f", true)
	r.put(w, []byte("new"), 0)
	require.NoError(t, w.Publish(t.Context()))
	w.Close()
	e, _ = r.published("f")
	requireXAttr(t, e, "user.b", "2")
}

// A6, W12
func TestXAttrsOfAPrivateFileOutliveARestart(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "crash"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.write(".f.abc123", []byte("abc"))
			e, _ := r.shown(".f.abc123")
			e, err := r.area.SetAttr(t.Context(), meta.RootDir, e, meta.AttrChange{XAttr: &meta.XAttrChange{Name: "user.a", Value: "1"}})
			require.NoError(t, err)
			requireXAttr(t, e, "user.a", "1")
			if how == "stop" {
				r.stop()
			} else {
				r.crash()
			}
			r.start()
			e, _ = r.shown(".f.abc123")
			requireXAttr(t, e, "user.a", "1")
			_, err = r.rename(".f.abc123", "f")
			require.NoError(t, err)
			e, _ = r.published("f")
			requireXAttr(t, e, "user.a", "1")
		})
	}
}

// A6, W10
func TestXAttrsAreRecovered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.create("f", false)
	r.put(w, []byte("abc"), 0)
	r.setXAttr(w, "user.a", "1")
	r.faults.Down()
	require.Error(t, w.Publish(t.Context()))
	r.faults.Up()
	w.Close()
	r.crash()
	r.start()
	lost := r.lost()
	require.Len(t, lost, 1)
	_, err := r.area.Recover(t.Context(), lost[0].ID, meta.Place{}, false)
	require.NoError(t, err)
	e, _ := r.published("f")
	requireXAttr(t, e, "user.a", "1")
}
