package integration

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A registered file is somebody's own file. Whatever is done to it while
// others read, they see the bytes that were registered, or an error.
func TestASourceChangedUnderItsReaders(t *testing.T) {
	t.Parallel()
	const size = 30 * smallChunk
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, path string)
	}{
		{"edited", func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("edited in place"), size-smallBlock+7)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}},
		{"truncated", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, size/2)) }},
		{"truncated and grown", func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, 0))
			require.NoError(t, os.Truncate(path, size))
		}},
		{"replaced", func(t *testing.T, path string) {
			writeFile(t, path+".new", size, 99)
			require.NoError(t, os.Rename(path+".new", path))
		}},
		{"deleted", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--prefetch=off")
			a, b := c.start("a"), c.start("b")
			registered(t, a, "f", size, 1)
			data := content(t, c.src("f"))
			kept := c.src("kept")
			require.NoError(t, os.WriteFile(kept, data, 0o644))
			sameAt(t, kept, b.path("f"), 0, 3*smallBlock)

			tt.change(t, c.src("f"))
			r := runCmd(t, stuckBound, exec.Command("cat", b.path("f")))
			if r.code == 0 {
				require.Equal(t, hexOf(data), hexOf(r.out), "b read bytes that were never registered")
			} else {
				requireEIO(t, r, data)
			}
			sameAt(t, kept, b.path("f"), 0, 3*smallBlock) // what b holds stays right
			require.True(t, a.proc.alive())
			a.must("ls", a.mnt)
			a.must("stat", a.path("f"))
		})
	}
}

func TestOnlyTheTimesOfASourceChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	sum := registered(t, a, "f", 10*smallChunk, 1)
	require.NoError(t, os.Chmod(c.src("f"), 0o600)) // ctime alone
	require.Equal(t, sum, digest(t, b.path("f")))
}

func TestAnotherContentUnderANameIsAnotherObject(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	old := registered(t, a, "f", 10*smallChunk, 1)
	require.Equal(t, old, digest(t, b.path("f")))
	before := b.stat("f").ID

	for seed := uint64(2); seed < 6; seed++ { // b knows the name; same size
		a.must("unregister", a.path("f"))
		sum := writeFile(t, c.src("again"), 10*smallChunk, seed)
		require.NoError(t, os.Rename(c.src("again"), c.src("f")))
		a.register(c.src("f"), "f")
		require.Equal(t, sum, digest(t, b.path("f")), "an open after the registration showed the old bytes")
	}
	require.NotEqual(t, before, b.stat("f").ID)
}

func TestUnregisterWhileAReaderIsHalfWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b := c.start("a"), c.start("b")
	registered(t, a, "f", 50*smallChunk, 1)
	data := content(t, c.src("f"))
	const half = `
import sys
f = open(sys.argv[1], "rb", buffering=0); head = f.read(1000); print("half", flush=True); sys.stdin.readline()
sys.stdout.buffer.write(head + b"".join(iter(lambda: f.read(65536), b"")))`
	cmd := exec.Command(world.python, "-c", half, b.path("f"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	reader := launch(t, cmd)
	eventually(t, commandLimit, "half read", func() bool {
		link, _ := os.Readlink("/proc/" + itoa(reader.pid()) + "/fd/3")
		return link == b.path("f")
	})
	a.must("unregister", a.path("f"))
	require.NoError(t, in.Close())
	r := reader.finish(t, stuckBound)
	t.Logf("the reader ended with %d after %v: %s", r.code, r.took, r.err)
	if r.code == 0 {
		require.Equal(t, hexOf(data), hexOf(r.out[len("half\n"):]))
	} else {
		require.Regexp(t, `Input/output error|Stale file handle`, r.err)
	}
	soonAbsent(t, b.path("f"))
}

// What is on a mount of ours is somebody else's, and may go: it is no source,
// whichever node's mount it is and however it is reached.
func TestAMountOfP2pfsIsNoSource(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, other := c.start("a"), c.start("b"), newCluster(t).start("other")
	registered(t, a, "f", smallBlock, 1)
	registered(t, other, "g", smallBlock, 2)
	bound := c.src("tree/bound")
	require.NoError(t, os.MkdirAll(bound, 0o755))
	must(t, "mount", "--bind", other.mnt, bound)
	t.Cleanup(func() { run(t, "umount", bound) })
	link := c.src("way")
	require.NoError(t, os.Symlink(b.mnt, link))
	for _, tt := range []struct{ name, src, says string }{
		{"its own mount", a.path("f"), a.mnt},
		{"its own mountpoint", a.mnt, a.mnt},
		{"another node's", b.path("f"), "p2pfs mount at " + b.mnt},
		{"another node's by a link", link + "/f", "p2pfs mount at " + b.mnt},
		{"another cluster's", other.path("g"), "p2pfs mount at " + other.mnt},
		{"a bind mount inside a tree", c.src("tree"), "p2pfs mount at "},
	} {
		r := a.p2pfs("register", tt.src, a.path("copy"))
		require.NotZero(t, r.code, tt.name)
		require.Contains(t, r.err, tt.says, tt.name)
	}
	require.Equal(t, "f\n", must(t, "ls", a.mnt))
}
