package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// W14
func TestAFullCacheIsENOSPCAtWrite(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return // no budget there
	}
	for name, limit := range map[string]func(n *node){
		"budget": func(n *node) { n.args = append(n.args, "--cache-size=24MiB") },
		"disk": func(n *node) {
			n.args = append(n.args, "--free-space=0")
			require.NoError(t, os.MkdirAll(n.cache, 0o755))
			image := filepath.Join(n.dir, "image")
			must(t, "truncate", "-s", "32M", image)
			must(t, "mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", image)
			must(t, "mount", "-o", "loop", image, n.cache)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b := c.node("a"), c.start("b")
			limit(a)
			a.start()
			writeFile(t, c.src("small"), 5<<20, 1)
			must(t, "cp", c.src("small"), a.path("kept"))
			r := run(t, "dd", "if=/dev/urandom", "of="+a.path("big"), "bs=1M", "count=64", "status=none")
			require.NotZero(t, r.code, "64 MiB fitted into the cache")
			require.Contains(t, r.err, "error writing") // by write, not by close
			require.Contains(t, r.err, "No space left on device")
			must(t, "rm", a.path("big"))
			require.Equal(t, digest(t, c.src("small")), digest(t, b.path("kept")), "what was published is whole")
			// It waits for the room that the other gives back; not for ever, and a busy
			// machine may take longer.
			eventually(t, 2*time.Minute, "room again", func() bool {
				r := run(t, "cp", c.src("small"), a.path("again"))
				require.True(t, r.code == 0 || strings.Contains(r.err, "No space left on device"), r.String())
				return r.code == 0
			})
			require.Equal(t, digest(t, c.src("small")), digest(t, b.path("again")))
			require.Equal(t, "again\nkept\n", must(t, "ls", b.mnt))
			a.must("status")
			a.stop()
			if name == "disk" {
				eventually(t, time.Minute, "the cache is not in use", func() bool { return unix.Unmount(a.cache, 0) == nil })
			}
		})
	}
}
