package fs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// outdatable is a file that another node may publish.
type outdatable struct {
	*fakeFile
	outdated bool
}

func (outdatable) Close() {}

func (w *outdatable) Outdated() bool { return w.outdated }

func TestAnOutdatedInodeLosesItsName(t *testing.T) { // R1, R2
	t.Parallel()
	tab := newTestTable()
	old := fileEntry("f", 5)
	n := tab.lookup(meta.RootDir, old)
	w := &outdatable{fakeFile: &fakeFile{e: old}}
	_, first, _, _ := tab.settle(n, wayTo(w, false))
	require.True(t, first)
	theirs := old
	theirs.Object, theirs.Size = chunk.Object{ID: chunk.NewObjectID(), Size: 20}, 20
	require.True(t, tab.still(n, &theirs), "its content is that of the file that is written")
	w.outdated = true
	require.False(t, tab.still(n, &theirs))
	require.False(t, tab.still(n, &old), "no open goes to it any more")
	_, ok, err := tab.join(n, false)
	require.False(t, ok)
	require.ErrorIs(t, err, errMixed)

	m := tab.lookup(meta.RootDir, theirs)
	require.NotSame(t, n, m)
	require.Equal(t, n.id, m.id)
	require.Same(t, m, tab.child(meta.RootDir, "f"))
	require.Equal(t, theirs.Object, m.entry.Object)
	require.Same(t, m, tab.lookup(meta.RootDir, theirs))
	require.True(t, tab.isWritten(n), "who has it open keeps it")
	require.Equal(t, old.Object, n.entry.Object)

	now := w.Entry()
	_, last := tab.leave(n, &now)
	require.True(t, last)
	tab.forget(n.node, 1)
	require.Same(t, m, tab.child(meta.RootDir, "f"))
}
