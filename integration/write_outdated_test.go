package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// R1, R2, W7: a reader who was there while a file was written does not hide from
// this node what others publish later.
func TestAReaderDoesNotHideALaterPublish(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"a reader": "r", "a writer who does not write": "rw"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.start("a"), c.start("b")
			w, holder := newHand(t), newHand(t)
			w.must("open f %s w+creat", a.path("f"))
			holder.must("open f %s %s", a.path("f"), mode)
			w.must("write f one")
			w.must("close f")
			id := b.stat("f").ID
			must(t, "sh", "-c", `printf ' two' >>"$1"`, "sh", b.path("f"))
			require.NotEqual(t, id, b.stat("f").ID)
			require.Equal(t, "one two", text(t, a.path("f")))
			require.Equal(t, "one", holder.does("read f 0 3"))
			must(t, "sh", "-c", `printf ' three' >>"$1"`, "sh", a.path("f"))
			for _, n := range []*node{a, b} {
				require.Equal(t, "one two three", text(t, n.path("f")), "on %s", n.name)
			}

			must(t, "sh", "-c", `printf other >"$1"`, "sh", b.path("f")) // written first, not read
			must(t, "sh", "-c", `printf ' one' >>"$1"`, "sh", a.path("f"))
			for _, n := range []*node{a, b} {
				require.Equal(t, "other one", text(t, n.path("f")), "on %s", n.name)
			}
			require.Equal(t, "9", size(t, a.path("f")))
			require.Equal(t, "one", holder.does("read f 0 3"))
			holder.must("close f")
			require.Equal(t, "other one", text(t, b.path("f")), "who wrote nothing publishes nothing")
			require.Empty(t, a.unpublished())
		})
	}
}

// W7, W9: who has a file open for writing does not lose what is written, whatever
// others publish and read meanwhile.
func TestAWriterWhoComesAfterALaterPublish(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	must(t, "sh", "-c", `printf start >"$1"`, "sh", a.path("f"))
	h.must("open f %s rw", a.path("f"))
	must(t, "sh", "-c", `printf theirs >"$1"`, "sh", b.path("f"))
	require.Equal(t, "theirs", text(t, a.path("f")))
	h.must("write f S")
	require.Equal(t, "Start", h.does("read f 0 5"))
	h.must("close f")
	for _, n := range []*node{a, b} {
		require.Equal(t, "Start", text(t, n.path("f")), "on %s", n.name)
	}
	require.Empty(t, a.unpublished())
}
