package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// W1, W2, R4
func TestAFileIsSeenElsewhereFromItsCloseOn(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			h := newHand(t)
			h.must("open f %s w+creat", a.path("f"))
			require.Equal(t, "0", size(t, a.path("f")))
			require.True(t, absent(t, b.path("f")))
			h.must("fill f %d", 5*smallBlock)
			require.Equal(t, itoa(5*smallBlock), size(t, a.path("f")))
			require.Equal(t, repeat(5*smallBlock), text(t, a.path("f")), "here, what has been written so far")
			require.True(t, absent(t, b.path("f")))
			h.must("close f")
			require.Equal(t, repeat(5*smallBlock), text(t, b.path("f")))
			require.Equal(t, "f\n", must(t, "ls", b.mnt))
			publisher := a.status().Node.ID
			for _, n := range []*node{a, b} { // the publisher keeps it
				s := n.stat("f")
				require.Equal(t, int64(5*smallBlock), s.Size)
				complete := false
				for _, p := range s.Providers { // b, who has read it, may be one, too
					complete = complete || p.Node == publisher && p.Complete
				}
				require.True(t, complete, "%v", s.Providers)
			}
			require.Equal(t, int64(1), a.status().Counters["publishes"])
		})
	}
}

// W2, W4: an error of the publish is the error of close, and nothing is seen.
func TestCloseInARemovedDirectoryFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", a.path("d"))
	h := newHand(t)
	h.must("open f %s w+creat", a.path("d/f"))
	h.must("write f bytes")
	must(t, "rmdir", b.path("d")) // there is nothing in it that b knows of
	require.NotEqual(t, "ok", h.does("close f"))
	require.Equal(t, "", must(t, "ls", b.mnt))
	eventually(t, commandLimit, "the file waits to be recovered", func() bool { return len(a.unpublished()) == 1 })
	a.must("recover", "--to", a.path("saved"), a.unpublished()[0].ID)
	require.Equal(t, "bytes", text(t, b.path("saved")))
	require.Empty(t, a.unpublished())
}

// W3
func TestWhatOtherClosesLeaveIsPublishedAtTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	soon := func(name, want string) {
		t.Helper()
		soonText(t, want, b.path(name))
	}
	h := newHand(t)

	h.must("open e %s w+creat", a.path("empty"))
	h.must("close e")
	soon("empty", "")

	h.must("open f %s w+creat", a.path("mapped")) // a mapping that outlives its descriptor
	h.must("close f")
	h.must("open f %s rw", a.path("mapped"))
	h.must("truncate f 8192")
	h.must("map m f")
	h.must("close f")
	h.must("poke m 4096 late")
	h.must("unmap m")
	soon("mapped", string(make([]byte, 4096))+"late"+string(make([]byte, 4092)))

	h.must("open f %s w+creat", a.path("inherited"))
	h.must("write f one")
	h.must("child c")
	h.must("close f")
	require.Equal(t, "one", text(t, b.path("inherited")), "closed by its opener")
	h.must("end c")
	soon("inherited", "one")
}

// W2: a shell's redirection is one file, however many write to it.
func TestAChildThatClosesPublishesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	w := launch(t, shell(`(echo one; sleep 1; cat "$2"; echo two) >"$1"`, a.path("f"), "/etc/hostname"))
	for w.alive() {
		require.True(t, absent(t, b.path("f")) || !w.alive() || text(t, b.path("f")) != "one\n", "a part is published")
	}
	require.Zero(t, w.finish(t, commandLimit).code)
	require.Equal(t, "one\n"+text(t, "/etc/hostname")+"two\n", text(t, b.path("f")))
}

// W11
func TestFsyncPublishesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	h.must("open f %s w+creat", a.path("f"))
	h.must("fill f %d", 3*smallBlock)
	h.must("fsync f")
	require.True(t, absent(t, b.path("f")))
	a.kill()
	a.start()
	require.True(t, absent(t, b.path("f")))
	ls := a.unpublished() // C3
	require.Len(t, ls, 1)
	require.Equal(t, unpublished{ID: ls[0].ID, Path: "f", Size: 3 * smallBlock, State: "open", Reason: "the node ended"}, ls[0])
	require.NotZero(t, a.p2pfs("recover", a.path("f")).code, "not without being told that it was not closed")
	a.must("recover", "--unclosed", a.path("f"))
	require.Equal(t, repeat(3*smallBlock), text(t, b.path("f")))
}

// W13
func TestHolesAreNeitherSentNorStored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	h.must("open f %s rw+creat", a.path("f"))
	h.must("truncate f %d", 1000*smallBlock)
	h.must("pwrite f %d data", 500*smallBlock)
	h.must("close f")
	require.Equal(t, digest(t, a.path("f")), digest(t, b.path("f")))
	b.receivedAtMost(4*smallBlock, smallBlock)
	for _, n := range []*node{a, b} {
		require.LessOrEqual(t, n.status().Cache.UsedBytes, int64(8*smallBlock), "on %s", n.name)
	}
}

// W14
func TestAFullCacheIsNoticedAtTheWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "--cache-size="+itoa(40*smallBlock))
	h := newHand(t)
	h.must("open f %s w+creat", a.path("f"))
	h.must("fill f %d", 10*smallBlock)
	answer := "ok"
	for i := 0; i < 100 && answer == "ok"; i++ {
		answer = h.does("fill f %d", smallBlock)
	}
	require.Equal(t, "ENOSPC", answer)
	h.must("truncate f %d", 5*smallBlock)
	h.must("close f")
	require.Equal(t, itoa(5*smallBlock), size(t, a.path("f")))
}
