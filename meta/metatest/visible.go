package metatest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Bounds of RunVisible: what a machine without other work takes is some
// milliseconds. On one that takes longer for everything, for the publish too, the
// median may be so many publishes long.
const (
	visibleRounds    = 100
	visibleMedian    = 200 * time.Millisecond
	visiblePublishes = 5
)

// RunVisible checks that a publish is seen on another node within a fifth of a
// second though that node asks for nothing, and that nodes watch what they have
// looked at, and nothing else: an idle one costs the store nothing. watches
// counts the watches that the server has.
func RunVisible(t *testing.T, open func(t *testing.T) meta.Slots, watches func() int) {
	writer := meta.NewCatalog(open(t), meta.Options{})
	Join(t, writer)
	var dirs []meta.InodeID
	for i := range 5 {
		dirs = append(dirs, mkdir(t, writer, meta.RootDir, fmt.Sprint("d", i)).Inode)
	}
	told := make(chan meta.Change, 1000)
	view := func(on func(meta.Change)) *meta.View {
		v, err := meta.NewView(meta.ViewConfig{
			Catalog:     meta.NewCatalog(open(t), meta.Options{}),
			Consistency: meta.ConsistencyWatch, MaxDirs: 2, OnChange: on, Timeout: soon,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = v.Close() })
		return v
	}
	reader := view(func(c meta.Change) { told <- c })
	for range 10 {
		view(nil)
	}
	idle := func() bool { return watches() == 0 }
	require.Eventually(t, idle, soon, 10*time.Millisecond, "idle nodes watch nothing")
	count := func(n int) { // a watch comes and goes a moment after it is wanted
		t.Helper()
		require.Eventually(t, func() bool { return watches() == n }, soon, 10*time.Millisecond, "%d watches wanted", n)
	}
	list := func(i int) {
		_, err := reader.List(t.Context(), dirs[i])
		require.NoError(t, err)
	}
	list(0)
	count(1)
	for i := range dirs {
		list(i)
	}
	count(2) // as many as are cached
	list(0)

	var took, publishes []time.Duration
	for i := range visibleRounds {
		name := fmt.Sprint("f", i)
		start := time.Now()
		e, _, err := writer.Publish(t.Context(), dirs[0], File(name, 1), meta.PublishIf{})
		require.NoError(t, err)
		publishes = append(publishes, time.Since(start))
		start = time.Now()
		awaitTold(t, told, name)
		took = append(took, time.Since(start))
		got, err := reader.Lookup(t.Context(), dirs[0], name)
		require.NoError(t, err)
		require.Equal(t, e.Inode, got.Inode)
	}
	slices.Sort(took)
	slices.Sort(publishes)
	median, publish := took[len(took)/2], publishes[len(publishes)/2]
	t.Logf("seen elsewhere after the publish had returned: median %v, p99 %v; the publish: median %v", median, took[len(took)*99/100], publish)
	require.Less(t, median, max(visibleMedian, visiblePublishes*publish))
	count(2)
}

// awaitTold waits until a change of a name is told.
func awaitTold(t *testing.T, told <-chan meta.Change, name string) {
	t.Helper()
	late := time.After(soon)
	for {
		select {
		case c := <-told:
			if c.Name == name {
				return
			}
		case <-late:
			t.Fatalf("nobody is told of %s", name)
		}
	}
}
