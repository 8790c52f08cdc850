package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// usage is what a process holds.
type usage struct{ fds, sockets, goroutines int }

func (n *node) usage(http string) usage {
	n.t.Helper()
	dir := filepath.Join("/proc", itoa(n.proc.pid()), "fd")
	fds, err := os.ReadDir(dir)
	require.NoError(n.t, err)
	u := usage{fds: len(fds)}
	for _, fd := range fds {
		if link, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.HasPrefix(link, "socket:") {
			u.sockets++
		}
	}
	u.goroutines = int(metric(n.t, http, "go_goroutines"))
	return u
}

// metric reads one gauge or counter from a node's /metrics.
func metric(t testing.TB, http, name string) float64 {
	t.Helper()
	for _, line := range strings.Split(scrape(t, http), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			return v
		}
	}
	require.Failf(t, "no such metric", "%s", name)
	return 0
}

func scrape(t testing.TB, http string) string {
	t.Helper()
	return must(t, world.python, "-c", `import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())`, "http://"+http+"/metrics")
}

func TestNothingGrowsOverAChurn(t *testing.T) {
	t.Parallel()
	http := "127.0.0.1:" + itoa(freePort(t))
	c := newCluster(t)
	a := c.start("a")
	b := c.start("b", "--http="+http)
	for i := range 20 {
		registered(t, a, fmt.Sprintf("f%d", i), 3*smallChunk, uint64(i))
	}
	churn := func(rounds int) {
		for round := range rounds {
			var cmds []*exec.Cmd
			for i := range 10 {
				cmds = append(cmds, exec.Command("cmp", c.src(fmt.Sprintf("f%d", i)), b.path(fmt.Sprintf("f%d", i))))
			}
			for _, r := range together(t, cmds...) {
				require.Zero(t, r.code, r.String())
			}
			for i := range 10 {
				if r := b.p2pfs("drop", b.path(fmt.Sprintf("f%d", i))); r.code != 0 {
					t.Logf("round %d: drop: %s", round, r)
				}
			}
			d := c.start(fmt.Sprintf("x%d", round))
			must(t, "cmp", c.src("f1"), d.path("f1"))
			d.stop()
			delete(c.nodes, d.name)
		}
	}
	churn(2)
	before := b.usage(http)
	churn(6)
	var after usage
	eventually(t, 3*time.Minute, fmt.Sprintf("back to about %+v (it is at %+v)", before, &after), func() bool {
		after = b.usage(http)
		return after.fds <= before.fds+5 && after.sockets <= before.sockets+4 && after.goroutines <= before.goroutines+15
	})
}

func TestMetricsAreServedAndAStrangerSeesNoSecretThere(t *testing.T) {
	t.Parallel()
	http := "127.0.0.1:" + itoa(freePort(t))
	c := newCluster(t)
	a := c.start("a")
	b := c.start("b", "--http="+http)
	const size = 10*smallChunk + 3
	registered(t, a, "f", size, 1)
	digest(t, b.path("f"))
	b.waitLocal("f")
	text := scrape(t, http)
	require.Contains(t, text, "p2pfs_")
	b.fetchedOnce(size)
	for range 20 { // scraped while read
		scraper := launch(t, exec.Command(world.python, "-c", `import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()`, "http://"+http+"/metrics"))
		digest(t, b.path("f"))
		require.Zero(t, scraper.finish(t, commandLimit).code)
	}
}

func TestManyMountsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var nodes []*node
	for i := range 8 {
		nodes = append(nodes, c.node(fmt.Sprintf("n%d", i)))
	}
	for range 2 {
		for _, n := range nodes {
			n.launch()
		}
		for _, n := range nodes {
			n.waitReady(readyBound)
		}
		for _, n := range nodes {
			n.stop()
		}
	}
}

func TestALargeDirectoryIsRegisteredAndListed(t *testing.T) {
	t.Parallel()
	const files = 5000
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	dir := c.src("many")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%05d", i)), []byte(itoa(i)), 0o644))
	}
	a.register(dir, "many")
	count := func(args ...string) string {
		return strings.TrimSpace(must(t, "sh", append([]string{"-c", `"$@" | wc -l`, "sh"}, args...)...))
	}
	require.Equal(t, itoa(files+2), count("ls", "-f", b.path("many")))
	require.Equal(t, itoa(files), count("ls", b.path("many")))
	require.Equal(t, itoa(files+1), count("ls", "-l", b.path("many")))
	must(t, "diff", "-r", dir, a.path("many"))
	r := b.p2pfs("unregister", b.path("many"))
	if r.code != 0 {
		a.must("unregister", a.path("many"))
	}
	eventually(t, time.Minute, "all gone", func() bool { return run(t, "ls", b.path("many")).code != 0 })
}
