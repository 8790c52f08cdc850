package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// W14, K3: a checkpoint of 40 % of the cache can be overwritten again and again,
// at once and without a word to anybody: what no name stands for makes room.
func TestOverwritingAgainAndAgainInASmallCache(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "--cache-size=20MiB"), c.start("b")
	last := ""
	for i := range 10 {
		writeFile(t, c.src("ckpt"), 8<<20, uint64(i+1))
		copied(t, c.src("ckpt"), a.path("ckpt"))
		last = digest(t, c.src("ckpt"))
	}
	require.Equal(t, last, digest(t, b.path("ckpt")))
	b.waitReleased() // what it has open stays on a
	for i := range 3 {
		writeFile(t, c.src("ckpt"), 8<<20, uint64(i+100))
		copied(t, c.src("ckpt"), a.path("ckpt.new"))
		must(t, "mv", a.path("ckpt.new"), a.path("ckpt"))
		last = digest(t, c.src("ckpt"))
	}
	require.Equal(t, last, digest(t, b.path("ckpt")))
	require.LessOrEqual(t, a.status().Cache.UsedBytes, int64(20<<20))
}

// copied copies a file into a cache that has to make room for it. A write waits for
// that as long as roomWait: on a machine that stood still until then it comes to
// nothing, and is done again.
func copied(t *testing.T, src, dst string) {
	t.Helper()
	eventually(t, commandLimit, dst+" has room", func() bool {
		r := run(t, "cp", src, dst)
		if r.code != 0 {
			require.Contains(t, r.err, "No space left on device")
			require.Greater(t, r.took, roomWait, "%s", r)
		}
		return r.code == 0
	})
}

// roomWait is how long a write waits for room that others may give back.
const roomWait = 5 * time.Second

// K4, K3: a node that published a file and registers an equal one under its name
// keeps one of them, and none when the name is gone.
func TestThePublisherRegistersTheSameFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for name, size := range map[string]int64{"large": 5 * smallChunk, "small": 100} {
		writeFile(t, c.src(name), size, 1)
		must(t, "cp", c.src(name), a.path(name))
		a.register(c.src(name), name)
		a.register(c.src(name), name)
		require.Equal(t, digest(t, c.src(name)), digest(t, b.path(name)))
		must(t, "rm", b.path(name))
	}
	// What b has just read counts as open there until its kernel has said otherwise.
	eventually(t, commandLimit, "none is registered any more", func() bool {
		a.must("gc")
		return strings.Contains(a.must("status"), " 0 registered in place")
	})
	a.must("gc")
	require.FileExists(t, c.src("large"))
}
