package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// K3, K5: what another node takes the name of is collected, and the file itself
// is not touched.
func TestRegisteredFilesWithoutANameAreForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for i, name := range []string{"t/large", "t/small", "t/stays"} {
		writeFile(t, c.src(name), []int64{3 * smallChunk, 100, 100}[i], uint64(i))
	}
	a.register(c.src("t"), "t")
	b.must("unregister", "--force", b.path("t/large"))
	b.must("unregister", "--force", b.path("t/small"))
	require.Equal(t, int64(2), a.gc("--dry-run").Forgotten)
	a.collects(2)
	require.Zero(t, a.gc().Forgotten)
	require.Equal(t, int64(1), a.gc().Checked)
	require.FileExists(t, c.src("t/large"))
	require.Equal(t, []string{"a"}, b.keepers("t/stays"), "the rest of the set is not served any more")
	require.Equal(t, digest(t, c.src("t/stays")), digest(t, b.path("t/stays")))
	b.must("unregister", "--force", b.path("t"))
	a.collects(1)
}

// N8, K3: who has a file open when its name goes reads it to its end.
func TestAFileWithoutANameIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b, d := c.start("a"), c.start("b"), c.start("d")
	registered(t, a, "f", 50*smallChunk, 1)
	data := content(t, c.src("f"))
	const half = `
import sys
f = open(sys.argv[1], "rb", buffering=0); head = f.read(1000); print("half", flush=True); sys.stdin.readline()
sys.stdout.buffer.write(head + b"".join(iter(lambda: f.read(65536), b"")))`
	cmd := pythonCmd(half, b.path("f"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	reader := launch(t, cmd)
	eventually(t, time.Minute, "half read", func() bool {
		link, _ := os.Readlink("/proc/" + itoa(reader.pid()) + "/fd/3")
		return link == b.path("f")
	})
	d.must("unregister", "--force", d.path("f"))
	eventually(t, time.Minute, "b has the rest", func() bool { return b.received() >= 50*smallChunk })
	eventually(t, 2*time.Minute, "a gave it up", func() bool {
		r := a.gc()
		return r.Forgotten == 1 || r.Checked == 0
	})
	require.NoError(t, in.Close())
	r := reader.finish(t, stuckBound)
	require.Zero(t, r.code, r.err)
	require.Equal(t, hexOf(data), hexOf(r.out[len("half\n"):]))
}

// K3: in doubt nothing is removed.
func TestNothingIsCollectedWithoutTheStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	st := newStore(filepath.Join(c.dir, "etcd"))
	require.NoError(t, st.start())
	t.Cleanup(st.stop)
	c.url = st.url() + "/x"
	a := c.start("a")
	registered(t, a, "f", 3*smallChunk, 1)
	st.stop()
	require.NotZero(t, a.p2pfs("gc").code)
	require.NoError(t, st.start())
	kept := func(what string) {
		t.Helper()
		eventually(t, backBound, what, func() bool {
			r := a.p2pfs("stat", a.path("f"), "--json") // the store may still be away
			if r.code != 0 {
				return false
			}
			var c copies
			require.NoError(t, json.Unmarshal(r.out, &c))
			require.Equal(t, "in-place", c.State)
			return true
		})
	}
	eventually(t, 2*time.Minute, "the store is back", func() bool { return a.p2pfs("gc").code == 0 })
	kept("what was registered is here")
	require.NoError(t, st.wipe())
	a.p2pfs("gc")
	kept("what was registered is still here")
}

func pythonCmd(script string, args ...string) *exec.Cmd {
	return exec.Command(world.python, append([]string{"-c", script}, args...)...)
}
