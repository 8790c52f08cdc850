package metatest

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Server is one that keeps its data in files.
type Server interface {
	Kill()
	Restart()
	// Wipe removes the data of a killed server.
	Wipe()
	// Save keeps a copy of the data of a killed server, and Recall puts it back.
	Save()
	Recall()
}

// RunLost checks that a store which was made anew is not taken for the old one,
// though nothing else says so, and that one which was restored from a copy is
// found out. open opens a store of the server for one process.
func RunLost(t *testing.T, srv Server, open func(t *testing.T, prefix string) meta.Slots) {
	t.Run("wiped", func(t *testing.T) { runWiped(t, srv, func() meta.Slots { return open(t, "wiped") }) })
	t.Run("restored", func(t *testing.T) { runRestored(t, srv, func() meta.Slots { return open(t, "restored") }) })
}

// lostView returns a View over names of ten files, of another process.
func lostView(t *testing.T, open func() meta.Slots) (*meta.Catalog, *meta.View) {
	other := meta.NewCatalog(open(), meta.Options{})
	Join(t, other)
	for i := range 10 {
		put(t, other, strings.Repeat("n", i+1))
	}
	v, err := meta.NewView(meta.ViewConfig{Catalog: meta.NewCatalog(open(), meta.Options{}), Timeout: soon / 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = v.Close() })
	entries, err := v.List(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Len(t, entries, 10)
	return other, v
}

func runWiped(t *testing.T, srv Server, open func() meta.Slots) {
	other, v := lostView(t, open)
	srv.Kill()
	srv.Wipe()
	srv.Restart()
	require.Eventually(t, func() bool { // the connection comes back a moment after the server
		_, err := other.Join(t.Context(), meta.JoinOptions{Create: true})
		return err == nil
	}, soon, 10*time.Millisecond)
	fresh := put(t, other, "fresh")
	require.Eventually(t, func() bool {
		entries, err := v.List(t.Context(), meta.RootDir)
		return err == nil && slices.Equal(entries, []meta.Entry{fresh})
	}, soon, 10*time.Millisecond)
	put(t, other, "later")
	require.Eventually(t, func() bool {
		_, err := v.Lookup(t.Context(), meta.RootDir, "later")
		return err == nil
	}, soon, 10*time.Millisecond)
}

func runRestored(t *testing.T, srv Server, open func() meta.Slots) {
	other, v := lostView(t, open)
	srv.Kill()
	srv.Save()
	srv.Restart()
	later := put(t, other, "later")
	require.Eventually(t, func() bool {
		_, err := v.Lookup(t.Context(), meta.RootDir, "later")
		return err == nil
	}, soon, 10*time.Millisecond)

	srv.Kill()
	srv.Recall()
	srv.Restart()
	require.Eventually(t, func() bool {
		back, err := other.RolledBack(t.Context(), map[meta.InodeID]uint64{meta.RootDir: later.Version})
		return err == nil && back
	}, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		entries, err := v.List(t.Context(), meta.RootDir)
		return err == nil && len(entries) == 10
	}, soon, 10*time.Millisecond)
	again := put(t, other, "later")
	require.Eventually(t, func() bool {
		e, err := v.Lookup(t.Context(), meta.RootDir, "later")
		return err == nil && e.Inode == again.Inode
	}, soon, 10*time.Millisecond)
}

// put makes a file in the root directory of a store that may not answer yet.
func put(t *testing.T, c *meta.Catalog, name string) (e meta.Entry) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		e, _, err = c.Publish(t.Context(), meta.RootDir, File(name, 1), meta.PublishIf{})
		return err == nil
	}, soon, 10*time.Millisecond)
	return e
}

// copyDir replaces a directory by another one.
func copyDir(t testing.TB, to, from string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}
