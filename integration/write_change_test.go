package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// W4, R1: a reader elsewhere finds the old or the new, whole, and never the old
// after a close has returned.
func TestAnOpenElsewhereFindsOneWholePublish(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	write := func(n *node, digit string) {
		must(t, "sh", "-c", `head -c "$2" /dev/zero | tr '\0' "$3" >"$1"`, "sh", n.path("f"), itoa(7*smallBlock+3), digit)
	}
	write(a, "0")
	for i, digit := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		r := look(t, "rounds.py", "uniform", to.path("f"), c.src("stop"))
		write(from, digit)
		for _, n := range []*node{to, from} {
			require.Equal(t, digit, must(t, "sh", "-c", `fold -w 1 "$1" | sort -u | tr -d '\n'`, "sh", n.path("f")))
		}
		must(t, "touch", c.src("stop"))
		r.succeed(t) // else it found a mix
		must(t, "rm", c.src("stop"))
	}
}

// W5, R2, N8
func TestAnOpenFileKeepsItsObject(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			w, here, there := newHand(t), newHand(t), newHand(t)
			w.must("open f %s rw+creat", a.path("f"))
			w.must("fill f %d", 3*smallBlock)
			w.must("close f")
			here.must("open f %s r", a.path("f"))
			there.must("open f %s r", b.path("f"))
			same := func(why string) {
				t.Helper()
				for _, h := range []*hand{here, there} {
					require.Equal(t, "xxxx", h.does("read f %d 4", 2*smallBlock), why)
				}
			}
			w.must("open f %s rw+trunc", a.path("f"))
			w.must("write f short")
			w.must("close f")
			same("published again")
			require.Equal(t, "short", text(t, b.path("f")))
			w.must("open f %s w+creat", a.path("g"))
			w.must("write f other")
			w.must("close f")
			w.must("rename %s %s", a.path("g"), a.path("f"))
			same("another file renamed over it")
			require.Equal(t, "other", text(t, b.path("f")))
			w.must("unlink %s", a.path("f"))
			same("removed")
			require.True(t, absent(t, a.path("f")))
			soonAbsent(t, b.path("f"))
		})
	}
}

// W5
func TestAWriteAfterACloseIsPublishedByTheNext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	h.must("open f %s w+creat", a.path("f"))
	h.must("fill f %d", 4*smallBlock)
	h.must("dup f g")
	h.must("close g")
	id := b.stat("f").ID
	require.Equal(t, repeat(4*smallBlock), text(t, b.path("f")))
	h.must("pwrite f %d news", smallBlock+1)
	require.Equal(t, repeat(4*smallBlock), text(t, b.path("f")), "before its close")
	h.must("close f")
	require.Contains(t, text(t, b.path("f")), "xnewsx")
	require.NotEqual(t, id, b.stat("f").ID)
}

// W6
func TestAChangeTakesOverWhatIsNotWritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b := c.start("a"), c.start("b")
	const blocks = 40
	registered(t, a, "f", blocks*smallBlock+7, 1)
	h := newHand(t)
	h.must("open f %s rw", b.path("f"))
	require.LessOrEqual(t, b.received(), int64(0), "opening fetches nothing")
	h.must("pwrite f %d in_place", 3*smallBlock)
	b.fetchedAtMost(2*smallBlock, 0)
	h.must("close f")
	want := content(t, c.src("f"))
	copy(want[3*smallBlock:], "in_place")
	for _, n := range []*node{a, b} {
		require.Equal(t, hexOf(want), digest(t, n.path("f")), "on %s", n.name)
	}
	require.NotEqual(t, hexOf(want), digest(t, c.src("f")), "a registered file is never written") // K5
	b.receivedAtMost(1.05*blocks*smallBlock, smallBlock)

	registered(t, a, "g", blocks*smallBlock, 2)
	before := b.received()
	h.must("open f %s w+trunc", b.path("g"))
	h.must("write f new")
	h.must("close f")
	require.Equal(t, "new", text(t, a.path("g")))
	require.Equal(t, before, b.received(), "of what is cut, nothing is fetched")

	h.must("open f %s rw", b.path("f")) // nothing is written: nothing is published
	id := a.stat("f").ID
	h.must("close f")
	require.Equal(t, id, a.stat("f").ID)
}

// W7
func TestTheLastCloseWins(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "sh", "-c", `printf start >"$1"`, "sh", a.path("f"))
	ha, hb := newHand(t), newHand(t)
	ha.must("open f %s rw+trunc", a.path("f"))
	hb.must("open f %s rw", b.path("f"))
	ha.must("fill f %d", 3*smallBlock)
	hb.must("write f two")
	ha.must("close f")
	require.Equal(t, itoa(3*smallBlock), itoa(b.stat("f").Size))
	require.Equal(t, "twort", text(t, b.path("f")), "where it is being written, what has been written") // R4
	hb.must("close f")
	for _, n := range []*node{a, b} {
		require.Equal(t, "twort", text(t, n.path("f")), "on %s", n.name)
	}

	ha.must("open f %s w+creat", a.path("new")) // made on both at once
	hb.must("open f %s w+creat", b.path("new"))
	ha.must("write f one")
	hb.must("write f two")
	hb.must("close f")
	ha.must("close f")
	for _, n := range []*node{a, b} {
		require.Equal(t, "one", text(t, n.path("new")), "on %s", n.name)
	}
}

// W8
func TestExclusiveCreate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	ha, hb := newHand(t), newHand(t)
	must(t, "touch", a.path("there"))
	eventually(t, commandLimit, "published", func() bool { return !absent(t, b.path("there")) })
	require.Equal(t, "EEXIST", hb.does("open f %s w+creat+excl", b.path("there")))
	ha.must("open f %s w+creat+excl", a.path("f"))
	require.Equal(t, "EEXIST", ha.does("open g %s w+creat+excl", a.path("f")), "also before it is published")
	hb.must("open f %s w+creat+excl", b.path("f"))
	ha.must("write f mine")
	hb.must("write f theirs")
	hb.must("close f")
	require.Equal(t, "EEXIST", ha.does("close f"))
	for _, n := range []*node{a, b} {
		soonText(t, "theirs", n.path("f"))
	}
	eventually(t, commandLimit, "kept", func() bool { return len(a.unpublished()) == 1 })
	require.NotZero(t, a.p2pfs("recover", a.path("f")).code)
	require.Equal(t, "published /mine\n", a.must("recover", a.path("f"), "--to", a.path("mine")))
	require.Equal(t, "mine", text(t, b.path("mine")))
	require.Equal(t, "theirs", text(t, b.path("f")))
}

// K1 W8: what was recovered under another name is kept like anything else, by a
// node that was restarted, too.
func TestWhatIsRecoveredUnderAnotherNameStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--chunk-size="+itoa(oracleChunk))
	a, b := c.start("a"), c.start("b")
	ha, hb := newHand(t), newHand(t)
	mine := strings.Repeat("m", 2*oracleBlock)
	ha.must("open f %s w+creat+excl", a.path("f"))
	ha.must("write f %s", mine)
	hb.must("open f %s w+creat+excl", b.path("f"))
	hb.must("write f theirs")
	hb.must("close f")
	require.Equal(t, "EEXIST", ha.does("close f"))
	eventually(t, commandLimit, "kept", func() bool { return len(a.unpublished()) == 1 })
	a.must("recover", a.path("f"), "--to", a.path("mine"))
	a.stop()
	a.start()
	a.must("gc")
	a.must("gc")
	require.Equal(t, mine, readBack(t, b.path("mine")))
	require.Equal(t, "theirs", text(t, b.path("f")))
}

// W9
func TestWhatAnotherNodeRemovedIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	for _, name := range []string{"removed", "replaced"} {
		must(t, "sh", "-c", `echo old >"$1"`, "sh", a.path(name))
		h.must("open f %s rw", a.path(name))
		h.must("write f mine")
		must(t, "rm", b.path(name))
		if name == "replaced" {
			must(t, "sh", "-c", `echo theirs >"$1"`, "sh", b.path(name))
		}
		require.Equal(t, "ESTALE", h.does("close f"), name)
	}
	require.Equal(t, "replaced\n", must(t, "ls", b.mnt))
	// The last of a file comes after its close has returned: the kernel's word that
	// nobody has it open any more.
	soonText(t, "theirs\n", a.path("replaced"))
	eventually(t, commandLimit, "kept", func() bool { return len(a.unpublished()) == 2 })
	eventually(t, commandLimit, "counted", func() bool { return a.status().Staging.Failed == 2 })
	out := c.src("out")
	a.must("recover", "--out", out, a.path("replaced"))
	require.Equal(t, "mine", text(t, out))
	a.must("recover", a.path("removed"))
	require.Equal(t, "mine", text(t, b.path("removed")))
	a.must("recover", "--discard", a.path("replaced"))
	require.Empty(t, a.unpublished())
	require.Equal(t, "nothing waits to be recovered\n", a.must("recover"))
}
