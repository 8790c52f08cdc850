package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// N1, N7, A1
func TestChangesOfNamesHaveHappenedEverywhere(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"open", "watch"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--consistency="+consistency)
			a, b := c.start("a"), c.start("b")
			// Under watch a change is seen within moments, else at once.
			then := func(what string, ok func() bool) {
				t.Helper()
				if consistency == "watch" {
					eventually(t, commandLimit, what, ok)
					return
				}
				require.True(t, ok(), what)
			}
			ls := func(n *node, dir string) string {
				return strings.Join(strings.Fields(must(t, "ls", "-A", n.path(dir))), " ")
			}
			for i, from := range []*node{a, b} {
				to := []*node{b, a}[i]
				must(t, "mkdir", "-p", from.path("d/e"))
				then("mkdir", func() bool { return !absent(t, to.path("d/e")) })
				must(t, "cp", "/etc/hostname", from.path("d/f"))
				must(t, "ln", "-s", "../x y\n\tz", from.path("d/l"))
				then("symlink", func() bool { return ls(to, "d") == "e f l" })
				target, err := os.Readlink(to.path("d/l"))
				require.NoError(t, err)
				require.Equal(t, "../x y\n\tz", target)
				must(t, "mv", from.path("d/f"), from.path("d/e/g"))
				then("rename across directories", func() bool { return ls(to, "d") == "e l" && ls(to, "d/e") == "g" })
				must(t, "chmod", "640", from.path("d/e/g"))
				must(t, "chown", "12:34", from.path("d/e/g"))
				must(t, "touch", "-d", "2001-02-03 04:05:06.789012345Z", from.path("d/e/g"))
				// What stat shows elsewhere may be old for a moment.
				eventually(t, commandLimit, "attributes", func() bool {
					return must(t, "stat", "-c", "%a %u %g %.9Y %.9X", to.path("d/e/g")) == "640 12 34 981173106.789012345 981173106.789012345\n"
				})
				must(t, "mv", from.path("d/e"), from.path("top"))
				then("a directory moved", func() bool { return ls(to, "") == "d top" && ls(to, "top") == "g" })
				must(t, "rm", "-r", from.path("d"), from.path("top"))
				then("all removed", func() bool { return ls(to, "") == "" })
			}
		})
	}
}

// N2
func TestRmdirSeesEveryNodesNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	notEmpty := func(n *node, dir string) {
		t.Helper()
		r := run(t, "rmdir", n.path(dir))
		require.NotZero(t, r.code)
		require.Contains(t, r.err, "Directory not empty")
	}
	must(t, "mkdir", a.path("d"))
	must(t, "cp", "/etc/hostname", b.path("d/theirs"))
	notEmpty(a, "d")
	must(t, "rm", a.path("d/theirs"))
	h := newHand(t)
	h.must("open f %s w+creat", a.path("d/mine"))
	notEmpty(a, "d") // nobody else knows of it
	h.must("close f")
	notEmpty(b, "d")
	must(t, "rm", b.path("d/mine"))
	must(t, "cp", "/etc/hostname", a.path("d/.f.abc123"))
	notEmpty(a, "d") // W12
	must(t, "rm", a.path("d/.f.abc123"))
	must(t, "rmdir", a.path("d"))
	require.Equal(t, "", must(t, "ls", "-A", b.mnt))
}

// N3
func TestRenameReplacesInOneStep(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", a.path("x"))
	must(t, "sh", "-c", `echo 0 >"$1"`, "sh", a.path("f"))
	r := look(t, "rounds.py", "present", b.path("f"), c.src("stop"))
	for i := range 40 {
		from := []string{"new", "x/new"}[i%2]
		must(t, "sh", "-c", `echo "$2" >"$1"; mv "$1" "$3"`, "sh", a.path(from), itoa(i), a.path("f"))
		require.Equal(t, itoa(i)+"\n", text(t, b.path("f")))
	}
	must(t, "touch", c.src("stop"))
	r.succeed(t) // else the name was missing for a moment

	must(t, "ln", "-s", "f", a.path("l"))
	must(t, "mkdir", a.path("empty"), a.path("full"), a.path("full/e"))
	must(t, "mv", "-T", a.path("f"), a.path("l")) // over a symlink
	require.Equal(t, "39\n", text(t, b.path("l")))
	must(t, "mv", "-T", a.path("full"), a.path("empty")) // over an empty directory
	require.Equal(t, "e\n", must(t, "ls", b.path("empty")))
	must(t, "mkdir", a.path("other"))
	res := run(t, "mv", "-T", b.path("other"), b.path("empty"))
	require.NotZero(t, res.code)
	require.Contains(t, res.err, "not empty")
	h := newHand(t)
	require.Equal(t, "EISDIR", h.does("rename %s %s", a.path("l"), a.path("other")))
	require.Equal(t, "ENOTDIR", h.does("rename %s %s", a.path("other"), a.path("l")))
	require.Equal(t, "ENOENT", h.does("rename %s %s", a.path("none"), a.path("l")))
}

// N4
func TestRenamingADirectoryMovesOneEntry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", "-p", c.src("tree"))
	for i := range 500 {
		writeFile(t, c.src("tree/d"+itoa(i%7)+"/"+itoa(i)), 10, uint64(i))
	}
	a.register(c.src("tree"), "tree")
	h := newHand(t)
	h.must("open f %s w+creat", a.path("tree/d1/mine")) // not published: its directory moves under it
	h.must("write f mine")
	must(t, "mv", b.path("tree"), b.path("moved"))
	require.Equal(t, "500\n", must(t, "sh", "-c", `find "$1" -type f -size -5 ! -name mine | wc -l`, "sh", a.path("moved")))
	h.must("close f")
	require.Equal(t, "mine", text(t, b.path("moved/d1/mine")))
	soonAbsent(t, a.path("tree"))
}

// N5
func TestADirectoryCannotBeMovedBelowItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	h := newHand(t)
	must(t, "mkdir", "-p", a.path("d/e/f"))
	require.Equal(t, "EINVAL", h.does("rename %s %s", a.path("d"), a.path("d/e/f/d")))
	require.Equal(t, "EINVAL", h.does("rename %s %s", b.path("d"), b.path("d/e/d")))
	for i := range 10 { // each below the other, at once
		must(t, "mkdir", a.path("x"), a.path("y"))
		ra := launch(t, shell(`mv -T "$1" "$2"`, a.path("x"), a.path("y/x")))
		rb := launch(t, shell(`mv -T "$1" "$2"`, b.path("y"), b.path("x/y")))
		ca, cb := ra.finish(t, commandLimit).code, rb.finish(t, commandLimit).code
		require.True(t, ca == 0 != (cb == 0), "round %d: one of them: %d and %d", i, ca, cb)
		require.Equal(t, "d/e/f", strings.TrimSpace(must(t, "sh", "-c", `cd "$1" && echo d/*/*`, "sh", a.mnt)))
		must(t, "rm", "-r", a.path("x"), b.path("y"), "-f")
		require.Equal(t, "d\n", must(t, "ls", a.mnt))
	}
}

// N6
func TestARemovedNameStaysRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for _, name := range []string{"f", "g", "big"} {
		writeFile(t, a.path(name), 5*smallBlock, 1)
		digest(t, b.path(name))
	}
	h := newHand(t)
	h.must("open f %s rw", a.path("g")) // open while it is removed
	h.must("write f late")
	must(t, "rm", a.path("f"), a.path("g"))
	a.kill()
	must(t, "rm", b.path("big"))
	a.start()
	b.stop()
	b.start()
	for _, n := range []*node{a, b} {
		require.Equal(t, "", must(t, "ls", "-A", n.mnt), "on %s", n.name)
	}
	for _, l := range a.unpublished() {
		require.Equal(t, "open", l.State)
	}
}

// N8
func TestARemovedFileIsReadByWhoHasItOpen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b := c.start("a"), c.start("b")
	writeFile(t, c.src("f"), 30*smallBlock, 1)
	must(t, "cp", c.src("f"), a.path("f"))
	h := newHand(t)
	h.must("open f %s r", b.path("f"))
	must(t, "rm", a.path("f"))
	want := content(t, c.src("f"))
	require.Equal(t, string([]rune(latin(want[20*smallBlock:20*smallBlock+3]))), h.does("read f %d 3", 20*smallBlock))
	soonAbsent(t, b.path("f"))
}

// latin decodes bytes as the hand does.
func latin(b []byte) string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// N1: what is refused, is refused at once and plainly.
func TestAReadOnlyMountTakesNoWrites(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b", "--read-only")
	must(t, "cp", "/etc/hostname", a.path("f"))
	for _, args := range [][]string{{"touch", b.path("g")}, {"rm", b.path("f")}, {"mv", b.path("f"), b.path("g")}, {"mkdir", b.path("d")}} {
		r := run(t, args[0], args[1:]...)
		require.NotZero(t, r.code, args)
		require.Contains(t, r.err, "Read-only file system", args)
	}
	r := b.p2pfs("unregister", "--force", b.path("f"))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "read-only")
	require.Equal(t, text(t, "/etc/hostname"), text(t, b.path("f")))
}
