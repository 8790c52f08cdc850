package integration

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// W4, C3
func TestAKilledWritersFileIsRecovered(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	before := writeFile(t, c.src("f"), 3*smallBlock+5, 1)
	must(t, "cp", c.src("f"), b.path("f"))
	must(t, "mkdir", a.path("d"))
	for _, name := range []string{"f", "d/new"} {
		w := launch(t, shell(`exec sh -c 'printf half; exec sleep 1000' > "$1"`, a.path(name)))
		eventually(t, time.Minute, "written", func() bool { // R4
			return string(runCmd(t, commandLimit, exec.Command("cat", a.path(name))).out) == "half"
		})
		w.signal(syscall.SIGKILL)
		require.True(t, w.wait(commandLimit), "the writer does not end")
	}
	a.waitReleased() // the kernel says so after the writer's end
	eventually(t, time.Minute, "both are left", func() bool { return len(a.unpublished()) == 2 })
	for _, f := range a.unpublished() {
		require.Equal(t, "open", f.State)
		require.Equal(t, int64(4), f.Size)
	}
	for _, n := range []*node{a, b} {
		require.Equal(t, before, digest(t, n.path("f")))
		require.Empty(t, must(t, "ls", n.path("d")))
	}
	a.must("recover", "--unclosed", "--all")
	for _, n := range []*node{a, b} {
		require.Equal(t, "half", must(t, "cat", n.path("f")))
		require.Equal(t, "half", must(t, "cat", n.path("d/new")))
	}
	require.Empty(t, a.unpublished())
}
