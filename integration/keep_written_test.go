package integration

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// written writes a file of random bytes through the mount, in a child process.
func written(t *testing.T, n *node, path string, size int64, seed uint64) string {
	t.Helper()
	src := n.c.src("w/" + path)
	sum := writeFile(t, src, size, seed)
	must(t, "cp", src, n.path(path))
	require.NoError(t, os.Remove(src))
	return sum
}

// K1, K2
func TestAWrittenCopyIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		size int64
	}{{"small", 1000}, {"large", 5*smallChunk + 3}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.start("a"), c.start("b")
			sum := written(t, a, "f", tt.size, 1)
			require.Equal(t, []string{"a"}, b.keepers("f"))
			r := a.p2pfs("drop", a.path("f"))
			require.NotZero(t, r.code, "the only copy was dropped")
			require.Contains(t, r.err, "--force")
			a.stop()
			a.start()
			require.Equal(t, sum, digest(t, b.path("f")))
			b.waitLocal("f")
			a.waitHolder("f", "b")
			a.must("drop", a.path("f"))
			require.Equal(t, []string{"b"}, a.keepers("f"))
			require.Equal(t, "remote", a.copies("f").State)
			require.Equal(t, sum, digest(t, a.path("f")))
			require.NotZero(t, b.p2pfs("unregister", "--keep-name", b.path("f")).code, "it is not registered")

			// Its name goes: the new keeper collects it.
			require.NoError(t, os.Remove(a.path("f")))
			b.collects(1)
			require.Zero(t, b.gc().Checked)
		})
	}
}

// K3, N8
func TestWrittenFilesWithoutANameAreRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b := c.start("a"), c.start("b")
	require.NoError(t, os.Mkdir(a.path("d"), 0o755))
	for i, name := range []string{"d/large", "d/small", "d/moved", "d/stays", "d/replaced"} {
		written(t, a, name, []int64{6 * smallChunk, 100, 200, 300, 2 * smallChunk}[i], uint64(i))
	}
	require.Zero(t, a.gc().Removed)
	require.NoError(t, os.Rename(b.path("d/moved"), b.path("moved")))
	require.NoError(t, os.Rename(b.path("d"), b.path("e")))
	sum := written(t, b, "e/replaced", 100, 9)
	a.collects(1) // the one that was replaced
	require.Equal(t, sum, digest(t, a.path("e/replaced")))
	require.Zero(t, a.gc().Removed)

	// Over a restart, too: what was small has no record of its own.
	a.stop()
	a.start()
	require.Zero(t, a.gc().Removed)
	for _, name := range []string{"e/small", "e/large", "moved"} {
		require.NoError(t, os.Remove(b.path(name)))
	}
	a.stop()
	a.start()
	require.Equal(t, int64(3), a.gc("--dry-run").Removed)
	a.collects(3)
	require.Equal(t, int64(1), a.gc().Checked)
	require.Equal(t, digest(t, a.path("e/stays")), digest(t, b.path("e/stays")))
}

// K3: a file that is open where it was written, and has no name, is not removed
// before it is closed.
func TestAnOpenFileWithoutANameStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	sum := written(t, a, "f", 4*smallChunk, 1)
	f := holdOpen(t, a.path("f"))
	require.NoError(t, os.Remove(b.path("f")))
	eventually(t, time.Minute, "a heard of it", func() bool { return a.gc().Waiting == 1 })
	require.Equal(t, sum, f())
	eventually(t, 2*time.Minute, "it is gone", func() bool {
		r := a.gc()
		return r.Removed == 1 || r.Checked == 0
	})
}

// K4: what is written can be joined by registering equal bytes.
func TestWrittenBytesAreJoined(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for _, size := range []int64{100, 3 * smallChunk} {
		name := "f" + itoa(size)
		sum := writeFile(t, c.src(name), size, 1)
		must(t, "cp", c.src(name), a.path(name))
		b.register(c.src(name), name)
		require.ElementsMatch(t, []string{"a", "b"}, a.keepers(name))
		a.must("drop", a.path(name))
		require.Equal(t, []string{"b"}, a.keepers(name))
		require.Equal(t, sum, digest(t, a.path(name)))
	}
}

// holdOpen opens a file in a child process; the returned function has it read
// the file and end, and returns the digest.
func holdOpen(t *testing.T, path string) func() string {
	t.Helper()
	const script = `
import hashlib, sys
f = open(sys.argv[1], "rb"); print("open", flush=True); sys.stdin.readline()
print(hashlib.sha256(f.read()).hexdigest())`
	cmd := pythonCmd(script, path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := launch(t, cmd)
	eventually(t, time.Minute, path+" open", func() bool {
		link, _ := os.Readlink("/proc/" + itoa(p.pid()) + "/fd/3")
		return link == path
	})
	return func() string {
		require.NoError(t, in.Close())
		r := p.finish(t, stuckBound)
		require.Zero(t, r.code, r.err)
		return string(r.out[len("open\n") : len("open\n")+64])
	}
}
