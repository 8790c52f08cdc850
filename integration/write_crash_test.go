package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// C1, K1
func TestAClosedFileOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	sums := map[string]string{}
	for name, size := range map[string]int64{"small": 100, "empty": 0, "big": 50*smallBlock + 1} {
		sums[name] = writeFile(t, c.src(name), size, uint64(size))
		// By a process that makes no others: one that is being started has all that
		// is open, and what was never written waits for its end (W3).
		must(t, "cp", c.src(name), a.path(name))
	}
	a.kill()
	a.start()
	for name, sum := range sums {
		require.Equal(t, sum, digest(t, a.path(name)), name)
		require.Equal(t, sum, hexOf([]byte(readBack(t, b.path(name)))), name)
	}
	require.Empty(t, a.unpublished())
}

// C2, C3, W10
func TestWhatWasNotPublishedIsListedAfterACrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "sh", "-c", `printf before >"$1"`, "sh", a.path("f"))
	must(t, "mkdir", a.path("d"))
	h := newHand(t)
	h.must("open f %s rw", a.path("f"))
	h.must("write f half")
	h.must("open g %s rw+creat", a.path("d/g"))
	h.must("fill g %d", 7*smallBlock)
	a.kill()
	a.start()
	for _, n := range []*node{a, b} {
		require.Equal(t, "before", readBack(t, n.path("f")), "on %s", n.name)
		require.True(t, absent(t, n.path("d/g")))
	}
	got := map[string]unpublished{}
	for _, l := range a.unpublished() {
		got[l.Path] = l
	}
	require.Len(t, got, 2)
	require.Equal(t, "open", got["f"].State)
	require.Equal(t, int64(7*smallBlock), got["d/g"].Size)
	require.Contains(t, a.must("recover"), "/d/g")
	a.must("recover", "--all") // what was closed: nothing
	require.Len(t, a.unpublished(), 2)
	a.must("recover", "--all", "--unclosed")
	require.Equal(t, "halfre", text(t, b.path("f")))
	require.Equal(t, repeat(7*smallBlock), text(t, b.path("d/g")))
	require.Empty(t, a.unpublished())
}

// C3
func TestWhatIsOpenWhenTheNodeEndsIsKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	h.must("open f %s w+creat", a.path("f"))
	h.must("fill f %d", 3*smallBlock)
	a.stop()
	require.True(t, absent(t, b.path("f")))
	a.start()
	ls := a.unpublished()
	require.Len(t, ls, 1)
	require.Equal(t, "f", ls[0].Path)
	a.must("recover", "--unclosed", a.path("f"))
	require.Equal(t, repeat(3*smallBlock), text(t, b.path("f")))
}
