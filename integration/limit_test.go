package integration

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestANodeSendsAndReceivesNoFasterThanItMay(t *testing.T) {
	t.Parallel()
	const size, limit = 4 << 20, 2 << 20
	c := newCluster(t)
	slow, a := c.start("slow", "--upload-limit=2MiB"), c.start("a")
	b, thrifty := c.start("b"), c.start("thrifty", "--download-limit=2MiB")
	fromSlow := registered(t, slow, "slow", size, 1)
	fromA := registered(t, a, "a", size, 2)
	for _, x := range []struct {
		n          *node
		file, want string
	}{{b, "slow", fromSlow}, {thrifty, "a", fromA}} {
		began := time.Now()
		require.Equal(t, x.want, digest(t, x.n.path(x.file)))
		took := time.Since(began).Seconds()
		require.Greater(t, took, 0.8*size/limit, x.file)
		require.Less(t, took, 60.0*size/limit, x.file)
	}
	r := runCmd(t, commandLimit, exec.Command(world.binary, "mount", c.url, c.src("mnt"), "--cache-dir", c.src("cache"), "--upload-limit", "1K"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "--upload-limit: 1024 bytes per second: want 65536 at least")
}
