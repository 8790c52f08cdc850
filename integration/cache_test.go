package integration

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARestartKeepsTheCache(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"SIGTERM", "SIGKILL"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.start("a"), c.start("b")
			sum := registered(t, a, "f", 50*smallChunk+9, 1)
			require.Equal(t, sum, digest(t, b.path("f")))
			b.waitLocal("f")
			id := b.status().Node.ID
			if how == "SIGTERM" {
				b.stop()
			} else {
				b.proc.kill()
			}
			b.start()
			require.Equal(t, id, b.status().Node.ID)
			require.Equal(t, sum, digest(t, b.path("f")))
			require.Zero(t, b.received(), "bytes that were here travelled again")
			a.kill()
			require.Equal(t, sum, digest(t, b.path("f")))
		})
	}
}

func TestASmallCacheEvictsAndReadsOn(t *testing.T) {
	t.Parallel()
	const file = 20 * smallChunk
	c := newCluster(t)
	a := c.start("a")
	b := c.start("b", "--cache-size="+itoa(3*file))
	sums := map[string]string{}
	for i := range 8 {
		name := fmt.Sprintf("f%d", i)
		sums[name] = registered(t, a, name, file, uint64(i))
	}
	held := launch(t, exec.Command("sh", "-c", `exec 3<"$1"; head -c 100 <&3 >/dev/null; exec sleep 600`, "sh", b.path("f0")))
	for range 2 {
		for name, sum := range sums {
			require.Equal(t, sum, digest(t, b.path(name)), name)
			used := b.status().Cache.UsedBytes
			require.LessOrEqual(t, used, int64(4*file), "the budget is not kept")
		}
	}
	eventually(t, time.Minute, "back within the budget", func() bool { return b.status().Cache.UsedBytes <= 3*file })
	eventually(t, time.Minute, "and on the disk", func() bool { return diskUsage(t, b.cache) <= 5*file })
	held.kill()

	whole := registered(t, a, "larger than the cache", 5*file, 77)
	require.Equal(t, whole, digest(t, b.path("larger than the cache")))
	require.Equal(t, whole, digest(t, b.path("larger than the cache")))
}

// diskUsage is what lies in a directory, in bytes of disk.
func diskUsage(t testing.TB, dir string) int64 {
	t.Helper()
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	require.NoError(t, err)
	return sum
}

func TestAFullDiskIsReadThrough(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{"bytes": "size=16m", "inodes": "size=64m,nr_inodes=350"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a := c.start("a")
			b := c.node("b", "--free-space=0")
			require.NoError(t, os.MkdirAll(b.cache, 0o755))
			must(t, "mount", "-t", "tmpfs", "-o", options, "tmpfs", b.cache)
			b.start()
			const size = 48 << 20
			big := registered(t, a, "big", size, 1)
			require.Equal(t, big, digest(t, b.path("big")))
			for i := range 100 {
				name := fmt.Sprintf("f%d", i)
				require.Equal(t, registered(t, a, name, smallBlock+1, uint64(i)), digest(t, b.path(name)))
			}
			require.Equal(t, big, digest(t, b.path("big")))
			b.must("status")
			b.stop()
			require.NoError(t, syscall.Unmount(b.cache, syscall.MNT_DETACH))
		})
	}
}

func TestDropGivesTheSpaceBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	registered(t, a, "f", 40*smallChunk, 1)
	b.must("get", b.path("f"))
	require.GreaterOrEqual(t, diskUsage(t, b.cache), int64(40*smallChunk))
	b.must("drop", b.path("f"))
	require.Zero(t, b.stat("f").LocalBytes)
	eventually(t, time.Minute, "the disk has it back", func() bool { return diskUsage(t, b.cache) < 10*smallChunk })
	r := a.p2pfs("drop", a.path("f"))
	require.FileExists(t, c.src("f"), r.String())
	must(t, "cmp", c.src("f"), b.path("f"))
}

func TestWhatWasDroppedIsFetchedAgain(t *testing.T) {
	t.Parallel()
	const size = 10 * smallChunk
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			sum := registered(t, a, "f", size, 1)
			for round := range int64(3) { // with no pause for anything to be forgotten
				require.Equal(t, sum, digest(t, b.path("f")))
				b.must("get", b.path("f"))
				require.EqualValues(t, size, b.stat("f").LocalBytes, "round %d: it was got and is not here", round)
				b.fetchedOnce((round+1)*size, "round %d", round)
				b.must("drop", b.path("f"))
				require.Zero(t, b.stat("f").LocalBytes)
				eventually(t, time.Minute, "dropped bytes leave the disk", func() bool { return openUnlinked(t, b) < size })
			}
		})
	}
}

// openUnlinked is how many bytes a daemon holds in files without a name.
func openUnlinked(t testing.TB, n *node) int64 {
	t.Helper()
	dir := filepath.Join("/proc", itoa(n.proc.pid()), "fd")
	fds, err := os.ReadDir(dir)
	require.NoError(t, err)
	var sum int64
	for _, fd := range fds {
		var st syscall.Stat_t
		if syscall.Stat(filepath.Join(dir, fd.Name()), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Nlink == 0 {
			sum += st.Blocks * 512
		}
	}
	return sum
}

func TestKilledInMidFetchItNeverShowsWrongBytes(t *testing.T) {
	t.Parallel()
	killStorm(t, 20, 20261129)
}

// killStorm kills a node again and again while it fetches, and reads all it
// has after each restart.
func killStorm(t *testing.T, rounds int, seed uint64) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t)
	a := c.start("a")
	const size = 60 * smallChunk
	sums := make([]string, 4)
	for i := range sums {
		sums[i] = registered(t, a, fmt.Sprintf("f%d", i), size, seed+uint64(i))
	}
	b := c.start("b")
	for round := range rounds {
		file := rng.IntN(len(sums))
		reader := launch(t, exec.Command("cat", b.path(fmt.Sprintf("f%d", file))))
		reader.wait(time.Duration(rng.IntN(60)) * time.Millisecond)
		b.proc.kill()
		require.True(t, reader.wait(time.Minute), "round %d: the reader hangs after the daemon is gone", round)
		b.start()
		before := b.received()
		require.Equal(t, sums[file], digest(t, b.path(fmt.Sprintf("f%d", file))), "round %d", round)
		b.fetchedAtMost(size, before, "round %d fetched more than the file", round)
		if rng.IntN(4) == 0 { // begin again from nothing
			b.must("drop", b.path(fmt.Sprintf("f%d", file)))
		}
	}
	a.kill()
	for i, sum := range sums {
		path := fmt.Sprintf("f%d", i)
		if st := b.stat(path); st.LocalBytes == st.Size {
			require.Equal(t, sum, digest(t, b.path(path)))
		}
	}
}

func TestFlippedBytesInACacheAreNotServedOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d := c.start("a"), c.start("b"), c.start("c")
	const size = 20 * smallChunk
	sum := registered(t, a, "f", size, 1)
	b.must("get", b.path("f"))
	b.stop()
	flipped := 0
	require.NoError(t, filepath.WalkDir(b.cache, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() != size {
			return err
		}
		require.NoError(t, os.Chmod(path, 0o644))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte("rotten"), size/2)
		flipped++
		return err
	}))
	require.Equal(t, 1, flipped, "the cached file was not found")
	b.start()
	require.Equal(t, sum, digest(t, d.path("f")), "rotten bytes reached another node")
	require.NotZero(t, d.received())
}
