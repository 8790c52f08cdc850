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
// milliseconds.
const (
	visibleRounds = 100
	visibleMedian = 200 * time.Millisecond
	visibleMost   = 5 * time.Second
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
			Consistency: meta.ConsistencyWatch, MaxDirs: 2, OnChange: on,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = v.Close() })
		return v
	}
	reader := view(func(c meta.Change) { told <- c })
	for range 10 {
		view(nil)
	}
	require.Zero(t, watches(), "idle nodes watch nothing")
	count := func(n int) {
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

	var took []time.Duration
	for i := range visibleRounds {
		name := fmt.Sprint("f", i)
		e, _, err := writer.Publish(t.Context(), dirs[0], File(name, 1), meta.PublishIf{})
		require.NoError(t, err)
		start := time.Now()
		for c := range told {
			if c.Name == name {
				break
			}
			require.Less(t, time.Since(start), visibleMost)
		}
		took = append(took, time.Since(start))
		got, err := reader.Lookup(t.Context(), dirs[0], name)
		require.NoError(t, err)
		require.Equal(t, e.Inode, got.Inode)
	}
	slices.Sort(took)
	t.Logf("seen elsewhere after the publish had returned: median %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
	require.Less(t, took[len(took)/2], visibleMedian)
	require.Less(t, took[len(took)-1], visibleMost)
	require.Equal(t, 2, watches())
}
